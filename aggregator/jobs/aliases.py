"""Aliases of jobs, and the one identity that they stand for. Pure.

A cgroup names the number of a Slurm job, or the uid of a pod, before a hook, the scheduler or the kubelet says which run
of which cluster that is, or how the pod is called. Such a key is an alias: where a better one is known for the same GPU at
the same time, both are one job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from aggregator.jobs.usage import FOREVER
from api.jobs import AllocationRow, JobRow
from telemetry.notations.batch import NUMBERED
from telemetry.wire.jobs import Allocation, GpuProcess, Job, JobKey, NodeJobs, aliases_of


class Rename(NamedTuple):
    """Rows of a node that a job has from an alias of it."""

    old: JobKey
    new: JobKey
    node: str
    gpus: frozenset[str]


class Names:
    """The names that a node's list gives to the jobs on its GPUs."""

    def __init__(self, message: NodeJobs) -> None:
        facts = {job.key: job for job in message.jobs}
        self._aliases: dict[JobKey, list[JobKey]] = {}
        for key in sorted({each.job for each in message.allocations}):
            for alias in aliases_of(facts.get(key, Job(key=key))):
                self._aliases.setdefault(alias, []).append(key)
        named = {key for keys in self._aliases.values() for key in keys}
        self._held: dict[tuple[JobKey, str], list[Allocation]] = {}
        for each in message.allocations if named else ():
            if each.job in named:
                self._held.setdefault((each.job, each.gpu), []).append(each)

    def of(self, alias: JobKey, gpu: str, begin: int, end: int | None) -> JobKey | None:
        """Return the name of what an alias stood for on a GPU from a time to a time, None while it lasts; None where there
        is none. Of several runs of a job it is the one in which that began, else the newest."""
        found = [
            (each.begin <= begin <= (each.end or FOREVER), key)
            for key in self._aliases.get(alias, ())
            for each in self._held.get((key, gpu), ())
            if each.begin <= (FOREVER if end is None else end) and begin <= (each.end or FOREVER)
        ]
        return max(found)[1] if found else None

    def applied(self, message: NodeJobs) -> NodeJobs:
        """Return the list with names in the place of aliases."""
        if not any(each.job in self._aliases for each in message.allocations):
            return message
        allocations, now = [], {}
        for each in message.allocations:
            name = self.of(each.job, each.gpu, each.begin, each.end or None)
            if name is not None and not each.end:
                now[each.job, each.gpu] = name
            allocations.append(each if name is None else replace(each, job=name))
        left = {each.job for each in allocations}
        return replace(
            message,
            jobs=tuple(job for job in message.jobs if job.key in left or job.key not in self._aliases),
            allocations=tuple(allocations),
            processes=tuple(_named(each, now) for each in message.processes),
        )


def _named(process: GpuProcess, now: Mapping[tuple[JobKey, str], JobKey]) -> GpuProcess:
    name = None if process.job is None else now.get((process.job, process.gpu))
    return process if name is None else replace(process, job=name)


def renames(node: str, names: Names, rows: Iterable[tuple[JobKey, AllocationRow]]) -> list[Rename]:
    """Return which rows of a node are of a job that has a name now."""
    found: dict[tuple[JobKey, JobKey], set[str]] = {}
    for key, row in rows:  # read to their end before any is moved
        name = names.of(key, row.gpu, row.begin, row.end)
        if name is not None:
            found.setdefault((key, name), set()).add(row.gpu)
    return [Rename(old, new, node, frozenset(gpus)) for (old, new), gpus in found.items()]


def without_aliases(rows: Sequence[JobRow]) -> list[JobRow]:
    """Return jobs without those that an older release stored a second time, under the number alone that a cgroup has:
    a run of that number is there, on a node of it at that time."""
    named: dict[tuple[str, str], list[JobRow]] = {}
    for row in rows:
        if row.scheduler in NUMBERED and row.cluster:
            named.setdefault((row.scheduler, row.id), []).append(row)
    return list(_without(rows, named))


def _without(rows: Iterable[JobRow], named: Mapping[tuple[str, str], list[JobRow]]) -> Iterator[JobRow]:
    for row in rows:
        its = named.get((row.scheduler, row.id), ())
        if row.cluster or not any(_same(row, other) for other in its):
            yield row


def _same(row: JobRow, other: JobRow) -> bool:
    return (
        row.begin <= (FOREVER if other.end is None else other.end)
        and other.begin <= (FOREVER if row.end is None else row.end)
        and not set(row.nodes).isdisjoint(other.nodes)
    )
