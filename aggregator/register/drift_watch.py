"""How long nodes have differed, and which of that is reported to people. Pure: times are arguments.

A deviation is reported once it has lasted; one of a version after a day, for a release is rolled out node by node,
and a kind that is mixed after a week. A node that sends nothing neither begins nor ends a deviation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from aggregator.register.facts import is_version
from api.drift import Deviation, DriftReply
from telemetry.errors import ConfigError
from telemetry.text import counted

SECOND = 10**9
MOST_FACTS = 5
"""Facts of a node that its alert names."""
KIND = "kind/"
"""Beginning of what is reported of a kind instead of a node."""
MOST_REPORTED = 2000
"""Nodes that are reported of at a time."""


class DriftConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a deviation is an alert."""

    alert: bool = True
    """Whether there are alerts at all; `kilowatch drift` and the metrics show deviations in any case."""
    hold_seconds: float = 600.0
    """How long a deviation lasts before it is an alert: a node that boots is not complete at once."""
    rollout_seconds: float = 86_400.0
    """The same for versions (driver, kernel, BIOS, firmware, kernel arguments): a release is rolled out node by
    node."""
    mixed_seconds: float = 7 * 86_400.0
    """How long a kind may be mixed, as during a roll-out, before that is an alert."""

    def check(self, where: str) -> None:
        """Raise `ConfigError` for times that can't be."""
        for name in ("hold_seconds", "rollout_seconds", "mixed_seconds"):
            if not 0 <= getattr(self, name) <= 366 * 86_400:
                raise ConfigError(f"{where}.{name}", "it must be 0 to a year, in seconds")

    def hold(self, fact: str) -> float:
        """Return how long a deviation of a fact lasts before it is an alert."""
        return max(self.hold_seconds, self.rollout_seconds) if is_version(fact) else self.hold_seconds


Since = dict[str, dict[str, int]]
"""When a fact of a node, or of a kind (`kind/...`), began to differ, ns since 1970."""


class DriftWatch:
    """Knows since when each deviation is there."""

    def __init__(self, since: Since | None = None) -> None:
        """`since`: as `since` was before a restart."""
        self.since: Since = since or {}
        self._reported: dict[str, str] = {}

    def update(self, reply: DriftReply, silent: Collection[str], config: DriftConfig, wall: int) -> dict[str, str]:
        """Note who differs now, and return what is reported: by node, or `kind/NAME`, the text. `silent`: nodes that
        send nothing now, of which nothing changes."""
        found: dict[str, dict[str, str]] = {}
        for group in reply.groups:
            for one in group.deviations:
                found.setdefault(one.node, {})[one.fact] = deviation_text(one)
            for mixed in group.mixed:
                values = ", ".join(f"{count} x {value}" for value, count in list(mixed.values.items())[:4])
                found.setdefault(f"{KIND}{group.name}", {})[mixed.fact] = f"{mixed.fact} is mixed: {values}"
        kept = {name: its for name, its in self.since.items() if name in silent}
        begun = {
            name: {fact: self.since.get(name, {}).get(fact, wall) for fact in facts}
            for name, facts in found.items()
            if name not in silent
        }
        self.since = {**begun, **kept}
        reported = {name: text for name, text in self._reported.items() if name in silent}
        for name, facts in begun.items():
            due = [
                fact
                for fact, at in facts.items()
                if wall - at >= (config.mixed_seconds if name.startswith(KIND) else config.hold(fact)) * SECOND
            ]
            if due and config.alert and len(reported) < MOST_REPORTED:
                reported[name] = _listed(due, found[name])
        self._reported = reported
        return reported

    def learn(self, since: Since) -> None:
        """Take over since when others know that facts differ, of those that differ here."""
        self.since = {
            name: {fact: min(at, since.get(name, {}).get(fact, at)) for fact, at in its.items()}
            for name, its in self.since.items()
        }


def _listed(due: list[str], texts: Mapping[str, str]) -> str:
    shown = "; ".join(texts[fact] for fact in due[:MOST_FACTS])
    more = f"; and {counted(len(due) - MOST_FACTS, 'other fact')}" if len(due) > MOST_FACTS else ""
    return f"{shown}{more}"


def deviation_text(one: Deviation) -> str:
    """Return a deviation in words: `driver 575.57.08 (499 of 500 have 580.126.09)`."""
    if one.declared:
        return f"{one.fact} {one.has} (declared: {one.most_have})"
    return f"{one.fact} {one.has} ({one.nodes} of {one.of} have {one.most_have})"
