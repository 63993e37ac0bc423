"""Roll-ups: aggregates of readings that are too old to be stored one by one.

A roll-up has one row per device and bucket: for a gauge its mean, lowest and highest value and how
many readings they are made of, for a counter its last value. Buckets are of the nodes' clocks; a
bucket may be spread over several files (late frames), and the counts let readers join it.
"""

from __future__ import annotations

from collections.abc import Sequence

from aggregator.store.duck import column
from telemetry.metric import Lane
from telemetry.wire.schema import Block

SLOW_LEAST = 30
"""Seconds: shorter buckets of readings that come every 15 s would save nothing."""

IDENTITY = ("node", "device", "name", "index")


def steps_for(block: Block, steps: Sequence[int]) -> list[int]:
    """Return the steps that save space for a block."""
    return [step for step in steps if block.lane is Lane.FAST or step >= SLOW_LEAST]


def low(metric: str) -> str:
    """Return the column of a gauge's lowest value."""
    return f"{metric}__low"


def high(metric: str) -> str:
    """Return the column of a gauge's highest value."""
    return f"{metric}__high"


def readings(metric: str) -> str:
    """Return the column with the number of readings of a metric in a bucket."""
    return f"{metric}__n"


def rollup_query(source: str, source_step: int, step: int, block: Block, there: set[str]) -> str:
    """Return the query that makes a roll-up from readings (`source_step` 0) or a finer roll-up.

    `there` are the metrics that the source has.
    """
    width = step * 1_000_000_000
    parts = [column(name) for name in IDENTITY]
    parts.append(f"make_timestamp_ns(epoch_ns(ts) - epoch_ns(ts) % {width}) as ts")
    parts.append("max(ts) as last_ts" if not source_step else "max(last_ts) as last_ts")
    order = "ts" if not source_step else "last_ts"
    for metric in block.gauges:
        if metric not in there:
            continue
        value, least, most, many = map(column, (metric, low(metric), high(metric), readings(metric)))
        if source_step:
            parts.append(
                f"(sum({value}::double * {many}) / sum({many}))::float as {value}, "
                f"min({least}) as {least}, max({most}) as {most}, sum({many})::uinteger as {many}"
            )
        else:
            parts.append(
                f"avg({value})::float as {value}, min({value}) as {least}, "
                f"max({value}) as {most}, count({value})::uinteger as {many}"
            )
    for metric in block.counters:
        if metric not in there:
            continue
        value, many = column(metric), column(readings(metric))
        total = f"sum({many})" if source_step else f"count({value})"
        parts.append(f"arg_max({value}, {order}) as {value}, {total}::uinteger as {many}")
    return (
        f"select {', '.join(parts)} from {source} "
        f"group by {', '.join(column(name) for name in IDENTITY)}, "
        f"epoch_ns(ts) - epoch_ns(ts) % {width} order by device, node, ts"
    )
