"""A job as the scheduler lists it, and the words of Slurm that its commands share. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from telemetry.wire.jobs import Job, JobKey

HOLDING = frozenset(
    {"RUNNING", "SUSPENDED", "COMPLETING", "STOPPED", "CONFIGURING", "SIGNALING", "STAGE_OUT", "RESIZING"}
)
"""States in which a job has what it was given."""
_WORKING = frozenset({"RUNNING", "SUSPENDED"})
WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
"""States of a job that has not begun, or that begins again."""
SECOND = 1_000_000_000
TimeLimit = int | Literal["unlimited"] | None
"""Seconds for which a job may run; None where nobody says."""
_INDEX = re.compile(r"^gpu(?::[^:()]+)?:\d+\(IDX:([0-9,-]+)\)$")
_COUNT = re.compile(r"(?:^|,)(?:gres[:/])?gpu(?::[A-Za-z_][^:=,]*)?(?:[:=](\d+))?(?=,|$)")
_UNTYPED = re.compile(r"(?:^|,)gres/gpu=(\d+)(?=,|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedSlot:
    """A slot of HTCondor in which a job runs."""

    node: str
    name: str
    begin: int
    """When the job began in it, ns since 1970."""
    gpus: tuple[str, ...] = ()
    """HTCondor's names of the GPUs that it was assigned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedJob:
    """A job that the scheduler lists."""

    job: Job
    """Its facts; `begin` and `end` only where they are past, `gpus` as it asked for."""
    holds: bool = False
    """Whether it has its nodes and GPUs now."""
    gpus: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The scheduler's numbers of its GPUs, by the scheduler's name of the node."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """How many GPUs it has, by the scheduler's name of the node, where nobody says which ones."""
    exclusive: bool = False
    """Whether it wants its nodes for itself."""
    whole: tuple[str, ...] = ()
    """Scheduler's names of the nodes that it has for itself while no GPU of them is named: all are its."""
    slots: tuple[ClaimedSlot, ...] = ()
    """Where it runs, of HTCondor."""

    @property
    def key(self) -> JobKey:
        """Identity of the job."""
        return self.job.key


@dataclass(frozen=True, slots=True, kw_only=True)
class JobListing:
    """Everything that the scheduler lists at one time."""

    at: int
    """When it was asked, ns since 1970: what it says was so then or later."""
    cluster: str
    jobs: Sequence[ListedJob]
    problems: Sequence[str] = ()
    nodes: frozenset[str] = frozenset()
    """Names of the machines that HTCondor's pool has: of one that it does not have, nothing is known."""
    queue: bool = False
    """Whether these are the queues of HTCondor's schedds, which don't say where a job runs."""


def whole_nodes(state: str, asked: int, nodes: Sequence[str], *, exclusive: bool) -> tuple[str, ...]:
    """Return the nodes of a job of which no GPU is named that are its whole: one that asked for none and lets nobody
    beside it. Of a job that is completing the numbers are gone, whatever it had."""
    return tuple(nodes) if exclusive and not asked and state in _WORKING else ()


def numbers_of(gres: str) -> tuple[int, ...]:
    """Return the numbers of GPUs of a text as `gpu:h100:2(IDX:0-1)`; of `gres/shard` and others none. Raises
    `ValueError`."""
    found: list[int] = []
    for part in re.split(r",(?![^(]*\))", gres):
        match = _INDEX.match(part)
        for span in () if match is None else match[1].split(","):
            first, _, last = span.partition("-")
            found += range(int(first), min(int(last or first), 1023) + 1)
    return tuple(found)


def asked_of(texts: Mapping[str, str], nodes: int, tasks: int) -> int:
    """Return how many GPUs a job asked for by its `TresPer...` and the whole of what it requested; 0 where
    it asked for none, or nobody says."""
    for name, times in (("job", 1), ("node", nodes), ("task", tasks)):
        if count := _count(texts.get(name, "")):
            return count * max(times, 1)
    match = _UNTYPED.search(texts.get("all", ""))
    return int(match[1]) if match else 0


def _count(text: str) -> int:
    return sum(int(match[1] or 1) for match in _COUNT.finditer(text))


def owner_text(array: str, task: str, het: str, offset: str) -> str:
    """Return the array or the heterogeneous job that a job is a part of, as the prolog says it."""
    if array not in {"", "0"} and task:
        return f"Array/{array}_{task}"
    return f"Component/{het}+{offset}" if het not in {"", "0"} else ""


def reason_of(word: str) -> str:
    """Return why a job waits or is held; "" where Slurm has not looked at it yet, and says so."""
    return "" if word in {"None", "(null)"} else word


def exit_code_of(code: int, signal: int) -> int | None:
    """Return an exit code, or minus the signal that ended a job; None for neither."""
    return code or -signal or None
