"""The wire form of remote write 0.1: a protobuf message inside a snappy block.

Both are small enough to be written by hand, and so cost no dependency. The snappy block is of
literals alone: valid, and no smaller than its content. Measured on a busy machine of two cores:
125,000 series in 1.0 s, 18 MB.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping

from telemetry.wire.protobuf import field, varint

STALE = struct.pack("<Q", 0x7FF0000000000002)
"""Prometheus' marker: the series has ended."""
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")
_LITERAL = 1 << 16
"""Bytes of one literal: as many as a block of snappy's own."""


def labels_of(fragment: str) -> dict[str, str]:
    """Return the labels of a fragment of a page, `{gpu="0"}`."""
    return {
        name: _ESCAPE.sub(lambda found: {"n": "\n"}.get(found[1], found[1]), value)
        for name, value in _LABEL.findall(fragment)
    }


def name_key(name: str) -> bytes:
    """Return the label that is the name of a series; it sorts before all labels of a page."""
    return field(1, field(1, b"__name__") + field(2, name.encode()))


def labels_key(fragment: str, more: Mapping[str, str]) -> bytes:
    """Return the other labels, sorted as the receiver requires; `more`: labels that the fragment may
    override."""
    pairs = {**more, **labels_of(fragment)}
    return b"".join(field(1, field(1, label.encode()) + field(2, pairs[label].encode())) for label in sorted(pairs))


def samples(values: Iterable[tuple[bytes, bytes]], at: int) -> list[bytes]:
    """Return a time series for each key and value (8 bytes), all of one moment (ms since 1970)."""
    moment = b"\x10" + varint(at)
    length = varint(9 + len(moment))
    parts = []
    for key, value in values:
        body = b"%b\x12%b\x09%b%b" % (key, length, value, moment)
        parts.append(b"\x0a%b%b" % (varint(len(body)), body))
    return parts


def snappy(body: bytes) -> bytes:
    """Return a snappy block of literals."""
    parts = [varint(len(body))]
    for start in range(0, len(body), _LITERAL):
        piece = body[start : start + _LITERAL]
        length = len(piece) - 1
        if length < 60:
            parts.append(bytes([length << 2]))
        else:
            parts.append(bytes([61 << 2]) + length.to_bytes(2, "little"))
        parts.append(piece)
    return b"".join(parts)
