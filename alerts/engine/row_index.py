"""Who stands in which row, as the rules last saw it, and what has changed since.

The fleet gives a device another row when its node changes, and gives a free row to another device;
a power snapshot's rows are others when the configuration was read anew. An alert must never jump from one
GPU to its neighbour, so every memory follows the device.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from alerts.engine.row_memory import Index, RowChange
from alerts.engine.subjects import DeviceSubject, RowSubject, SnapshotSubject
from api.power import SnapshotKind
from power.snapshot.snapshot import PowerSnapshot
from telemetry.fleet import Fleet, Node
from telemetry.inventory import Inventory
from telemetry.metric import Table


@dataclass(slots=True)
class _Placed:
    inventory: Inventory
    rows: dict[Table, slice]


@dataclass(slots=True)
class RowIndex:
    """The devices of the fleet."""

    version: int = -1
    owner: dict[Table, Index] = field(
        default_factory=lambda: {table: np.zeros(0, np.intp) for table in Table}
    )
    """For each row of a table, the row of what holds it: link in GPU, GPU in node, node itself."""
    arrived: list[str] = field(default_factory=list)
    """Nodes whose inventory is another than at the update before."""
    states: dict[str, Index] = field(default_factory=dict)
    """Rows of the nodes whose driver is in each state."""
    _placed: dict[str, _Placed] = field(default_factory=dict)

    def update(self, fleet: Fleet) -> dict[Table, RowChange] | None:
        """Return what has changed since the last call, or None when nothing has.

        Costs one comparison a node, and work only for the devices of nodes that did change.
        """
        self.arrived = []
        if fleet.version == self.version:
            return None
        self.version = fleet.version
        before = self._placed
        changed = self.arrived = [
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
        self._drivers()
        for table in Table:
            self._own(fleet, table, changed)
        return result

    def drivers(self, states: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Nodes whose driver is in one of some states."""
        found = np.zeros(len(self.owner[Table.NODE]), np.bool_)
        for state in states:
            found[self.states.get(state, [])] = True
        return found

    def _drivers(self) -> None:
        rows: dict[str, list[int]] = {}
        for placed in self._placed.values():
            host = placed.rows[Table.NODE].start
            rows.setdefault(placed.inventory.driver_state, []).append(host)
        self.states = {state: np.array(found, np.intp) for state, found in rows.items()}

    def _change(
        self, fleet: Fleet, table: Table, changed: list[str], removed: list[str]
    ) -> RowChange:
        old: list[int] = []
        new: list[int] = []
        touched: list[int] = []
        gone: list[tuple[int, RowSubject]] = []
        for name in [*changed, *removed]:
            node, was = fleet.nodes.get(name), self._placed.get(name)
            there = {} if node is None else devices(node.inventory, node.rows[table], table)
            touched.extend(there.values())
            if was is None:
                continue
            for position, (key, row) in enumerate(
                devices(was.inventory, was.rows[table], table).items()
            ):
                touched.append(row)
                if key in there:
                    old.append(row)
                    new.append(there[key])
                else:
                    gone.append((row, DeviceSubject(was.inventory, table, position)))
        return RowChange(
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


class SnapshotRowIndex:
    """The lines of the power snapshots."""

    def __init__(self) -> None:
        self.known: dict[SnapshotKind, PowerSnapshot] = {}
        """Each power snapshot as it was last seen."""

    def update(self, snapshot: PowerSnapshot) -> RowChange | None:
        """Return what has changed on a power snapshot since it was last seen, or None when nothing has."""
        was = self.known.get(snapshot.kind)
        self.known[snapshot.kind] = snapshot
        if was is not None and was.version == snapshot.version and was.names == snapshot.names:
            return None
        there = {name: row for row, name in enumerate(snapshot.names)}
        before = () if was is None else was.names
        kept = [(row, there[name]) for row, name in enumerate(before) if name in there]
        return RowChange(
            len(snapshot.names),
            np.array([old for old, _ in kept], np.intp),
            np.array([new for _, new in kept], np.intp),
            np.arange(max(len(before), len(snapshot.names))),
            [
                (row, line_of(was, row))
                for row, name in enumerate(before)
                if was is not None and name not in there
            ],
        )


def line_of(snapshot: PowerSnapshot, row: int) -> SnapshotSubject:
    """Return what stands in a row of a power snapshot."""
    facts = snapshot.facts[row] if row < len(snapshot.facts) else {}
    return SnapshotSubject(snapshot.kind, snapshot.names[row], facts)


def spot_of(fleet: Fleet, table: Table, row: int) -> DeviceSubject | None:
    """Return the device that stands in a row of the fleet; None for a free row."""
    match table:
        case Table.NODE:
            name = fleet.hosts[row]
        case Table.GPU:
            name = (fleet.gpus[row] or (None,))[0]
        case Table.LINK:
            name = (fleet.links[row] or (None,))[0]
    if name is None:
        return None
    node = fleet.nodes[name]
    return DeviceSubject(node.inventory, table, row - node.rows[table].start)


def devices(inventory: Inventory, rows: slice, table: Table) -> dict[Hashable, int]:
    """Row of each device of a node, in the order of the rows."""
    keys: list[Hashable]
    match table:
        case Table.GPU:
            keys = [gpu.uuid for gpu in inventory.gpus]
        case Table.LINK:
            keys = [f"{link.gpu}/{link.number}" for link in inventory.links]
        case Table.NODE:
            keys = ["node"]
    return dict(zip(keys, range(rows.start, rows.stop), strict=False))


def _owners(node: Node, table: Table) -> int | list[int]:
    host: int = node.rows[Table.NODE].start
    if table is not Table.LINK:
        return host
    first: int = node.rows[Table.GPU].start
    row_of = {gpu.uuid: first + offset for offset, gpu in enumerate(node.inventory.gpus)}
    return [row_of.get(link.gpu, first) for link in node.inventory.links]
