"""A fleet's past from InfluxDB: the newest point of each device before each of some instants.

A point is used whole, at its own time: a metric that it lacks is a gap, and is not filled from an older
one. A mean or roll-up counts from the end of its span, so that no reading of the future is shown, and
carries the time of its first reading; parts of a span that came late are joined with it. Where the
server has no readings any more, the finest roll-up that reaches back answers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from aggregator.influx.names import METRICS, TAGS, frames_field, keeps_last
from aggregator.influx.reader import InfluxReader, quoted, source_of
from aggregator.store.past import Found, Longs, PastQuery, enter
from aggregator.store.protocol import FleetPast, PastInstants, StoredDevice
from aggregator.store.rollup import readings
from telemetry.errors import StoreError
from telemetry.metric import Kind, Lane, Table

# Points of InfluxDB as rows of a past: parts of one span joined, each where it begins to count. Pure.
#
# A late part of a span is a point of its own, at the time of its first reading. A mean is that of all
# parts, by their readings; a counter or a state is that of the newest part that has one.

Wide = npt.NDArray[np.float64]
Point = Sequence[float | None]
"""Time, frames, the value of each metric; of a roll-up also the number of readings of each."""


def rows_of(points: Sequence[tuple[int, Point]], names: Sequence[str], when: PastInstants, width: int) -> Found:
    """Return the rows that count at an instant, as the embedded store has them. `points`: each with the
    number of its device; `width`: ns that one spans, 0 for readings."""
    ids = np.array([place for place, _ in points], np.int64)
    at = np.array([point[0] for _, point in points], np.int64)
    if not points:
        return _found(ids, at, at, {name: np.empty(0) for name in names}, when, 0)
    table = np.array([point[1:] for _, point in points], np.float64)
    values = dict(zip(names, table[:, 1:].T, strict=False))
    if not width:
        return _found(ids, at, at, values, when, 0)
    span = at // width
    order = np.lexsort((at, span, ids))
    ids, at, span, table = ids[order], at[order], span[order], table[order]
    begins = np.flatnonzero(np.r_[True, (ids[1:] != ids[:-1]) | (span[1:] != span[:-1])])
    own = table.shape[1] > 1 + len(names)  # else only the frames of a point are known
    for number, name in enumerate(names, 1):
        counts = table[:, number + len(names)] if own else table[:, 0]
        last = keeps_last(METRICS[name])
        values[name] = _last(table[:, number], begins) if last else (_mean(table[:, number], counts, begins))
    newest = np.maximum.reduceat(at, begins)
    return _found(ids[begins], newest, (span[begins] + 1) * width, values, when, 2 * width)


def _mean(values: Wide, counts: Wide, begins: npt.NDArray[np.intp]) -> Wide:
    weights = np.where(np.isnan(values), 0.0, np.nan_to_num(counts, nan=1.0))
    total = np.add.reduceat(np.where(weights > 0, values, 0.0) * weights, begins)
    with np.errstate(invalid="ignore"):
        mean: Wide = total / np.add.reduceat(weights, begins)
    return mean


def _last(values: Wide, begins: npt.NDArray[np.intp]) -> Wide:
    """Return the last of each part that is a number."""
    known = np.where(np.isnan(values), -1, np.arange(len(values)))
    last = np.maximum.reduceat(known, begins)
    return np.where(last >= 0, values[last], np.nan)


def _found(ids: Longs, at: Longs, counts: Longs, values: dict[str, Wide], when: PastInstants, wide: int) -> Found:
    """Return rows; `counts`: from when on, ns since 1970."""
    number = np.maximum(0, -(-(counts - when.first) // max(1, when.step)))
    kept = counts <= when.last
    found: Found = {
        "k": number[kept],
        "id": ids[kept],
        "ts": at[kept],
        "wide": np.full(int(kept.sum()), wide, np.int64),
    }
    for name, each in values.items():
        narrow = METRICS[name].kind is Kind.GAUGE
        found[name] = each[kept].astype(np.float32 if narrow else np.float64)
    return found


SECOND = 10**9
QUERY_SECONDS = 30.0
"""Seconds after which HTTP has given up (`aggregator.http.past`): no thread goes on for longer."""
USUAL = {Lane.FAST: SECOND, Lane.SLOW: 15 * SECOND}
"""ns between two readings."""
SPARSE = 3
"""Points between two instants, beyond which each instant is a statement of its own: it costs what
three points cost (influxd 1.6.7 on a busy machine: 0.25 ms a device, 0.08 ms a point)."""
LONGEST = 10
"""Most points of a device in one statement: a server must answer it within 15 s."""
Series = dict[str, Any]


def read_past(reader: InfluxReader, query: PastQuery, later: set[tuple[str, str]]) -> FleetPast:
    """Return the past that a query is for. Raises `StoreError` for a metric that is not of the table."""
    lanes: dict[Lane, list[str]] = {}
    for name in query.columns:
        metric = METRICS.get(name)
        if metric is None or metric.table is not query.table:
            raise StoreError(f"past: the table {query.table} has no metric {name!r}")
        lanes.setdefault(metric.lane, []).append(name)
    found, slack = {}, {}
    until = time.monotonic() + QUERY_SECONDS
    for lane, names in lanes.items():
        found[lane], width = _finest(_LaneQuery(reader, query, lane, names, until))
        slack[lane] = 2 * width
    devices = _devices(query.table, [each for rows in found.values() for each in rows])
    places = {(each.node, each.key): each.id for each in devices}
    past = FleetPast(devices, {}, {}, slack, later)
    numbers = np.arange(len(devices))
    for lane, names in lanes.items():
        points = [
            (places[TAGS[query.table].key_of(series.get("tags", {}))], point)
            for series in found[lane]
            for point in series["values"]
        ]
        enter(past, rows_of(points, names, query.when, slack[lane] // 2), numbers, query, lane, names)
    return past


# -- Queries -------------------------------------------------------------------------------------


class _LaneQuery:
    """The part of a query for the metrics of one lane."""

    def __init__(self, reader: InfluxReader, query: PastQuery, lane: Lane, names: Sequence[str], until: float) -> None:
        self.query, self.lane = query, lane
        self._reader, self._until = reader, until
        self._names = names
        self._among = f'"cluster" = {quoted(reader.cluster)}'
        self._nodes = ""
        if query.nodes is not None:
            named = " OR ".join(f'"node" = {quoted(node)}' for node in query.nodes)
            self._nodes = f" AND ({named})" if named else " AND time < 0"

    def steps(self) -> list[tuple[int, int]]:
        """Return the steps to query, the finest first: seconds of the roll-up (0 for the points
        themselves) and the ns that a point of it spans."""
        config = self._reader.config
        span = int(config.every_seconds) if self.lane is Lane.FAST else 0
        return [(0, span * SECOND), *((step, step * SECOND) for step in config.rollup_seconds)]

    def points(self, step: int, width: int) -> list[Series]:
        """Return all points that may be the newest of an instant, by series."""
        query, found = self.query, list[Series]()
        tags = ", ".join(f'"{tag}"' for tag in TAGS[query.table].all())
        frames, source = frames_field(self.lane), source_of(query.table, step)
        counts = [readings(name) for name in self._names] if step else []
        fields = ", ".join(f'"{name}"' for name in (*self._names, *counts))
        reach = query.reach[self.lane] + 2 * width
        for start, end, last in _spans(query.when, reach, width, max(width, USUAL[self.lane])):
            if time.monotonic() > self._until:
                raise StoreError(
                    f"{self._reader.config.url}: it takes more than {QUERY_SECONDS:g} s",
                    "Request fewer instants, columns or nodes.",
                )
            first = f'last("{frames}")' if last else f'"{frames}"'  # the others are of its point
            found += self._reader.series(
                f"SELECT {first}, {fields} FROM {source} WHERE {self._among}{self._nodes} "
                f"AND time > {start} AND time <= {end} GROUP BY {tags}"
            )
        return found

    def reaches_back(self, step: int) -> bool:
        """Return whether the server has a point of any node from before the first instant."""
        source, frames = source_of(self.query.table, step), frames_field(self.lane)
        return bool(
            self._reader.series(
                f'SELECT "{frames}" FROM {source} WHERE {self._among} AND time <= {self.query.when.first} LIMIT 1'
            )
        )


def _spans(when: PastInstants, reach: int, width: int, usual: int) -> Iterator[tuple[int, int, bool]]:
    """Yield spans of time, start excluded, and whether only the newest point of each counts; `width`
    of a point is to be over at an instant, `usual` is how far points are from each other."""

    def over(at: int) -> int:
        return at - at % width - 1 if width else at

    if when.count == 1 or when.step > SPARSE * usual:  # a span may have parts
        yield from ((at - reach, over(at), not width) for at in when.all().tolist())
        return
    start, end = when.first - reach, over(when.last)
    while start < end:
        yield start, min(end, start + LONGEST * usual), False
        start += LONGEST * usual


def _finest(lane: _LaneQuery) -> tuple[list[Series], int]:
    """Return the points of the finest step that the server has from before the first instant, and
    their width; if it has none of any, those of the finest."""
    first = lane.query.when.first
    finest: tuple[list[Series], int] | None = None
    for step, width in lane.steps():
        found = lane.points(step, width)
        finest = finest or (found, width)
        early = any(rows[0] <= first for series in found for rows in series["values"][:1])
        if early or lane.reaches_back(step):
            return found, width
    return finest or ([], 0)


# -- Answers -------------------------------------------------------------------------------------


def _devices(table: Table, found: Sequence[Series]) -> list[StoredDevice]:
    """Return each device once, by its newest point: a GPU that was moved to another slot is two series
    and one device."""
    its = TAGS[table]
    newest: dict[tuple[str, str], tuple[int, dict[str, str]]] = {}
    for series in found:
        tags, at = series.get("tags", {}), series["values"][-1][0]
        key = its.key_of(tags)
        if key not in newest or newest[key][0] <= at:
            newest[key] = (at, tags)
    return [
        StoredDevice(number, node, key, _number(tags.get(its.number, "")), tags.get(its.name, ""))
        for number, ((node, key), (_, tags)) in enumerate(newest.items())
    ]


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None
