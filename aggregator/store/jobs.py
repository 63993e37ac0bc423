"""Jobs in the store: one row a job and one a summary, replaced whole by their keys when a job changes.

A write finds rows by their keys' index: one that reads a column would grow with all jobs that ever were. A fold of
the log writes all rows anew that lie beside a changed one. So jobs that ended days ago move to a table to which rows are
only added, compressed by zstd. A job of both tables, which changed once more, is as the first one has it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec
import numpy as np

from aggregator.jobs.ledger import JobRecord
from aggregator.jobs.stored import JobQuery, StoredJob
from aggregator.jobs.usage import GpuAccount
from aggregator.store.duck import DuckEngine, ReadConnection, texts
from api.jobs import EnergyFrom, JobRow, JobSummary
from telemetry.text.decoders import of_json
from telemetry.wire.jobs import JobKey

log = logging.getLogger(__name__)

TABLES = """
create table if not exists jobs(
    key varchar primary key, id varchar, "user" varchar, account varchar,
    begin bigint, "end" bigint, nodes varchar, row varchar, record varchar);
alter table jobs add column if not exists nodes varchar;
create table if not exists job_summaries(job varchar primary key, body varchar, accounts varchar);
create table if not exists jobs_sent(until bigint);
create table if not exists past_jobs(
    key varchar primary key, id varchar, "user" varchar, account varchar,
    begin bigint, "end" bigint, nodes varchar, row varchar using compression zstd, record varchar using compression zstd,
    body varchar using compression zstd, accounts varchar using compression zstd);
"""
MOVED_AFTER_NS = 7 * 86400 * 10**9
"""Time after its end in which a job changes: its energy is counted, and nodes that were away tell of it."""
MOVED_AT_ONCE = 500
"""Jobs that move together, between two commits: each move lets the next fold write what was added last anew."""


def key_text(key: JobKey) -> str:
    """Return the key of a job as one text."""
    return msgspec.json.encode((key.scheduler, key.cluster, key.id, key.restart)).decode()


def write_jobs(engine: DuckEngine, jobs: Sequence[StoredJob]) -> None:
    """Replace what is stored of some jobs, also under their aliases; inside the caller's transaction."""
    for alias in {key_text(key) for each in jobs for key in each.replaces}:
        engine.run("delete from jobs where key = ?", alias)
        engine.run("delete from job_summaries where job = ?", alias)
        engine.run("delete from past_jobs where key = ?", alias)
    keys: list[str | None] = [key_text(each.record.job.key) for each in jobs]
    rows = [each.row for each in jobs]
    engine.insert(
        "jobs",
        {
            "key": texts(keys),
            "id": texts([row.id for row in rows]),
            "user": texts([row.user for row in rows]),
            "account": texts([row.account for row in rows]),
            "begin": np.array([row.begin for row in rows], np.int64),
            "end": _ends([row.end for row in rows]),
            "nodes": texts([_nodes(row.nodes) for row in rows]),
            "row": texts([msgspec.json.encode(row).decode() for row in rows]),
            "record": texts([msgspec.json.encode(each.record).decode() for each in jobs]),
        },
        "or replace",
    )
    engine.insert(
        "job_summaries",
        {
            "job": texts(keys),
            "body": texts([msgspec.json.encode(each.summary).decode() for each in jobs]),
            "accounts": texts([msgspec.json.encode(each.accounts).decode() for each in jobs]),
        },
        "or replace",
    )


def move_past(engine: DuckEngine, now: int) -> None:
    """Move jobs that ended long before a time, ns since 1970, to those that change no more, once there are `MOVED_AT_ONCE`;
    inside the caller's transaction."""
    found = engine.rows(
        'select key from jobs join job_summaries on key = job where "end" < ? order by "end" limit ?',
        now - MOVED_AFTER_NS,
        MOVED_AT_ONCE,
    )
    if len(found) < MOVED_AT_ONCE:
        return
    keys = [key for (key,) in found]
    engine.run(
        f"insert or replace into past_jobs by name select {_KEPT} from jobs join job_summaries on key = job "
        "where key in (select unnest(?))",
        keys,
    )
    engine.run("delete from jobs where key in (select unnest(?))", keys)
    engine.run("delete from job_summaries where job in (select unnest(?))", keys)


def _nodes(names: Sequence[str]) -> str:
    """Return nodes as one text that contains that of each of them."""
    return "".join(f"\n{name}\n" for name in names)


def open_jobs(connection: ReadConnection) -> list[StoredJob]:
    """Return the jobs that had not ended when they were written last, and those of the last days before it whose
    energy was still to be counted."""
    return _stored(
        connection.rows(
            f"""{_WHOLE} where "end" = {RUNNING} or "end" >= (
                select max("end") from jobs where "end" < {RUNNING}) - {UNCOUNTED_NS} and contains(body, ?)""",
            f'"energy_from":"{EnergyFrom.PROVISIONAL}"',
        )
    )


