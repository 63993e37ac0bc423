"""The manifest: the sealed files that belong to the store.

A file counts only when it is in the table `files`; at opening, folder and table are reconciled, so that
a crash between the two neither loses nor duplicates anything. A file that another program removed or
damaged keeps its entry, marked as lost, until its age: what it held is known to be missing.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from aggregator.store.checksum import KEY, FileState, sidecar_of, verify
from aggregator.store.duck import DuckEngine, ReadConnection, quoted
from aggregator.store.tables import BLOCKS, period_from_name
from telemetry.errors import StoreError

log = logging.getLogger(__name__)

RAW = "raw"
"""Kind of a file of readings; a roll-up's kind is its step in seconds, as text."""


@dataclass(frozen=True, slots=True)
class SealedFile:
    """A sealed file."""

    path: str
    """Below the data folder."""
    kind: str
    block: str
    period: int
    """Start of the period in which its rows came, seconds since 1970."""
    ends: int
    rows: int
    bytes: int
    first_ts: int
    """ns since 1970, the nodes' clocks."""
    last_ts: int
    low_device: str
    high_device: str
    columns: list[str]
    sha256: str = ""
    """The checksum of its footer (`aggregator.store.checksum`), cached; "" for a file of before."""
    lost: str = ""
    """`gone` or `damaged`: another program removed or changed it, and it is not read. "" for a file
    that is there."""
    refilled: bool = False
    """Whether the frames of a lost file were requested again."""

    @property
    def step(self) -> int:
        """Seconds of a roll-up's buckets; 0 for readings."""
        return 0 if self.kind == RAW else int(self.kind)


def folder_of(kind: str, block: str) -> str:
    """Return the folder of a kind of files, below the data folder."""
    return f"sealed/{block}" if kind == RAW else f"rollup_{kind}/{block}"


def load(engine: DuckEngine) -> list[SealedFile]:
    """Return all files of the store, oldest first."""
    rows = engine.rows(
        "select path, kind, block, period, ends, rows, bytes, first_ts, last_ts, "
        "low_device, high_device, columns, coalesce(sha256, ''), coalesce(lost, ''), "
        "coalesce(refilled, false) "
        "from files order by period, path"
    )
    return [SealedFile(*row) for row in rows]


def add(engine: DuckEngine, files: list[SealedFile]) -> None:
    """Add files; inside the caller's transaction."""
    for file in files:
        engine.run(
            "insert into files values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            file.path,
            file.kind,
            file.block,
            file.period,
            file.ends,
            file.rows,
            file.bytes,
            file.first_ts,
            file.last_ts,
            file.low_device,
            file.high_device,
            file.columns,
            file.sha256,
            file.lost,
            file.refilled,
        )


def note_lost(engine: DuckEngine, files: Iterable[SealedFile]) -> None:
    """Note which files were lost: what they held stays known as missing, also after a restart."""
    with engine.transaction():
        for file in files:
            engine.run(
                "update files set lost = ?, refilled = ? <> '' and (coalesce(refilled, false) or ?) where path = ?",
                file.lost,
                file.lost,
                file.refilled,
                file.path,
            )


def note_replaced(engine: DuckEngine, file: SealedFile) -> None:
    """Note that all of a lost file's readings came again: it must not be added if it comes back."""
    engine.run("insert or ignore into replaced values (?, ?)", file.path, file.ends)


def describe(
    engine: ReadConnection, root: Path, path: Path, kind: str, block: str, period: int, ends: int
) -> SealedFile:
    """Return the manifest's entry for a Parquet file, read from the file."""
    source = f"read_parquet({quoted(str(path))})"
    rows, first, last, low, high = engine.rows(
        f"select count(*), epoch_ns(min(ts)), epoch_ns(max(ts)), min(device), max(device) from {source}"
    )[0]
    columns = [name for (name, *_) in engine.rows(f"describe select * from {source}")]
    found = engine.rows(f"select value from parquet_kv_metadata({quoted(str(path))}) where key = ?", KEY.encode())
    return SealedFile(
        str(path.relative_to(root)),
        kind,
        block,
        period,
        ends,
        rows,
        path.stat().st_size,
        first or 0,
        last or 0,
        low or "",
        high or "",
        columns,
        found[0][0].decode() if found else "",
    )


