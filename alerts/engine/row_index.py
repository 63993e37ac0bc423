"""Devices by row as the rules last saw them, and the changes since.

The fleet gives a device another row when its node changes, and gives a free row to another device;
the rows of a snapshot change when the configuration is read again. An alert must never jump from
one GPU to its neighbour, so every memory follows the device.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from alerts.engine.isolation import NodeFaults
from alerts.engine.subjects import DeviceSubject, RowSubject, SnapshotSubject
from alerts.rules.row_memory import Index, RowMove
from api.power import SnapshotKind
from power.snapshot.snapshot import PowerSnapshot
from telemetry.fleet import Fleet, Node
from telemetry.metric import Table
from telemetry.wire.inventory import Inventory
from telemetry.wire.tables import KINDS


@dataclass(slots=True)
class _Placed:
    inventory: Inventory
    rows: dict[Table, slice]


@dataclass(slots=True)
class RowChange(RowMove):
    """A move of rows, with the devices that no longer exist."""

    gone: list[tuple[int, RowSubject]]
    """Row and subject."""


@dataclass(slots=True)
class RowIndex:
    """Rows of the devices of the fleet."""

    version: int = -1
    owner: dict[Table, Index] = field(default_factory=lambda: {table: np.full(0, -1, np.intp) for table in Table})
    """For each row of a table, the row of its holder: a link's GPU, the node of a GPU, port or MIG instance, the node itself;
    -1 for a row without one."""
    arrived: list[str] = field(default_factory=list)
    """Nodes whose inventory has changed since the update before."""
    states: dict[str, Index] = field(default_factory=dict)
    """Rows of the nodes whose driver is in each state."""
    _placed: dict[str, _Placed] = field(default_factory=dict)

    def update(self, fleet: Fleet) -> dict[Table, RowChange] | None:
        """Return the changes since the last call, or None without any.

        Costs one comparison a node, and work only for the devices of nodes that did change. Raises
        `NodeFaults` for nodes whose devices can't be placed; nothing has changed then.
        """
        self.arrived = []
        if fleet.version == self.version:
            return None
        before = self._placed
        changed = [
            name
            for name, node in fleet.nodes.items()
            if (was := before.get(name)) is None or was.inventory is not node.inventory or was.rows != node.rows
        ]
        removed = [name for name in before if name not in fleet.nodes]
        try:
            result = {table: self._change(fleet, table, changed, removed) for table in Table}
            for name in removed:
                for table, owner in self.owner.items():
                    owner[before[name].rows[table]] = -1  # it must not name a row that is gone
            for table in Table:
                self._own(fleet, table, changed)
        except Exception as error:
            NodeFaults.blame(changed, lambda name: self._check(fleet, name), error)
            raise
        gone = set(removed)
        placed = {name: was for name, was in before.items() if name not in gone}
        for name in changed:
            node = fleet.nodes[name]
            placed[name] = _Placed(node.inventory, dict(node.rows))
        self.states = _drivers(placed)
        self._placed, self.version, self.arrived = placed, fleet.version, changed
        return result

    def _check(self, fleet: Fleet, name: str) -> None:
        """Raise what placing this node alone raises."""
        for table in Table:
            self._change(fleet, table, [name], [])
            self._own(fleet, table, [name])

    def has(self, node: str) -> bool:
        """Return whether a node has rows."""
        return node in self._placed

    def drivers(self, states: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Return the nodes whose driver is in one of some states."""
        found = np.zeros(len(self.owner[Table.NODE]), np.bool_)
        for state in states:
            found[self.states.get(state, [])] = True
        return found

    def _change(self, fleet: Fleet, table: Table, changed: list[str], removed: list[str]) -> RowChange:
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
            touched.extend(range(was.rows[table].start, was.rows[table].stop))
            for position, (key, row) in enumerate(_devices_before(was, table).items()):
                if key in there:
                    old.append(row)
                    new.append(there[key])
                else:
                    gone.append((row, DeviceSubject(was.inventory, table, position)))
        return RowChange(
            fleet.size(table), np.array(old, np.intp), np.array(new, np.intp), np.array(touched, np.intp), gone
        )

    def _own(self, fleet: Fleet, table: Table, changed: list[str]) -> None:
        owner = self.owner[table]
        size = fleet.size(table)
        if size > len(owner):
            larger = np.full(size, -1, np.intp)
            larger[: len(owner)] = owner
            owner = self.owner[table] = larger
        for name in changed:
            node = fleet.nodes[name]
            rows = node.rows[table]
            if rows.stop > rows.start:
                owner[rows] = found = _owners(node, table)
                if table is Table.LINK and max(found) >= fleet.size(Table.GPU):
                    raise IndexError("a link belongs to no GPU of the inventory")


class SnapshotRowIndex:
    """Rows of the snapshots."""

    def __init__(self) -> None:
        self.known: dict[SnapshotKind, PowerSnapshot] = {}
        """The last snapshot of each kind."""

    def update(self, snapshot: PowerSnapshot) -> RowChange | None:
        """Return the changes of a snapshot's rows since the last call, or None without any."""
        was = self.known.get(snapshot.kind)
        change = self._change(snapshot, was)
        self.known[snapshot.kind] = snapshot
        return change

    def _change(self, snapshot: PowerSnapshot, was: PowerSnapshot | None) -> RowChange | None:
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
                (row, snapshot_subject(was, row))
                for row, name in enumerate(before)
                if was is not None and name not in there
            ],
        )


def snapshot_subject(snapshot: PowerSnapshot, row: int) -> SnapshotSubject:
    """Return the subject of a row of a snapshot."""
    facts = snapshot.facts[row] if row < len(snapshot.facts) else {}
    return SnapshotSubject(snapshot.kind, snapshot.names[row], facts)


def device_subject(fleet: Fleet, table: Table, row: int) -> DeviceSubject | None:
    """Return the device of a row of the fleet; None for a free row."""
    entry = fleet.devices[table][row]
    if entry is None:
        return None
    node = fleet.nodes[entry[0]]
    return DeviceSubject(node.inventory, table, row - node.rows[table].start)


def devices(inventory: Inventory, rows: slice, table: Table) -> dict[Hashable, int]:
    """Return the row of each device of a node, in the order of the rows."""
    keys: Sequence[Hashable] = ["node"] if table is Table.NODE else KINDS[table].keys(inventory)
    return dict(zip(keys, range(rows.start, rows.stop), strict=False))


def _devices_before(was: _Placed, table: Table) -> dict[Hashable, int]:
    """Return the devices that a node had; none where they can't be found any more: its rows are given
    back all the same."""
    try:
        return devices(was.inventory, was.rows[table], table)
    except Exception:  # noqa: BLE001 - the node is set aside by now, and its alerts with it
        return {}


def _drivers(placed: Mapping[str, _Placed]) -> dict[str, Index]:
    """Return the rows of the nodes whose driver is in each state."""
    rows: dict[str, list[int]] = {}
    for one in placed.values():
        rows.setdefault(one.inventory.driver_state, []).append(one.rows[Table.NODE].start)
    return {state: np.array(found, np.intp) for state, found in rows.items()}


def _owners(node: Node, table: Table) -> list[int]:
    host: int = node.rows[Table.NODE].start
    if table is not Table.LINK:
        rows = node.rows[table]
        return [host] * (rows.stop - rows.start)
    first: int = node.rows[Table.GPU].start
    row_of = {gpu.uuid: first + offset for offset, gpu in enumerate(node.inventory.gpus)}
    return [row_of.get(link.gpu, -1) for link in node.inventory.links]
