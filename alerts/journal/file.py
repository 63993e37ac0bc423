"""The journal's file as rows; changed rows wait in memory until they are on disk."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

from alerts.journal.schema import connect
from telemetry.errors import StoreError
from telemetry.runtime.isolation import reason_of

log = logging.getLogger(__name__)
Row = tuple[Any, ...]

_PUT = {
    "record": "insert or replace into record values (?, ?, ?)",
    "life": "insert or replace into life values (?, ?)",
    "channel": "insert or replace into channel values (?, ?)",
    "incident": "insert or replace into incident values (?, ?, ?, ?)",
    "notice": "insert or replace into notice values (?, ?, ?)",
    "delivery": "insert or replace into delivery values (?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "counter": "insert or replace into counter values (?, ?)",
}
"""By table; its first column is its key, of `record` the first two."""
_DROP = {
    "record": "delete from record where kind = ? and key = ?",
    "life": "delete from life where key = ?",
    "channel": "delete from channel where key = ?",
    "incident": "delete from incident where key = ?",
    "notice": "delete from notice where key = ?",
    "delivery": "delete from delivery where key = ?",
    "counter": "delete from counter where key = ?",
}


class JournalFile:
    """Rows by table and key. A changed row stays in memory until it is on disk."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.trouble = ""
        """Why the last write failed; "" when it did not."""
        self._fault = ""
        self._over = True
        """Whether a later write had no fault."""
        self._connection: sqlite3.Connection | None = connection
        self._io = Lock()
        """Held while the file is read or written: for milliseconds."""
        self._lock = Lock()
        """Held while `_unwritten` changes: for an instant."""
        self._unwritten: dict[Row, Row | None] = {}
        """By table and key; None is to be deleted."""

    def put(self, table: str, *row: Any) -> None:
        """Insert a row, or replace the one with its key."""
        with self._lock:
            self._unwritten[table, *row[: 2 if table == "record" else 1]] = row

    def drop(self, table: str, *key: Any) -> None:
        """Delete a row, if there is one."""
        with self._lock:
            self._unwritten[table, *key] = None

    def write(self) -> bool:
        """Write all changed rows in one transaction; return whether they are on disk. Waits for
        another thread that is writing."""
        with self._io:
            with self._lock:
                batch, self._unwritten = self._unwritten, {}
            if not batch:
                return True
            try:
                self._write(self._connected(), batch)
            except sqlite3.Error as error:
                self.trouble = str(error)
                self._disconnect()
                with self._lock:
                    self._unwritten = {**batch, **self._unwritten}
                return False
            except Exception as error:  # noqa: BLE001 - costs the rows that it comes from
                return self._write_apart(batch, error)
            self.trouble, self._over = "", True
            return True

    def _write_apart(self, batch: dict[Row, Row | None], error: Exception) -> bool:
        """Write rows one by one; a row that can't be written is dropped, unless none can."""
        self._fault, self._over = reason_of(error), False
        left: dict[Row, Row | None] = {}
        for key, row in batch.items():
            try:
                self._write(self._connected(), {key: row})
            except Exception:
                log.exception("%s: a row of %s can't be written", self.path, key[0])
                left[key] = row
        if len(left) < len(batch):
            self.trouble = ""
            return True
        self.trouble = reason_of(error)
        with self._lock:
            self._unwritten = {**batch, **self._unwritten}
        return False

    def recent_fault(self) -> str:
        """Return why rows were dropped or wait, by a fault of our own: in the last write, or in any
        since the last call; "" without any."""
        fault = self._fault
        if self._over:
            self._fault = ""
        return fault

    def rows(self, statement: str, *values: Any) -> list[Any]:
        """Return the rows of a query. Raises `StoreError`."""
        with self._io:
            try:
                return self._connected().execute(statement, values).fetchall()
            except sqlite3.Error as error:
                raise StoreError(f"{self.path}: {error}") from error

    def run(self, statements: Iterable[tuple[str, Row]]) -> None:
        """Run statements in one transaction; where that fails, change nothing."""
        with self._io, suppress(sqlite3.Error):
            connection = self._connected()
            connection.execute("begin immediate")
            try:
                for statement, values in statements:
                    connection.execute(statement, values)
                connection.execute("commit")
            except sqlite3.Error:
                connection.execute("rollback")

    def close(self) -> None:
        """Write the rest, and close the file."""
        self.write()
        with self._io:
            self._disconnect()

    def _write(self, connection: sqlite3.Connection, batch: dict[Row, Row | None]) -> None:
        puts: dict[str, list[Row]] = {}
        drops: dict[str, list[Row]] = {}
        for (table, *key), row in batch.items():
            if row is None:
                drops.setdefault(table, []).append(tuple(key))
            else:
                puts.setdefault(table, []).append(row)
        connection.execute("begin immediate")
        try:
            for table, rows in puts.items():
                connection.executemany(_PUT[table], rows)
            for table, keys in drops.items():
                connection.executemany(_DROP[table], keys)
            connection.execute("commit")
        except BaseException:
            with suppress(sqlite3.Error):
                connection.execute("rollback")
            raise

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = connect(self.path)
        return self._connection

    def _disconnect(self) -> None:
        """Close the connection; the next call opens the file again."""
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
        self._connection = None
