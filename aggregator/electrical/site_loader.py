"""The electrical configuration in force, and what is derived from it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from aggregator.electrical.energy_sampler import zone_of
from power.site.attach import attach
from power.site.config import PowerConfig
from power.site.decode import decode
from power.site.layout import SiteLayout, lay_out

log = logging.getLogger(__name__)

WHERE = "power"
"""Place named in errors where the file is not known."""

MOST_NOTICES = 10
"""Notes on a configuration that are logged when it is loaded."""


@dataclass(frozen=True, slots=True)
class LoadedSite:
    """A valid configuration, and what is derived from it."""

    tree: Mapping[str, Any]
    config: PowerConfig
    layout: SiteLayout | None
    """None where no circuit is configured."""
    zone: tzinfo
    """Of its tariffs, days and months: configured, else the machine's."""
    metered: frozenset[tuple[str, str]]
    """Kind and name of everything that has a configured meter."""


def load_site(where: str, tree: Mapping[str, Any]) -> LoadedSite:
    """Return the site of a configuration. Raises `ConfigError` with place and cure."""
    site = decode(where, {"power": dict(tree)})
    layout = lay_out(where, site) if site.circuits or site.panels else None
    metered = {
        (attachment.kind, attachment.target) for meter in attach(where, site) for attachment in meter.attachments
    }
    zone = zone_of(where, site.site.timezone)
    return LoadedSite(tree, site, layout, zone, frozenset(metered))


def log_notices(site: LoadedSite) -> None:
    """Log what a configuration allows and probably does not mean (E24)."""
    notices = () if site.layout is None else site.layout.notices
    for notice in notices[:MOST_NOTICES]:
        log.warning("power: %s (E24)", notice)
    if len(notices) > MOST_NOTICES:
        log.warning("power: and %d more notes (E24); /api/v1/power has all", len(notices) - MOST_NOTICES)
