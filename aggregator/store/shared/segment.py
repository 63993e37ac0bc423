"""A segment: an immutable Parquet file with readings of one shard group, under one epoch of its holder.

Its name carries group, epoch and period, its footer the frames that it holds (node, session, numbers)
and what it replaces. So a listing is the manifest: nothing else says which segments there are, and
whoever reads knows of two holders' segments which rows count. All blocks of a group are in one file
(column `block`), so that a segment is there with all of its frames' readings or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple

import msgspec

from aggregator.store import checksum
from aggregator.store.duck import ReadConnection, quoted
from aggregator.store.manifest import RAW, SealedFile
from aggregator.store.tables import period_from_name, period_name
from telemetry.text.decoders import of_json
from telemetry.wire.intervals import IntervalSet

KEY = "kilowatch_segment"
"""Key of the footer's `SegmentFooter`, JSON."""
_NAME = re.compile(
    r"group=([0-9a-f]{2})/epoch=(\d{8,})/(?:rollup_(\d+)/)?"
    r"(\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ)-(\d{10})\.parquet"
)

SessionKey = tuple[str, int]
"""Node and session."""


class SegmentName(NamedTuple):
    """The parts of a segment's name."""

    group: str
    """Two hex digits, as in the topics."""
    epoch: int
    """Epoch under which its writer held the group."""
    step: int
    """Seconds of a roll-up's buckets; 0 for readings."""
    period: int
    """Start of the period in which it was made, seconds since 1970."""
    number: int
    """Tells it from others of its period; the later is the higher."""

    def __str__(self) -> str:
        kind = f"rollup_{self.step}/" if self.step else ""
        return f"group={self.group}/epoch={self.epoch:08d}/{kind}{period_name(self.period)}-{self.number:010d}.parquet"

    @classmethod
    def parse(cls, text: str) -> SegmentName | None:
        """Return the parts of a name; None where it is none of ours."""
        match = _NAME.fullmatch(text)
        period = None if match is None else period_from_name(match[4])
        if match is None or period is None:
            return None
        return cls(match[1], int(match[2]), int(match[3] or 0), period, int(match[5]))


class BlockPart(msgspec.Struct, frozen=True):
    """The rows of one block in a segment."""

    name: str
    rows: int
    first_ts: int
    last_ts: int
    low_device: str
    high_device: str
    columns: tuple[str, ...]


class SegmentMark(msgspec.Struct, frozen=True, array_like=True):
    """Frames of a session that a segment holds, both ends included."""

    node: str
    session: int
    first: int
    last: int


class SegmentFooter(msgspec.Struct, frozen=True):
    """The content of a segment, written into its footer."""

    group: str
    epoch: int
    step: int
    period: int
    ends: int
    """End of the period, seconds since 1970: its age for retention."""
    blocks: tuple[BlockPart, ...]
    marks: tuple[SegmentMark, ...]
    replaces: tuple[str, ...] = ()
    """Names of the segments whose rows are all in this one."""
    made_of: str = ""
    """Of a roll-up: the name of the segment of readings that it was made from."""


class Segment(msgspec.Struct, frozen=True):
    """A segment that can be read."""

    name: str
    key: SegmentName
    footer: SegmentFooter
    bytes: int
    place: str
    """Path or URL that the engine opens."""

    @property
    def kind(self) -> str:
        """Kind as of a sealed file."""
        return str(self.key.step) if self.key.step else RAW

    def sealed_files(self) -> list[SealedFile]:
        """Return its blocks as entries of an `Index`; their path is the segment's name."""
        footer = self.footer
        return [
            SealedFile(
                self.name,
                self.kind,
                part.name,
                footer.period,
                footer.ends,
                part.rows,
                self.bytes,
                part.first_ts,
                part.last_ts,
                part.low_device,
                part.high_device,
                list(part.columns),
            )
            for part in footer.blocks
        ]


_VALUES = 4_000_000
"""Values of a row group."""
_VECTOR = 2048
"""Rows that the engine works on at a time."""


