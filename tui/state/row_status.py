"""How a GPU, node or circuit is."""

from __future__ import annotations

from enum import IntEnum

from api.alerts import Alert


class RowStatus(IntEnum):
    """How a GPU or node is, worse with every step."""

    OK = 0
    STALE = 1
    """Nothing new came; what it was is not what it is."""
    WARN = 2
    CRIT = 3
    DOWN = 4
    """A GPU that is lost or hung, a node that is offline."""


def severity_of(alert: Alert) -> RowStatus:
    if alert.state != "firing":
        return RowStatus.OK
    return {"page": RowStatus.CRIT, "ticket": RowStatus.WARN}.get(alert.severity, RowStatus.OK)
