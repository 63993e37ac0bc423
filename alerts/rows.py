"""What a rule remembers of each device, and how that follows the device when rows move.

The fleet gives a device another row when its node changes, and gives a free row to another device.
`Rows` holds arrays with one entry a row; `Census` notices which rows have got another meaning, so
that an alert never jumps from one GPU to its neighbour.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from telemetry.fleet import Fleet, Node
from telemetry.inventory import Inventory
from telemetry.metric import Table

Index = npt.NDArray[np.intp]


class Rows:
    """Named arrays whose last axis is the rows of one table; new rows hold a fill value."""

    def __init__(self, size: int = 0) -> None:
        self.size = size
        self._arrays: dict[str, npt.NDArray[Any]] = {}
        self._fills: dict[str, Any] = {}
        self._parts: list[Rows] = []
        self.moments: list[float] = []
        """Monotonic seconds that concern all rows alike: when a ring was turned."""

    def part(self, number: int) -> Rows:
        """Return the memory of one part of a condition, apart from those of its other parts."""
        while len(self._parts) <= number:
            self._parts.append(Rows(self.size))
        return self._parts[number]

    def array(
        self, name: str, dtype: npt.DTypeLike, fill: float, depth: int | None = None
    ) -> npt.NDArray[Any]:
        """Return an array of shape (size,), or (depth, size); made at the first call."""
        if name not in self._arrays:
            shape = (self.size,) if depth is None else (depth, self.size)
            self._arrays[name] = np.full(shape, fill, dtype)
            self._fills[name] = fill
        return self._arrays[name]

    def move(self, size: int, old: Index, new: Index, touched: Index) -> None:
        """Let the entries of rows `old` stand in rows `new`; all else in `touched` starts anew."""
        for name, array in self._arrays.items():
            kept = array[..., old].copy()
            fill = self._fills[name]
            if size > array.shape[-1]:
                larger = np.full((*array.shape[:-1], size), fill, array.dtype)
                larger[..., : array.shape[-1]] = array
                array = self._arrays[name] = larger  # noqa: PLW2901 - the array under its name
            array[..., touched] = fill
            array[..., new] = kept
        for part in self._parts:
            part.move(size, old, new, touched)
        self.size = size


@dataclass(slots=True)
class Change:
    """What one table's rows have become."""

    size: int
    old: Index
    """Rows whose device is still there ..."""
    new: Index
    """... and the rows where it stands now."""
    touched: Index
    """All rows whose meaning may have changed, before and after."""
    gone: list[tuple[int, Inventory, int]]
    """Row, inventory and position in it of every device that is no longer there."""


@dataclass(slots=True)
class _Placed:
    inventory: Inventory
    rows: dict[Table, slice]


@dataclass(slots=True)
class Census:
    """Who stands where, as the rules last saw it."""

    version: int = -1
    owner: dict[Table, Index] = field(
        default_factory=lambda: {table: np.zeros(0, np.intp) for table in Table}
    )
    """For each row of a table, the row of what holds it: link in GPU, GPU in node."""
    _placed: dict[str, _Placed] = field(default_factory=dict)

    def update(self, fleet: Fleet) -> dict[Table, Change] | None:
        """Return what has changed since the last call, or None when nothing has.

        Costs one comparison a node, and work only for the devices of nodes that did change.
        """
        if fleet.version == self.version:
            return None
        self.version = fleet.version
        before = self._placed
        changed = [
            name
            for name, node in fleet.nodes.items()
            if (was := before.get(name)) is None
            or was.inventory is not node.inventory
            or was.rows != node.rows
        ]
        removed = [name for name in before if name not in fleet.nodes]
        result = {table: self._change(fleet, table, changed, removed) for table in Table}
        for name in removed:
            del before[name]
        for name in changed:
            node = fleet.nodes[name]
            before[name] = _Placed(node.inventory, dict(node.rows))
        for table in (Table.GPU, Table.LINK):
            self._own(fleet, table, changed)
        return result

    def _change(self, fleet: Fleet, table: Table, changed: list[str], removed: list[str]) -> Change:
        old: list[int] = []
        new: list[int] = []
        touched: list[int] = []
        gone: list[tuple[int, Inventory, int]] = []
        for name in [*changed, *removed]:
            node, was = fleet.nodes.get(name), self._placed.get(name)
            there = {} if node is None else _devices(node.inventory, node.rows[table], table)
            touched.extend(there.values())
            if was is None:
                continue
            for position, (key, row) in enumerate(
                _devices(was.inventory, was.rows[table], table).items()
            ):
                touched.append(row)
                if key in there:
                    old.append(row)
                    new.append(there[key])
                else:
                    gone.append((row, was.inventory, position))
        return Change(
            fleet.size(table),
            np.array(old, np.intp),
            np.array(new, np.intp),
            np.array(touched, np.intp),
            gone,
        )

    def _own(self, fleet: Fleet, table: Table, changed: list[str]) -> None:
        owner = self.owner[table]
        size = fleet.size(table)
        if size > len(owner):
            larger = np.zeros(size, np.intp)
            larger[: len(owner)] = owner
            owner = self.owner[table] = larger
        for name in changed:
            node = fleet.nodes[name]
            rows = node.rows[table]
            if rows.stop > rows.start:
                owner[rows] = _owners(node, table)


def _devices(inventory: Inventory, rows: slice, table: Table) -> dict[Hashable, int]:
    """Row of each device of a node, in the order of the rows."""
    keys: list[Hashable]
    match table:
        case Table.GPU:
            keys = [gpu.uuid for gpu in inventory.gpus]
        case Table.LINK:
            keys = [(link.gpu, link.number) for link in inventory.links]
        case Table.NODE:
            keys = [inventory.node]
    return dict(zip(keys, range(rows.start, rows.stop), strict=False))


def _owners(node: Node, table: Table) -> int | list[int]:
    host: int = node.rows[Table.NODE].start
    if table is Table.GPU:
        return host
    first: int = node.rows[Table.GPU].start
    row_of = {gpu.uuid: first + offset for offset, gpu in enumerate(node.inventory.gpus)}
    return [row_of.get(link.gpu, first) for link in node.inventory.links]
