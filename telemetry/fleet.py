"""The fleet: a matrix of the newest frames, one row a device, one column a metric.

Rules, the metrics page, the dashboard and the API are views of it. A node's devices are in
adjoining rows, so a frame is stored with one slice copy, and a whole tick with one scatter.
Absent values are NaN with a reason, as on the wire (`telemetry.gap`); what is older than three
intervals reads as the gap `stale`. Not thread-safe: one loop owns it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from telemetry.devices import Gpu
from telemetry.gap import REASON_MASK, Gap, bits32, gap
from telemetry.metric import Lane, Table
from telemetry.wire.inventory import Inventory
from telemetry.wire.schema import SCHEMA, Block
from telemetry.wire.tables import KINDS

T = TypeVar("T")
STALE_INTERVALS = 3.0
"""Intervals after which a value is stale."""

_GROWTH = 8
"""A matrix grows by its size divided by this: each row is copied eight times in all, not once as by doubling, and no more
than an eighth is empty. A row of a GPU takes 1.2 kB."""
Floats = npt.NDArray[np.float32] | npt.NDArray[np.float64]
_SPARE_ROWS = 16
"""Rows beyond a multiple of twice as many. Columns whose distance is a power of two share few lines of the processor's
caches: a row would be stored four times as slowly. So it is an odd number of lines."""
StaleRows = dict[int, npt.NDArray[np.bool_] | None]
"""Stale rows of each block at one instant, as far as they were asked for."""


def gaps_of(values: Floats) -> npt.NDArray[np.uint8]:
    """Return the reason of every absent value as a `Gap` number, 255 for a value. Same shape."""
    if values.dtype == np.float32:
        bits = values.view(np.uint32)
    else:  # the reason sits where a cast to float32 would keep it: telemetry.gap
        bits = (values.view(np.uint64) >> np.uint64(29)).astype(np.uint32)
    return np.where(np.isnan(values), bits & np.uint32(REASON_MASK), 255).astype(np.uint8)


def gaps32(shape: tuple[int, ...], reason: Gap, order: Literal["C", "F"] = "C") -> npt.NDArray[np.float32]:
    """Return an array of gaps of one reason, for gauges."""
    return np.full(shape, bits32(reason), np.uint32, order).view(np.float32)


def gaps64(shape: tuple[int, ...], reason: Gap, order: Literal["C", "F"] = "C") -> npt.NDArray[np.float64]:
    """Return an array of gaps of one reason, for counters."""
    return np.full(shape, gap(reason), np.float64, order)


@dataclass(slots=True)
class Matrix:
    """The newest readings of one block (table and lane), all nodes; grows by an eighth.

    A metric's values adjoin each other: the rules read over two hundred columns a second, and each frame is stored once.
    """

    block: Block
    gauges: npt.NDArray[np.float32]
    counters: npt.NDArray[np.float64]
    seen: npt.NDArray[np.float64]
    """Time at which each row was last stored, in the owner's monotonic seconds; -inf for never."""
    max_age: npt.NDArray[np.float64]
    """Seconds after which a row of this block is stale."""
    columns: dict[str, int]

    @classmethod
    def of(cls, block: Block, capacity: int = 64) -> Matrix:
        """Make an empty matrix for a block."""
        rows = capacity + -capacity % (2 * _SPARE_ROWS) + _SPARE_ROWS
        return cls(
            block,
            gaps32((rows, len(block.gauges)), Gap.NOT_READ, "F"),
            gaps64((rows, len(block.counters)), Gap.NOT_READ, "F"),
            np.full(rows, -np.inf),
            np.full(rows, STALE_INTERVALS),
            {name: number for number, name in enumerate(block.names)},
        )

    def grow(self, capacity: int) -> None:
        """Make room for at least `capacity` rows."""
        if capacity <= len(self.seen):
            return
        rows = len(self.seen)
        other = Matrix.of(self.block, max(capacity, rows + rows // _GROWTH))
        for name in ("gauges", "counters", "seen", "max_age"):
            getattr(other, name)[:rows] = getattr(self, name)
            setattr(self, name, getattr(other, name))

    def clear(self, rows: slice) -> None:
        """Make rows unread again."""
        self.gauges[rows] = gaps32((1,), Gap.NOT_READ)
        self.counters[rows] = gaps64((1,), Gap.NOT_READ)
        self.seen[rows] = -np.inf

    def stale(self, count: int, now: float) -> npt.NDArray[np.bool_] | None:
        """Return which of the first `count` rows are stale; None where none is."""
        seen = self.seen[:count]
        stale: npt.NDArray[np.bool_] = (now - seen > self.max_age[:count]) & (seen > -np.inf)
        return stale if np.count_nonzero(stale) else None

    def column(self, name: str, count: int, stale: npt.NDArray[np.bool_] | None) -> Floats:
        """Return one metric of the first `count` rows; values of `stale` rows are gaps. Read-only: where none is
        stale, it is the matrix's own column, which the next frame changes."""
        number = self.columns[name]
        split = len(self.block.gauges)
        values: Floats = self.gauges[:count, number] if number < split else self.counters[:count, number - split]
        if stale is not None:
            values = values.copy()
            values[stale] = gap(Gap.STALE)
        values.flags.writeable = False
        return values


class NodeColumns:
    """The state of each node, by its row in the table of nodes: an array an attribute."""

    __slots__ = "clock_offset", "interval", "online", "sampled_at", "seen", "seq", "session"

    def __init__(self, rows: int = 64) -> None:
        self.interval = np.ones(rows)
        self.online = np.zeros(rows, np.bool_)
        self.seen = np.full(rows, -np.inf)
        self.sampled_at = np.zeros(rows, np.int64)
        self.clock_offset = np.zeros(rows, np.int64)
        self.session = np.zeros(rows, np.int64)
        self.seq = np.full(rows, -1, np.int64)

    def grow(self, capacity: int) -> None:
        """Make room for at least `capacity` rows."""
        rows = len(self.seen)
        if capacity > rows:
            other = NodeColumns(max(capacity, 2 * rows))
            for name in self.__slots__:
                getattr(other, name)[:rows] = getattr(self, name)
                setattr(self, name, getattr(other, name))

    def copy_row(self, row: int, other: NodeColumns, at: int) -> None:
        """Make a row that of another."""
        for name in self.__slots__:
            getattr(self, name)[row] = getattr(other, name)[at]


_NOTHING_KNOWN = NodeColumns(1)


class NodeColumn(Generic[T]):
    """An attribute of a node that is in its fleet's columns."""

    def __init__(self, kind: Callable[[Any], T]) -> None:
        self._kind = kind
        self._name = ""

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    def __get__(self, node: Node, _owner: type) -> T:
        return self._kind(getattr(node.columns, self._name)[node.place])

    def __set__(self, node: Node, value: T) -> None:
        getattr(node.columns, self._name)[node.place] = value


@dataclass(slots=True)
class Node:
    """A node of the fleet: its rows, and the state of its collector."""

    inventory: Inventory
    rows: dict[Table, slice]
    """Rows of the node in each table."""
    row: int
    """Its row in the table of nodes."""
    columns: NodeColumns
    """Of the fleet, while it is in it."""
    place: int
    """Its row in `columns`."""
    slow_interval: float = 15.0
    ended: bool = False
    """Whether its collector ended in order, so that its silence is no fault."""
    unheard: bool = False
    """Whether the aggregator that has it does not answer, so that nothing is known of it."""

    interval = NodeColumn(float)
    """Seconds between two frames."""
    online = NodeColumn(bool)
    seen = NodeColumn(float)
    """Time at which the last live frame came, monotonic seconds of the owner; -inf before the first."""
    sampled_at = NodeColumn(int)
    """When that frame was sampled, ns since 1970: by the node's clock, unless that is far off; 0 before the first."""
    clock_offset = NodeColumn(int)
    """ns that were added to the node's clock because it is far off."""
    session = NodeColumn(int)
    """Session of the last live frame."""
    seq = NodeColumn(int)
    """Number of it; -1 before the first."""

    def leave(self) -> None:
        """Keep what is known of it, for those who still have it; its row becomes free."""
        own = NodeColumns(1)
        own.copy_row(0, self.columns, self.place)
        self.columns, self.place = own, 0


@dataclass(slots=True)
class Fleet:
    """Nodes, and a matrix for each block of the schema."""

    nodes: dict[str, Node] = field(default_factory=dict)
    """By node name."""
    matrices: list[Matrix] = field(default_factory=lambda: [Matrix.of(block) for block in SCHEMA.blocks])
    devices: dict[Table, list[Any]] = field(default_factory=lambda: {table: [] for table in Table})
    """By table, node name and device of each row; None for a row that is free. The device of a node is its inventory."""
    by_uuid: dict[str, int] = field(default_factory=dict)
    """Row of each GPU."""
    free: dict[Table, list[slice]] = field(default_factory=lambda: {table: [] for table in Table})
    """Rows without a device: spans in order that do not touch each other."""
    columns: NodeColumns = field(default_factory=NodeColumns)
    version: int = 0
    """Incremented whenever a row gets another meaning."""
    _node_rows: tuple[int, npt.NDArray[np.intp]] = field(default=(-1, np.zeros(0, np.intp)), repr=False, compare=False)
    """By `version`."""
    _of_table: dict[Table, list[Matrix]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._of_table = {table: [matrix for matrix in self.matrices if matrix.block.table is table] for table in Table}

    def reserve(self, inventories: Collection[Inventory]) -> None:
        """Make room for nodes that are placed next, which else the matrices would grow for one by one."""
        for table, kind in KINDS.items():
            rows = len(self.devices[table]) + sum(map(kind.count, inventories))
            for matrix in self._of_table[table]:
                matrix.grow(rows)

    def place(self, inventory: Inventory) -> Node:
        """Allocate rows for a node; while its devices are the same it keeps those that it has."""
        node = self.nodes.get(inventory.node)
        if node is not None and _same_devices(node.inventory, inventory):
            node.inventory = inventory
            self._name_rows(node)
            return node
        before = node
        if node is not None:
            self.remove(inventory.node)
        rows = {table: self._allocate(table, kind.count(inventory)) for table, kind in KINDS.items()}
        row = rows[Table.NODE].start
        self.columns.grow(row + 1)
        self.columns.copy_row(row, _NOTHING_KNOWN if before is None else before.columns, 0)
        node = Node(inventory, rows, row, self.columns, row)
        if before is not None:
            node.slow_interval, node.ended = before.slow_interval, before.ended
        self.nodes[inventory.node] = node
        self._name_rows(node)
        self.set_intervals(node, node.interval, node.slow_interval)
        return node

    def set_intervals(self, node: Node, interval: float, slow_interval: float) -> None:
        """Set how often a node reads, and with it the age at which its rows are stale."""
        node.interval, node.slow_interval = interval, slow_interval
        for table, rows in node.rows.items():
            for matrix in self._of_table[table] if rows.stop > rows.start else ():
                fast = matrix.block.lane is Lane.FAST
                matrix.max_age[rows] = STALE_INTERVALS * (interval if fast else max(interval, slow_interval))

    def remove(self, name: str) -> None:
        """Remove a node and free its rows."""
        node = self.nodes.pop(name)
        node.leave()
        for table, rows in node.rows.items():
            for matrix in self._of_table[table]:
                matrix.clear(rows)
            names = self.devices[table]
            for row in range(rows.start, rows.stop):
                names[row] = None
            self._release(table, rows)
        for row, gpu in enumerate(node.inventory.gpus, node.rows[Table.GPU].start):
            if self.by_uuid.get(gpu.uuid) == row:  # not that of another node that has the GPU now
                del self.by_uuid[gpu.uuid]
        self.version += 1

    def store(
        self,
        block: int,
        rows: npt.NDArray[np.intp] | slice,
        gauges: npt.NDArray[np.float32],
        counters: npt.NDArray[np.float64],
        now: float,
    ) -> None:
        """Store new readings, shape (rows, columns); `rows` may name the rows of many nodes."""
        matrix = self.matrices[block]
        matrix.gauges[rows] = gauges
        matrix.counters[rows] = counters
        matrix.seen[rows] = now

    def node_rows(self) -> npt.NDArray[np.intp]:
        """Return the rows of all nodes in the table of nodes, in the order of `nodes`."""
        version, rows = self._node_rows
        if version != self.version:
            rows = np.fromiter((node.row for node in self.nodes.values()), np.intp, len(self.nodes))
            self._node_rows = self.version, rows
        return rows

    def size(self, table: Table) -> int:
        """Return the number of rows of a table, free ones included."""
        return len(self.devices[table])

    def column(self, name: str, now: float, stale: StaleRows | None = None) -> Floats:
        """Return one metric of every row of its table; gaps are NaN. Raises `KeyError`.

        `stale`: kept by a caller that reads many columns at one `now` while the fleet does not change, and that keeps
        none of them longer: they are read-only and may be the fleet's own. Without it, a column is a copy.
        """
        for number, matrix in enumerate(self.matrices):
            if name in matrix.columns:
                count = self.size(matrix.block.table)
                if stale is None:
                    return matrix.column(name, count, matrix.stale(count, now)).copy()
                if number not in stale:
                    stale[number] = matrix.stale(count, now)
                return matrix.column(name, count, stale[number])
        raise KeyError(name)

    def reading(self, name: str, row: int, now: float) -> float:
        """Return one metric of one row; a gap is a NaN. Raises `KeyError`."""
        for matrix in self.matrices:
            number = matrix.columns.get(name)
            if number is not None:
                if now - matrix.seen[row] > matrix.max_age[row]:
                    return gap(Gap.STALE)
                split = len(matrix.block.gauges)
                if number < split:
                    return float(matrix.gauges[row, number])
                return float(matrix.counters[row, number - split])
        raise KeyError(name)

    def home_of(self, key: str) -> str | None:
        """Return the node that has a device, by the key of the device; None where none has it."""
        if key in self.nodes:
            return key
        row = self.by_uuid.get(key.partition("/")[0])
        if row is not None:  # a GPU, or a link of one: found without a search
            entry = self.gpus[row]
            return None if entry is None else entry[0]
        for table, kind in KINDS.items():
            if kind.prefix and key.startswith(kind.prefix):
                found = filter(None, self.devices[table])
                return next((node for node, one in found if kind.key(one) == key), None)
        return None

    def rows(self, table: Table) -> Iterator[tuple[int, str]]:
        """Iterate over the rows in use: number and node name."""
        for number, entry in enumerate(self.devices[table]):
            if entry is not None:
                yield number, entry[0]

    @property
    def gpus(self) -> list[tuple[str, Gpu] | None]:
        """Node name and GPU of each row of the `gpu` table; None for a row that is free."""
        return self.devices[Table.GPU]

    def _allocate(self, table: Table, count: int) -> slice:
        """Return rows: of the smallest free span that has as many, else new ones at the end, which
        begin in a free span there. A node that changes its size again and again needs no more room
        than its largest."""
        names, free = self.devices[table], self.free[table]
        fitting = [rows for rows in free if rows.stop - rows.start >= count] if count else []
        if fitting:
            rows = min(fitting, key=lambda rows: rows.stop - rows.start)
            free.remove(rows)
            self._release(table, slice(rows.start + count, rows.stop))
            return slice(rows.start, rows.start + count)
        start = len(names)
        if count and free and free[-1].stop == start:
            start = free.pop().start
        rows = slice(start, start + count)
        names.extend([None] * (rows.stop - len(names)))
        for matrix in self._of_table[table]:
            matrix.grow(len(names))
        return rows

    def _release(self, table: Table, rows: slice) -> None:
        """Add rows to the free spans, which are in order and do not touch each other."""
        if rows.stop == rows.start:
            return
        free = self.free[table]
        at = bisect_left(free, rows.start, key=lambda span: int(span.start))
        start, stop = rows.start, rows.stop
        if at < len(free) and free[at].start == stop:
            stop = free.pop(at).stop
        if at and free[at - 1].stop == start:
            at -= 1
            start = free.pop(at).start
        free.insert(at, slice(start, stop))

    def _name_rows(self, node: Node) -> None:
        inventory = node.inventory
        for table, kind in KINDS.items():
            self.devices[table][node.rows[table]] = [(inventory.node, device) for device in kind.devices(inventory)]
        for row, gpu in enumerate(inventory.gpus, node.rows[Table.GPU].start):
            self.by_uuid[gpu.uuid] = row
        self.version += 1


def _same_devices(old: Inventory, new: Inventory) -> bool:
    return all(kind.keys(old) == kind.keys(new) for kind in KINDS.values())
