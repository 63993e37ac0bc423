"""The tables of the journal's file, how it is opened, and how one that can't be used is set aside."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path

from alerts import journal_loss
from alerts.journal.log_check import lost_commits
from telemetry.errors import StoreError
from telemetry.files import private_file
from telemetry.files.state_file import NewerVersionError, set_aside

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


_FULL_OR_HELD = ("locked", "full")


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


def prepare(path: Path) -> tuple[sqlite3.Connection, str]:
    """Open or create the file; return too, as text, which file was set aside. Raises `StoreError`."""
    try:
        private_file.make_folder(path.parent)
    except OSError as error:
        raise StoreError(f"{path.parent}: {error.strerror}. The journal needs a folder.") from error
    try:
        return _begun(path), ""
    except (sqlite3.Error, NewerVersionError) as error:
        if not can_be_replaced(error):
            raise _refused(path, error) from error
        return begin_anew(path, error)


def begin_anew(path: Path, problem: BaseException) -> tuple[sqlite3.Connection, str]:
    """Go on without the log, or without the file, whichever can't be used; both are set aside. Return what was lost
    too, as text. Raises `StoreError`."""
    log, first, kept = path.with_name(f"{path.name}-wal"), problem, []
    for each in (log, path):
        if os.path.lexists(each):
            aside = set_aside(each, problem, journal_loss.FILE)
            if aside is None:
                raise _refused(path, problem) from problem
            kept.append(aside.name)
            path.with_name(f"{path.name}-shm").unlink(missing_ok=True)  # an index of the log
        elif each is log:
            continue
        try:
            found = _begun(path)
        except (sqlite3.Error, NewerVersionError) as error:
            problem = error
        else:
            return found, f"{path} could not be read ({first}); it is kept as {', '.join(kept)}"
    raise _refused(path, problem) from problem


def can_be_replaced(error: BaseException) -> bool:
    """Whether an error concerns this file, so that a new one could be used. A full disk would refuse that too, and one
    that another process has open is not to be touched."""
    text = str(error).lower()
    return not (isinstance(error, sqlite3.Error) and any(word in text for word in _FULL_OR_HELD))


def _begun(path: Path) -> sqlite3.Connection:
    size = _size_alone(path)
    if size == 0 and _is_empty(path):
        raise sqlite3.DatabaseError("it is empty")  # to SQLite a new one
    before = _log_copied(path)
    connection = connect(path)
    try:
        _check(connection, size)
        if before is not None:
            _keep_if_lost(connection, path, before)
        _migrate(connection)
    except BaseException:
        connection.close()
        raise
    finally:
        if before is not None:
            before.unlink(missing_ok=True)
    return connection


def _log_copied(path: Path) -> Path | None:
    """Copy the log, which a kill has left, before SQLite goes on with it; None where there is none, or no room."""
    log, copy = (path.with_name(path.name + ending) for ending in ("-wal", "-wal.before"))
    try:
        return Path(shutil.copyfile(log, copy))
    except OSError:  # what can't be read, SQLite says itself
        copy.unlink(missing_ok=True)
        return None


def _keep_if_lost(connection: sqlite3.Connection, path: Path, before: Path) -> None:
    """Set the log as it was aside where it has commits that SQLite has not read."""
    read = connection.execute("pragma wal_checkpoint(passive)").fetchone()[1]
    if lost_commits(before, read):
        set_aside(before, f"only its first {read} frames are intact", journal_loss.LOG, name=f"{path.name}-wal")


def _size_alone(path: Path) -> int:
    """Return the file's bytes; 0 where there is none, or where its log holds pages of it, too."""
    log = path.with_name(f"{path.name}-wal")
    if not path.exists() or (log.exists() and log.stat().st_size):
        return 0
    return path.stat().st_size


def _is_empty(path: Path) -> bool:
    """Whether there is a file with nothing in it, and no log that may have all of it."""
    return path.is_file() and not path.stat().st_size and not os.path.lexists(f"{path}-wal")


def _check(connection: sqlite3.Connection, size: int) -> None:
    """Raise `sqlite3.DatabaseError` for a corrupt file. `size`: its bytes before it was opened. SQLite takes
    what a cut file lacks of its last page for zeros, and finds other values there."""
    if size % connection.execute("pragma page_size").fetchone()[0]:
        raise sqlite3.DatabaseError("its last page is cut off")
    found = connection.execute("pragma quick_check(1)").fetchone()[0]
    if found != "ok":
        raise sqlite3.DatabaseError(found)


def _migrate(connection: sqlite3.Connection) -> None:
    version: int = connection.execute("pragma user_version").fetchone()[0]
    application: int = connection.execute("pragma application_id").fetchone()[0]
    tables: int = connection.execute("select count(*) from sqlite_master").fetchone()[0]
    if tables and application != _APPLICATION:
        raise sqlite3.DatabaseError("another program's database")
    if version > VERSION:
        raise NewerVersionError(f"its tables are of version {version}, and ours of {VERSION}")
    for step in range(version, VERSION):
        connection.executescript(
            f"begin immediate; {_MIGRATIONS[step]} pragma application_id = {_APPLICATION}; "
            f"pragma user_version = {step + 1}; commit;"
        )


def _refused(path: Path, error: BaseException) -> StoreError:
    if "locked" in str(error):
        return StoreError(f"{path}: another kilowatch has it open. Stop that one.")
    return StoreError(f"{path}: {error}. The journal must be a file that can be written.")
