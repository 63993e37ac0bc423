"""A fleet's past: the newest readings of all devices of a table at some instants.

Files are sorted by device and then time, so that an instant lies in all of them: the cost is in
finding it, and several instants at one distance cost hardly more than one. Each period is read from
one place, as for history; a value of a roll-up counts from its bucket's last reading.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from aggregator.store.duck import EngineReader, column, quoted
from aggregator.store.manifest import SealedFile
from aggregator.store.protocol import FleetPast, PastInstants, StoredDevice
from aggregator.store.provisional import PREFIX, spanning_means
from aggregator.store.rollup import readings
from aggregator.store.sealed_files import TimeWindow
from aggregator.store.tables import BLOCKS
from telemetry.errors import StoreError
from telemetry.metric import Lane, Table
from telemetry.wire.schema import Block
from telemetry.wire.tables import KINDS

SECOND = 1_000_000_000
Longs = npt.NDArray[np.int64]
Found = dict[str, npt.NDArray[Any]]
"""Rows by columns: `k` (number of the instant), `id`, `ts`, `wide` (ns of its bucket), the metrics."""


class PastChoice(Protocol):
    """The sealed files that one query reads, wherever they lie."""

    @property
    def files(self) -> list[SealedFile]:
        """The files that can be read."""

    def spanning(self, block: str, start: int, end: int, step: float) -> list[SealedFile]:
        """Return the files of all devices (`Index.spanning`)."""

    def source(self, files: Sequence[SealedFile]) -> str:
        """Return the SQL of the rows of files of one block and step."""

    def incomplete(self) -> list[TimeWindow]:
        """Return the windows whose files are lost, joined and in order."""


@dataclass(frozen=True, slots=True)
class PastQuery:
    """A query for the past of a table."""

    table: Table
    columns: tuple[str, ...]
    when: PastInstants
    reach: dict[Lane, int]
    nodes: Sequence[str] | None


FEW = 30_000_000_000
"""ns: with a reach so long, only the newest reading of each cell leaves the engine, whose memory is
bounded; a usual reach has few readings, and choosing among them here is cheaper."""


def read_past(
    reader: EngineReader, sealed: PastChoice, periods: Mapping[int, Mapping[str, str]], query: PastQuery
) -> FleetPast:
    """Return the past that a query is for. Raises `StoreError` for a metric that is not of the table."""
    blocks = [block for block in BLOCKS.values() if block.table is query.table]
    for name in query.columns:
        if not any(name in block.names for block in blocks):
            raise StoreError(f"past: the table {query.table} has no metric {name!r}")
    ids = _keys(reader, query.nodes)
    found: dict[Lane, Found] = {}
    slack: dict[Lane, int] = {}
    for block in blocks:
        metrics = [name for name in block.names if name in query.columns]
        if metrics and ids == {}:
            found[block.lane] = {}  # no device of these nodes yet: all columns, all gaps
        elif metrics:
            sources, wide = _sources(reader, sealed, periods, block, metrics, query, ids)
            slack[block.lane] = wide
            sql = " union all ".join(sources)
            found[block.lane] = (
                reader.columns(_numbered(sql, query.when, query.reach[block.lane], wide)) if sources else {}
            )
    known = [rows["id"] for rows in found.values() if rows]
    numbers: Longs = np.unique(np.concatenate(known)) if known else np.empty(0, np.int64)
    later = later_than(reader, query.table, query.when.first)
    begins = _begins(reader, sealed, periods, blocks)
    past = FleetPast(_devices(reader, numbers), {}, {}, slack, later, begins, sealed.incomplete())
    for block in blocks:
        rows = found.get(block.lane)
        if rows is not None:
            metrics = [name for name in block.names if name in query.columns]
            enter(past, rows, numbers, query, block.lane, metrics)
    return past


def _keys(reader: EngineReader, nodes: Sequence[str] | None) -> dict[int, str] | None:
    """Return number and key of all devices of some nodes; None for all."""
    if nodes is None:
        return None
    found = reader.rows("select id, key from devices where list_contains(?, node)", list(nodes))
    return dict(found)


def _begins(
    reader: EngineReader, sealed: PastChoice, periods: Mapping[int, Mapping[str, str]], blocks: Sequence[Block]
) -> int | None:
    names = {block.name for block in blocks}
    files = [file for file in sealed.files if file.block in names]
    if files or not periods:  # of the oldest period the finest kind: an hour begins with the hour
        first = min(files, key=lambda file: (file.period, file.step, file.first_ts), default=None)
        return None if first is None else first.first_ts
    oldest = periods[min(periods)]
    found = [reader.rows(f"select min(ts) from {oldest[name]}")[0][0] for name in sorted(names)]
    return min((at for at in found if at is not None), default=None)


def _devices(reader: EngineReader, numbers: Longs) -> list[StoredDevice]:
    rows = reader.rows(
        'select id, node, key, "index", name from devices where list_contains(?, id) order by id', numbers.tolist()
    )
    return [
        StoredDevice(number, node, key, None if index is None or index < 0 else index, name or "")
        for number, node, key, index, name in rows
    ]


_PREFIXED = {table: f"starts_with(key, '{kind.prefix}')" for table, kind in KINDS.items() if kind.prefix}
_BARE = " and ".join(f"not {each}" for each in ("key = node", *_PREFIXED.values()))
_KEYS = {
    Table.NODE: "key = node",
    Table.GPU: f"{_BARE} and not contains(key, '/')",
    Table.LINK: f"{_BARE} and contains(key, '/')",
    **{table: f"key <> node and {its}" for table, its in _PREFIXED.items()},
}
"""Condition of the keys of each table."""


def later_than(reader: EngineReader, table: Table, at: int) -> set[tuple[str, str]]:
    """Return node and key of the devices of a table that came only after `at`."""
    found = reader.rows(f"select node, key from devices where since > ? and {_KEYS[table]}", at)
    return {(node, key) for node, key in found}


# -- Sources of rows -----------------------------------------------------------------------------


def _sources(
    reader: EngineReader,
    sealed: PastChoice,
    periods: Mapping[int, Mapping[str, str]],
    block: Block,
    metrics: Sequence[str],
    query: PastQuery,
    ids: Mapping[int, str] | None,
) -> tuple[list[str], int]:
    """Return queries that give `id`, `ts` and the metrics, and how wide their widest bucket is, ns."""
    when, reach = query.when, query.reach[block.lane]
    start, end = when.first - reach, when.last + 1
    among = "" if ids is None else f" and device in ({', '.join(map(str, ids))})"
    names = ", ".join(map(column, metrics))
    queries = [
        f"select device as id, ts, 0::bigint as wide, {names} from {tables[block.name]} "
        f"where ts > {start} and ts < {end}{among}"
        for tables in periods.values()
    ]
    spans = spanning_means(reader, block, start, end)
    if spans:
        first = start - spans * SECOND
        queries.append(
            f"select device as id, ts, {spans * SECOND}::bigint as wide, {names} "
            f"from {PREFIX}{block.name} where ts > {first} and ts < {end}{among}"
        )
    by_step: dict[int, list[SealedFile]] = {}
    step = when.step / SECOND if when.count > 1 else 0.0
    low, high = (min(ids.values()), max(ids.values())) if ids else ("", "")
    for file in sealed.spanning(block.name, start, end, step):
        if ids and (file.high_device < low or file.low_device > high):
            continue
        by_step.setdefault(file.step, []).append(file)
    for width, files in by_step.items():
        queries.append(_sealed(sealed.source(files), files, width, block, metrics, start, end, ids))
    return queries, max(by_step, default=spans) * SECOND


def _sealed(
    source: str,
    files: Sequence[SealedFile],
    width: int,
    block: Block,
    metrics: Sequence[str],
    start: int,
    end: int,
    ids: Mapping[int, str] | None,
) -> str:
    there = set[str]().union(*(file.columns for file in files))
    at = "f.last_ts" if width else "f.ts"
    among = ""
    if ids is not None:  # by both: the key finds the row groups, the number is the node's own device
        keys = ", ".join(map(quoted, ids.values()))
        among = f" and f.device in ({keys}) and d.id in ({', '.join(map(str, ids))})"
    # A bucket begins up to its width before its last reading, which counts for as long again.
    first = start - 2 * width * SECOND
    where = (
        f"from {source} as f join devices as d on d.key = f.device and d.node = f.node "
        f"where f.ts > make_timestamp_ns({max(0, first)}) and f.ts < make_timestamp_ns({end}) "
        f"and {at} < make_timestamp_ns({end}){among}"
    )
    if not width:
        names = ", ".join(_named(f"f.{column(name)}", name, there) for name in metrics)
        return f"select d.id as id, epoch_ns(f.ts) as ts, 0::bigint as wide, {names} {where}"
    names = ", ".join(_named(_joined(block, name), name, there) for name in metrics)
    return (  # late readings of a bucket are in another file: those of an hour's last second, every time
        f"select d.id as id, epoch_ns(max(f.last_ts)) as ts, {width * SECOND}::bigint as wide, "
        f"{names} {where} group by d.id, f.ts"
    )


def _named(value: str, name: str, there: set[str]) -> str:
    return f"{value if name in there else 'null::float'} as {column(name)}"


def _joined(block: Block, name: str) -> str:
    """Return the value of all parts of a bucket."""
    value, many = f"f.{column(name)}", f"f.{column(readings(name))}"
    if name in block.gauges:
        return f"(sum({value}::double * {many}) / sum({many}))::float"
    return f"arg_max({value}, f.last_ts)"


def _numbered(sql: str, when: PastInstants, reach: int, wide: int) -> str:
    """Return the SQL of rows with the number of the first instant that is not before each; without
    those that are too old for it when instants are far from each other. `wide`: of the widest."""
    number = f"case when ts <= {when.first} then 0 else (ts - {when.first} - 1) // {when.step} + 1 end"
    rows = f"select {number} as k, * from ({sql})"
    if reach + wide < when.step:
        rows = f"select * from ({rows}) where {when.first} + k * {when.step} - ts < {reach} + wide"
    if reach + wide > FEW:
        rows += " qualify row_number() over (partition by k, id order by ts desc) = 1"
    return rows


# -- From rows to columns ----------------------------------------------------------------------------------


def enter(past: FleetPast, rows: Found, numbers: Longs, query: PastQuery, lane: Lane, metrics: Sequence[str]) -> None:
    """Enter the newest row of each device at each instant: a row counts until the next, or until it is
    too old. `numbers`: the ids of `past.devices`, sorted."""
    count, many = query.when.count, len(numbers)
    newest = np.full(count * many, -1, np.int64)
    stamps: Longs = np.zeros(1, np.int64)
    wide: Longs = np.zeros(1, np.int64)
    if rows:
        order = np.argsort(rows["ts"], kind="stable")
        cell = rows["k"].astype(np.int64) * many + np.searchsorted(numbers, rows["id"])
        newest[cell[order]] = order  # of several the last one stays: the newest
        stamps = np.append(rows["ts"].astype(np.int64), 0)
        wide = np.append(rows["wide"].astype(np.int64), 0)
    held = hold(newest.reshape(count, many))
    oldest = query.when.all()[:, None] - query.reach[lane] - wide[held]
    held[stamps[held] <= oldest] = -1
    past.seen[lane] = stamps[held]
    for name in metrics:
        values = rows[name] if rows else np.empty(0, np.float32)
        past.columns[name] = np.append(values, np.full(1, np.nan, values.dtype))[held]


def hold(newest: Longs) -> Longs:
    """Return the number of a row for each instant and device: where it is below 0, that of the
    instant before."""
    count, many = newest.shape
    place = np.where(newest >= 0, np.arange(count)[:, None], 0)
    np.maximum.accumulate(place, axis=0, out=place)
    held: Longs = newest[place, np.arange(many)[None, :]]
    return held
