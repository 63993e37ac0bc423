"""The log of power snapshots of circuits, budgets and UPS on disk, one of each every ten seconds.

A file begins with the names of rows and columns, and has as many instants behind them as fit; other
names, or a restart, begin another file. A record that a crash left half written ends the reading of
its file only. Bounded by bytes: the oldest file is removed first. Callable from any thread.
"""

from __future__ import annotations

import contextlib
import logging
import struct
import threading
import zlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from api.power import SnapshotKind
from power.snapshot.snapshot import PowerSnapshot
from telemetry.files.record_log import Damage, RecordFormat
from telemetry.text.decoders import of_msgpack

log = logging.getLogger(__name__)

FOLDER = "circuits"
ENDING = ".tape"
MOST_BYTES = 48 * 1024 * 1024
"""Limit on disk: 700 circuits for half a day, ten for a month."""
FILE_BYTES = 1024 * 1024
KEPT = (SnapshotKind.CIRCUIT, SnapshotKind.BUDGET, SnapshotKind.UPS)
"""Kinds that are logged; the watts of supplies are in the store with those of their nodes."""
RECORDS = RecordFormat(struct.Struct("<q4x4x"), length_at=8, checksum_at=12, covered_from=12, damage=Damage.STOP)
"""The field is the instant: ns since 1970, or 0 for the names."""
_FLOAT = struct.Struct("<f")


class SnapshotHeader(msgspec.Struct, frozen=True):
    """Meaning of a file's numbers: the names of rows and columns by kind."""

    version: int
    """Version of the configuration of the site."""
    rows: dict[SnapshotKind, tuple[str, ...]]
    columns: dict[SnapshotKind, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class LoggedSnapshot:
    """The power snapshots of one instant."""

    at: int
    snapshots: dict[SnapshotKind, PowerSnapshot]


class SnapshotLog:
    """The log in a data folder."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        self._folder = folder / FOLDER
        self._most = most_bytes
        self._lock = threading.Lock()
        self._heading: SnapshotHeader | None = None
        self._writing: Path | None = None
        self._ill = False

    def add(self, at: int, version: int, snapshots: Sequence[PowerSnapshot]) -> None:
        """Write an instant; a failing disk is reported once, and tried again at the next instant."""
        kept = {snapshot.kind: snapshot for snapshot in snapshots if snapshot.kind in KEPT}
        heading = SnapshotHeader(
            version,
            {kind: tuple(snapshot.names) for kind, snapshot in kept.items()},
            {kind: tuple(snapshot.columns) for kind, snapshot in kept.items()},
        )
        body = b"".join(
            np.asarray(snapshot.columns[name], np.float32).tobytes()
            for kind, snapshot in kept.items()
            for name in heading.columns[kind]
        )
        with self._lock:
            try:
                self._write(at, heading, _packed(at, body))
            except OSError as error:
                if not self._ill:
                    log.warning("%s: %s. The past of circuits has a hole now.", self._folder, error.strerror)
                self._ill, self._writing = True, None
            else:
                self._ill = False

    def find(self, at: int, within: int) -> LoggedSnapshot | None:
        """Return the newest instant that is not after `at`, and less than `within` ns before it."""
        for path in reversed(self._files()):
            if _first(path) > at:
                continue
            found = None
            heading = None
            for when, body in _records(path):
                if not when:
                    heading = body
                elif when > at:
                    break
                elif when > at - within:
                    found = when, body
            if found is not None and heading is not None:
                return _taped(found[0], heading, found[1])
            if heading is not None:
                return None  # files before are older still
        return None

    def series(
        self, kind: SnapshotKind, row: str, column: str, start: int, end: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Return one quantity of one row over time, `start` <= instant < `end`: instants, and values;
        a month of them as numbers without objects, which would hold up all threads when they go."""
        instants, numbers = array("q"), array("d")
        files = self._files()
        last = next((n for n in range(len(files), 0, -1) if _first(files[n - 1]) <= start), 1)
        for path in files[last - 1 :]:
            if _first(path) >= end:
                break
            place: int | None = None
            for when, body in _records(path):
                if not when:
                    place = _place(body, kind, row, column)
                elif place is not None and start <= when < end:
                    values = zlib.decompress(body)
                    instants.append(when)
                    numbers.append(_FLOAT.unpack_from(values, 4 * place)[0])
        return np.array(instants, np.int64), np.array(numbers, np.float64)

    # -- Files -----------------------------------------------------------------------------------

    def _write(self, at: int, heading: SnapshotHeader, record: bytes) -> None:
        path = self._writing
        if path is None or heading != self._heading or path.stat().st_size >= FILE_BYTES:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._make_room()
            path = self._folder / f"{at:020d}{ENDING}"
            path.write_bytes(_packed(0, msgspec.msgpack.encode(heading)))
            self._writing, self._heading = path, heading
        with path.open("ab") as file:
            file.write(record)

    def _make_room(self) -> None:
        files = self._files()
        used = sum(path.stat().st_size for path in files)
        for path in files:
            if used <= self._most - FILE_BYTES:
                return
            used -= path.stat().st_size
            path.unlink()

    def _files(self) -> list[Path]:
        """Return all files, oldest first."""
        if not self._folder.is_dir():
            return []
        return sorted(path for path in self._folder.glob(f"*{ENDING}") if path.name[: -len(ENDING)].isdecimal())


def _first(path: Path) -> int:
    return int(path.name[: -len(ENDING)])


def _packed(at: int, body: bytes) -> bytes:
    return RECORDS.pack(zlib.compress(body, 6), at)


def _records(path: Path) -> Iterator[tuple[int, bytes]]:
    """Iterate over instants and what is packed there, up to where the file is whole."""
    with contextlib.suppress(OSError), path.open("rb") as file:  # it has made room meanwhile
        for found in RECORDS.records(file):
            yield found.fields[0], found.payload


def _heading(packed: bytes) -> SnapshotHeader | None:
    try:
        return of_msgpack(SnapshotHeader).decode(zlib.decompress(packed))
    except (zlib.error, msgspec.DecodeError):
        return None  # of a later release


def _place(packed: bytes, kind: SnapshotKind, row: str, column: str) -> int | None:
    """Return the position of a quantity of a row among the numbers of an instant."""
    names, place = _heading(packed), 0
    if names is None:
        return None
    for each, rows in names.rows.items():
        for name in names.columns[each]:
            if (each, name) == (kind, column):
                return place + rows.index(row) if row in rows else None
            place += len(rows)
    return None


def _taped(at: int, heading: bytes, body: bytes) -> LoggedSnapshot | None:
    names = _heading(heading)
    if names is None:
        return None
    values = np.frombuffer(zlib.decompress(body), np.float32).astype(np.float64)
    snapshots = {}
    place = 0
    for kind, rows in names.rows.items():
        columns = {}
        for name in names.columns[kind]:
            columns[name] = values[place : place + len(rows)]
            place += len(rows)
        snapshots[kind] = PowerSnapshot(kind, names.version, rows, columns)
    return LoggedSnapshot(at, snapshots) if place == len(values) else None
