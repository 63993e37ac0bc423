"""Jobs in the queues of HTCondor and in their history: the table of `condor_q -json` and `condor_history -json`. Pure.

Each submit machine has a queue and a history of its own (a schedd's), and each is asked by its name. A job is one through all of
its runs. An attribute that is an expression (`/Expr(...)/`) is no number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from aggregator.scheduler.names import CONDOR
from aggregator.scheduler.tables import Fields, JobForm, StateWord, text, texts, whole
from telemetry.text.decoders import of_json
from telemetry.wire.jobs import JobKey

QUEUE = "condor_q"
_FIELDS = (
    "GlobalJobId", "Owner", "AcctGroup", "JobBatchName", "JobDescription", "Cmd", "QDate", "JobStatus", "JobCurrentStartDate",
    "EnteredCurrentStatus", "LastJobStatus", "CompletionDate", "HoldReasonCode", "RequestGPUs", "AllowedJobDuration",
    "AllowedExecuteDuration", "TotalSubmitProcs", "ExitBySignal", "ExitCode", "ExitSignal",
)  # fmt: skip
_STARTED = "RequestGPUs > 0 && (JobStatus != 1 || NumJobStarts > 0)"
"""Jobs that may have had a GPU: those that wait for their first one are not asked for, which may be most of a queue."""
_MOST_SCANNED = 20_000
"""Jobs of a history that are looked at, the newest first: it may have years of them."""
_SCHEDD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@:-]*", re.ASCII)
_GLOBAL = re.compile(r"([^#]+)#(\d{1,10}\.\d{1,10})#\d{1,10}", re.ASCII)
_HAD_A_SLOT = frozenset({"2", "6", "7"})
_HELD = {"34": "OUT_OF_MEMORY", "46": "TIMEOUT", "47": "TIMEOUT"}
"""Reasons for a hold by which HTCondor ended the run."""
_REMOVED, _HOLD = "3", "5"
_MOST_LIMIT = 10 * 366 * 86_400


def is_schedd(name: str) -> bool:
    """Return whether a name may be that of a schedd, and no option of a command."""
    return _SCHEDD.fullmatch(name) is not None


def queue_command(schedd: str, pool: str) -> tuple[str, ...]:
    """Return the question to a schedd about its jobs that may have had a GPU."""
    return (QUEUE, *_of(schedd, pool), "-allusers", "-constraint", _STARTED)


def history_command(schedd: str, pool: str, jobs: Sequence[str]) -> tuple[str, ...]:
    """Return the question to a schedd about some jobs that have left its queue. It ends when all are found."""
    bounds = ("-limit", str(len(jobs)), "-scanlimit", str(_MOST_SCANNED))
    return (CONDOR.accounting, *_of(schedd, pool), *bounds, *jobs)


def _of(schedd: str, pool: str) -> Iterable[str]:
    where = ("-pool", pool) if pool else ()
    return ("-name", schedd, *where, "-json", "-attributes", ",".join(_FIELDS))


def _decode(output: bytes) -> Iterator[tuple[str, bytes]]:
    for record in of_json(list[msgspec.Raw]).decode(b"[" + output + b"]"):
        yield "", bytes(record)


def _key(_: str, its: Fields) -> JobKey:
    found = _GLOBAL.fullmatch(text(its, "GlobalJobId"))
    if found is None:
        raise ValueError(f"{text(its, 'GlobalJobId')[:80]!r} is no GlobalJobId")
    return JobKey(CONDOR.scheduler, found[1], found[2])


def _task(name: str, its: Fields) -> tuple[str, str]:
    """Return cluster and process of a job that was submitted with others."""
    cluster, _, process = name.partition(".")
    return (cluster, process) if (whole(its, "TotalSubmitProcs") or 0) > 1 or int(process) else ("", "")


def _word(its: Fields) -> str:
    held = text(its, "JobStatus") == _HOLD
    return _HELD.get(text(its, "HoldReasonCode"), "") if held else ""


def _ended(its: Fields) -> tuple[str, int | None]:
    if text(its, "JobStatus") == _REMOVED:
        return "CANCELLED", None
    if its.get("ExitBySignal") in {True, "true"}:
        return "FAILED", -(whole(its, "ExitSignal", 128) or 0) or None
    code = whole(its, "ExitCode")
    return ("ended", None) if code is None else ("FAILED" if code else "COMPLETED", code or None)


def _end(its: Fields) -> object:
    """Return when a job ended; of one that was removed while it waited or was held, its last run ended before."""
    if whole(its, "CompletionDate"):
        return text(its, "CompletionDate")
    removed = text(its, "JobStatus") == _REMOVED and text(its, "LastJobStatus") in _HAD_A_SLOT
    return text(its, "EnteredCurrentStatus") if removed else ""


def _limit(its: Fields) -> int | None:
    return whole(its, "AllowedJobDuration", _MOST_LIMIT) or whole(its, "AllowedExecuteDuration", _MOST_LIMIT)


def _name(its: Fields) -> str:
    return text(its, "JobBatchName", "JobDescription") or text(its, "Cmd").rpartition("/")[2]


TABLE = JobForm(
    scheduler=CONDOR.scheduler, command=QUEUE, decode=_decode, key=_key, ended=_ended, task=_task, word=_word,
    begins=re.compile(r"^\s*\{\s*$", re.MULTILINE), opens=re.compile(rb"\{"), empty=re.compile(rb"[\s\[\]]*"),
    fields=frozenset(_FIELDS),
    state="JobStatus",
    states={
        "1": StateWord("waits", "REQUEUED"), "2": StateWord("holds", "RUNNING"), "3": StateWord("over"), "4": StateWord("over"),
        "5": StateWord("waits", "HELD"), "6": StateWord("holds", "COMPLETING"), "7": StateWord("holds", "SUSPENDED"),
    },
    texts={"name": _name, "user": texts("Owner"), "account": texts("AcctGroup")},
    numbers={"nodes": lambda _: None, "gpus": lambda its: whole(its, "RequestGPUs"), "time_limit": _limit},
    times={"submitted": texts("QDate"), "begin": texts("JobCurrentStartDate"), "end": _end},
)  # fmt: skip
"""`1`: a job that began and waits again. `6`: it sends its output. One that has ended may stay in the queue until its output is fetched."""
