"""A spill: the frames of some shard groups that no segment holds yet become one segment a group.

As with sealing, files are made beside the commits, in steps, and count from one transaction on, which
notes their frames as spilled and the files as outgoing. A crash before it leaves files that nothing
names, and they are made again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from aggregator.store import checksum
from aggregator.store.duck import DuckEngine, EngineReader, column, quoted
from aggregator.store.manifest import sync
from aggregator.store.shared.segment import BlockPart, Segment, SegmentFooter, SegmentMark, SegmentName, options_of
from aggregator.store.tables import BLOCKS, FRAMES, columns_of

_OF_SEGMENT = ("node", "device", "name", "index", "session", "seq", "ts", "received")
_OF_ROWS = {"run", "device", "seq", "ts", "received"}
ROWS = "segment_rows"
"""Temporary table of a reader: rows of segments that are being written."""
LEVEL = 1
"""Compression of spills, which a compaction replaces within hours."""
SORTED = "block, device, node, ts"
GroupSpans = Mapping[int, Sequence[tuple[int, int]]]
"""Frames of one group, by run."""


class Spiller:
    """The making of the segments of one spill: `step` until it is `made`."""

    def __init__(
        self,
        engine: DuckEngine,
        folder: Path,
        tables: Mapping[int, Mapping[str, str]],
        spans: Mapping[str, GroupSpans],
        epochs: Mapping[str, int],
        *,
        since: int,
        period: int,
        ends: int,
        number: int,
        slice_rows: int,
    ) -> None:
        """`tables`: the hot ones; `spans`: what to spill of each group; `since`: when the first of these
        frames was received, ns; `number`: of the segments in their period."""
        self.spans = spans
        self.periods = set(tables)
        self.made = False
        self.segments: list[Segment] = []
        self._engine = engine
        self._folder = folder
        self._tables = tables
        self._epochs = epochs
        self._since = since
        self._period, self._ends, self._number = period, ends, number
        self._slice_rows = slice_rows
        self._open_reader: EngineReader | None = None
        self._steps = self._run()

    def step(self) -> None:
        """Make the segments of some groups, beside commits. Raises `StoreError` or `OSError`."""
        with self._engine.reader() as self._open_reader:
            self.made = next(self._steps, None) is None

    def abandon(self) -> None:
        """Remove the files made so far; the tables still hold everything."""
        for segment in self.segments:
            Path(segment.place).unlink(missing_ok=True)

    @property
    def _reader(self) -> EngineReader:
        if self._open_reader is None:
            raise RuntimeError("segments are made in a step")
        return self._open_reader

    def _run(self) -> Iterator[int]:
        part: list[str] = []
        rows = 0
        for group in sorted(self.spans):
            frames = sum(last - first + 1 for spans in self.spans[group].values() for first, last in spans)
            if part and rows + 8 * frames > self._slice_rows:
                yield self._make(part)
                part, rows = [], 0
            part.append(group)
            rows += 8 * frames
        if part:
            yield self._make(part)

    def _make(self, groups: Sequence[str]) -> int:
        reader = self._reader
        spans = [
            (number, run, first, last)
            for number, group in enumerate(groups)
            for run, each in self.spans[group].items()
            for first, last in each
        ]
        table = np.array(spans, np.int64).reshape(-1, 4)
        names = ("grp", "run", "first", "last")
        reader.register("spans", {name: np.ascontiguousarray(table[:, at]) for at, name in enumerate(names)})
        queries = [
            query
            for tables in self._tables.values()
            for block, name in tables.items()
            if block != FRAMES and (query := self._rows_of(block, name))
        ]
        reader.run(
            f"create or replace temp table {ROWS} as select * from "
            f"({' union all by name '.join(queries)}) order by grp, {SORTED}"
        )
        parts = parts_of(reader, ROWS, "grp")
        runs = self._runs(groups)
        for number, group in enumerate(groups):
            name = SegmentName(group, self._epochs.get(group, 0), 0, self._period, self._number)
            footer = SegmentFooter(
                group, name.epoch, 0, self._period, self._ends, parts.get(number, ()), self._marks(group, runs)
            )
            query = f"select {columns_of_parts(footer.blocks)} from {ROWS} where grp = {number} order by {SORTED}"
            if footer.blocks:
                self.segments.append(write_segment(reader, self._folder, name, footer, query, LEVEL))
        reader.run(f"drop table {ROWS}")
        return len(groups)

    def _rows_of(self, block: str, table: str) -> str:
        """Return the query of the rows of a block to spill, with their group's number."""
        metrics = [each for each in columns_of(self._reader, table) if each not in _OF_ROWS]
        return (
            f"select s.grp::integer as grp, {quoted(block)} as block, d.node, d.key as device, d.name, "
            'nullif(d."index", -1) as "index", r.session, t.seq, make_timestamp_ns(t.ts) as ts, '
            f"make_timestamp_ns(t.received) as received, {', '.join('t.' + column(each) for each in metrics)} "
            f"from {table} t join spans s on s.run = t.run and t.seq between s.first and s.last "
            "join devices d on d.id = t.device join runs r on r.id = t.run "
            f"where t.received >= {self._since}"
        )

    def _runs(self, groups: Sequence[str]) -> dict[int, tuple[str, int]]:
        """Return node and session of the runs of groups."""
        wanted = [run for group in groups for run in self.spans[group]]
        rows = self._reader.rows("select id, node, session from runs where list_contains(?, id)", wanted)
        return {run: (node, session) for run, node, session in rows}

    def _marks(self, group: str, runs: Mapping[int, tuple[str, int]]) -> tuple[SegmentMark, ...]:
        known = sorted((runs[run], run) for run in self.spans[group] if run in runs)
        return tuple(
            SegmentMark(node, session, first, last)
            for (node, session), run in known
            for first, last in self.spans[group][run]
        )


def parts_of(reader: EngineReader, source: str, group: str = "0") -> dict[int, tuple[BlockPart, ...]]:
    """Return the description of the rows of each block in a source that has the column `block`, by a number
    that the rows of a segment have in common."""
    there = {name for (name, *_) in reader.rows(f"describe select * from {source}")}
    rows = reader.rows(
        f"select {group} as part, block, count(*), epoch_ns(min(ts)), epoch_ns(max(ts)), min(device), max(device) "
        f"from {source} group by part, block order by part, block"
    )
    found: dict[int, tuple[BlockPart, ...]] = {}
    for part, block, count, first, last, low, high in rows:
        names = tuple(each for each in (*_OF_SEGMENT, *BLOCKS[block].names) if each in there)
        found[part] = (*found.get(part, ()), BlockPart(block, count, first, last, low, high, names))
    return found


def columns_of_parts(parts: Sequence[BlockPart]) -> str:
    """Return the columns that the blocks of a segment have: those of other blocks would be empty."""
    names = dict.fromkeys(name for part in parts for name in part.columns)
    return ", ".join(["block", *map(column, names)])


def write_segment(
    reader: EngineReader, folder: Path, name: SegmentName, footer: SegmentFooter, query: str, level: int = 6
) -> Segment:
    """Write a segment into a folder, synced, with its checksum. `level`: of the compression."""
    path = folder / str(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    reader.run(f"copy ({query}) to {quoted(str(path))} {options_of(footer, level)}")
    checksum.stamp(path, path.name)
    checksum.sidecar_of(path).unlink()  # the footer has it too, and it travels with the file
    sync(path)
    sync(path.parent)
    return Segment(str(name), name, footer, path.stat().st_size, str(path))
