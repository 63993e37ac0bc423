"""Isolation of faults in the electrical state: each costs a meter, a node, a UPS, a budget or a circuit.

A tick computes all circuits in array operations, so an exception names no circuit. The nodes and meters
whose readings cause it are then found by halves, on copies of the state, and count as unknown until
their next try.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np

from power.live.inputs import PowerInputs

T = TypeVar("T")


def without_nodes(tick: PowerInputs, rows: Sequence[int]) -> PowerInputs:
    """Return the inputs as if some machines had never reported."""
    if not rows:
        return tick
    at, unknown = np.array(rows, np.int64), PowerInputs.unknown(len(tick.gpu_watts))
    blank: dict[str, Any] = {}
    for field in fields(PowerInputs):
        nothing = getattr(unknown, field.name)
        if isinstance(nothing, np.ndarray):
            values = np.array(getattr(tick, field.name), copy=True)
            values[at] = nothing[at]
            blank[field.name] = values
    return replace(tick, **blank)


def culprits(names: Sequence[T], works_without: Callable[[Collection[T]], bool]) -> list[T]:
    """Return the names without which it works, found by halves; none where it does not work without
    all of them either."""
    if not names or not works_without(names):
        return []
    found = list(names)
    size = (len(found) + 1) // 2
    while size:
        start = 0
        while start < len(found):
            fewer = found[:start] + found[start + size :]
            if works_without(fewer):
                found = fewer
            else:
                start += size
        size = 0 if size == 1 else (size + 1) // 2
    return found


def copied(state: T, shared: Sequence[object], replaced: Sequence[tuple[object, object]]) -> T:
    """Return a copy of a state for a trial; what never changes is shared, and what is large or has a
    file behind it is replaced."""
    others = {id(one): other for one, other in replaced}
    return copy.deepcopy(state, {id(one): one for one in shared} | others)
