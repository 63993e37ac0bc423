"""The `[alerts]` section: who is told, how, and when."""

from __future__ import annotations

import msgspec


class AlertsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of it; without channels alerts are stored and shown, and nobody is told."""

    external_url: str = ""
    """Where people reach the aggregator's pages; links in pages begin with it. [http of `listen`]"""
    runbook_url: str = ""
    """Begins the links to runbooks; `#<anchor>` is added. [docs of this release]"""
    dashboard_url: str = ""
    """Template of the links to dashboards, with `{node}`, `{gpu}`, `{circuit}`."""

    def check(self) -> None:
        """Raise `ConfigError` for what can't work."""
