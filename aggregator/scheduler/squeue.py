"""The output of `squeue --json` as jobs. Pure.

Its form changes between releases: numbers became objects (`{"set": true, "number": 4}`), states became lists.
Both are read. A job that can't be read costs no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from aggregator.scheduler.listed import (
    HOLDING,
    SECOND,
    WAITING,
    JobListing,
    ListedJob,
    TimeLimit,
    asked_of,
    exit_code_of,
    numbers_of,
    owner_text,
    reason_of,
    whole_nodes,
)
from telemetry.notations.purpose import declared
from telemetry.notations.slurm import SCHEDULER, expanded
from telemetry.text.decoders import of_json
from telemetry.wire.jobs import UNLIMITED, Job, JobKey

COMMAND = ("squeue", "--json")
_MOST_TEXT = 256
_LAST = 4_102_444_800
"""2100, seconds since 1970."""
_INFINITE = 0xFFFF_FFFF
"""Slurm's number for no limit, where it is written as a plain one."""
_FIELDS = (
    "job_id", "cluster", "restart_cnt", "name", "user_name", "account", "partition", "job_state", "exit_code", "comment",
    "array_job_id", "array_task_id", "het_job_id", "het_job_offset", "submit_time", "eligible_time", "start_time", "end_time",
    "time_limit", "nodes", "node_count", "tasks", "tres_per_job", "tres_per_node", "tres_per_task", "tres_req_str",
    "gres_detail", "exclusive", "shared", "state_reason",
)  # fmt: skip
"""Fields of a job that are read, of about a hundred: the others are skipped while decoding."""
_Record = msgspec.defstruct("_Record", [(name, Any, msgspec.UNSET) for name in _FIELDS])
_DECODER = of_json(_Record)
_ANSWER = of_json(msgspec.defstruct("_Answer", [("jobs", list[msgspec.Raw], msgspec.UNSET), ("errors", Any, None)]))


class SqueueReader:
    """Reader of what squeue prints, again and again: a job whose text is that of the answer before is the same object."""

    def __init__(self) -> None:
        self._known: dict[int, ListedJob] = {}
        """Jobs of the answer before by the hash of their text, of 64 bits and keyed by the process: two that a job may have
        are the same once in 10^19 times. The texts themselves would be as much memory as an answer."""

    def listing_of(self, output: bytes, at: int) -> JobListing:
        """Return the jobs that squeue printed at a time. Raises `ValueError` for what is no such answer."""
        try:
            answer: Any = _ANSWER.decode(output)
        except msgspec.ValidationError:
            raise ValueError("squeue's JSON has no list of jobs") from None
        except msgspec.DecodeError as error:
            raise ValueError(f"squeue prints no JSON: {error}") from None
        errors = [str(each.get("error", each)) for each in answer.errors or () if isinstance(each, dict)]
        if errors or answer.jobs is msgspec.UNSET:
            raise ValueError(f"squeue reports: {errors[0]}" if errors else "squeue's JSON has no list of jobs")
        before, known, problems = self._known, dict[int, ListedJob](), []
        for record in answer.jobs:
            text = bytes(record)
            mark = hash(text)
            try:
                known[mark] = before.get(mark) or _listed(_fields_of(text))
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                problems.append(f"a job of squeue can't be read: {type(error).__name__} {error}")
        self._known = known
        jobs = tuple(known.values())
        cluster = next((each.key.cluster for each in jobs if each.key.cluster), "")
        return JobListing(at=at, cluster=cluster, jobs=jobs, problems=tuple(problems))


def listing_of(output: bytes, at: int) -> JobListing:
    """Return the jobs that squeue printed at a time, of a single answer. Raises `ValueError`."""
    return SqueueReader().listing_of(output, at)


def _fields_of(text: bytes) -> dict[str, Any]:
    """Return the fields of a job that are read. Raises `ValidationError`, which is a `ValueError`, for what is no job."""
    record = _DECODER.decode(text)
    return {name: value for name in _FIELDS if (value := getattr(record, name)) is not msgspec.UNSET}


