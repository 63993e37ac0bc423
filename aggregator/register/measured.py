"""Nodes that measured less than nodes of their kind, by `kilowatch check --full`. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from statistics import median

from api.drift import Deviation
from present.units import rate_text
from telemetry.wire.inventory import MEASURED_FACT, Inventory

LEAST_NODES = 5
"""Nodes that measured it, fewer than which have no median."""
SLOW = 0.85
"""Share of the median below which a node is slow."""


def measured_of(inventory: Inventory) -> dict[str, float]:
    """Return what a node measured, by the word for it."""
    return {
        name.removeprefix(MEASURED_FACT): value
        for name, text in inventory.host.items()
        if name.startswith(MEASURED_FACT) and (value := _number(text)) is not None
    }


def slow_nodes(measured: Mapping[str, Mapping[str, float]]) -> Iterator[Deviation]:
    """Yield each node of a kind that measured clearly less than the median of those that measured it. `measured`: by
    node, as `measured_of` returns it."""
    for word in sorted({word for its in measured.values() for word in its}):
        values = {node: its[word] for node, its in measured.items() if word in its}
        if len(values) < LEAST_NODES:
            continue
        middle = median(values.values())
        usual = sum(value >= SLOW * middle for value in values.values())
        for node, value in values.items():
            if value < SLOW * middle:
                yield Deviation(
                    node=node,
                    fact=f"measured {word}",
                    has=rate_text(word, value),
                    most_have=f"{rate_text(word, middle)} (median)",
                    nodes=usual,
                    of=len(values),
                )


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None
