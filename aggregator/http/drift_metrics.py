"""Metrics of drift: how many nodes differ, and each that does."""

from __future__ import annotations

from collections import Counter

from api.drift import DriftReply
from telemetry.wire.exposition import GAUGE, PREFIX, Family, labels

MOST_SERIES = 2000
"""Nodes that have a series of their own; `kilowatch_cluster_nodes_differing` counts all."""


def drift_families(reply: DriftReply | None, cluster: str) -> list[Family]:
    """Return the families of the last comparison; without samples before the first."""
    its = {"cluster": cluster}
    counts: Counter[str] = Counter()
    nodes: dict[str, set[str]] = {"declared": set(), "majority": set()}
    for group in () if reply is None else reply.groups:
        for one in group.deviations:
            counts[one.node] += 1
            nodes["declared" if one.declared else "majority"].add(one.node)
    differing = [] if reply is None else [(labels({**its, "by": by}), float(len(found))) for by, found in nodes.items()]
    return [
        Family(
            f"{PREFIX}cluster_nodes_differing",
            "Nodes with a fact that is another one than declared, or than that of most of their kind.",
            GAUGE,
            differing,
        ),
        Family(
            f"{PREFIX}node_deviations",
            "Facts in which a node differs; of nodes that differ alone.",
            GAUGE,
            [(labels({**its, "node": node}), float(count)) for node, count in sorted(counts.items())[:MOST_SERIES]],
        ),
    ]
