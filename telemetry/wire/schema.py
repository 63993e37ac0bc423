"""The shape of a frame: which metric is in which column of which block.

A *block* is one table on one lane: its gauges as float32, its counters as float64. A *schema* is
the ordered list of blocks. The schema travels once, in the inventory; a frame carries its id, so
that a collector and an aggregator of different releases match metrics by name.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import msgspec

from telemetry.catalogue import CATALOGUE
from telemetry.metric import Kind, Lane, Table

_TABLES: dict[str, Table] = {table.value: table for table in Table}
_LANES: dict[str, Lane] = {lane.value: lane for lane in Lane}


class Block(msgspec.Struct, frozen=True):
    """A table on a lane: the columns of two packed arrays in a frame.

    Both may be of a newer release, which `known` says; their names are kept, because the id of the
    schema and the numbers of the blocks behind this one depend on them.
    """

    table_name: str = msgspec.field(name="table")
    lane_name: str = msgspec.field(name="lane")
    gauges: tuple[str, ...]
    """Metric names; float32 on the wire."""
    counters: tuple[str, ...]
    """Metric names; float64, because a float32 loses joules after a day."""

    @property
    def known(self) -> bool:
        """Return whether this release has the table and the lane."""
        return self.table_name in _TABLES and self.lane_name in _LANES

    @property
    def table(self) -> Table:
        """Return the table. Raises `ValueError` where this release has none such."""
        return _TABLES.get(self.table_name) or Table(self.table_name)

    @property
    def lane(self) -> Lane:
        """Return the lane. Raises `ValueError` where this release has none such."""
        return _LANES.get(self.lane_name) or Lane(self.lane_name)

    @property
    def names(self) -> tuple[str, ...]:
        """Metric names in the order of a row of readings."""
        return self.gauges + self.counters

    @property
    def name(self) -> str:
        """Name of the block, and of its table in the store: `gpu_fast`."""
        return f"{self.table_name}_{self.lane_name}"


class Schema(msgspec.Struct, frozen=True):
    """The ordered blocks of a frame; a block's number in a frame is its position here."""

    blocks: tuple[Block, ...]

    @property
    def id(self) -> int:
        """48-bit hash of the names in order: small enough for any JSON reader."""
        return _id(self)

    def index(self, table: Table, lane: Lane) -> int:
        """Return the number of a block. Raises `KeyError` when the schema has none such."""
        for number, block in enumerate(self.blocks):
            if block.table_name == table and block.lane_name == lane:
                return number
        raise KeyError(f"{table}_{lane}")


@lru_cache(maxsize=64)
def _id(schema: Schema) -> int:
    """Return the hash, cached: every inventory of a fleet brings the same schema."""
    digest = hashlib.blake2b(msgspec.json.encode(schema), digest_size=6).digest()
    return int.from_bytes(digest, "big")


def _block(table: Table, lane: Lane) -> Block:
    rows = [metric for metric in CATALOGUE if metric.table == table and metric.lane == lane]
    return Block(
        table,
        lane,
        tuple(metric.name for metric in rows if metric.kind is Kind.GAUGE),
        tuple(metric.name for metric in rows if metric.kind is Kind.COUNTER),
    )


SCHEMA = Schema(tuple(block for table in Table for lane in Lane if (block := _block(table, lane)).names))
"""The schema of this release: every metric of the catalogue."""

SCHEMA_ID = SCHEMA.id
GPU_FAST = SCHEMA.index(Table.GPU, Lane.FAST)
GPU_SLOW = SCHEMA.index(Table.GPU, Lane.SLOW)
LINK_FAST = SCHEMA.index(Table.LINK, Lane.FAST)
LINK_SLOW = SCHEMA.index(Table.LINK, Lane.SLOW)
NODE_FAST = SCHEMA.index(Table.NODE, Lane.FAST)
NODE_SLOW = SCHEMA.index(Table.NODE, Lane.SLOW)
PORT_SLOW = SCHEMA.index(Table.PORT, Lane.SLOW)
INSTANCE_SLOW = SCHEMA.index(Table.INSTANCE, Lane.SLOW)
