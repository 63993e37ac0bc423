"""History: one metric of one device over time, from wherever its rows are by now.

Each period of arrival is read from one place: its hot table, its sealed readings, or the coarsest
roll-up that divides the requested step. Files are chosen by the manifest (time and device range)
and are sorted by device, so that one device's hour touches a row group or two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from aggregator.store.duck import ReadConnection, column, quoted
from aggregator.store.manifest import SealedFile
from aggregator.store.protocol import HistorySeries
from aggregator.store.provisional import PREFIX, provisional_windows, without_replaced
from aggregator.store.rollup import high, low, readings
from aggregator.store.sealed_files import TimeWindow
from aggregator.store.tables import BLOCKS
from telemetry.errors import StoreError
from telemetry.wire.intervals import IntervalSet
from telemetry.wire.schema import Block

MOST_BUCKETS = 1_000_000
HistoryRow = tuple[int, float | None, float | None, float | None]
"""Start of a bucket, ns; mean or last, lowest, highest."""


class SealedChoice(Protocol):
    """The sealed files that one query reads, wherever they lie."""

    def find(self, block: str, device: str, start: int, end: int, step: float) -> list[SealedFile]:
        """Return the files of a device (`Index.find`)."""

    def source(self, files: Sequence[SealedFile]) -> str:
        """Return the SQL of the rows of files of one block and step."""

    def incomplete(self) -> list[TimeWindow]:
        """Return the windows whose files are lost, joined and in order."""


def read_history(
    engine: ReadConnection,
    sealed: SealedChoice,
    periods: Mapping[int, Mapping[str, str]],
    device: str,
    metric: str,
    start: int,
    end: int,
    step: float,
    but: Mapping[int, IntervalSet] | None = None,
) -> HistorySeries:
    """Return buckets of `step` seconds, or every reading when it is 0; wider ones where nothing finer
    is kept. Times in ns since 1970. `but`: by run, frames of the hot tables that are left out, for
    they are among the sealed ones too."""
    block = next((block for block in BLOCKS.values() if metric in block.names), None)
    if block is None:
        raise StoreError(f"history: there is no metric {metric!r}; docs/metrics.md names them all")
    width = bucket_width(step, start, end)
    sources = _hot(engine, periods, block, device, metric, start, end, but or {})
    files, widest = _sealed(sealed, block, device, metric, start, end, step)
    sources += files
    if widest * 1e9 > width:  # nothing finer is kept: shorter buckets would look like gaps
        step, width = float(widest), widest * 1_000_000_000
    if not sources:
        return series_of(device, metric, step, [], sealed.incomplete())
    union = " union all ".join(sources)
    if not width:
        rows = engine.rows(f"select moment, mean, low, high from ({union}) order by moment")
    else:
        value = "sum(mean * n) / sum(n)" if metric in block.gauges else "arg_max(last, last_at)"
        rows = engine.rows(
            f"select moment - moment % {width} as bucket, {value}, min(low), max(high) "
            f"from ({union}) group by bucket order by bucket"
        )
        rows = filled(rows, width)
    means = provisional_windows(engine, block, device, start, end, but)
    return series_of(device, metric, step, rows, sealed.incomplete(), means)


def _hot(
    engine: ReadConnection,
    periods: Mapping[int, Mapping[str, str]],
    block: Block,
    device: str,
    metric: str,
    start: int,
    end: int,
    but: Mapping[int, IntervalSet],
) -> list[str]:
    ids = [number for (number,) in engine.rows("select id from devices where key = ?", device)]
    if not ids:
        return []
    among = ", ".join(str(number) for number in ids)
    where = f" where device in ({among}) and ts >= {start} and ts < {end}"
    unless = "".join(
        f" and not (run = {run} and seq between {first} and {last})"
        for run, spans in but.items()
        for first, last in spans
    )
    return [
        *(_readings("ts", column(metric), each[block.name]) + where + unless for each in periods.values()),
        _readings("ts", column(metric), PREFIX + block.name, weight="frames") + where + without_replaced(but),
    ]


def _sealed(
    sealed: SealedChoice, block: Block, device: str, metric: str, start: int, end: int, step: float
) -> tuple[list[str], int]:
    """Return queries, and the seconds of the widest bucket among what they find."""
    chosen: dict[int, list[SealedFile]] = {}
    for file in sealed.find(block.name, device, start, end, step):
        if metric in file.columns:
            chosen.setdefault(file.step, []).append(file)
    queries = []
    for width, files in chosen.items():
        source = sealed.source(files)
        value = column(metric)
        first = start - start % (width * 1_000_000_000) if width else start
        where = (
            f" where device = {quoted(device)} and ts >= make_timestamp_ns({first}) and ts < make_timestamp_ns({end})"
        )
        if not width:
            queries.append(_readings("epoch_ns(ts)", value, source) + where)
            continue
        gauge = metric in block.gauges
        least, most = (low(metric), high(metric)) if gauge else (metric, metric)
        queries.append(
            f"select epoch_ns(ts) as moment, {column(readings(metric))}::bigint as n, "
            f"{value}::double as mean, {column(least)}::double as low, "
            f"{column(most)}::double as high, epoch_ns(last_ts) as last_at, "
            f"{value}::double as last from {source}" + where
        )
    return queries, max(chosen, default=0)


def _readings(at: str, value: str, source: str, weight: str = "1") -> str:
    return (
        f"select {at} as moment, ({value} is not null)::bigint * {weight} as n, {value}::double as mean, "
        f"{value}::double as low, {value}::double as high, {at} as last_at, "
        f"{value}::double as last from {source}"
    )


# -- For every store -----------------------------------------------------------------------------


def bucket_width(step: float, start: int, end: int) -> int:
    """Return the ns of a bucket of `step` seconds. Raises `StoreError` for too many buckets."""
    width = round(step * 1e9)
    if width and (end - start) // width > MOST_BUCKETS:
        raise StoreError(
            f"history: {step} s from {start} to {end} are more than {MOST_BUCKETS} buckets; choose a longer step"
        )
    return width


def filled(rows: Sequence[HistoryRow], width: int) -> list[HistoryRow]:
    """Insert an empty bucket wherever one is missing between the first and the last."""
    found: list[HistoryRow] = []
    for row in rows:
        while found and found[-1][0] + width < row[0]:
            found.append((found[-1][0] + width, None, None, None))
        found.append(row)
    return found


def series_of(
    device: str,
    metric: str,
    step: float,
    rows: Sequence[HistoryRow],
    incomplete: Sequence[TimeWindow] = (),
    provisional: Sequence[TimeWindow] = (),
) -> HistorySeries:
    """Return rows as the columns of a series."""
    return HistorySeries(
        device,
        metric,
        step,
        [row[0] for row in rows],
        [row[1] for row in rows],
        [row[2] for row in rows],
        [row[3] for row in rows],
        list(incomplete),
        list(provisional),
    )
