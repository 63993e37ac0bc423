"""A fleet's past out of InfluxDB: the last point of each device before each of some instants.

Points are grouped by the time between two instants, so a reading's own time is known to that. Means
carry the time at which they began: what they are of reaches `every_seconds` beyond it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aggregator.influx.names import METRICS
from aggregator.influx.reader import Reader, quoted, source_of
from aggregator.model import Device, Past
from aggregator.store.past import Asked, Longs, hold
from telemetry.errors import StoreError
from telemetry.metric import Kind, Lane, Table

SECOND = 10**9
_TAGS = {
    Table.GPU: ("node", "uuid", "gpu", "model"),
    Table.LINK: ("node", "uuid", "link"),
    Table.NODE: ("node",),
}
"""What makes a series of each table."""


def read_past(reader: Reader, asked: Asked, later: set[tuple[str, str]]) -> Past:
    """Return what there is. Raises `StoreError` for a metric that is none of the table."""
    lanes: dict[Lane, list[str]] = {}
    for name in asked.columns:
        metric = METRICS.get(name)
        if metric is None or metric.table is not asked.table:
            raise StoreError(f"past: the table {asked.table} has no metric {name!r}")
        lanes.setdefault(metric.lane, []).append(name)
    config = reader.config
    slack = {
        lane: round(config.every_seconds * SECOND) if lane is Lane.FAST else 0 for lane in lanes
    }
    found = {
        lane: _read(reader, asked, asked.reach[lane] + slack[lane], names)
        for lane, names in lanes.items()
    }
    devices = {key: None for series in found.values() for key in map(_key, series)}
    places = {key: place for place, key in enumerate(devices)}
    past = Past(
        [_device(asked.table, place, dict(key)) for key, place in places.items()],
        {}, {}, slack, later,
    )  # fmt: skip
    for lane, names in lanes.items():
        _place(past, found[lane], places, asked, lane, names)
    return past


def _read(reader: Reader, asked: Asked, reach: int, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the series of the finest measurement that has any."""
    when = asked.when
    step = when.step if when.count > 1 else reach
    start, end = when.first - reach, when.last + 1
    where = [f'"cluster" = {quoted(reader.cluster)}', f"time >= {start}", f"time < {end}"]
    if asked.nodes is not None:
        named = " OR ".join(f'"node" = {quoted(node)}' for node in asked.nodes)
        where.append(f"({named})" if named else "time < 0")
    values = ", ".join(f'last("{name}")' for name in names)
    tags = ", ".join(f'"{tag}"' for tag in _TAGS[asked.table])
    # The last of a group is the newest that is not after the instant, which ends it: hence + 1 ns.
    offset = (when.first + 1) % step
    for width in (0, *reader.config.rollup_seconds):
        found = reader.series(
            f"SELECT {values} FROM {source_of(asked.table, width)} WHERE {' AND '.join(where)} "
            f"GROUP BY time({step}ns, {offset}ns), {tags} fill(none)"
        )
        if found:
            return found
    return []


def _key(series: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(series.get("tags", {}).items())


def _device(table: Table, number: int, tags: dict[str, str]) -> Device:
    node = tags.get("node", "")
    match table:
        case Table.GPU:
            return Device(number, node, tags["uuid"], _number(tags["gpu"]), tags.get("model", ""))
        case Table.LINK:
            return Device(number, node, f"{tags['uuid']}/{tags['link']}", _number(tags["link"]))
        case Table.NODE:
            return Device(number, node, node)


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _place(
    past: Past,
    found: list[dict[str, Any]],
    places: dict[tuple[tuple[str, str], ...], int],
    asked: Asked,
    lane: Lane,
    names: Sequence[str],
) -> None:
    when, count = asked.when, asked.when.count
    step = when.step if count > 1 else asked.reach[lane] + past.slack[lane]
    newest: Longs = np.full((count, len(places)), -1, np.int64)
    rows: list[list[float | None]] = []
    for series in found:
        place = places[_key(series)]
        for at, *values in series["values"]:
            number = max(0, -(-(at + step - 1 - when.first) // step))
            if number < count:
                newest[number, place] = len(rows)
                rows.append([min(at + step - 1, when.first + number * when.step), *values])
    held = hold(newest)
    table = np.array([*rows, [0, *[None] * len(names)]], np.float64)
    stamps: Longs = np.array([*(row[0] for row in rows), 0], np.int64)
    oldest = when.all()[:, None] - (asked.reach[lane] + past.slack[lane])
    held[stamps[held] <= oldest] = -1
    past.seen[lane] = stamps[held]
    for column, name in enumerate(names, 1):
        narrow = METRICS[name].kind is Kind.GAUGE
        values = table[:, column][held]
        past.columns[name] = values.astype(np.float32) if narrow else values
