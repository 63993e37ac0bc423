"""How a node stands: whether its frames arrive, and how old the newest is."""

from __future__ import annotations

import math
from enum import StrEnum

from telemetry.fleet import STALE_INTERVALS, Node


class NodeStanding(StrEnum):
    """What an operator calls a node's state."""

    ONLINE = "online"
    """Its collector says that it is there, and its newest frame is younger than 3 intervals."""
    STALE = "stale"
    """Its collector says that it is there, but its frames do not arrive."""
    OFFLINE = "offline"
    """Its collector has said good-bye, or the broker says so for it."""


def standing(node: Node, now: float) -> NodeStanding:
    """Return how a node stands at `now`, the fleet's monotonic seconds."""
    if not node.online:
        return NodeStanding.OFFLINE
    return NodeStanding.ONLINE if fresh(node, now) else NodeStanding.STALE


def fresh(node: Node, now: float) -> bool:
    """Whether the newest frame is younger than three intervals."""
    return now - node.seen <= STALE_INTERVALS * node.interval


def age(node: Node, now: float) -> float | None:
    """Return the age of the newest frame in seconds, or None when there was none yet."""
    return None if math.isinf(node.seen) else max(0.0, round(now - node.seen, 3))
