"""The past of devices as series of charts, in the units of people."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median
from typing import Any, NamedTuple

from aiohttp import web

from aggregator.http.history import USUAL_POINTS, StoredPast, series_of
from aggregator.web.load_chart import LoadSeries
from aggregator.web.made_once import MadeOnce
from telemetry.catalogue import BY_NAME
from telemetry.metric import Table, Unit

_UNITS = {
    Unit.WATTS: (1.0, "W"),
    Unit.CELSIUS: (1.0, "°C"),
    Unit.RATIO: (100.0, "%"),
    Unit.HERTZ: (1e-6, "MHz"),
    Unit.BYTES: (2.0**-30, "GiB"),
    Unit.FLAG: (1.0, ""),
}
"""Factor and unit of a chart's axis."""
FROM_DATA = frozenset({Unit.CELSIUS, Unit.HERTZ})
"""Units whose zero says nothing: their axis begins near the lowest reading."""
SHARED_PAST = web.AppKey("shared_past", MadeOnce[Any])
"""Readings of the past as pages have asked for them: a page beside others asks the store some dozens of questions, of 5 ms
each."""
PAST_SECONDS, MOST_PASTS = 10.0, 80
_LEAST_BUCKET = 10
"""Seconds: a node that reads once a second has several readings in it, whatever its phase."""


def factor(name: str) -> float:
    """Return by what a reading is multiplied for its chart."""
    return _UNITS[BY_NAME[name].unit][0]


async def readings_of(
    stored: StoredPast, kind: Table, device: str, name: str, start: int, end: int, bucket: int | None = None
) -> LoadSeries:
    """Return the past of a metric of a device, in the unit of its chart; `bucket`: seconds of each mean."""
    metric = BY_NAME[name]
    step = None if bucket is None else f"{bucket}s"
    found = await series_of(stored, kind, device, metric, start, end, step)
    scale, unit = _UNITS[metric.unit]
    mean, high = (
        [None if value is None or value != value else value * scale for value in column]  # noqa: PLR0124 - NaN
        for column in (found.mean, found.high)
    )
    return LoadSeries(found.at, mean, high, unit, round(max(found.step, 15.0) * 1e9))


async def traffic_of(stored: StoredPast, port: str, name: str, start: int, end: int) -> LoadSeries:
    """Return the rate of a counter of bytes of a port, in Gb/s; not known across a reset."""
    found = await series_of(stored, Table.PORT, port, BY_NAME[name], start, end)
    rates: list[float | None] = []
    before: tuple[int, float] | None = None
    for at, count in zip(found.at, found.high, strict=True):
        if count is None or math.isnan(count):
            rates.append(None)
            continue
        grown = None if before is None else (count - before[1]) / ((at - before[0]) / 1e9)
        rates.append(grown * 8e-9 if grown is not None and grown >= 0 else None)
        before = at, count
    step = round(max(found.step, 15.0) * 1e9)
    return LoadSeries(found.at, rates, [None] * len(rates), "Gb/s", step)


async def power_of_gpus(stored: StoredPast, gpus: Sequence[str], start: int, end: int) -> LoadSeries:
    """Return the sum over GPUs of a node; not known where one of them is not."""
    parts = [await readings_of(stored, Table.GPU, uuid, "gpu_power_watts", start, end) for uuid in gpus]
    return _over_gpus([(part, lambda _: True) for part in parts], sum)


def median_of(parts: Sequence[LoadSeries]) -> LoadSeries | None:
    """Return the median of what GPUs of one node did at each instant, of those that are known; None without any."""
    by_time: dict[int, list[float]] = {}
    for part in parts:
        for at, value in zip(part.at, part.values, strict=True):
            if value is not None:
                by_time.setdefault(at, []).append(value)
    if not by_time:
        return None
    instants = sorted(by_time)
    values = [median(by_time[at]) for at in instants]
    return LoadSeries(instants, values, [None] * len(values), parts[0].unit, max(part.step for part in parts))


class JobPast(NamedTuple):
    """Power and use of the GPUs of a job while it held them."""

    power: LoadSeries
    """Sum over the GPUs, W."""
    use: LoadSeries
    """Mean over the GPUs."""
    use_of: Mapping[str, LoadSeries]
    """Use of each GPU, by UUID."""


async def power_and_use(
    stored: StoredPast, held: Mapping[str, Sequence[tuple[int, int]]], start: int, end: int
) -> JobPast:
    """Return the sum of the power of some GPUs and their use, each counted only while it was held; not known where one
    of those that were is not. `held`: begins and ends by UUID, ns since 1970.

    The readings of different nodes never have the same instant: they meet in buckets.
    """
    length = (end - start) / 1e9
    bucket = max(_LEAST_BUCKET, math.ceil(length / USUAL_POINTS))

    async def each(name: str) -> dict[str, LoadSeries]:
        return {uuid: await readings_of(stored, Table.GPU, uuid, name, start, end, bucket) for uuid in held}

    def over(found: Mapping[str, LoadSeries], of: Callable[[list[float]], float]) -> LoadSeries:
        return _over_gpus([(found[uuid], _within(spans, bucket)) for uuid, spans in held.items()], of)

    power, use = await each("gpu_power_watts"), await each("gpu_utilization_ratio")
    return JobPast(over(power, sum), over(use, fmean), use)


def _within(spans: Sequence[tuple[int, int]], bucket: int) -> Callable[[int], bool]:
    """Return whether the middle of a bucket that begins at a time lies within one of some spans."""
    half = bucket * 500_000_000
    return lambda at: any(begin <= at + half < end for begin, end in spans)


def _over_gpus(
    parts: Sequence[tuple[LoadSeries, Callable[[int], bool]]], of: Callable[[list[float]], float]
) -> LoadSeries:
    """Return a figure over the GPUs that count at each instant; None where one of them is not known."""
    by_time = [(dict(zip(part.at, part.values, strict=True)), counts) for part, counts in parts]
    instants = sorted({at for values, _ in by_time for at in values})
    found: list[float | None] = []
    for at in instants:
        values = [values.get(at) for values, counts in by_time if counts(at)]
        known = [value for value in values if value is not None]
        found.append(of(known) if known and len(known) == len(values) else None)
    step = max((part.step for part, _ in parts), default=1)
    unit = parts[0][0].unit if parts else ""
    return LoadSeries(instants, found, [None] * len(found), unit, step)
