"""A frame: all readings of a node at one tick, as it crosses the bus.

A MessagePack envelope around packed little-endian arrays. No NumPy here: the collector encodes with
the standard library; the aggregator reads the packed bytes straight into its matrix.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Mapping, Sequence
from itertools import chain

import msgspec

from telemetry.errors import WireError
from telemetry.text.decoders import of_msgpack
from telemetry.wire.schema import SCHEMA, SCHEMA_ID, Block, Schema

MAX_FRAME_BYTES = 4 * 1024 * 1024
"""A larger message is refused: 72 GPUs with all their links need less than 1 MiB."""

Row = Sequence[float]
"""Readings of a device: gauges, then counters, in the order of `Block.names`. Gaps are NaN."""

Readings = Mapping[int, Sequence[Row]]
"""Rows by block number (`telemetry.wire.schema.GPU_FAST` ...), in inventory order."""


class PackedBlock(msgspec.Struct, frozen=True, array_like=True):
    """The rows of one block."""

    block: int
    """Position of the block in the schema."""
    rows: int
    gauges: bytes
    """float32 little-endian, shape (rows, gauges); a gap is a NaN that carries its reason."""
    counters: bytes
    """float64 little-endian, shape (rows, counters)."""


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """The readings of a node at one tick, with the events since the frame before."""

    schema: int
    """Hash of the ordered metric names; the names themselves travel once, in the inventory."""
    session: int
    """Random per start of the collector: with `seq`, the identity of a frame."""
    seq: int
    """0, 1, 2, ... within a session. A jump is a hole, which the aggregator requests."""
    sampled_at: int
    """Wall clock of the node, ns since 1970. For display and storage; never for ordering."""
    blocks: tuple[PackedBlock, ...]
    """Blocks that were read at this tick: those of the slow lane are absent from most frames."""
    events: tuple[bytes, ...] = ()
    """JSON of the events since the frame before. The event topic is faster; frames are reliable: a
    lost one is detected and sent again, and events are de-duplicated by id."""


_encoder = msgspec.msgpack.Encoder()
_decoder = of_msgpack(Frame)
_list_decoder = of_msgpack(list[bytes])


def pack_rows(typecode: str, rows: Sequence[Row], start: int, stop: int) -> bytes:
    """Pack columns `start:stop` of every row as array type 'f' or 'd', little-endian."""
    if start == stop:
        return b""
    values: list[float] = []
    if rows and start == 0 and stop == len(rows[0]):
        values = list(chain.from_iterable(rows))
    else:
        for row in rows:
            values += row[start:stop]
    packed: array[float] = array(typecode, values)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def pack(number: int, rows: Sequence[Row], schema: Schema = SCHEMA) -> PackedBlock:
    """Pack the rows of one block. Every row must have all columns: fill with gaps."""
    block = schema.blocks[number]
    split, width = len(block.gauges), len(block.gauges) + len(block.counters)
    return PackedBlock(number, len(rows), pack_rows("f", rows, 0, split), pack_rows("d", rows, split, width))


def build(session: int, seq: int, sampled_at: int, readings: Readings, events: Sequence[bytes] = ()) -> Frame:
    """Make a frame of this release's schema from rows of floats."""
    blocks = tuple(pack(number, readings[number]) for number in sorted(readings))
    return Frame(SCHEMA_ID, session, seq, sampled_at, blocks, tuple(events))


def encode(frame: Frame) -> bytes:
    """Return the bytes of a frame as on the bus, in the ring and in a recording."""
    return _encoder.encode(frame)


def decode(payload: bytes) -> Frame:
    """Decode a frame. Raises `WireError` (`oversize` or `malformed`).

    Only the envelope is checked; `check` compares the blocks with a schema.
    """
    if len(payload) > MAX_FRAME_BYTES:
        raise WireError("oversize", f"{len(payload)} bytes")
    try:
        frame = _decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError("malformed", str(error)) from error
    if frame.seq < 0 or frame.session < 0:
        raise WireError("malformed", "negative session or number")
    return frame


def holds(packed: PackedBlock, block: Block) -> bool:
    """Return whether packed rows have the size that they claim."""
    return (
        packed.rows >= 0
        and len(packed.gauges) == 4 * packed.rows * len(block.gauges)
        and len(packed.counters) == 8 * packed.rows * len(block.counters)
    )


def check(frame: Frame, schema: Schema) -> None:
    """Raise `WireError` (`malformed`) unless every block has the size that `schema` defines."""
    for packed in frame.blocks:
        if not 0 <= packed.block < len(schema.blocks):
            raise WireError("malformed", f"no block {packed.block} in schema")
        block = schema.blocks[packed.block]
        if not holds(packed, block):
            raise WireError("malformed", f"block {block.name} does not hold {packed.rows} rows")


def unpack(packed: PackedBlock, schema: Schema = SCHEMA) -> list[list[float]]:
    """Return the rows of a block as floats: gauges, then counters. Gaps keep their reason.

    For command-line tools (`tap`, `record`, `--once`); the aggregator reads the bytes with NumPy.
    """
    block = schema.blocks[packed.block]
    gauges, counters = array("f"), array("d")
    gauges.frombytes(packed.gauges)
    counters.frombytes(packed.counters)
    if sys.byteorder == "big":
        gauges.byteswap()
        counters.byteswap()
    gauge_count, counter_count = len(block.gauges), len(block.counters)
    return [
        [
            *gauges[row * gauge_count : (row + 1) * gauge_count],
            *counters[row * counter_count : (row + 1) * counter_count],
        ]
        for row in range(packed.rows)
    ]


def encode_many(frames: Sequence[bytes]) -> bytes:
    """Join encoded frames into one backfill message."""
    return _encoder.encode(list(frames))


def decode_many(payload: bytes) -> list[bytes]:
    """Split a backfill message. Raises `WireError`."""
    try:
        return _list_decoder.decode(payload)
    except msgspec.DecodeError as error:
        raise WireError("malformed", str(error)) from error
