"""The layout of a node's frames: where their rows and columns go.

Made once from an inventory, used for every frame. A frame of this release's schema is copied as it
is; one of another release is mapped by metric names: unknown columns and tables are left out, missing
columns are the gap `not_supported`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from aggregator.ingest.ids import IdRegistry
from telemetry.errors import WireError
from telemetry.fleet import Floats, gaps32, gaps64
from telemetry.gap import Gap
from telemetry.metric import Table
from telemetry.wire.frame import Frame, check, holds
from telemetry.wire.inventory import Inventory
from telemetry.wire.schema import SCHEMA, SCHEMA_ID, Block
from telemetry.wire.tables import KINDS

_NO_DEVICES = np.zeros(0, np.int32)
Shape = tuple[int | None, ...]
TABLES = {table: number for number, table in enumerate(KINDS)}
"""Numbers of tables in `first_numbers`."""
DEVICE, PLACE = 0, 1
"""Of each table the number of the first device, and of its row in the fleet."""


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """A block of a node's frames."""

    source: Block
    """The schema of the frame."""
    target: int
    """Block of our schema, or -1 for a block that our schema does not have: its rows are left out."""
    rows: int | None
    """Rows of the block; None where the devices of its table are unknown to this release."""
    gauge_bytes: int
    counter_bytes: int
    devices: npt.NDArray[np.int32]
    """Number of the device of each row."""
    same: bool
    """Whether its columns are ours, in our order."""


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """The blocks of a node's frames, by their number in the frame."""

    schema_id: int
    taken_at: int
    """When the inventory was taken, ns of the node's clock."""
    inventory: Inventory
    blocks: tuple[BlockLayout, ...]
    shape: Shape
    """Schema, and the rows of each block: frames of layouts of one shape differ in nothing but their values."""

    def fits(self, frame: Frame) -> bool:
        """Return whether the frame's blocks have the sizes of this layout, each at most once."""
        if frame.schema != self.schema_id:
            return False
        last = -1
        for packed in frame.blocks:
            number = packed.block
            if not last < number < len(self.blocks):
                return False
            last = number
            block = self.blocks[number]
            if block.rows is None:
                if not holds(packed, block.source):
                    return False
            elif (
                packed.rows != block.rows
                or len(packed.gauges) != block.gauge_bytes
                or len(packed.counters) != block.counter_bytes
            ):
                return False
        return True


def fits_inventory(frame: Frame, inventory: Inventory) -> bool:
    """Return whether a frame has a row for each device of an inventory, before either has a layout."""
    schema = inventory.schema
    rows = {table: kind.count(inventory) for table, kind in KINDS.items()}
    try:
        check(frame, schema)
    except WireError:
        return False
    blocks = ((schema.blocks[packed.block], packed) for packed in frame.blocks)
    return frame.schema == schema.id and all(
        packed.rows == rows[block.table] for block, packed in blocks if block.known
    )


def make_layout(inventory: Inventory, registry: IdRegistry) -> NodeLayout:
    """Return the layout of an inventory; new devices get their numbers."""
    node = inventory.node
    devices = {
        table: np.array(registry.devices(node, kind.keys(inventory), kind.names(inventory)), np.int32)
        if kind.count(inventory)
        else _NO_DEVICES
        for table, kind in KINDS.items()
    }
    schema = inventory.schema
    identity = schema.id
    ours = identity == SCHEMA_ID
    blocks = tuple(
        _block(number, block, devices[block.table], same=ours)
        if block.known and len(devices[block.table])
        else _block_without_rows(number, block, same=ours)
        for number, block in enumerate(schema.blocks)
    )
    return NodeLayout(identity, inventory.taken_at, inventory, blocks, (identity, *(block.rows for block in blocks)))


@lru_cache(maxsize=256)
def _block_without_rows(number: int, block: Block, *, same: bool) -> BlockLayout:
    """Return the layout of a block of which a node has no rows, one for all such nodes."""
    return _block(number, block, _NO_DEVICES, same=same)


def first_numbers(layout: NodeLayout, rows: Mapping[Table, npt.NDArray[np.intp]]) -> bytes:
    """Return the numbers of the first device and the first row in the fleet of each table of a node, as int32; b"" where a
    table's devices or rows do not follow each other."""
    numbers = np.zeros((len(TABLES), 2), np.int32)
    numbers[TABLES[Table.NODE], 1] = rows[Table.NODE][0]
    for block in layout.blocks:
        if block.target < 0 or not block.rows:
            continue
        table = block.source.table
        for at, found in enumerate((block.devices.astype(np.intp), rows[table])):
            if not np.array_equal(found, np.arange(found[0], found[0] + block.rows)):
                return b""
            numbers[TABLES[table], at] = found[0]
    return numbers.tobytes()


def numbers_of(first: npt.NDArray[np.int32], rows: int) -> npt.NDArray[np.int32]:
    """Return the numbers of so many rows of each node, given the first of each."""
    every: npt.NDArray[np.int32] = np.add.outer(first, np.arange(rows, dtype=np.int32))
    return every.ravel()


def _block(number: int, block: Block, devices: npt.NDArray[np.int32], *, same: bool) -> BlockLayout:
    if not block.known:
        return BlockLayout(block, -1, None, 0, 0, _NO_DEVICES, False)
    rows = len(devices)
    try:
        target = number if same else SCHEMA.index(block.table, block.lane)
    except KeyError:
        target = -1
    return BlockLayout(
        block,
        target,
        rows,
        4 * rows * len(block.gauges),
        8 * rows * len(block.counters),
        devices,
        same or (target >= 0 and SCHEMA.blocks[target] == block),
    )


def translate(
    source: Block, target: Block, gauges: Floats, counters: Floats
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float64]]:
    """Return rows of another release's block in the columns of ours, matched by name."""
    rows = len(gauges)
    found: dict[str, Floats] = {name: gauges[:, at] for at, name in enumerate(source.gauges)}
    found.update({name: counters[:, at] for at, name in enumerate(source.counters)})
    wide = gaps32((rows, len(target.gauges)), Gap.NOT_SUPPORTED)
    tall = gaps64((rows, len(target.counters)), Gap.NOT_SUPPORTED)
    for at, name in enumerate(target.gauges):
        if name in found:
            wide[:, at] = found[name]
    for at, name in enumerate(target.counters):
        if name in found:
            tall[:, at] = found[name]
    return wide, tall
