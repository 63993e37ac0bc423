"""Jobs in Parquet: a file for each month that is over, of the jobs that ended in it (UTC), for any engine to read.

The database keeps them too: it finds a job by its key, which a file can't. A file has the figures as columns and the
allocations as a list of structs. It is made a day after its month, and made again where the store has
learnt of a job of that month since: the file carries what it was made of. Made beside the commits, under another name.
"""

from __future__ import annotations

import types
import typing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from aggregator.folder import kinds
from aggregator.store import checksum
from aggregator.store.duck import EngineReader, ReadConnection, quoted
from aggregator.store.jobs import EVERY_JOB, RUNNING, ended_before
from aggregator.store.manifest import sync
from api.jobs import AllocationRow, JobRow, JobSummary

FOLDER = "jobs"
EVERY_NS = 3_600_000_000_000
"""Time between two looks for months that are over."""
GRACE_NS = 86_400_000_000_000
"""Time after a month in which its last jobs come in."""
MADE_OF = "kilowatch_jobs"
"""Key in a file's footer: number and hash of the rows that it was made of."""
_NOT_FIGURES = {"gpus", "co2_kg"}
"""Fields of a summary that are no stored figures: `co2_kg` is computed when somebody asks."""
_NOW = {"power_watts", "severity", "hints", "summary"}
"""Fields of a row that are of an instant, or columns of their own."""
_TIMES = {"submitted", "eligible", "begin", "end"}


class JobMonths:
    """The files of a data folder."""

    def __init__(self, root: Path) -> None:
        """`root`: the data folder."""
        self._folder = root / FOLDER
        self._looked_at = -EVERY_NS
        self.due_at: int | None = None
        """When it was found last that a month may be missing, ns since 1970; None where none was."""
        self._final: set[str] = set()
        """Months whose file is as the store is, and not looked at again before a restart: a job of long ago
        does not change."""

    def is_due(self, connection: ReadConnection, now: int) -> bool:
        """Return whether it is time to look, and a job ended in a month that is over; ns since 1970."""
        self.due_at = None
        if 0 <= now - self._looked_at < EVERY_NS:
            return False
        self._looked_at = now
        self.due_at = now if ended_before(connection, _until(now)) else None
        return self.due_at is not None

    def make(self, reader: EngineReader, now: int) -> list[str]:
        """Make the files that are missing or old; return their months. Raises `StoreError` or `OSError`."""
        made = []
        known = ", ".join(quoted(month) for month in sorted(self._final)) or "''"
        for month, count, content in reader.rows(
            f"select month, count(*), (sum(hash(key, row, body)::hugeint) % {2**64})::varchar from "
            f"(select strftime(make_timestamp_ns(\"end\"), '%Y-%m') as month, key, row, body "
            f'from {EVERY_JOB} where "end" < {_until(now)}) '
            f"where month not in ({known}) group by month order by month"
        ):
            path = self._folder / f"{month}.parquet"
            state = f"{count}-{content}"
            if self._state(reader, path) != state:
                self._write(reader, month, path, state)
                made.append(month)
            if month < _month(now - 62 * GRACE_NS):
                self._final.add(month)
        return made

    def _state(self, reader: EngineReader, path: Path) -> str:
        """Return what a file was made of; empty of one that is missing or damaged."""
        try:
            if checksum.verify(path) is not checksum.FileState.GOOD:
                return ""
        except OSError as error:
            kinds.set_aside(path, error)
            return ""
        found = reader.rows(
            f"select value from parquet_kv_metadata({quoted(str(path))}) where key = ?", MADE_OF.encode()
        )
        return found[0][0].decode() if found else ""

    def _write(self, reader: EngineReader, month: str, path: Path, state: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f"{path.name}.new")
        options = (
            "(format parquet, parquet_version v2, compression zstd, kv_metadata "
            f"{{{checksum.KEY}: '{checksum.PLACEHOLDER}', {MADE_OF}: '{state}'}})"
        )
        reader.run(f"copy ({_query(month)}) to {quoted(str(aside))} {options}")
        checksum.stamp(aside, path.name)
        sync(aside)
        checksum.sidecar_of(aside).rename(checksum.sidecar_of(path))
        aside.rename(path)
        sync(self._folder)


def _until(now: int) -> int:
    """Return the end of the last month that is over, ns since 1970."""
    day = datetime.fromtimestamp((now - GRACE_NS) // 10**9, UTC)
    return int(datetime(day.year, day.month, 1, tzinfo=UTC).timestamp()) * 10**9


def _month(at: int) -> str:
    return datetime.fromtimestamp(at // 10**9, UTC).strftime("%Y-%m")


def _query(month: str) -> str:
    """Return the query of a file: a column for each figure, times as timestamps."""
    row = [name for name in JobRow.__struct_fields__ if name not in _NOW]
    summary = [name for name in JobSummary.__struct_fields__ if name not in _NOT_FIGURES]
    columns = [f'make_timestamp_ns(j."{name}") as "{name}"' if name in _TIMES else f'j."{name}"' for name in row]
    columns += [f's."{name}"' for name in summary]
    columns += ["s.gpus as use_by_gpu", "r.allocations as allocations"]
    return (
        f"select {', '.join(columns)} from (select "
        f"json_transform(row, {quoted(_structure(JobRow))}) as j, "
        f"json_transform(body, {quoted(_structure(JobSummary))}) as s, "
        f"json_transform(record, {quoted(_json({'allocations': [_type(AllocationRow)]}))}) as r, "
        f'"end" as ended, key from {EVERY_JOB} '
        f'where "end" < {RUNNING} and strftime(make_timestamp_ns("end"), \'%Y-%m\') = {quoted(month)}) '
        "order by ended, key"
    )


def _structure(kind: type[msgspec.Struct]) -> str:
    return _json(_type(kind))


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _type(kind: Any) -> Any:
    """Return a type as `json_transform` writes it. Raises `TypeError` for one that a row can't have."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in {typing.Union, types.UnionType}:
        (inner,) = (each for each in arguments if each is not type(None))
        return _type(inner)
    if origin is list:
        return [_type(arguments[0])]
    if origin is dict:
        return f"MAP(VARCHAR, {_type(arguments[1])})"
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return {
            name: _type(each)
            for name, each in typing.get_type_hints(kind).items()
            if not (kind is JobRow and name in _NOW)
        }
    for known, name in ((bool, "BOOLEAN"), (int, "BIGINT"), (float, "DOUBLE"), (str, "VARCHAR")):
        if isinstance(kind, type) and issubclass(kind, known):
            return name
    raise TypeError(f"{kind} has no column type")