def _listed(its: Mapping[str, Any]) -> ListedJob:
    state = _state(its["job_state"])
    past = state not in WAITING
    over = past and state not in HOLDING
    node_count, tasks = _number(its.get("node_count")), _number(its.get("tasks"))
    texts = {
        "job": _text(its, "tres_per_job"),
        "node": _text(its, "tres_per_node"),
        "task": _text(its, "tres_per_task"),
        "all": _text(its, "tres_req_str"),
    }
    job = Job(
        key=JobKey(SCHEDULER, _text(its, "cluster"), str(_positive(its["job_id"])), _number(its.get("restart_cnt"))),
        name=_text(its, "name"),
        user=_text(its, "user_name"),
        account=_text(its, "account"),
        queue=_text(its, "partition"),
        owner=owner_text(
            *(_part(its.get(name)) for name in ("array_job_id", "array_task_id", "het_job_id", "het_job_offset"))
        ),
        submitted=_time(its.get("submit_time")),
        eligible=_time(its.get("eligible_time")),
        begin=_time(its.get("start_time")) if past else 0,
        end=_time(its.get("end_time")) if over else 0,
        state=state,
        exit_code=_exit_code(its.get("exit_code")) if over else None,
        nodes=node_count if past else 0,
        gpus=asked_of(texts, node_count, tasks),
        purpose=declared(_text(its, "comment", most=1 << 16)),
        time_limit=_limit(its) if past else None,
        reason="" if past else reason_of(_text(its, "state_reason")),
    )
    gpus: dict[str, tuple[int, ...]] = {}
    details = its.get("gres_detail") or ()
    if state in HOLDING and details:
        nodes = expanded(_nodes(its))
        if len(details) != len(nodes):
            raise ValueError(f"job {job.key.id} has GPUs on {len(details)} of {len(nodes)} nodes")
        gpus = {node: numbers_of(str(each)) for node, each in zip(nodes, details, strict=True)}
    gpus = {node: its for node, its in gpus.items() if its}
    exclusive = _is_exclusive(its)
    names = [] if gpus or not exclusive else expanded(_nodes(its))
    return ListedJob(
        job=job,
        holds=state in HOLDING,
        gpus=gpus,
        exclusive=exclusive,
        whole=whole_nodes(state, job.gpus, names, exclusive=exclusive),
    )


def _nodes(its: Mapping[str, Any]) -> str:
    return _text(its, "nodes", most=1 << 20)


def _is_exclusive(its: Mapping[str, Any]) -> bool:
    word = its.get("exclusive") if "exclusive" in its else its.get("shared")
    words = word if isinstance(word, list) else [word]
    return "none" in words or "true" in words or word is True


def _state(word: object) -> str:
    """Return one state: newer releases list a base and its flags, of which COMPLETING matters."""
    words = [str(each) for each in word] if isinstance(word, list) else [str(word)]
    return "COMPLETING" if "COMPLETING" in words else words[0]


def _number(value: object) -> int:
    """Return a number in either form; 0 where it is not set."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) and not value.get("infinite") else 0
    return value if isinstance(value, int) and 0 <= value < 1 << 31 else 0


def _positive(value: object) -> int:
    if not (number := _number(value)):
        raise ValueError("it has no number")
    return number


def _part(value: object) -> str:
    """Return a number as text; "" where it is not set."""
    if value is None or (isinstance(value, dict) and not value.get("set", True)):
        return ""
    return str(_number(value))


def _time(value: object) -> int:
    """Return a time in ns since 1970; 0 where there is none."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) and not value.get("infinite") else 0
    return value * SECOND if isinstance(value, int) and 0 < value < _LAST else 0


def _limit(its: Mapping[str, Any]) -> TimeLimit:
    """Return the time limit of a job that has begun: Slurm 22.05 writes null where it has none, and has set the
    partition's by then where nobody asked for one."""
    value = its.get("time_limit", 0)
    if value is None or (isinstance(value, dict) and value.get("infinite")) or value == _INFINITE:
        return UNLIMITED
    return _number(value) * 60 or None


def _exit_code(value: object) -> int | None:
    """Return an exit code of either form: as `wait` has it, or an object."""
    if isinstance(value, dict) and "return_code" in value:
        signal = value.get("signal")
        number = signal.get("id", signal.get("signal_id")) if isinstance(signal, dict) else 0
        return exit_code_of(_number(value["return_code"]), _number(number))
    status = _number(value)
    return exit_code_of(status >> 8 & 0xFF, status & 0x7F)


def _text(its: Mapping[str, Any], name: str, most: int = _MOST_TEXT) -> str:
    value = its.get(name)
    if not isinstance(value, str):
        return ""
    if len(value) > most:
        return "" if most > _MOST_TEXT else value[:most]
    return value if value.isprintable() else "".join(filter(str.isprintable, value))
