"""The segments that can be read, by shard group: a listing of the storage, and what this member has
not put there yet.

A file that is torn, or that no member wrote, is left out, named and counted; the others are answered.
A view is never changed but replaced, so that a query in another thread has a consistent one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from aggregator.store import checksum
from aggregator.store.checksum import FileState
from aggregator.store.duck import DuckEngine
from aggregator.store.index import Index
from aggregator.store.manifest import SealedFile
from aggregator.store.sealed_files import NAMED, SECOND, TimeWindow, joined
from aggregator.store.shared.segment import (
    Segment,
    SegmentName,
    SessionKey,
    current,
    overlapping,
    read_footer,
    source_of,
    spans_of,
)
from aggregator.store.shared.storage import SharedStorage
from telemetry.errors import StoreError
from telemetry.wire.intervals import IntervalSet

log = logging.getLogger(__name__)


class UnreadableFile(NamedTuple):
    """A file of the storage that is left out."""

    bytes: int
    reason: str
    window: TimeWindow | None
    """The readings that it may have held, ns since 1970; None for a file that is none of ours."""


@dataclass(frozen=True, slots=True)
class GroupSegments:
    """The segments of a group that count."""

    segments: Mapping[str, Segment]
    index: Index
    overlap: frozenset[str]
    """Segments of which some frames are in others too."""
    epoch: int
    """The highest of them."""

    @classmethod
    def of(cls, segments: Iterable[Segment]) -> GroupSegments:
        """Return the segments of a group that count."""
        left = current(list(segments))
        files = [file for segment in left for file in segment.sealed_files()]
        return cls(
            {segment.name: segment for segment in left},
            Index(files),
            frozenset(overlapping(left)),
            max((segment.key.epoch for segment in left), default=0),
        )


@dataclass(frozen=True, slots=True)
class SegmentView:
    """The segments of all groups at one moment."""

    groups: Mapping[str, GroupSegments] = field(default_factory=dict)
    windows: tuple[TimeWindow, ...] = ()
    """Windows whose files can't be read."""


class SegmentChoice:
    """The segments that one query reads: a `SealedChoice`."""

    def __init__(self, view: SegmentView, group: str | None) -> None:
        """`group`: the group of the device; None where it is not known."""
        self._view = view
        known = view.groups.get(group) if group is not None else None
        self._groups = list(view.groups.values()) if group is None else [known] if known is not None else []
        self._windows: list[TimeWindow] = []

    @classmethod
    def of(cls, view: SegmentView, groups: Set[str] | None) -> SegmentChoice:
        """Return the choice among the segments of several groups; None for all."""
        choice = cls(view, None)
        if groups is not None:
            choice._groups = [each for name, each in view.groups.items() if name in groups]
        return choice

    @property
    def files(self) -> list[SealedFile]:
        """The entries of all segments."""
        return [file for group in self._groups for file in group.index.files]

    def find(self, block: str, device: str, start: int, end: int, step: float) -> list[SealedFile]:
        """Return the entries of the segments of a device (`Index.find`)."""
        self._windows += [(max(start, first), min(end, last)) for first, last in self._view.windows]
        return [file for group in self._groups for file in group.index.find(block, device, start, end, step)]

    def spanning(self, block: str, start: int, end: int, step: float) -> list[SealedFile]:
        """Return the entries of the segments of all devices (`Index.spanning`)."""
        self._windows += [(max(start, first), min(end, last)) for first, last in self._view.windows]
        return [file for group in self._groups for file in group.index.spanning(block, start, end, step)]

    def source(self, files: Sequence[SealedFile]) -> str:
        """Return the SQL of the rows of segments, each frame's once."""
        parts = []
        for group in self._groups:
            ours = [file for file in files if file.path in group.segments]
            if ours:
                segments = [group.segments[file.path] for file in ours]
                parts.append(f"select * from {source_of(segments, group.overlap, ours[0].block)}")
        return f"({' union all by name '.join(parts)})"

    def incomplete(self) -> list[TimeWindow]:
        """Return the windows whose files can't be read."""
        return joined(self._windows)