def jobs_of(connection: ReadConnection, keys: Sequence[JobKey]) -> list[StoredJob]:
    """Return the jobs of some keys, as far as they are stored."""
    wanted = [key_text(key) for key in keys]
    # A new job is not stored, and whoever asks for the bodies at once reads all that there are.
    known = connection.rows(
        "select key from (select key from jobs union all select key from past_jobs) where key in (select unnest(?))",
        wanted,
    )
    if not known:
        return []
    wanted = sorted({key for (key,) in known})
    found = connection.rows(f"{_WHOLE} where key in (select unnest(?))", wanted)
    found += connection.rows(f"select row, record, body, accounts from {_MOVED} and key in (select unnest(?))", wanted)
    return _stored(found)


def find_jobs(connection: ReadConnection, query: JobQuery) -> list[JobRow]:
    """Return the rows of jobs, the newest begin first."""
    found = connection.rows(
        f'select row from {_ROWS} where begin < ? and "end" >= ? '
        "and (? = '' or id = ? or (? != '' and contains(row, ?)) or (? != '' and contains(row, ?))) and (? = '' or \"user\" = ?) and (? = '' or account = ?) "
        f'and (? is null or ? = ("end" = {RUNNING})) '
        "and (? = '' or contains(nodes, ?)) order by begin desc, key limit ?",
        query.until,
        query.since,
        query.id,
        query.id,
        query.owner,
        query.owner_text,
        query.uid,
        f'"{query.uid}"',
        query.user,
        query.user,
        query.account,
        query.account,
        query.running,
        query.running,
        query.node,
        _nodes([query.node]),
        query.limit,
    )
    return [of_json(JobRow).decode(body) for (body,) in found]


def ended_jobs(connection: ReadConnection, first: int, until: int) -> list[JobRow]:
    """Return the jobs that ended from `first` on and before `until`, ns since 1970, in the order of end and key."""
    found = connection.rows(f'select row from {_ROWS} where "end" >= ? and "end" < ? order by "end", key', first, until)
    return [of_json(JobRow).decode(body) for (body,) in found]


def ended_before(connection: ReadConnection, at: int) -> bool:
    """Return whether a job ended before a time, ns since 1970."""
    return any(connection.rows(f'select 1 from {table} where "end" < ? limit 1', at) for table in ("jobs", "past_jobs"))


def full_until(connection: ReadConnection, first: int, until: int, most: int) -> int:
    """Return an end of whole seconds, `until` at most, before which about `most` jobs ended from `first` on: more
    where more did in one second."""
    found = connection.rows(
        f'select (max("end") // 1000000000 + 1) * 1000000000 from (select "end" from {_ROWS} '
        'where "end" >= ? and "end" < ? order by "end" limit ?)',
        first,
        until,
        most,
    )
    counted = connection.rows(f'select count(*) from {_ROWS} where "end" >= ? and "end" < ?', first, until)
    return until if counted[0][0] <= most else min(until, int(found[0][0]))


def sent_until(connection: ReadConnection) -> int:
    """Return the end of the time whose jobs were sent elsewhere; 0 where none was."""
    ((until,),) = connection.rows("select coalesce(max(until), 0) from jobs_sent")
    return int(until)


def note_sent(engine: DuckEngine, until: int) -> None:
    """Note that jobs were sent; inside the caller's transaction."""
    engine.run("delete from jobs_sent")
    engine.run("insert into jobs_sent values (?)", until)


RUNNING = 2**62
"""End of a job that has none: later than any time that is asked for."""
UNCOUNTED_NS = 3 * 86400 * 10**9
"""Time before the newest end in which a start looks for jobs whose energy is still to be counted: readings of each second are
kept for days."""
_COLUMNS = 'key, id, "user", account, begin, "end", nodes, row'
_KEPT = f"{_COLUMNS}, record, body, accounts"
_MOVED = "past_jobs where not exists (select 1 from jobs where jobs.key = past_jobs.key)"
_ROWS = f"(select {_COLUMNS} from jobs union all select {_COLUMNS} from {_MOVED})"
EVERY_JOB = f"(select {_KEPT} from jobs join job_summaries on key = job union all select {_KEPT} from {_MOVED})"
"""Jobs of both tables, each once, with all that is kept of them."""
_WHOLE = "select row, record, body, accounts from jobs join job_summaries on key = job"


def _stored(rows: list[tuple[str, str, str, str]]) -> list[StoredJob]:
    """Return the jobs of rows; one that can't be read, of a newer release say, is left out."""
    found = []
    for row, record, body, accounts in rows:
        try:
            job = StoredJob(
                row=of_json(JobRow).decode(row),
                record=of_json(JobRecord).decode(record),
                summary=of_json(JobSummary).decode(body),
                accounts=of_json(list[GpuAccount]).decode(accounts),
            )
        except (msgspec.DecodeError, UnicodeDecodeError, TypeError) as error:  # `TypeError`: NULL
            log.warning("store: a job can't be read and is left out: %s", error)
        else:
            found.append(job)
    return found


def _ends(ends: Sequence[int | None]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([RUNNING if end is None else end for end in ends], np.int64)
