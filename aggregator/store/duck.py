"""The engine under the embedded store: the only file that knows DuckDB.

One connection, used by one thread at a time; a long query has one of its own (`reader`), beside which
the other goes on writing. Every error is raised as a `StoreError` with place, cause and cure. An engine
that DuckDB has given up (after a failed write to its log, say) is opened again at the next use; what
was committed is there again.
"""

from __future__ import annotations

import io
import logging
import re
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, Protocol

import duckdb
import numpy as np
import numpy.typing as npt

from aggregator.config import MIB, StoreConfig
from aggregator.folder import kinds
from aggregator.store.protocol import ContentError
from telemetry.errors import StoreError
from telemetry.files import state_file
from telemetry.files.state_file import NewerVersionError

log = logging.getLogger(__name__)

LATE = 16
"""At so many times the size at which `tidy` folds the log in, the engine does it by itself, inside a
commit: for a disk on which `tidy` fails."""
CACHED_BYTES = 32 * MIB
"""Bytes of blocks that stay in memory when others are evicted. DuckDB keeps all that it has written until its limit is
reached; of readings hardly any is read again, and the kernel caches the file too."""
ROW_GROUP = 122_880
"""Most rows of a row group, in which DuckDB keeps a table."""

Columns = Mapping[str, npt.NDArray[Any]]
"""Arrays of one length, by column name."""

_TORN_AT = re.compile(r"entry at byte position (\d+)")
_FULL_OR_HELD = ("no space left", "disk quota", "could not set lock")
"""Conditions that a new file would meet too. At the start whatever else DuckDB raises is damage: its messages can't be
listed, and a start that fails costs more than history."""
_CORRUPT = ("not a valid duckdb", "corrupt", "checksum", "serialization", "internal error", "enough bytes")
"""Messages that are damage while the aggregator runs, too: there is time then to wait for a disk."""
_REPLAYING = "failure while replaying wal"
"""Begins every error of a log that can't be read, as well as those of a disk or memory that is full."""
_NEWER = "newer version of duckdb"
_BUSY = "cannot checkpoint"
_FATAL = ("database has been invalidated", "internal error", "fatal")
_CURES = (
    ("no space left", "Free disk space, or lower store.max_bytes; writing resumes by itself."),
    ("disk quota", "Free disk space, or lower store.max_bytes; writing resumes by itself."),
    ("read-only", "Make the folder writable; writing resumes by itself."),
    ("permission denied", "Make the folder writable for this user; writing resumes by itself."),
    ("could not set lock", "Another process has it open; end that one."),
    ("out of memory", "Raise store.memory_limit_bytes."),
)


_OF_CONTENT = (duckdb.DataError, duckdb.IntegrityError, duckdb.InvalidInputException)


class MovedError(StoreError):
    """The rows were sealed or dropped meanwhile: query again where they are now."""


class ReadConnection(Protocol):
    """A connection for queries."""

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""


