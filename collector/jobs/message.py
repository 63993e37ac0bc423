"""The message of a node's jobs: bounded, and sent only when it says something new. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter

import msgspec

from collector.jobs.merge import MergedJobs
from telemetry.wire import inventory as messages
from telemetry.wire.jobs import MAX_MESSAGE_BYTES, Allocation, GpuProcess, Job, JobSourceState, NodeJobs, UserPrivacy

FIGURES_SECONDS = 60.0
"""Seconds after which the message is sent again when nothing but memory and use of processes has changed."""
_SECOND = 1_000_000_000
_steady = attrgetter(*({*GpuProcess.__struct_fields__} - {"memory_bytes", "sm_ratio"}))
"""Fields of a process apart from those that change at each reading."""


class JobsMessage:
    """The newest message of a session."""

    def __init__(self, session: int, users: UserPrivacy) -> None:
        self.newest = NodeJobs(session=session, users=users)
        self._session = session
        self._users = users
        self._content: object = None
        self._figures: object = None

    def encoded(self, merged: MergedJobs, sources: Sequence[JobSourceState], now: int) -> bytes | None:
        """Return the message of what is known at `now`, or None when the newest one says the same."""
        processes = tuple(_unique(merged.processes))
        content = (merged.jobs, merged.allocations, tuple(_steady(each) for each in processes), tuple(sources))
        figures = tuple((each.memory_bytes, each.sm_ratio) for each in processes)
        if content == self._content:
            due = now - self.newest.at >= FIGURES_SECONDS * _SECOND
            if figures == self._figures or not due:
                return None
        self._content, self._figures = content, figures
        message = NodeJobs(
            session=self._session,
            version=self.newest.version + 1,
            at=now,
            users=self._users,
            jobs=merged.jobs,
            allocations=merged.allocations,
            processes=processes,
            sources=tuple(sources),
        )
        self.newest, payload = _fitting(message)
        return payload


def _unique(processes: Iterable[GpuProcess]) -> Iterable[GpuProcess]:
    """Return processes without those that come twice: two that are hidden in other namespaces are both 0."""
    found = {(each.gpu, each.instance, each.pid): each for each in processes}
    return found.values()


def _fitting(message: NodeJobs) -> tuple[NodeJobs, bytes]:
    """Return a message of `MAX_MESSAGE_BYTES` at most, and its JSON. What ended is left out first, the oldest of it: it has
    been told before, and a node of many short jobs would list nothing else; then processes with the least memory, at
    last the allocations that began first."""
    payload = messages.encode(message)
    while len(payload) > MAX_MESSAGE_BYTES:
        share = 0.9 * MAX_MESSAGE_BYTES / len(payload)
        ended = sum(1 for each in message.allocations if each.end)
        if ended:
            message = _with_allocations(message, len(message.allocations) - ended + int(share * ended))
        elif message.processes:
            message = _with_fewer_processes(message, share)
        elif message.allocations:
            message = _with_allocations(message, int(share * len(message.allocations)))
        else:  # jobs alone are too much
            jobs = message.jobs[: int(share * len(message.jobs))]
            message = msgspec.structs.replace(message, jobs=jobs)
        payload = messages.encode(message)
    return message, payload


def _with_fewer_processes(message: NodeJobs, share: float) -> NodeJobs:
    keep = int(share * len(message.processes))
    largest = sorted(message.processes, key=lambda each: each.memory_bytes or 0, reverse=True)
    kept = {id(each) for each in largest[:keep]}
    processes = tuple(each for each in message.processes if id(each) in kept)
    left_out = message.left_out + len(message.processes) - len(processes)
    return msgspec.structs.replace(message, processes=processes, left_out=left_out)


def _with_allocations(message: NodeJobs, count: int) -> NodeJobs:
    """Return a message with so many allocations, and the jobs that they and processes are of."""
    kept = tuple(sorted(message.allocations, key=_age, reverse=True)[:count])
    return msgspec.structs.replace(message, jobs=tuple(_needed(message, kept)), allocations=kept)


def _age(allocation: Allocation) -> tuple[bool, int]:
    """Return a key by which allocations that last come after those that ended, the newest last."""
    return not allocation.end, allocation.end or allocation.begin


def _needed(message: NodeJobs, allocations: Iterable[Allocation]) -> Iterable[Job]:
    """Yield the jobs of some allocations, and of processes."""
    keys = {each.job for each in allocations} | {each.job for each in message.processes}
    return (job for job in message.jobs if job.key in keys)
