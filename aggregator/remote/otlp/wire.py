"""OTLP's messages as bytes: readings and events of the nodes, each a resource.

Written by hand, since every reading of every GPU is one message: with the official classes 10,000 GPUs take ten times as
long (docs/decisions/0124). A test reads all of it with those classes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping

from aggregator.remote.otlp.names import Exported, OtlpShape
from telemetry.devices import Event
from telemetry.wire.protobuf import field, fields, varint

_SHORT = 1 << 12
_LENGTHS = [varint(number) for number in range(_SHORT)]
"""Lengths of points, which are short."""
_MOST_INT = float(1 << 63)
_CUMULATIVE = b"\x10\x02"
"""Aggregation temporality of a sum."""
_MONOTONIC = b"\x18\x01"
_AS_DOUBLE, _AS_INT = struct.Struct("<Bd"), struct.Struct("<Bq")
_DOUBLE_TAG, _INT_TAG = 4 << 3 | 1, 6 << 3 | 1
_MOMENT = struct.Struct("<BQ")
_START_TAG, _TIME_TAG = 2 << 3 | 1, 3 << 3 | 1
_VALUE_BYTES = 9
Known = Iterable[tuple[bytes, float]]
"""Attributes of a device as bytes, and its value; a NaN is left out."""


def attributes(pairs: Mapping[str, str | int | None], number: int) -> bytes:
    """Return key-value pairs as repeated fields of a number; those without a value are left out."""
    return b"".join(
        field(number, field(1, key.encode()) + field(2, _any(value)))
        for key, value in pairs.items()
        if value not in {"", None}
    )


def _any(value: str | int | None) -> bytes:
    if isinstance(value, bool):
        return b"\x10" + varint(value)
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return b"\x18" + varint(value % (1 << 64))
    return field(1, str(value).encode())


def point_attributes(pairs: Mapping[str, str | int | None]) -> bytes:
    """Return the attributes of a point."""
    return attributes(pairs, 7)


def points(values: Known, extra: bytes, start: int | None, at: int, row: Exported) -> tuple[bytes, int]:
    """Return the points of a row, and how many there are. `extra`: attributes that all of them have, `start`: ns
    since 1970 at which a counter began, `at`: of the reading."""
    times = _MOMENT.pack(_TIME_TAG, at)
    if start is not None:
        times = _MOMENT.pack(_START_TAG, start) + times
    size, true_from, count = len(times) + _VALUE_BYTES + len(extra), row.true_from, 0
    pack, tag = (_AS_INT.pack, _INT_TAG) if row.whole else (_AS_DOUBLE.pack, _DOUBLE_TAG)
    most = _MOST_INT if row.whole else math.inf
    parts: list[bytes] = []
    for known, value in values:
        if not -most < value < most:  # NaN: absent, and so left out
            continue
        if true_from is not None:
            value = value >= true_from  # noqa: PLW2901 - as it is sent
        length = size + len(known)
        parts += (
            b"\x0a", _LENGTHS[length] if length < _SHORT else varint(length), times,
            pack(tag, int(value) if row.whole else value), known, extra,
        )  # fmt: skip
        count += 1
    return b"".join(parts), count


def metric(row: Exported, found: bytes) -> bytes:
    """Return a metric with its points, as a field of a scope."""
    head = field(1, row.name.encode()) + field(3, row.unit.encode())
    if row.shape is OtlpShape.GAUGE:
        return field(2, head + field(5, found))
    kind = _CUMULATIVE + (_MONOTONIC if row.shape is OtlpShape.COUNTER else b"")
    return field(2, head + field(7, found + kind))


def resource(pairs: Mapping[str, str | int | None], release: str, content: bytes) -> bytes:
    """Return the content of a scope as that of a resource, as a field of a request: metrics or records."""
    scope = field(1, field(1, b"kilowatch") + field(2, release.encode()))
    return field(1, field(1, attributes(pairs, 1)) + field(2, scope + content))


def record(event: Event, words: str, severity: int, observed: int) -> bytes:
    """Return an event as a record, as a field of a scope. `severity`: OTLP's number, `observed`: ns since 1970."""
    pairs: dict[str, str | int | None] = {
        "hw.id": event.gpu,
        "kilowatch.event.id": event.id,
        "kilowatch.pci": event.pci,
    }
    for key, value in event.data.items():
        if isinstance(value, str | int):
            pairs[f"kilowatch.{key}"] = value
    return field(
        2,
        _MOMENT.pack(1 << 3 | 1, event.at)
        + b"\x10"
        + varint(severity)
        + field(5, field(1, words.encode()))
        + attributes(pairs, 6)
        + _MOMENT.pack(11 << 3 | 1, observed)
        + field(12, f"kilowatch.{event.kind}".encode()),
    )


def requests(resources: Iterable[tuple[bytes, int]], most_bytes: int) -> list[tuple[bytes, int]]:
    """Join resources, each with its number of points or records, to requests of so many bytes at most."""
    found: list[tuple[bytes, int]] = []
    some: list[bytes] = []
    size = count = 0
    for body, its in resources:
        if some and size + len(body) > most_bytes:
            found.append((b"".join(some), count))
            some, size, count = [], 0, 0
        some.append(body)
        size += len(body)
        count += its
    return [*found, (b"".join(some), count)] if some else found


def refused(answer: bytes) -> tuple[int, str]:
    """Return how many points or records a receiver has not taken of a request that it accepted, and its reason.
    Raises `ProtobufError` for an answer that is none."""
    for number, partial in fields(answer):
        if number == 1 and isinstance(partial, bytes):
            its = dict(fields(partial))
            count, why = its.get(1, 0), its.get(2, b"")
            if isinstance(count, int) and isinstance(why, bytes):
                return count, why.decode(errors="replace")
    return 0, ""