class EngineReader:
    """A connection of its own for one query; used by one thread."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self._cursor = cursor

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        return self._cursor.execute(sql, values or None).fetchall()

    def run(self, sql: str) -> None:
        """Execute a statement that does not change the database: a copy to a file."""
        self._cursor.execute(sql)

    def register(self, name: str, columns: Columns) -> None:
        """Offer arrays to the queries of this reader as a table."""
        self._cursor.register(name, dict(columns))

    def columns(self, sql: str) -> dict[str, npt.NDArray[Any]]:
        """Return the columns of a query; a NULL of a float is a NaN."""
        found = self._cursor.execute(sql).fetchnumpy()
        return {
            name: values.filled(np.nan) if isinstance(values, np.ma.MaskedArray) else values
            for name, values in found.items()
        }


class DuckEngine:
    """A DuckDB database file that recovers from damage as far as possible."""

    def __init__(self, path: Path, config: StoreConfig) -> None:
        self.path = path
        self._config = config
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._doubtful = False
        """Whether the log may hold data that no disk has: a failed sync must not be repeated, for the
        kernel may report success then. All of it is written again, into the file, before use."""
        self._readers: set[duckdb.DuckDBPyConnection] = set()
        self._reader_ended = threading.Condition()
        """Guards `_readers`."""
        self._filesystem: Any = None
        self.opened = 0
        """How often it was opened: copies of its content must be read again after that."""
        self.open()

    def open(self) -> None:
        """Open the file; set corrupt parts aside. Raises `StoreError`."""
        self._disconnect()
        copied = self._log_copied()
        try:
            self._connection = self._connect()
            if copied:
                self._keep_if_cut(self._connection)
        except duckdb.Error as error:
            if not (_is_damage(error) if self.opened else _can_be_replaced(error)):
                raise self._translated(error) from error
            self._connection = self._repaired(error)
        finally:
            self._copy.unlink(missing_ok=True)
        self.opened += 1

    def begin_anew(self, error: Exception) -> None:
        """Set the file and its log aside and begin others, for what they hold can't be read. Raises `error` where that
        would not help."""
        cause = error.__cause__ if isinstance(error, StoreError) else error
        if cause is None or not _can_be_replaced(cause):
            raise error
        self._disconnect()
        for path in (self._log, self.path):
            self._set_aside(path, cause)
        try:
            self._connection = self._connect()
        except duckdb.Error as again:
            raise self._translated(again) from again
        self.opened += 1

    def read_from(self, filesystem: Any) -> None:
        """Read files of another file system (fsspec's), also after the file was opened again."""
        known, self._filesystem = self._filesystem, filesystem
        if self._connection is not None and known is not filesystem:
            self._connection.register_filesystem(filesystem)

    def ensure(self) -> None:
        """Open again after a fatal error. Raises `StoreError` while that fails."""
        if self._connection is None:
            self.open()
            log.warning("%s: opened again", self.path)
        if self._doubtful:
            self.run("checkpoint")
            self._doubtful = False

    def run(self, sql: str, *values: object) -> None:
        """Execute a statement."""
        with self._errors() as connection:
            connection.execute(sql, values or None)

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        with self._errors() as connection:
            return connection.execute(sql, values or None).fetchall()

    def insert(self, table: str, columns: Columns, known: Literal["", "or ignore", "or replace"] = "") -> None:
        """Append rows; a NaN becomes NULL. `known`: how to treat rows whose key exists."""
        with self._errors() as connection:
            connection.register("incoming", dict(columns))
            try:
                connection.execute(f"insert {known} into {table} by name select * from incoming")
            except duckdb.Error:
                # It raises too once a transaction is aborted, and would hide why it was.
                with suppress(duckdb.Error):
                    connection.unregister("incoming")
                raise
            connection.unregister("incoming")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the statements inside as one transaction."""
        self.run("begin transaction")
        try:
            yield
        except BaseException:
            self._rollback()
            raise
        try:
            self.run("commit")
        except BaseException:
            self._rollback()
            raise

    @contextmanager
    def reader(self, limit: float | None = None) -> Iterator[EngineReader]:
        """Query from another thread, without the commits of the meantime; a query of more than `limit`
        seconds is cancelled. Raises `MovedError` for rows that are no longer where they were,
        else `StoreError`."""
        with self._reader_ended:
            if self._connection is None:
                raise self._closed()
            try:
                cursor = self._connection.cursor()
            except duckdb.Error as error:
                raise self._translated(error) from error
            self._readers.add(cursor)
        late = threading.Event()
        watch = threading.Timer(limit or 0.0, self._cancel, (cursor, late))
        watch.daemon = True
        if limit is not None:
            watch.start()
        try:
            yield EngineReader(cursor)
        except (duckdb.CatalogException, duckdb.IOException) as error:
            raise MovedError(str(self._translated(error))) from error
        except duckdb.Error as error:
            if late.is_set():
                raise StoreError(
                    f"{self.path}: it takes more than {limit:g} s. Request less: a "
                    "shorter time, fewer devices or columns."
                ) from error
            raise self._translated(error) from error
        finally:
            watch.cancel()
            with self._reader_ended:
                cursor.close()
                self._readers.discard(cursor)
                self._reader_ended.notify_all()

    @contextmanager
    def apart(self, folder: Path, memory_bytes: int) -> Iterator[EngineReader]:
        """Work on files in memory of its own, of so many bytes: commits keep theirs. What takes more goes into a
        folder that is made for it. Raises `StoreError`."""
        shutil.rmtree(folder, ignore_errors=True)
        try:
            with duckdb.connect(config=_settings(1, memory_bytes, folder)) as connection:
                if self._filesystem is not None:
                    connection.register_filesystem(self._filesystem)
                yield EngineReader(connection)
        except duckdb.Error as error:
            raise self._translated(error) from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _cancel(self, cursor: duckdb.DuckDBPyConnection, late: threading.Event) -> None:
        with self._reader_ended:
            if cursor in self._readers:
                late.set()
                cursor.interrupt()

    def fold(self) -> bool:
        """Fold the log into the file; False while a reader uses what would be dropped."""
        try:
            self.run("checkpoint")
        except StoreError as error:
            if self._readers and _BUSY in str(error).lower():
                return False
            raise
        return True

    def evict(self) -> bool:
        """Free most blocks that are cached, where they are many; return whether that was tried. Not while a reader is at
        work, which might need the memory just then."""
        limit = self._config.memory_limit_bytes
        if memory_bytes(self) <= min(2 * CACHED_BYTES, limit):
            return False
        with self._reader_ended:
            if self._readers:
                return False
            try:
                self.run(f"set memory_limit = '{CACHED_BYTES}B'")
            except StoreError as error:  # more is in use
                log.debug("%s", error)
            finally:
                self.run(f"set memory_limit = '{limit}B'")
        return True

    def close(self) -> None:
        """Fold the log into the file and close it."""
        self._end_readers()
        if self._connection is not None:
            try:
                self.run("checkpoint")
            except StoreError as error:
                log.warning("%s", error)
        self._disconnect()

    def log_bytes(self) -> int:
        """Return the bytes that are committed and not folded into the file yet."""
        return self._log.stat().st_size if self._log.exists() else 0

    def bytes(self) -> int:
        """Return the size of the file and its log."""
        return sum(path.stat().st_size for path in (self.path, self._log) if path.exists())

    # -- Inside --------------------------------------------------------------------------------

    @property
    def _log(self) -> Path:
        return self.path.with_name(self.path.name + ".wal")

    @property
    def _copy(self) -> Path:
        return self.path.with_name(self.path.name + ".wal.before")

    def _log_copied(self) -> bool:
        """Copy the log beside itself before the engine reads it; False without a copy."""
        if not self._log.exists():
            return False
        try:
            shutil.copyfile(self._log, self._copy)
        except OSError as error:
            log.warning("%s: its log can not be copied before it is read: %s", self.path, error)
            return False
        return True

    def _keep_if_cut(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Keep the log that was read if the engine does not go on behind its end.

        A damaged header, or length of an entry, is no error to DuckDB: it takes the rest for the torn
        end of a write, and cuts it off, silently, with the next write. So there is a write here.
        """
        try:
            connection.execute("create or replace view log_end as select 1 as one")
        except duckdb.Error as error:
            log.warning("%s: whether its log was read whole is unknown: %s", self.path, error)
            connection.close()
            self._connection = self._connect()
            return
        cut = _first_difference(self._copy, self._log)
        if cut is None:
            return
        lost = self._copy.stat().st_size - cut
        # What every kill may leave: kept and logged, and no alert that somebody must end.
        state_file.set_aside(
            self._copy,
            f"the last {lost} bytes of the log are torn, corrupt, or in the database already",
            kinds.cost_of(self._log),
            name=self._log.name,
            ending="torn",
        )

    def _connect(self) -> duckdb.DuckDBPyConnection:
        config = self._config
        connection = duckdb.connect(
            str(self.path),
            config={
                **_settings(config.threads, config.memory_limit_bytes, self.path.with_name("spill")),
                "checkpoint_threshold": f"{LATE * config.checkpoint_bytes}B",
            },
        )
        connection.execute("set parquet_metadata_cache = true")  # sealed files never change
        if self._filesystem is not None:
            connection.register_filesystem(self._filesystem)
        return connection

    def _repaired(self, error: duckdb.Error) -> duckdb.DuckDBPyConnection:
        """Open with the log up to its torn entry, without the log, or with a new file.

        Nothing is deleted: a file that does not open is set aside. Frames
        lost with it are missing in the ledger, and are requested again from the nodes' rings.
        """
        torn = _TORN_AT.search(str(error))
        if torn is not None and self._log.exists():
            whole = self._log.read_bytes()
            self._set_aside(self._log, error)
            self._log.write_bytes(whole[: int(torn[1])])
            try:
                return self._connect()
            except duckdb.Error as again:
                error = again
        for path in (self._log, self.path):
            if not path.exists():
                continue
            self._set_aside(path, error)
            try:
                return self._connect()
            except duckdb.Error as again:
                error = again
        raise self._translated(error) from error

    def _set_aside(self, path: Path, error: BaseException) -> None:
        """Set a file aside, if there is one. Raises `StoreError` where it can't be renamed."""
        newer = _matches(error, (_NEWER,))
        why = NewerVersionError("a newer DuckDB wrote it") if newer else error
        if path.exists() and kinds.set_aside(path, why) is None:
            raise self._translated(error) from error

    @contextmanager
    def _errors(self) -> Iterator[duckdb.DuckDBPyConnection]:
        if self._connection is None:
            raise self._closed()
        try:
            yield self._connection
        except duckdb.Error as error:
            if isinstance(error, duckdb.FatalException) or _matches(error, _FATAL):
                self._disconnect()
                self._doubtful = True
            raise self._translated(error) from error

    def _rollback(self) -> None:
        if self._connection is not None:
            try:
                self._connection.execute("rollback")
            except duckdb.Error:
                self._disconnect()  # in any state, the file is authoritative

    def _closed(self) -> StoreError:
        return StoreError(f"{self.path}: it is closed after an error, and is opened again soon")

    def _end_readers(self) -> None:
        """Cancel all readers, and wait until they have ended: a file in use is not opened again."""
        with self._reader_ended:
            while self._readers:
                for cursor in self._readers:
                    cursor.interrupt()
                self._reader_ended.wait(0.05)

    def _disconnect(self) -> None:
        with self._reader_ended:
            connection, self._connection = self._connection, None
        self._end_readers()
        if connection is not None:
            try:
                connection.close()
            except duckdb.Error as error:
                log.warning("%s: %s", self.path, error)

    def _translated(self, error: BaseException) -> StoreError:
        text = " ".join(str(error).split())[:500]
        cure = next((cure for word, cure in _CURES if word in text.lower()), "")
        kind = ContentError if isinstance(error, _OF_CONTENT) else StoreError
        return kind(f"{self.path}: {text}. {cure}".rstrip())


def memory_bytes(engine: ReadConnection) -> int:
    """Return the memory that a database has for its cache and its queries."""
    [(found,)] = engine.rows("select sum(memory_usage_bytes) from duckdb_memory()")
    return int(found)


def settled(rows: int) -> bool:
    """Whether so many rows that a table gets between two folds make row groups that DuckDB never merges.

    After a fold it begins a new row group, and a fold merges adjacent ones of a table without a key where at most
    three hold what is in one more: four of three quarters, or a full one between two halves. It has all of them in
    memory then, unpacked, and writes them again.
    """
    full, last = divmod(rows, ROW_GROUP)
    return not last or last > ROW_GROUP * (0.5 if full else 0.75) or full >= 3


def _settings(threads: int, memory_bytes: int, spill: Path) -> dict[str, str | bool | int | float | list[str]]:
    """Return the settings of a database; `spill`: the folder for what does not fit into memory."""
    return {
        "threads": str(threads),
        "memory_limit": f"{memory_bytes}B",
        "temp_directory": str(spill),
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
    }


def _first_difference(copy: Path, path: Path) -> int | None:
    """Return the first byte of `copy` that `path` has not in its place; None if it begins with all."""
    place = 0
    with copy.open("rb") as ours, path.open("rb") if path.exists() else io.BytesIO() as theirs:
        while piece := ours.read(1 << 20):
            other = theirs.read(len(piece))
            if piece != other:
                same = zip(piece, other, strict=False)
                equal = next((n for n, (a, b) in enumerate(same) if a != b), len(other))
                return place + equal
            place += len(piece)
    return None


def _matches(error: BaseException, words: tuple[str, ...]) -> bool:
    return any(word in str(error).lower() for word in words)


def _is_damage(error: duckdb.Error) -> bool:
    """Whether the file or its log is corrupt; False for what a person can cure."""
    if _matches(error, _CORRUPT):
        return True
    return _matches(error, (_REPLAYING,)) and not _matches(error, tuple(word for word, _ in _CURES))


def _can_be_replaced(error: BaseException) -> bool:
    """Whether a new file could be used where this one can't."""
    return not _matches(error, _FULL_OR_HELD)


def quoted(text: str) -> str:
    """Return a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def column(name: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def texts(values: list[str | None]) -> npt.NDArray[np.object_]:
    """Return texts as an array that `DuckEngine.insert` takes."""
    found = np.empty(len(values), object)
    found[:] = values
    return found
