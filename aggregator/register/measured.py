"""Nodes that measured less than nodes of their kind, by `kilowatch check --full`. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median

from api.drift import Deviation
from present.units import rate_text
from telemetry.wire.inventory import MEASURED_FACT, Inventory

LEAST_NODES = 5
"""Nodes that measured it, fewer than which have no median."""
SLOW = 0.85
"""Share of the median below which a node is slow."""


def slow_nodes(inventories: Sequence[Inventory]) -> Iterator[Deviation]:
    """Yield each node of a kind that measured clearly less than the median of those that measured it."""
    names = sorted(
        {name for its in inventories for name in its.host if name.startswith(MEASURED_FACT)}
    )
    for name in names:
        values = {
            its.node: value
            for its in inventories
            if (value := _number(its.host.get(name, ""))) is not None
        }
        if len(values) < LEAST_NODES:
            continue
        middle, word = median(values.values()), name.removeprefix(MEASURED_FACT)
        usual = sum(value >= SLOW * middle for value in values.values())
        for node, value in values.items():
            if value < SLOW * middle:
                yield Deviation(
                    node=node, fact=f"measured {word}", has=rate_text(word, value),
                    most_have=f"{rate_text(word, middle)} (median)", nodes=usual, of=len(values),
                )  # fmt: skip


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None
