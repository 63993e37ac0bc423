"""Frames: what goes in comes out, bit for bit, and what is no frame is refused with a reason."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.errors import WireError
from telemetry.gap import GAP, reason_of
from telemetry.wire import frame as frames
from telemetry.wire.schema import GPU_FAST, NODE_FAST, SCHEMA, SCHEMA_ID

readings = st.one_of(st.floats(allow_nan=False, width=32), st.sampled_from(list(GAP.values())))


@st.composite
def blocks(draw: st.DrawFn) -> dict[int, list[list[float]]]:
    """Rows for some of the blocks of the schema."""
    chosen = draw(st.sets(st.integers(0, len(SCHEMA.blocks) - 1)))
    return {
        number: [
            draw(st.lists(readings, min_size=(width := len(SCHEMA.blocks[number].names)), max_size=width))
            for _ in range(draw(st.integers(0, 2)))
        ]
        for number in chosen
    }


def bits(rows: list[list[float]]) -> list[bytes]:
    """Compare NaNs too: by their bits."""
    return [struct.pack(f"<{len(row)}d", *row) for row in rows]


@given(
    blocks(),
    st.integers(0, 2**48 - 1),
    st.integers(0, 2**40),
    st.integers(0, 2**62),
    st.lists(st.binary(max_size=40), max_size=3),
)
def test_a_frame_comes_back_bit_for_bit(
    rows: dict[int, list[list[float]]], session: int, seq: int, at: int, events: list[bytes]
) -> None:
    """Encode, decode, check, unpack: nothing changes."""
    sent = frames.build(session, seq, at, rows, events)
    got = frames.decode(frames.encode(sent))
    frames.check(got, SCHEMA)
    assert got == sent
    assert (got.schema, got.session, got.seq, got.sampled_at) == (SCHEMA_ID, session, seq, at)
    assert list(got.events) == events
    for packed in got.blocks:
        assert bits(frames.unpack(packed)) == bits(rows[packed.block])


@given(st.binary(max_size=200))
def test_any_bytes_are_a_frame_or_a_wire_error(payload: bytes) -> None:
    """Nothing else is raised, whatever comes."""
    try:
        frames.check(frames.decode(payload), SCHEMA)
        refused = "malformed"
    except WireError as error:
        refused = error.reason
    assert refused == "malformed"


@given(st.integers(0, 400))
def test_a_frame_cut_short_is_refused(length: int) -> None:
    """Half a frame is not a smaller frame."""
    whole = frames.encode(frames.build(1, 2, 3, {GPU_FAST: [[1.0] * 38] * 2}))
    with pytest.raises(WireError):
        frames.decode(whole[: min(length, len(whole) - 1)])


def test_an_oversize_message_is_refused_before_it_is_read() -> None:
    """A giant never reaches the decoder."""
    with pytest.raises(WireError, match="oversize"):
        frames.decode(b"\x00" * (frames.MAX_FRAME_BYTES + 1))


@pytest.mark.parametrize(
    "packed",
    [
        frames.PackedBlock(99, 0, b"", b""),
        frames.PackedBlock(NODE_FAST, 1, b"", b""),
        frames.PackedBlock(NODE_FAST, -1, b"", b""),
        frames.PackedBlock(NODE_FAST, 2**40, b"", b""),
    ],
    ids=["no such block", "no rows inside", "negative rows", "too many rows"],
)
def test_a_block_that_lies_about_its_size_is_refused(packed: frames.PackedBlock) -> None:
    """The sizes must agree with the schema."""
    with pytest.raises(WireError, match="malformed"):
        frames.check(frames.Frame(SCHEMA_ID, 1, 1, 1, (packed,)), SCHEMA)


def test_backfill_holds_many_frames() -> None:
    """Join and split."""
    assert frames.decode_many(frames.encode_many([b"a", b"bc"])) == [b"a", b"bc"]
    with pytest.raises(WireError):
        frames.decode_many(b"\xff\xff")


def test_a_gap_is_a_gap_after_the_journey() -> None:
    """The reason rides along."""
    row = list(GAP.values()) + [0.0] * (38 - len(GAP))
    back = frames.unpack(frames.pack(GPU_FAST, [row]))[0]
    assert [reason_of(value) for value in back[: len(GAP)]] == list(GAP)
    assert back[len(GAP) :] == row[len(GAP) :]