def reconcile(
    engine: DuckEngine, root: Path, hot_periods: set[int], seal_seconds: int, came_again: Callable[[SealedFile], bool]
) -> None:
    """Reconcile folder and table. `came_again`: returns whether readings of a lost file, which were
    requested again, were stored again.

    A file that is not in the table is left from an interrupted seal when the hot tables of its
    period still exist: it is removed, and made again. Else (the hot database was corrupt and set
    aside) it is all that is left of that period, and is added again.
    """
    known = {file.path: file for file in load(engine)}
    replaced = {name for (name,) in engine.rows("select path from replaced")}
    adopted: list[SealedFile] = []
    changed: list[SealedFile] = []
    for kind, block, path in _on_disk(root):
        name = str(path.relative_to(root))
        if name in known:
            file = known.pop(name)
            if not file.lost or _state(path, file.sha256) is FileState.DAMAGED:
                continue
            if file.refilled and came_again(file):
                log.warning(
                    "%s: it is back, and stays aside: some of its readings came again "
                    "meanwhile, and would be there twice",
                    path,
                )
                continue
            log.warning("%s: it is back", path)
            changed.append(replace(file, lost=""))
            continue
        if name in replaced:
            log.warning("%s: it is back, and stays aside: all of its readings came again", path)
            continue
        period = period_from_name(path.name)
        if period is None:
            continue  # not one of our names: leave it alone
        if period in hot_periods:
            remove(path)
            continue
        if _state(path) is FileState.DAMAGED:
            log.error("%s: not in the manifest and damaged; left alone", path)
            continue
        try:
            adopted.append(describe(engine, root, path, kind, block, period, period + seal_seconds))
            log.warning("%s: not in the manifest, and added again", path)
        except StoreError as error:
            log.error("%s: not in the manifest and not readable; left alone: %s", path, error)  # noqa: TRY400
    try:
        _adopt(engine, root, adopted)
    except StoreError:  # one of those without a checksum can't be read: the others are added one by one
        for file in adopted:
            try:
                _adopt(engine, root, [file])
            except StoreError as error:
                log.error("%s: not readable; left alone: %s", root / file.path, error)  # noqa: TRY400
    for file in known.values():
        if not file.lost:
            log.warning("%s: in the manifest but not there any more", root / file.path)
            changed.append(replace(file, lost=FileState.GONE.value))
    note_lost(engine, changed)


def _adopt(engine: DuckEngine, root: Path, files: list[SealedFile]) -> None:
    """Add files again, with the frames of those that are readings, in one transaction. Raises `StoreError`."""
    with engine.transaction():
        add(engine, files)
        _mark(engine, root, [file for file in files if file.kind == RAW])


def _state(path: Path, expected: str = "") -> FileState:
    """Return the state of a file; one that the system does not let us read is damaged."""
    try:
        return verify(path, expected)
    except OSError as error:
        log.error("%s: it can't be read: %s", path, error.strerror)  # noqa: TRY400
        return FileState.DAMAGED


def _on_disk(root: Path) -> list[tuple[str, str, Path]]:
    found = []
    for top in sorted(root.iterdir()):
        if top.name == "sealed":
            kind = RAW
        elif top.name.startswith("rollup_") and top.name[7:].isdigit():
            kind = top.name[7:]
        else:
            continue
        for block in BLOCKS:
            found += [(kind, block, path) for path in sorted((top / block).glob("*.parquet"))]
    return found


def _mark(engine: DuckEngine, root: Path, files: list[SealedFile]) -> None:
    """Account for the frames of files that were added again, so that none is stored twice."""
    if not files:
        return
    paths = ", ".join(quoted(str(root / file.path)) for file in files)
    engine.run(
        "insert into runs select (select coalesce(max(id), -1) from runs) + row_number() over (), "
        f"node, session from (select distinct node, session from read_parquet([{paths}], "
        "union_by_name = true) anti join runs using (node, session))"
    )
    engine.run(
        'insert into devices(id, node, key, "index", name) '
        "select (select coalesce(max(id), -1) from devices) + row_number() over (), "
        'node, device, coalesce(any_value("index"), -1), any_value(name) '
        f"from read_parquet([{paths}], union_by_name = true) as f "
        "where not exists (select 1 from devices d where d.node = f.node and d.key = f.device) "
        "group by node, device"
    )
    engine.run(
        "insert into marks select r.id, min(seq), max(seq), ? from (select node, session, seq, seq - "
        "row_number() over (partition by node, session order by seq) as island from (select "
        f"distinct node, session, seq from read_parquet([{paths}], union_by_name = true))) "
        "join runs r using (node, session) group by r.id, island",
        max(file.period for file in files),
    )


def remove(path: Path) -> None:
    """Remove a sealed file and its sidecar."""
    path.unlink(missing_ok=True)
    sidecar_of(path).unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Sync a file or folder to disk, so that it survives a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
