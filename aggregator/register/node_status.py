"""The state of a node: whether its frames arrive, and how old the newest is."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np

from api.fleet import NodeStatus
from telemetry.fleet import STALE_INTERVALS, Fleet, Node


def status_of(node: Node, now: float) -> NodeStatus:
    """Return the state of a node at `now`, the fleet's monotonic seconds."""
    if node.unheard:
        return NodeStatus.UNHEARD
    if not node.online:
        return NodeStatus.OFFLINE
    return NodeStatus.ONLINE if fresh(node, now) else NodeStatus.STALE


def fresh(node: Node, now: float) -> bool:
    """Whether the newest frame is younger than three intervals."""
    return now - node.seen <= STALE_INTERVALS * node.interval


def age(node: Node, now: float) -> float | None:
    """Return the age of the newest frame in seconds, or None when there was none yet."""
    return age_of(node.seen, now)


def age_of(seen: float, now: float) -> float | None:
    """Return the age in seconds of what came at `seen`; None for minus infinity, where nothing came."""
    return None if math.isinf(seen) else max(0.0, round(now - seen, 3))


class NodeCounts(NamedTuple):
    """The states of all nodes."""

    expected: int
    """Nodes whose collector is online."""
    stale: list[str]
    """Expected nodes whose frames don't arrive."""
    seen: float
    """When the newest frame of any node came, monotonic seconds; minus infinity before the first."""


def count_nodes(fleet: Fleet, now: float) -> NodeCounts:
    """Return the states of all nodes at `now`, in one pass: a probe asks for them ten times a second, of
    20,000 nodes too."""
    rows, columns = fleet.node_rows(), fleet.columns
    seen, online = columns.seen[rows], columns.online[rows]
    stale = online & ~(now - seen <= STALE_INTERVALS * columns.interval[rows])
    names = itertools.compress(fleet.nodes, stale.tolist()) if stale.any() else ()
    return NodeCounts(int(np.count_nonzero(online)), list(names), float(seen.max(initial=-np.inf)))