def options_of(footer: SegmentFooter, level: int) -> str:
    """Return the options with which the engine writes a segment; `level`: of its compression."""
    text = msgspec.json.encode(footer).decode()
    columns = len({name for part in footer.blocks for name in part.columns}) + 1
    rows = max(_VECTOR, _VALUES // columns)  # the writer has a row group of all columns in memory
    return (
        f"(format parquet, parquet_version v2, compression zstd, compression_level {level}, "
        f"row_group_size {rows}, kv_metadata {{"
        f"{KEY}: {quoted(text)}, {checksum.KEY}: '{checksum.PLACEHOLDER}'}})"
    )


def read_footer(reader: ReadConnection, place: str, name: SegmentName) -> SegmentFooter:
    """Return a segment's footer. Raises the engine's error for a torn file, `ValueError` for one that
    is no segment, or not the one of that name."""
    rows = reader.rows(f"select value from parquet_kv_metadata({quoted(place)}) where key = ?", KEY.encode())
    if not rows:
        raise ValueError("it is a Parquet file that no member wrote")
    footer = of_json(SegmentFooter).decode(rows[0][0])
    if (footer.group, footer.epoch, footer.step, footer.period) != name[:4]:
        raise ValueError(f"its footer is that of group {footer.group}, epoch {footer.epoch}")
    return footer


# -- Which segments count ------------------------------------------------------------------------


def spans_of(marks: Iterable[SegmentMark]) -> dict[SessionKey, IntervalSet]:
    """Return marks as sets of numbers by session."""
    found: dict[SessionKey, IntervalSet] = {}
    for mark in marks:
        found.setdefault((mark.node, mark.session), IntervalSet()).add_span(mark.first, mark.last)
    return found


def marks_of(spans: Mapping[SessionKey, IntervalSet]) -> tuple[SegmentMark, ...]:
    """Return sets of numbers as marks, in order."""
    return tuple(
        SegmentMark(node, session, first, last)
        for (node, session), numbers in sorted(spans.items(), key=lambda item: item[0])
        for first, last in numbers
    )


def current(segments: Sequence[Segment]) -> list[Segment]:
    """Return the segments of a group that are to be read: without those that another replaces, and
    without roll-ups that lack readings which are there."""
    replaced = {name for segment in segments for name in segment.footer.replaces}
    left = [segment for segment in segments if segment.name not in replaced]
    readings: dict[int, set[str]] = {}
    for segment in left:
        if not segment.key.step:
            readings.setdefault(segment.key.period, set()).add(segment.name)
    newest: dict[tuple[int, int], Segment] = {}
    """By period and step: two holders that made the same roll-up must not count twice."""
    for segment in left:
        if segment.key.step and readings.get(segment.key.period, set()) <= {segment.footer.made_of}:
            key = segment.key.period, segment.key.step
            if key not in newest or newest[key].key < segment.key:
                newest[key] = segment
    return [segment for segment in left if not segment.key.step] + list(newest.values())


def overlapping(segments: Iterable[Segment]) -> set[str]:
    """Return the names of segments of readings that hold a frame which another holds too."""
    ends: dict[SessionKey, list[tuple[int, int, str]]] = {}
    for segment in segments:
        if not segment.key.step:
            for mark in segment.footer.marks:
                spans = ends.setdefault((mark.node, mark.session), [])
                spans.append((mark.first, mark.last, segment.name))
    found: set[str] = set()
    for spans in ends.values():
        spans.sort()
        last, holder = -1, ""
        for first, end, name in spans:
            if first <= last and name != holder:
                found |= {name, holder}
            if end > last:
                last, holder = end, name
    return found


def source_of(segments: Sequence[Segment], overlap: Set[str], block: str) -> str:
    """Return the SQL of the rows of a block in some segments of one step, each frame's once: that of the
    highest epoch, where several segments hold it."""
    clean = [segment for segment in segments if segment.name not in overlap]
    twice = [segment for segment in segments if segment.name in overlap]
    parts = []
    if clean:
        parts.append(
            f"select * exclude (block) from read_parquet([{_places(clean)}], union_by_name = true, "
            f"hive_partitioning = false) where block = {quoted(block)}"
        )
    if twice:
        parts.append(
            f"select * exclude (block, filename) from read_parquet([{_places(twice)}], "
            "union_by_name = true, hive_partitioning = false, filename = true) "
            f"where block = {quoted(block)} qualify row_number() over (partition by node, session, "
            "seq, device order by regexp_extract(filename, 'epoch=([0-9]+)/', 1) desc, "
            "filename desc) = 1"
        )
    return f"({' union all by name '.join(parts)})"


def _places(segments: Iterable[Segment]) -> str:
    return ", ".join(quoted(segment.place) for segment in segments)
