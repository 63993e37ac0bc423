"""Sealing: the readings of a period that is over become Parquet files that any engine reads.

Files are made beside the commits, on a connection and in a thread of their own, in steps between
which the log is folded in. They are written under other names and fsynced; when all files of a period
exist they are renamed, and one transaction adds them to the manifest, folds the frames into marks and
drops the period's tables. A crash before that transaction leaves the tables, and the
files are made again; one after it leaves the files.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from aggregator.config import StoreConfig
from aggregator.store import checksum, manifest, stored_spans
from aggregator.store.duck import DuckEngine, EngineReader, column, quoted
from aggregator.store.manifest import RAW, SealedFile, folder_of, sync
from aggregator.store.rollup import rollup_query, steps_for
from aggregator.store.tables import BLOCKS, FRAMES, columns_of, period_name
from telemetry.errors import StoreError

log = logging.getLogger(__name__)

_OF_ROWS = {"run", "device", "seq", "ts", "received"}
_OPTIONS = (
    "(format parquet, parquet_version v2, compression zstd, compression_level 6, "
    f"kv_metadata {{{checksum.KEY}: '{checksum.PLACEHOLDER}'}})"
)


class Sealer:
    """The sealing of one period: `step` until it is `made`, then `finish`. Nothing may be written to
    the period's tables meanwhile."""

    def __init__(
        self,
        engine: DuckEngine,
        root: Path,
        config: StoreConfig,
        period: int,
        tables: Mapping[str, str],
        files: Sequence[SealedFile],
    ) -> None:
        self.period = period
        self._engine = engine
        self._root = root
        self._config = config
        self._tables = tables
        self._aside = root / "sealing"
        self._taken = {file.path for file in files}
        """Names in use: a clock that was set back brings a period twice."""
        self._made: list[tuple[Path, SealedFile]] = []
        """Files under temporary names, and their entries in the manifest."""
        self._named: list[Path] = []
        self.made = False
        """Whether all files exist, and wait for their names."""
        self.files: list[SealedFile] = []
        """Its entries in the manifest, once all is done."""
        self._open_reader: EngineReader | None = None
        self._steps = self._run()

    def step(self) -> None:
        """Make the next file, beside commits. Raises `StoreError` or `OSError`."""
        with self._engine.reader() as self._open_reader:
            self.made = next(self._steps, None) is None

    def abandon(self) -> None:
        """Remove the files made so far; the tables still hold everything."""
        for path in [*self._named, *(path for path, _ in self._made)]:
            manifest.remove(path)

    def _run(self) -> Iterator[str]:
        self._aside.mkdir(parents=True, exist_ok=True)
        for name, table in self._tables.items():
            if name == FRAMES:
                continue
            for keys in self._slices(table):
                raw = self._write_raw(name, table, keys)
                yield f"{name} sealed"
                source, source_step = raw, 0
                for step in steps_for(BLOCKS[name], self._config.rollup_seconds):
                    source = self._write_rollup(name, source, source_step, step)
                    source_step = step
                    yield f"{name} rolled up to {step} s"

    @property
    def _reader(self) -> EngineReader:
        if self._open_reader is None:
            raise RuntimeError("files are made in a step")
        return self._open_reader

    def _slices(self, table: str) -> list[tuple[str, str]]:
        """Return ranges of devices that have about `slice_rows` rows each, both ends included."""
        ranges: list[tuple[str, str]] = []
        first, rows = "", 0
        for key, count in self._reader.rows(
            f"select d.key, sum(n) from (select device, count(*) as n from {table} group by device) "
            "as t join devices d on d.id = t.device group by d.key order by d.key"
        ):
            if rows and rows + count > self._config.slice_rows:
                first, rows = key, 0
            if rows:
                ranges[-1] = (first, key)
            else:
                first = key
                ranges.append((key, key))
            rows += count
        return ranges

    def _write_raw(self, name: str, table: str, keys: tuple[str, str]) -> SealedFile:
        metrics = [each for each in columns_of(self._reader, table) if each not in _OF_ROWS]
        query = (
            'select d.node, d.key as device, d.name, nullif(d."index", -1) as "index", r.session, '
            "t.seq, make_timestamp_ns(t.ts) as ts, make_timestamp_ns(t.received) as received, "
            f"{', '.join('t.' + column(metric) for metric in metrics)} from {table} t "
            "join devices d on d.id = t.device join runs r on r.id = t.run "
            f"where d.key between {quoted(keys[0])} and {quoted(keys[1])} "
            "order by d.key, d.node, t.ts"
        )
        return self._write(query, RAW, name)

    def _write_rollup(self, name: str, source: SealedFile, source_step: int, step: int) -> SealedFile:
        path = next(path for path, file in self._made if file.path == source.path)
        query = rollup_query(f"read_parquet({quoted(str(path))})", source_step, step, BLOCKS[name], set(source.columns))
        return self._write(query, str(step), name)

    def _write(self, query: str, kind: str, block: str) -> SealedFile:
        aside = self._aside / f"{kind}-{block}-{len(self._made)}.parquet"
        self._reader.run(f"copy ({query}) to {quoted(str(aside))} {_OPTIONS}")
        name = self._name(kind, block)
        checksum.stamp(aside, Path(name).name)
        sync(aside)
        ends = self.period + max(1, int(self._config.seal_seconds))
        file = manifest.describe(self._reader, self._root, aside, kind, block, self.period, ends)
        file = replace(file, path=name)
        self._made.append((aside, file))
        return file

    def _name(self, kind: str, block: str) -> str:
        stem, part = f"{folder_of(kind, block)}/{period_name(self.period)}", 0
        while (path := f"{stem}-{part:03d}.parquet" if part else f"{stem}.parquet") in self._taken:
            part += 1
        self._taken.add(path)
        return path

    def finish(self) -> None:
        """Give the files their names, and drop the tables, between two commits. Raises `StoreError` or
        `OSError`."""
        folders = set()
        for aside, file in self._made:
            path = self._root / file.path
            if not path.parent.is_dir():
                path.parent.mkdir(parents=True)
                sync(path.parent.parent)
                sync(self._root)
            checksum.sidecar_of(aside).rename(checksum.sidecar_of(path))
            aside.rename(path)
            self._named.append(path)
            folders.add(path.parent)
        for folder in folders:
            sync(folder)
        with self._engine.transaction():
            manifest.add(self._engine, [file for _, file in self._made])
            stored_spans.fold(self._engine, self._tables[FRAMES], self.period)
            for table in self._tables.values():
                self._engine.run(f"drop table {table}")
        self.files = [file for _, file in self._made]
        self._named, self._made = [], []
        try:
            self._engine.fold()
        except StoreError as error:
            log.warning("%s", error)  # the log holds it all; the next checkpoint folds it in
