"""The status of a row: a GPU, node or circuit."""

from __future__ import annotations

from enum import IntEnum

from api.alerts import Alert


class RowStatus(IntEnum):
    """Status of a GPU, node or circuit, worse with every step."""

    OK = 0
    STALE = 1
    """Its last reading is old."""
    WARN = 2
    CRIT = 3
    DOWN = 4
    """A GPU that is lost or hung, a node that is offline."""


def severity_of(alert: Alert) -> RowStatus:
    if alert.state != "firing":
        return RowStatus.OK
    return {"page": RowStatus.CRIT, "ticket": RowStatus.WARN}.get(alert.severity, RowStatus.OK)
