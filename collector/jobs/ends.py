"""Ends of jobs that no epilog wrote: concluded from what came after them. Pure.

An epilog does not run where the daemon of a node was killed, the node crashed or the disk was full. That a job is silent is
no evidence of its end; that Slurm began a newer run of it, gave its GPU to somebody else, or that the node has
been started since, is. Each end says what it was concluded from, and could be earlier.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from telemetry.wire.jobs import JobKey

NEWER_RUN = "a newer run of it"
NEXT_HOLDER = "the next job on its GPU"
NODE_RESTART = "a restart of its node"


class BeganJob(Protocol):
    """A run as its prolog wrote it."""

    @property
    def key(self) -> JobKey:
        """The run."""

    @property
    def gpus(self) -> tuple[int, ...]:
        """Slurm's numbers of its GPUs on this node."""

    @property
    def begin(self) -> int:
        """ns since 1970."""

    @property
    def end(self) -> int:
        """0 where no epilog wrote it."""

    @property
    def boot_id(self) -> str:
        """Start of the machine in which it began; empty where its prolog did not write it."""


class MachineStart(NamedTuple):
    """The newest start of the machine."""

    id: str
    """Empty where the kernel gives none."""
    at: int
    """ns since 1970."""


class Conclusion(NamedTuple):
    """The end of a run."""

    end: int
    """The latest time at which it can have ended."""
    by: str
    """The evidence."""


def conclusions(
    runs: Sequence[BeganJob],
    alive: Callable[[JobKey], bool],
    boot: MachineStart,
    now: int,
    *,
    exclusive: Callable[[], bool],
) -> Mapping[JobKey, Conclusion]:
    """Return the ends of the runs that have none, or that of a newer run, as far as they lie before `now`: after a step of
    the clock others may not. `alive`: whether a process of a run is on a GPU; `exclusive`: whether Slurm gives no GPU to two jobs at a time here."""
    of_job = defaultdict[tuple[str, str], list[BeganJob]](list)
    holders = defaultdict[int, list[BeganJob]](list)
    for run in sorted(runs, key=_begin):
        of_job[_job(run.key)].append(run)
        for gpu in run.gpus:
            holders[gpu].append(run)
    found = {}
    for run in runs:
        ends = list(_of_newer_runs(run, of_job[_job(run.key)]))
        if not run.end:
            ends += _of_restart(run, boot)
            later = list(_of_next_holders(run, holders, alive))
            if later and exclusive():
                ends += later
        # The epilog of a newer run writes its own end into the files of older ones that have none.
        ends = [each for each in ends if each.end <= now and (not run.end or each.end < run.end)]
        if ends:
            found[run.key] = min(ends)
    return found


def _of_newer_runs(run: BeganJob, runs: Iterable[BeganJob]) -> Iterator[Conclusion]:
    for other in runs:
        if other.key.restart > run.key.restart:
            yield Conclusion(max(other.begin, run.begin), NEWER_RUN)


def _of_restart(run: BeganJob, boot: MachineStart) -> Iterator[Conclusion]:
    if run.boot_id and boot.id and run.boot_id != boot.id:
        yield Conclusion(max(boot.at, run.begin), NODE_RESTART)


def _of_next_holders(
    run: BeganJob, holders: Mapping[int, Sequence[BeganJob]], alive: Callable[[JobKey], bool]
) -> Iterator[Conclusion]:
    """Yield the first that got each of its GPUs later, and so all. A clock that was set back turns the order round: a
    process of the run counts for more, unless the other one has one, too. `holders`: by GPU in the order of begin."""
    for gpu in run.gpus:
        its = holders[gpu]
        for other in its[bisect_right(its, run.begin, key=_begin) :]:
            if _job(other.key) != _job(run.key) and (alive(other.key) or not alive(run.key)):
                yield Conclusion(other.begin, NEXT_HOLDER)
                break


def _begin(run: BeganJob) -> int:
    return run.begin


def _job(key: JobKey) -> tuple[str, str]:
    return key.cluster, key.id
