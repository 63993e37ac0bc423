"""The state of a node: whether its frames arrive, and how old the newest is."""

from __future__ import annotations

import math

from api.fleet import NodeStatus
from telemetry.fleet import STALE_INTERVALS, Node


def status_of(node: Node, now: float) -> NodeStatus:
    """Return the state of a node at `now`, the fleet's monotonic seconds."""
    if not node.online:
        return NodeStatus.OFFLINE
    return NodeStatus.ONLINE if fresh(node, now) else NodeStatus.STALE


def fresh(node: Node, now: float) -> bool:
    """Whether the newest frame is younger than three intervals."""
    return now - node.seen <= STALE_INTERVALS * node.interval


def age(node: Node, now: float) -> float | None:
    """Return the age of the newest frame in seconds, or None when there was none yet."""
    return None if math.isinf(node.seen) else max(0.0, round(now - node.seen, 3))
