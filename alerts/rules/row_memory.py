"""Memory of a condition: arrays with one entry a row, which follow the devices when rows move.

`alerts.engine.row_index` finds which rows have moved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]
"""float32 or float64, one entry a row."""
Flags = npt.NDArray[np.bool_]
Index = npt.NDArray[np.intp]


@dataclass(slots=True)
class RowMove:
    """How the rows of one table or snapshot have changed."""

    size: int
    old: Index
    """Rows whose device still exists ..."""
    new: Index
    """... and the rows that these devices have now."""
    touched: Index
    """Rows whose device may have changed, before and after."""


def of_holders(values: Floats | Flags | Index, holders: Index, absent: float) -> npt.NDArray[Any]:
    """Return the value of each row's holder, `absent` for a row that has none (-1)."""
    return np.append(values, np.array([absent], values.dtype))[holders]


class RowMemory:
    """Named arrays whose last axis is the rows of one table; new rows hold a fill value."""

    def __init__(self, size: int = 0) -> None:
        self.size = size
        self._arrays: dict[str, npt.NDArray[Any]] = {}
        self._fills: dict[str, Any] = {}
        self._parts: list[RowMemory] = []
        self.moments: list[float] = []
        """Monotonic seconds that concern every row: when a ring was advanced."""
        self.state: dict[str, Any] = {}
        """Other values that concern every row."""
        self.notes: dict[int, Any] = {}
        """Values that only a few rows have, by row."""

    def part(self, number: int) -> RowMemory:
        """Return the memory of one part of a condition, apart from those of its other parts."""
        while len(self._parts) <= number:
            self._parts.append(RowMemory(self.size))
        return self._parts[number]

    def array(self, name: str, dtype: npt.DTypeLike, fill: float, depth: int | None = None) -> npt.NDArray[Any]:
        """Return an array of shape (size,), or (depth, size); made at the first call."""
        if name not in self._arrays:
            shape = (self.size,) if depth is None else (depth, self.size)
            self._arrays[name] = np.full(shape, fill, dtype)
            self._fills[name] = fill
        return self._arrays[name]

    def __contains__(self, name: str) -> bool:
        """Return whether an array was made."""
        return name in self._arrays

    @property
    def bytes(self) -> int:
        """Bytes of all arrays, to plan the memory of a large fleet."""
        own = sum(array.nbytes for array in self._arrays.values())
        return own + sum(part.bytes for part in self._parts)

    def move(self, change: RowMove) -> None:
        """Move the entries of each device to its new row; all other rows restart."""
        for name, array in self._arrays.items():
            kept = array[..., change.old].copy()
            fill = self._fills[name]
            if change.size != array.shape[-1]:
                other = np.full((*array.shape[:-1], change.size), fill, array.dtype)
                common = min(change.size, array.shape[-1])
                other[..., :common] = array[..., :common]
                array = self._arrays[name] = other  # noqa: PLW2901 - the array under its name
            array[..., change.touched[change.touched < change.size]] = fill
            array[..., change.new] = kept
        if self.notes:
            moved = dict(zip(change.old.tolist(), change.new.tolist(), strict=True))
            touched = set(change.touched.tolist())
            self.notes = {
                moved.get(row, row): note for row, note in self.notes.items() if row in moved or row not in touched
            }
        for part in self._parts:
            part.move(change)
        self.size = change.size
