"""Messages that are written and read by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.wire.protobuf import ProtobufError, field, fields, varint


@given(st.lists(st.tuples(st.integers(1, 2**20), st.binary(max_size=300) | st.integers(0, 2**63))))
def test_fields_come_back_as_they_were_written(given: list[tuple[int, bytes | int]]) -> None:
    message = b"".join(
        field(number, value) if isinstance(value, bytes) else varint(number << 3) + varint(value)
        for number, value in given
    )
    assert list(fields(message)) == given


@pytest.mark.parametrize(
    "message", [b"\x80", b"\x0a\x05ab", b"\x0b", b"\x0d\x00", b"\xff" * 12, b"\x0a\xff\xff\xff\xff\x7f"]
)
def test_rubbish_is_no_message(message: bytes) -> None:
    with pytest.raises(ProtobufError):
        list(fields(message))