class _Segments:
    """Segments by name, and those of each group; any thread may read copies."""

    def __init__(self, segments: Iterable[Segment] = ()) -> None:
        self.by_name: dict[str, Segment] = {}
        self._by_group: dict[str, dict[str, Segment]] = {}
        for segment in segments:
            self.put(segment)

    def put(self, segment: Segment) -> None:
        """Add a segment."""
        self.by_name[segment.name] = segment
        self._by_group.setdefault(segment.key.group, {})[segment.name] = segment

    def pop(self, name: str) -> Segment | None:
        """Remove a segment and return it; None where there is none of this name."""
        segment = self.by_name.pop(name, None)
        if segment is not None:
            del self._by_group[segment.key.group][name]
        return segment

    def of(self, group: str) -> dict[str, Segment]:
        """Return the segments of a group."""
        return dict(self._by_group.get(group, {}))

    def groups(self) -> set[str]:
        """Return the groups that have segments."""
        return {group for group, segments in list(self._by_group.items()) if segments}


class SegmentIndex:
    """The segments that this member knows. One thread at a time works on the storage (all methods but
    `add_own`); any may call `add_own` and read `view`."""

    def __init__(self, storage: SharedStorage, seal_seconds: float) -> None:
        self.view = SegmentView()
        self.unreadable: dict[str, UnreadableFile] = {}
        """Files that are left out, by name."""
        self._storage = storage
        self._seal_seconds = max(1, int(seal_seconds))
        self._stored = _Segments()
        """Segments of the storage."""
        self._own = _Segments()
        """Segments that are on this member's disk alone."""
        self._lock = threading.Lock()
        """Guards the segments and the view; never held while the storage is asked."""
        self._unproven: list[str] = []
        """The rest of the present pass of `check_next`."""

    def segments(self, group: str) -> list[Segment]:
        """Return all segments of a group, also those that others replace."""
        return list({**self._stored.of(group), **self._own.of(group)}.values())

    @property
    def groups(self) -> set[str]:
        """The groups that have segments."""
        return self._stored.groups() | self._own.groups()

    def marks(self, group: str) -> dict[SessionKey, IntervalSet]:
        """Return the frames of a group that segments hold: a successor need not request them."""
        return spans_of(mark for each in self.segments(group) for mark in each.footer.marks)

    def refresh(self, engine: DuckEngine) -> None:
        """List the storage, and read the footers of what is new. Raises `StoreError`; then all is as
        it was."""
        listed = {item.name: item.bytes for item in self._storage.list()}
        left_out = {name: each for name, each in self.unreadable.items() if listed.get(name) == each.bytes}
        stored = dict(self._stored.by_name)
        gone = [name for name, each in stored.items() if listed.get(name) != each.bytes]
        new: list[Segment] = []
        unreadable: dict[str, UnreadableFile] = {}
        for name, size in listed.items():
            known = stored.get(name)
            if name in left_out or (known is not None and known.bytes == size):
                continue
            segment = self._read(engine, name, size)
            if isinstance(segment, UnreadableFile):
                unreadable[name] = segment
            elif segment is not None:
                new.append(segment)
        self._leave_out(unreadable, left_out)
        with self._lock:
            changed = self._pop(gone)
            for segment in new:
                self._stored.put(segment)
            self._replace(changed | {segment.key.group for segment in new})

    def _read(self, engine: DuckEngine, name: str, size: int) -> Segment | UnreadableFile | None:
        """Return a segment; None where it is not there any more: the next listing says whether it was removed
        or the storage was away. Raises `StoreError` where the storage does not answer, or our own database is
        closed: that is no fault of a file."""
        key = SegmentName.parse(name)
        if key is None:
            return UnreadableFile(size, "its name is not that of a segment", None)
        window = key.period * SECOND, (key.period + self._seal_seconds) * SECOND
        place = self._storage.place(name)
        try:
            with self._storage.open(name) as file:
                if not checksum.is_whole(file):
                    return UnreadableFile(size, "it is torn, or no member wrote it", window)
            with engine.reader() as reader:
                footer = read_footer(reader, place, key)
        except FileNotFoundError:
            self._storage.list()
            return None
        except (StoreError, ValueError, msgspec.MsgspecError) as error:
            self._storage.list()  # raises where it is the storage that does not answer
            with engine.reader():  # and where it is our own database
                return UnreadableFile(size, str(error), window)
        return Segment(name, key, footer, size, place)

    def add_own(self, segments: Iterable[Segment]) -> None:
        """Add segments that are on this member's disk."""
        new = list(segments)
        with self._lock:
            for segment in new:
                self._own.put(segment)
            self._replace({segment.key.group for segment in new})

    def reset_own(self, segments: Sequence[Segment]) -> None:
        """Replace the segments that are on this member's disk."""
        with self._lock:
            before, self._own = self._own, _Segments(segments)
            self._replace(before.groups() | self._own.groups())

    def moved(self, name: str, stored_as: str) -> None:
        """Note that an own segment is in the storage now; one that is not known any more is found by the next
        listing."""
        with self._lock:
            segment = self._own.pop(name)
            if segment is None:
                return
            key = SegmentName.parse(stored_as) or segment.key
            place = self._storage.place(stored_as)
            self._stored.put(msgspec.structs.replace(segment, name=stored_as, key=key, place=place))
            self._replace({key.group})

    def remove(self, names: Iterable[str]) -> None:
        """Take segments out, before they are removed from the storage."""
        with self._lock:
            self._replace(self._pop(names))

    def verify(self, segments: Iterable[Segment]) -> bool:
        """Verify segments to the last byte; return whether all are as they were written. One that is not there
        is none of them, and nothing more is said: the next listing says whether it was removed. Raises
        `StoreError` where the storage does not answer."""
        found: dict[str, UnreadableFile] = {}
        missing = False
        for segment in segments:
            try:
                with self._storage.open(segment.name) as file:
                    if checksum.verify_stream(file) is FileState.GOOD:
                        continue
            except FileNotFoundError:
                self._storage.list()
                missing = True
                continue
            footer = segment.footer
            first = min((part.first_ts for part in footer.blocks), default=0)
            last = max((part.last_ts for part in footer.blocks), default=0) + SECOND
            window = first, last + segment.key.step * SECOND
            found[segment.name] = UnreadableFile(segment.bytes, "its bytes have changed", window)
        self._leave_out(found, self.unreadable)
        with self._lock:
            self._replace(self._pop(found))
        return not found and not missing

    def check_next(self, groups: Iterable[str]) -> None:
        """Verify one segment of some groups, the next of an endless pass."""
        if not self._unproven:
            self._unproven = sorted(name for group in groups for name in self._stored.of(group))
        if self._unproven:
            segment = self._stored.by_name.get(self._unproven.pop())
            if segment is not None:
                self.verify([segment])

    def _leave_out(self, found: Mapping[str, UnreadableFile], others: Mapping[str, UnreadableFile]) -> None:
        for name, each in list(found.items())[:NAMED]:
            log.error(
                "%s: left out: %s. All other segments are read. Remove it, or put it back from a copy.",
                self._storage.place(name),
                each.reason,
            )
        if len(found) > NAMED:
            log.error("%s: %d more files are left out", self._storage.url, len(found) - NAMED)
        self.unreadable = {**others, **found}

    def _pop(self, names: Iterable[str]) -> set[str]:
        """Take segments of the storage out, under the lock; return their groups."""
        gone = [self._stored.pop(name) for name in names]
        return {segment.key.group for segment in gone if segment is not None}

    def _replace(self, changed: Iterable[str]) -> None:
        """Replace the view, under the lock."""
        groups = dict(self.view.groups)
        for group in changed:
            groups[group] = GroupSegments.of(self.segments(group))
        windows = [each.window for each in self.unreadable.values() if each.window is not None]
        self.view = SegmentView(groups, tuple(joined(windows)))
