"""What a condition may ask to know whether a device is under load."""

from __future__ import annotations

from collections.abc import Iterator

from alerts.engine.row_memory import RowMemory
from alerts.rules.condition import BAD, ConditionInput, Flags
from alerts.rules.formula import Formula
from alerts.rules.levels import Above, Below, In

Gate = Above | Below | In | Formula
"""Conditions on what is now; `expr` joins several."""


def is_open(gate: Gate | None, sight: ConditionInput, rows: RowMemory) -> Flags | None:
    """Return the rows in which it is so; None when that is not asked."""
    if gate is None:
        return None
    there: Flags = gate.judge(sight, rows).verdicts == BAD
    return there


def under(gate: Gate | None, metric: str) -> Iterator[str]:
    """Return what a condition on a metric reads: the metric, and what the load is told by."""
    yield metric
    if gate is not None:
        yield from gate.metrics()
