"""The ring: the newest frames of this node on disk, bounded, for aggregators that missed them.

Frames are appended to files that are dropped whole, oldest first. Written frames survive the
death of the process at any instant (the page cache holds them); a power cut loses those after the
last `sync`, a few seconds. Memory holds a few numbers per file and none per frame.

Nothing here waits or retries: that is `collector.ring.writer`. One thread appends; others may read
meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from collector.ring.segment import HEADER_BYTES, RECORDS, RingSegment, header, scan
from telemetry.files import state_file
from telemetry.files.record_log import RecordFile
from telemetry.wire.inventory import FrameSpan

_COST = "An aggregator that missed its frames does not get them."
MOST_FILES = 1024
"""Bound on files, for a collector that starts over and over."""


class Ring:
    """Frames of this and earlier sessions in a folder. Methods raise `OSError` as the disk does."""

    def __init__(self, folder: Path, max_bytes: int, segment_bytes: int | None = None, *, durable: bool = True) -> None:
        """`durable`: whether `sync` has the disk write."""
        self.folder = folder
        self._durable = durable
        self.max_bytes = max_bytes
        self.segment_bytes = segment_bytes or min(max(max_bytes // 64, 32 * 1024), 8 * 1024 * 1024)
        self.torn_bytes = 0
        """Bytes cut off behind the last whole record of a file at `open`."""
        self.damaged = 0
        """Damaged places found in files at `open`."""
        self.overwritten = 0
        """Frames dropped since `open` to keep within `max_bytes`."""
        self._segments: list[RingSegment] = []
        self._ordinal = 0
        self._bytes = 0
        self._file: RecordFile | None = None
        """The newest file while it can be appended to."""
        self._lock = threading.Lock()

    def open(self) -> None:
        """Scan the folder: truncate torn tails, skip damage, drop the oldest files beyond the bounds."""
        state_file.make_folder(self.folder, _COST)
        found: list[RingSegment] = []
        for path in self.folder.glob("*.seg"):
            try:
                result = scan(path)
            except (IsADirectoryError, PermissionError) as error:
                if state_file.set_aside(path, error, _COST) is None:
                    raise
                continue
            if result is None or not result.segment.records:
                path.unlink()
                continue
            if result.torn:
                os.truncate(path, result.segment.size)
                self.torn_bytes += result.torn
            self.damaged += result.damaged
            found.append(result.segment)
        found.sort(key=lambda segment: segment.ordinal)
        with self._lock:
            self._segments = found
            self._ordinal = max((segment.ordinal for segment in found), default=0)
            self._bytes = sum(segment.size for segment in found)
        self._make_room(0)

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return self._bytes

    def append(self, session: int, seq: int, payload: bytes) -> None:
        """Add a frame. When this raises, the frame is not in the ring and the ring is whole."""
        entry = RECORDS.pack(payload, seq)
        size = len(entry)
        self._make_room(size)
        place = self._newest(session, seq, size)
        if place is None:
            self._make_room(size + HEADER_BYTES, files=1)
            place = self._begin(session, seq)
        segment, file = place
        file.append(entry)
        with self._lock:
            segment.note(seq, segment.size, segment.size + size)
        self._bytes += size

    def sync(self) -> None:
        """Sync appended frames to disk. After a failure the file is never written again."""
        if self._file is not None and self._durable:
            self._file.sync()

    def close(self) -> None:
        """Sync and close the files."""
        try:
            self.sync()
        finally:
            self._leave()

    def spans(self) -> tuple[FrameSpan, ...]:
        """Return the stored frames, oldest first; adjacent ones of a session are one span."""
        spans: list[FrameSpan] = []
        with self._lock:
            for segment in self._segments:
                for first, last in segment.seqs:
                    before = spans[-1] if spans else None
                    if before and (before.session, before.last + 1) == (segment.session, first):
                        spans[-1] = FrameSpan(segment.session, before.first, last)
                    else:
                        spans.append(FrameSpan(segment.session, first, last))
        return tuple(spans)

    def read(self, session: int, first: int, last: int) -> Iterator[tuple[int, bytes]]:
        """Iterate over the stored frames `first` to `last` of a session: number, bytes."""
        with self._lock:
            places = [
                (segment.path, segment.offset(first), segment.size)
                for segment in self._segments
                if segment.session == session and segment.seqs.missing(first, last) != [(first, last)]
            ]
        for path, start, stop in places:
            # A file may be dropped before it is opened: its frames are gone, no error.
            with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
                for found in RECORDS.records(file, start):
                    (seq,) = found.fields
                    if seq > last or found.stop > stop:
                        break
                    if seq >= first:
                        yield seq, found.payload

    def chunk(self, session: int, first: int, last: int, most_bytes: int, most_frames: int) -> list[tuple[int, bytes]]:
        """Return the first frames of `read`, as many as fit in one message; at least one if any."""
        frames: list[tuple[int, bytes]] = []
        total = 0
        for seq, payload in self.read(session, first, last):
            total += len(payload)
            if frames and total > most_bytes:
                break
            frames.append((seq, payload))
            if len(frames) >= most_frames:
                break
        return frames

    def _make_room(self, size: int, files: int = 0) -> None:
        """Drop oldest files until so many more bytes and files keep the bounds."""
        while self._segments and (self._bytes + size > self.max_bytes or len(self._segments) + files > MOST_FILES):
            oldest = self._segments[0]
            if len(self._segments) == 1:
                self._leave()
            oldest.path.unlink(missing_ok=True)
            with self._lock:
                self._segments.pop(0)
            self._bytes -= oldest.size
            self.overwritten += len(oldest.seqs)

    def _newest(self, session: int, seq: int, size: int) -> tuple[RingSegment, RecordFile] | None:
        """Return the newest segment and its file if it can take this frame."""
        if self._file is None or not self._file.open:
            return None
        newest = self._segments[-1]
        if newest.session != session or seq <= newest.seqs.end:
            return None
        full = newest.records > 0 and newest.size + size > self.segment_bytes
        return None if full else (newest, self._file)

    def _begin(self, session: int, seq: int) -> tuple[RingSegment, RecordFile]:
        """Begin a new file."""
        if self._file is not None:
            self.close()
        ordinal = self._ordinal + 1
        path = self.folder / f"{ordinal:08d}-{session:012x}-{seq}.seg"
        file = RecordFile(path, header(ordinal, session))
        segment = RingSegment(path, ordinal, session)
        self._ordinal = ordinal
        self._file = file
        self._bytes += segment.size
        with self._lock:
            self._segments.append(segment)
        return segment, file

    def _leave(self) -> None:
        """Close the newest file."""
        if self._file is not None:
            self._file.close()
            self._file = None
