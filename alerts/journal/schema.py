"""The tables of the journal's file, how it is opened, and how a corrupt one is set aside."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from telemetry import private_file
from telemetry.errors import StoreError

VERSION = 1
"""Version of the tables. A change increments it and adds a migration to `_MIGRATIONS`."""
_APPLICATION = 0x6B775F6A
"""`kw_j`: shown by `file`, and absent in the file of another program."""

_TABLES = """
create table record (kind text, key text, body blob not null, primary key (kind, key)) without rowid;
create table life (key text primary key, body blob not null) without rowid;
create table channel (key text primary key, body blob not null) without rowid;
create table incident (
    key text primary key, began integer not null, ended integer, body blob not null) without rowid;
create index incident_ended on incident (ended);
create table notice (key text primary key, at integer not null, body blob not null) without rowid;
create table delivery (
    key integer primary key, channel text not null, incident text not null, notice text not null,
    created integer not null, due integer not null, tries integer not null, outcome text not null,
    error text not null);
create index delivery_outcome on delivery (outcome, created);
create index delivery_incident on delivery (incident);
create index delivery_notice on delivery (notice);
create table counter (key text primary key, value integer not null) without rowid;
"""
_MIGRATIONS: dict[int, str] = {0: _TABLES}
"""By version, the statements that migrate to the next."""


def connect(path: Path) -> sqlite3.Connection:
    """Open the file for writing, alone. Raises `sqlite3.Error`."""
    connection = sqlite3.connect(path, timeout=0.0, isolation_level=None, check_same_thread=False)
    connection.text_factory = lambda text: text.decode(errors="replace")
    try:
        connection.execute("pragma locking_mode = exclusive")
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = full")
        connection.execute("pragma wal_autocheckpoint = 2000")
        connection.execute("pragma journal_size_limit = 67108864")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def prepare(path: Path, wall_ns: int) -> tuple[sqlite3.Connection, str]:
    """Open or create the file; return too, as text, which corrupt file was set aside. Raises
    `StoreError`."""
    try:
        private_file.make_folder(path.parent)
    except OSError as error:
        raise StoreError(f"{path.parent}: {error.strerror}. The journal needs a folder.") from error
    try:
        return _begun(path), ""
    except sqlite3.DatabaseError as error:
        if not is_corrupt(error):
            raise _refused(path, error) from error
        return begin_anew(path, str(error), wall_ns)


def begin_anew(path: Path, problem: str, wall_ns: int) -> tuple[sqlite3.Connection, str]:
    """Set a corrupt file aside and create another; return that as text too. Raises `StoreError`."""
    aside = _set_aside(path, wall_ns)
    try:
        return _begun(path), f"{path} could not be read ({problem}); it is kept as {aside.name}"
    except sqlite3.Error as error:
        raise _refused(path, error) from error


def is_corrupt(error: BaseException | None) -> bool:
    """Whether an error means that a file is corrupt, rather than unreachable for now."""
    return isinstance(error, sqlite3.DatabaseError) and not isinstance(
        error, sqlite3.OperationalError
    )


def _begun(path: Path) -> sqlite3.Connection:
    size = _size_alone(path)
    connection = connect(path)
    try:
        _check(connection, size)
        _migrate(path, connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _size_alone(path: Path) -> int:
    """Return the file's bytes; 0 where there is none, or where its log holds pages of it, too."""
    log = path.with_name(f"{path.name}-wal")
    if not path.exists() or (log.exists() and log.stat().st_size):
        return 0
    return path.stat().st_size


def _check(connection: sqlite3.Connection, size: int) -> None:
    """Raise `sqlite3.DatabaseError` for a corrupt file. `size`: its bytes before it was opened. SQLite takes
    what a cut file lacks of its last page for zeros, and finds other values there."""
    if size % connection.execute("pragma page_size").fetchone()[0]:
        raise sqlite3.DatabaseError("its last page is cut off")
    found = connection.execute("pragma quick_check(1)").fetchone()[0]
    if found != "ok":
        raise sqlite3.DatabaseError(found)


def _migrate(path: Path, connection: sqlite3.Connection) -> None:
    version: int = connection.execute("pragma user_version").fetchone()[0]
    application: int = connection.execute("pragma application_id").fetchone()[0]
    tables: int = connection.execute("select count(*) from sqlite_master").fetchone()[0]
    if tables and application != _APPLICATION:
        raise StoreError(f"{path}: another program's database. Name another file for the journal.")
    if version > VERSION:
        raise StoreError(
            f"{path}: written by a newer kilowatch (tables {version}, ours {VERSION}). "
            "Install that one, or move the file away."
        )
    for step in range(version, VERSION):
        connection.executescript(
            f"begin immediate; {_MIGRATIONS[step]} pragma application_id = {_APPLICATION}; "
            f"pragma user_version = {step + 1}; commit;"
        )


def _refused(path: Path, error: sqlite3.Error) -> StoreError:
    if "locked" in str(error):
        return StoreError(f"{path}: another kilowatch has it open. Stop that one.")
    return StoreError(f"{path}: {error}. The journal must be a file that can be written.")


def _set_aside(path: Path, wall_ns: int) -> Path:
    """Rename the file and its companions; the new name has the time."""
    aside = path.with_name(f"{path.name}.corrupt-{wall_ns // 1_000_000_000}")
    number = 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}.corrupt-{wall_ns // 1_000_000_000}-{number}")
    try:
        path.rename(aside)
        for suffix in ("-wal", "-shm"):
            beside = path.with_name(path.name + suffix)
            if beside.exists():
                beside.rename(aside.with_name(aside.name + suffix))
    except OSError as error:
        raise StoreError(
            f"{path}: corrupt, and can't be set aside ({error.strerror}). Move it away by hand."
        ) from error
    return aside
