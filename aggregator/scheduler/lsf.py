"""Jobs of LSF: the table of `bjobs -a -json`. Pure.

All values are texts, and empty where there is none. A job's GPUs are named by host, once for each task
(`n1:0,1,0,1;n2:0`); an instance of MIG (`n1:0:3/2`) is named by its size, which names none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from aggregator.scheduler.names import LSF
from aggregator.scheduler.tables import Fields, JobForm, StateWord, seconds, text, texts, whole
from telemetry.text.decoders import of_json
from telemetry.wire.jobs import JobKey

_FIELDS = (
    "jobid", "jobindex", "stat", "user", "queue", "proj_name", "job_name", "exec_host", "submit_time", "start_time", "finish_time",
    "runtimelimit", "exit_code", "exit_reason", "gpu_num", "gpu_alloc",
)  # fmt: skip
COMMAND = ("bjobs", "-u", "all", "-a", "-o", " ".join(_FIELDS), "-json")
OLD_COMMAND = (*COMMAND[:5], " ".join(name for name in _FIELDS if not name.startswith("gpu_")), "-json")
"""For a release that knows no fields of GPUs."""
ENVIRONMENT = {"TZ": "UTC", "LC_ALL": "C", "LSB_DISPLAY_YEAR": "Y"}
"""bjobs writes times in the time zone of whoever calls it, and without this without their year."""
NO_JOBS = re.compile(r"No (?:\w+ )?job found", re.IGNORECASE)
NO_FIELD = re.compile(r"gpu_(?:num|alloc)", re.IGNORECASE)
_ID = re.compile(r"(\d+)(?:\[(\d+)\])?", re.ASCII)
_REASONS = {
    "TERM_RUNLIMIT": "TIMEOUT", "TERM_CPULIMIT": "TIMEOUT", "TERM_DEADLINE": "TIMEOUT", "TERM_WINDOW": "TIMEOUT",
    "TERM_MEMLIMIT": "OUT_OF_MEMORY", "TERM_SWAP": "OUT_OF_MEMORY", "TERM_PREEMPT": "PREEMPTED", "TERM_OWNER": "CANCELLED",
    "TERM_ADMIN": "CANCELLED", "TERM_FORCE_OWNER": "CANCELLED", "TERM_FORCE_ADMIN": "CANCELLED",
}  # fmt: skip
"""Why a job was ended, in Slurm's words; for all else it failed."""
_MOST_GPUS = 1024


class _BjobsAnswer(msgspec.Struct):
    RECORDS: list[msgspec.Raw]


_ANSWER = of_json(_BjobsAnswer)


def _decode(output: bytes) -> Iterator[tuple[str, bytes]]:
    for record in _ANSWER.decode(output).RECORDS:
        yield "", bytes(record)


def _key(_: str, its: Fields) -> JobKey:
    found = _ID.fullmatch(text(its, "JOBID"))
    if found is None:
        raise ValueError(f"{text(its, 'JOBID')[:80]!r} is no id of a job")
    index = whole(its, "JOBINDEX") or int(found[2] or 0)
    return JobKey(LSF.scheduler, "", f"{found[1]}[{index}]" if index else found[1])


def _ended(its: Fields) -> tuple[str, int | None]:
    code = whole(its, "EXIT_CODE", 256) or None
    if text(its, "STAT") == "DONE":
        return "COMPLETED", code
    return _REASONS.get(text(its, "EXIT_REASON").partition(":")[0], "FAILED"), code


def _limit(its: Fields) -> int | None:
    """Return the time limit in seconds, of minutes (`1440.0`) or a clock (`24:00:00`)."""
    word = text(its, "RUNTIMELIMIT")
    minutes = word.partition(".")[0]
    return int(minutes) * 60 if minutes.isascii() and minutes.isdecimal() else seconds(word)


def _hosts(its: Fields) -> int:
    value = its.get("EXEC_HOST")
    hosts = value.split(":") if isinstance(value, str) else ()
    return len({host.rpartition("*")[2] for host in hosts} - {"", "-"})


def _gpus(its: Fields) -> Mapping[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    value = its.get("GPU_ALLOC")
    for part in value.split(";") if isinstance(value, str) else ():
        host, _, numbers = part.strip().partition(":")
        words = dict.fromkeys(each.strip() for each in numbers.split(","))
        known = tuple(int(each) for each in words if each.isascii() and each.isdecimal() and len(each) < 5)
        if host and len(known) == len(words) and max(known) < _MOST_GPUS:
            found[host] = known
    return found


TABLE = JobForm(
    scheduler=LSF.scheduler, command=LSF.source, decode=_decode, key=_key, ended=_ended, gpus=_gpus,
    begins=re.compile(r"^\s*\{\s*$(?=\s*\"JOBID\")", re.MULTILINE),
    fields=frozenset(name.upper() for name in _FIELDS),
    state="STAT",
    states={
        "PEND": StateWord("waits", "PENDING"), "PSUSP": StateWord("waits", "PENDING"), "WAIT": StateWord("waits", "PENDING"),
        "FWD_PEND": StateWord("waits", "PENDING"), "PROV": StateWord("holds", "CONFIGURING"), "RUN": StateWord("holds", "RUNNING"),
        "USUSP": StateWord("holds", "SUSPENDED"), "SSUSP": StateWord("holds", "SUSPENDED"), "UNKWN": StateWord("holds"),
        "ZOMBI": StateWord("holds"), "DONE": StateWord("over"), "EXIT": StateWord("over"),
    },
    texts={
        "name": texts("JOB_NAME"), "user": texts("USER"), "account": texts("PROJ_NAME"), "queue": texts("QUEUE"),
    },
    numbers={"nodes": _hosts, "gpus": lambda its: whole(its, "GPU_NUM"), "time_limit": _limit},
    times={"submitted": texts("SUBMIT_TIME"), "begin": texts("START_TIME"), "end": texts("FINISH_TIME")},
)  # fmt: skip
"""`UNKWN` and `ZOMBI`: its host does not answer. The finish of a job that runs is an estimate, and no end."""
