"""Columns to line protocol, by DuckDB in memory: no Python object per value, no lock held meanwhile.

The CPU time is that of Python's own formatting, 0.6 us a value (`python -m bench.influx`), but the
interpreter is free meanwhile, so that ingest and rules go on; objects of influxdb-client take four
times as much, and hold the interpreter. A NaN is NULL, and NULL is left out of a line, so that a gap
can't become a number. A few lines are formatted by Python, faster than the engine can plan a query.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt

from telemetry.text.decimals import plain

MILLISECOND = 1_000_000
FEW = 4000
"""Values below which Python is faster than the engine, whose planning takes 9 ms."""
_WHOLE_END = 2.0**63


@dataclass(frozen=True, slots=True)
class LineColumn:
    """A field of many lines."""

    name: str
    values: npt.NDArray[Any]
    whole: bool = False
    """Whether it is an integer field."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Lines that go into one request."""

    text: bytes
    points: int
    first: int
    """ms since 1970 of the oldest."""
    last: int


class LineEncoder:
    """Encodes columns as lines; used by one thread at a time."""

    def __init__(self, lines: int) -> None:
        """`lines`: most lines of one chunk."""
        self._lines = lines
        self._engine = duckdb.connect(":memory:", config={"threads": "1"})

    def encode(
        self, measurement: str, tags: npt.NDArray[np.object_], at: npt.NDArray[np.int64], columns: Sequence[LineColumn]
    ) -> Iterator[Chunk]:
        """Yield chunks; `tags` as `names.tags` makes them, `at` in ns. A row without any field
        makes no line."""
        for start in range(0, len(at), self._lines):
            part = slice(start, start + self._lines)
            found = self._chunk(measurement, tags[part], at[part] // MILLISECOND, columns, part)
            if found is not None:
                yield found

    def _chunk(
        self,
        measurement: str,
        tags: npt.NDArray[np.object_],
        at: npt.NDArray[np.int64],
        columns: Sequence[LineColumn],
        part: slice,
    ) -> Chunk | None:
        if len(tags) * len(columns) <= FEW:
            return _few(measurement, tags, at, columns, part)
        data: dict[str, npt.NDArray[Any]] = {"named": tags, "moment": np.ascontiguousarray(at)}
        fields = []
        for number, column in enumerate(columns):
            values = column.values[part]
            if values.dtype.kind == "f":
                values = np.where(np.isfinite(values), values, np.nan).astype(values.dtype)
            data[f"c{number}"] = np.ascontiguousarray(values)
            text = f"try_cast(c{number} as bigint)::varchar || 'i'" if column.whole else (f"c{number}::varchar")
            fields.append(f"'{column.name}=' || {text}")
        self._engine.register("data", data)
        try:
            row = self._engine.execute(
                "select string_agg(head || found || ' ' || moment, chr(10)), count(*), min(moment), "
                f"max(moment) from (select '{measurement}' || named || ' ' as head, moment, "
                f"concat_ws(',', {', '.join(fields)}) as found from data) where found <> ''"
            ).fetchall()[0]
        finally:
            self._engine.unregister("data")
        if not row[1]:
            return None
        return Chunk(row[0].encode() + b"\n", row[1], row[2], row[3])

    def close(self) -> None:
        """Close the engine."""
        self._engine.close()


def _few(
    measurement: str,
    tags: npt.NDArray[np.object_],
    at: npt.NDArray[np.int64],
    columns: Sequence[LineColumn],
    part: slice,
) -> Chunk | None:
    texts: list[list[str]] = [[] for _ in tags]
    for column in columns:
        values = column.values[part]
        found = np.isfinite(values)
        if column.whole:
            found &= np.abs(values) < _WHOLE_END
        name, rows = column.name, np.flatnonzero(found)
        numbers = plain(values[rows]) if values.dtype == np.float32 else values[rows]
        if column.whole:
            for row, number in zip(rows.tolist(), np.rint(numbers).tolist(), strict=True):
                texts[row].append(f"{name}={int(number)}i")
        else:
            for row, number in zip(rows.tolist(), numbers.tolist(), strict=True):
                texts[row].append(f"{name}={number!r}")
    lines = [
        f"{measurement}{named} {','.join(fields)} {moment}\n"
        for named, fields, moment in zip(tags.tolist(), texts, at.tolist(), strict=True)
        if fields
    ]
    if not lines:
        return None
    moments = [moment for moment, fields in zip(at.tolist(), texts, strict=True) if fields]
    return Chunk("".join(lines).encode(), len(lines), min(moments), max(moments))
