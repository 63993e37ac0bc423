"""Compaction: the segments of a group's period that is over become one, with its roll-ups.

It is sorted piece by piece in memory of its own: a group's hour is more than a store may have for all.

Only the group's holder compacts. The new segment says which ones it replaces; a reader leaves those
out from then on, and the holder removes them later, when no query can have them any more. Segments of
lower epochs are taken in as well, each frame once: that of the highest epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from aggregator.config import StoreConfig
from aggregator.store.duck import DuckEngine, EngineReader, column, quoted, texts
from aggregator.store.rollup import rollup_query, steps_for
from aggregator.store.shared.segment import (
    BlockPart,
    Segment,
    SegmentFooter,
    SegmentName,
    SessionKey,
    current,
    marks_of,
    overlapping,
    source_of,
    spans_of,
)
from aggregator.store.shared.spill import parts_of, write_segment
from aggregator.store.tables import BLOCKS
from telemetry.wire.intervals import IntervalSet

MEMORY_BYTES = 256 << 20
"""For a compaction; what is sorted already goes to the disk where it takes more."""
PIECE_VALUES = 4_000_000
"""Values that are sorted at a time."""


class CompactionPlan(NamedTuple):
    """The segments that one compaction reads, and those that it replaces."""

    group: str
    period: int
    ends: int
    sources: tuple[Segment, ...]
    """Segments of readings that count."""
    replaces: tuple[str, ...]
    """Names of the segments of the period, roll-ups too."""
    others: Mapping[SessionKey, IntervalSet]
    """Frames that a segment of another period holds, and that are left to it."""


class _BlockSource(NamedTuple):
    """Query of the rows of a block, how many these are at most, and their columns."""

    query: str
    rows: int
    columns: tuple[str, ...]


def plan_compaction(
    segments: Sequence[Segment], epoch: int, steps: Sequence[int], now: int, wait_seconds: float
) -> CompactionPlan | None:
    """Return the oldest compaction that is due in a group held under `epoch`; `now` in ns. A period is
    compacted `wait_seconds` after its end, when it has more than one segment or lacks a roll-up."""
    counting = current(segments)
    if any(segment.key.epoch > epoch for segment in counting):
        return None  # another member holds the group
    periods: dict[int, list[Segment]] = {}
    for segment in counting:
        periods.setdefault(segment.key.period, []).append(segment)
    for period, found in sorted(periods.items()):
        readings = [segment for segment in found if not segment.key.step]
        ends = max(segment.footer.ends for segment in found)
        if not readings or ends + wait_seconds > now / 1e9:
            continue
        made = {segment.key.step for segment in found if segment.key.step}
        if len(readings) == 1 and made >= _steps(readings[0], steps):
            continue
        ours = {segment.name for segment in readings}
        others = [segment for segment in counting if not segment.key.step]
        return CompactionPlan(
            segments[0].key.group,
            period,
            ends,
            tuple(readings),
            tuple(sorted(each.name for each in segments if each.key.period == period)),
            _held_elsewhere(readings, [each for each in others if each.name not in ours]),
        )
    return None


def _steps(segment: Segment, steps: Sequence[int]) -> set[int]:
    """Return the steps of the roll-ups of a segment."""
    return {step for part in segment.footer.blocks for step in steps_for(BLOCKS[part.name], steps)}


def _held_elsewhere(readings: Sequence[Segment], others: Sequence[Segment]) -> dict[SessionKey, IntervalSet]:
    """Return the frames of a period that are left to a segment of another one, which has them under a
    higher epoch, or under the same and was written before: a roll-up must not count them twice."""
    found: dict[SessionKey, IntervalSet] = {}
    for segment in readings:
        spans = spans_of(segment.footer.marks)
        for other in others:
            if (other.key.epoch, -other.key.period) < (segment.key.epoch, -segment.key.period):
                continue
            for mark in other.footer.marks:
                held = spans.get((mark.node, mark.session))
                for first, last in held or ():
                    low, high = max(first, mark.first), min(last, mark.last)
                    if low <= high:
                        found.setdefault((mark.node, mark.session), IntervalSet()).add_span(low, high)
    return found


def compact(
    engine: DuckEngine, folder: Path, plan: CompactionPlan, epoch: int, number: int, config: StoreConfig
) -> list[Segment]:
    """Write the segment of a plan and its roll-ups into a folder. Raises `StoreError` or `OSError`."""
    name = SegmentName(plan.group, epoch, 0, plan.period, number)
    spans = spans_of(mark for segment in plan.sources for mark in segment.footer.marks)
    for key, others in plan.others.items():
        for first, last in others:
            spans[key].remove_span(first, last)
    footer = SegmentFooter(plan.group, epoch, 0, plan.period, plan.ends, (), marks_of(spans), plan.replaces)
    with engine.apart(folder.with_name("compacting"), MEMORY_BYTES) as reader:
        sources = _sources(reader, plan)
        made = [
            _written(
                reader,
                folder,
                name,
                footer,
                sources,
                lambda block, rows: f"select {', '.join(map(column, sources[block].columns))} from {rows}",
            )
        ]
        source = made[0]
        for at, step in enumerate(config.rollup_seconds):
            finer = source if at == 0 else made[-1]
            rollup = _rollup(reader, folder, source, finer, step, config)
            if rollup is not None:
                made.append(rollup)
    return made


def _sources(reader: EngineReader, plan: CompactionPlan) -> dict[str, _BlockSource]:
    """Return all rows of each block in a plan's sources, each frame's once."""
    overlap = overlapping(plan.sources)
    having: dict[str, list[tuple[Segment, BlockPart]]] = {}
    for segment in plan.sources:
        for part in segment.footer.blocks:
            having.setdefault(part.name, []).append((segment, part))
    sources = {
        block: _BlockSource(
            source_of([segment for segment, _ in its], overlap, block),
            sum(part.rows for _, part in its),
            tuple(dict.fromkeys(each for _, part in its for each in part.columns)),
        )
        for block, its in sorted(having.items())
    }
    if not plan.others:
        return sources
    left = [(node, session, first, last) for (node, session), spans in plan.others.items() for first, last in spans]
    numbers = np.array([one[1:] for one in left], np.int64)
    reader.register(
        "elsewhere",
        {
            "node": texts([one[0] for one in left]),
            **{name: np.ascontiguousarray(numbers[:, at]) for at, name in enumerate(("session", "first", "last"))},
        },
    )
    return {
        block: source._replace(
            query=f"(select r.* from {source.query} as r where not exists (select 1 from elsewhere as e where "
            "e.node = r.node and e.session = r.session and r.seq between e.first and e.last))"
        )
        for block, source in sources.items()
    }


def _written(
    reader: EngineReader,
    folder: Path,
    name: SegmentName,
    footer: SegmentFooter,
    sources: Mapping[str, _BlockSource],
    made_of: Callable[[str, str], str],
) -> Segment:
    """Write a segment of the rows of each block in its sources, sorted piece by piece. `made_of`: returns the
    query of what is made of rows of a block."""
    tables = [f"sorted_{block}" for block in sources]
    for table, (block, source) in zip(tables, sources.items(), strict=True):
        for number, devices in enumerate(_pieces(reader, source)):
            rows = made_of(block, f"(select * from {source.query} where {devices})")
            begin = f"insert into {table} by name" if number else f"create temp table {table} as"
            reader.run(f"{begin} select {quoted(block)} as block, * from ({rows}) order by device, node, ts")
    query = " union all by name ".join(f"select * from {table}" for table in tables)
    parts = parts_of(reader, f"({query})").get(0, ())
    footer = msgspec.structs.replace(footer, blocks=parts)
    made = write_segment(reader, folder, name, footer, query)
    for table in tables:
        reader.run(f"drop table {table}")
    return made


def _pieces(reader: EngineReader, source: _BlockSource) -> list[str]:
    """Return conditions on devices that divide the rows of a block into pieces, in order."""
    most = max(1, PIECE_VALUES // len(source.columns))
    if source.rows <= most:
        return ["true"]
    pieces: list[tuple[str, str]] = []
    rows = most
    for device, count in reader.rows(f"select device, count(*) from {source.query} group by device order by device"):
        if rows + count > most:
            pieces.append((device, device))
            rows = 0
        rows += count
        pieces[-1] = pieces[-1][0], device
    return [f"device between {quoted(first)} and {quoted(last)}" for first, last in pieces]


def _rollup(
    reader: EngineReader, folder: Path, readings: Segment, finer: Segment, step: int, config: StoreConfig
) -> Segment | None:
    """Write the roll-up of a segment of readings, from itself or from a finer roll-up."""
    sources: dict[str, _BlockSource] = {}
    made: dict[str, Callable[[str], str]] = {}
    finer_parts = {part.name: part for part in finer.footer.blocks}
    for part in readings.footer.blocks:
        steps = steps_for(BLOCKS[part.name], config.rollup_seconds)
        if step not in steps:
            continue
        source = finer if part.name in finer_parts else readings
        rows = f"(select * from read_parquet({quoted(source.place)}, hive_partitioning = false) where block = {quoted(part.name)})"
        sources[part.name] = _BlockSource(rows, finer_parts.get(part.name, part).rows, part.columns)
        made[part.name] = partial(
            rollup_query, source_step=source.key.step, step=step, block=BLOCKS[part.name], there=set(part.columns)
        )
    if not sources:
        return None
    name = readings.key._replace(step=step)
    footer = SegmentFooter(name.group, name.epoch, step, name.period, readings.footer.ends, (), (), (), readings.name)
    return _written(reader, folder, name, footer, sources, lambda block, rows: made[block](rows))
