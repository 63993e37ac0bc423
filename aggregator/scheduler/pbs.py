"""Jobs of PBS (OpenPBS, PBS Professional): the table of `qstat -f -F json`. Pure.

A job's name has the number, the index of a task and the server (`123[4].server`). Which of its node's GPUs a job has PBS does not
say, but how many.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from aggregator.scheduler.names import PBS
from aggregator.scheduler.tables import Fields, JobForm, StateWord, seconds, text, texts, whole
from telemetry.text.decoders import of_json
from telemetry.wire.jobs import JobKey

COMMAND = ("qstat", "-f", "-t", "-F", "json")
"""`-t`: the tasks of arrays too."""
ENVIRONMENT = {"TZ": "UTC", "LC_ALL": "C"}
"""qstat writes times in the time zone of whoever calls it."""
UNKNOWN = re.compile(r"Unknown Job Id", re.IGNORECASE)
"""Words about a job that it has not any more, beside what it prints of others."""
NO_HISTORY = re.compile(r"job.history", re.IGNORECASE)
"""Words of a server that keeps no jobs that have ended."""
_NAME = re.compile(r"(\d+(?:\[\d+\])?)\.(\S+)", re.ASCII)
_NO_PROJECT = "_pbs_project_default"
_CHUNK = re.compile(r"(?:(\d+):)?(.*)")
_NGPUS = re.compile(r"(?:^|:)ngpus=(\d+)(?=:|$)", re.ASCII)
_VNODE = re.compile(r"([^\[\]:()+]+)(?:\[\d+\])?((?::[^:()+]*)*)")
_KILLED = {-29: "TIMEOUT", -28: "TIMEOUT", -27: "OUT_OF_MEMORY", -26: "OUT_OF_MEMORY"}
"""Reasons for which PBS itself ended a job; others are failures."""
_SIGNALS = 256


class _QstatAnswer(msgspec.Struct):
    timestamp: int
    """Without it this is no answer, and no word that there are no jobs."""
    Jobs: dict[str, msgspec.Raw] = {}


_ANSWER = of_json(_QstatAnswer)


def ended_command(jobs: Iterable[str]) -> tuple[str, ...]:
    """Return the question about some jobs that have ended, by their numbers."""
    return ("qstat", "-x", "-f", "-F", "json", *jobs)


def _decode(output: bytes) -> Iterator[tuple[str, bytes]]:
    for name, record in _ANSWER.decode(output).Jobs.items():
        yield name, bytes(record)


def _key(name: str, its: Fields) -> JobKey:
    found = _NAME.fullmatch(name)
    if found is None:
        raise ValueError(f"{name[:80]!r} is no id of a job")
    # It counts the times that it began, and this is the number of those before.
    return JobKey(PBS.scheduler, found[2], found[1], max((whole(its, "run_count") or 1) - 1, 0))


def _ended(its: Fields) -> tuple[str, int | None]:
    word = text(its, "Exit_status")
    if not word.removeprefix("-").isdecimal():
        return "ended", None
    status = int(word)
    if status < 0:
        return _KILLED.get(status, "FAILED"), None
    signal = status - _SIGNALS
    return ("FAILED" if status else "COMPLETED"), (-signal if signal > 0 else status) or None


def _account(its: Fields) -> str:
    project = text(its, "project")
    return text(its, "Account_Name") or ("" if project == _NO_PROJECT else project)


def _asked(its: Fields) -> int | None:
    """Return how many GPUs a job asked for: as PBS adds them up, else by its chunks."""
    known = whole(its, "Resource_List.ngpus")
    if known is not None:
        return known
    chunks = [_CHUNK.fullmatch(each) for each in text(its, "Resource_List.select").split("+")]
    return sum(
        int(chunk[1] or 1) * int(gpus[1])
        for chunk in chunks
        if chunk is not None
        for gpus in [_NGPUS.search(chunk[2])]
        if gpus is not None
    )


def _counts(its: Fields) -> Mapping[str, int]:
    """Return how many GPUs a job has by node, of `(n1[0]:ncpus=8:ngpus=2+n1[1]:ngpus=2)+(n2:ngpus=4)`."""
    found: dict[str, int] = {}
    value = its.get("exec_vnode")
    for node, resources in _VNODE.findall(value if isinstance(value, str) else ""):
        gpus = _NGPUS.search(resources)
        if gpus is not None and int(gpus[1]):
            found[node] = found.get(node, 0) + int(gpus[1])
    return found


TABLE = JobForm(
    scheduler=PBS.scheduler, command=PBS.source, decode=_decode, key=_key, ended=_ended, counts=_counts,
    begins=re.compile(r'^\s*"(\d+(?:\[\d*\])?\.[^"\s]+)"\s*:\s*\{\s*$', re.MULTILINE | re.ASCII),
    fields=frozenset({
        "Job_Name", "Job_Owner", "job_state", "queue", "project", "Account_Name", "ctime", "etime", "stime", "obittime",
        "history_timestamp", "exec_vnode", "Resource_List", "Exit_status", "run_count",
    }),
    state="job_state",
    states={
        "Q": StateWord("waits", "PENDING"), "H": StateWord("waits", "PENDING"), "W": StateWord("waits", "PENDING"),
        "T": StateWord("waits", "PENDING"), "R": StateWord("holds", "RUNNING"), "E": StateWord("holds", "COMPLETING"),
        "S": StateWord("holds", "SUSPENDED"), "U": StateWord("holds", "SUSPENDED"), "F": StateWord("over"), "X": StateWord("over"),
        "B": StateWord("gone"), "M": StateWord("gone"),
    },
    texts={
        "name": texts("Job_Name"), "user": lambda its: text(its, "Job_Owner").partition("@")[0], "account": _account,
        "queue": texts("queue"),
    },
    numbers={
        "nodes": lambda its: whole(its, "Resource_List.nodect"), "gpus": _asked,
        "time_limit": lambda its: seconds(text(its, "Resource_List.walltime")),
    },
    times={
        "submitted": texts("ctime"), "eligible": texts("etime"), "begin": texts("stime"),
        "end": texts("obittime", "history_timestamp"),
    },
)  # fmt: skip
"""`B`: an array, whose tasks are jobs of their own; `M`: a job that another server has."""
