"""Time in which threads could have run, so that a busy machine is not taken for a driver that hangs.

Wall time says nothing about a thread that got no processor. Two measures correct it: the kernel's account of
each thread (`/proc/PID/task/TID/schedstat`, https://docs.kernel.org/scheduler/sched-stats.html), and the
punctuality of whoever measures, who waits for the same processors and the same interpreter lock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple


class ThreadTime(NamedTuple):
    """Account of one thread since its start."""

    ran: float
    """Seconds on a processor."""
    waited: float
    """Seconds in run queues, without a wait that is not over yet."""
    runnable: bool
    """Whether the thread runs or waits for a processor now, and so is not blocked in a call."""


ReadThreads = Callable[[int, int | None], Mapping[int, ThreadTime]]


def thread_times(process: int, thread: int | None = None) -> dict[int, ThreadTime]:
    """Return the accounts of a process's threads by their id, or of that thread only; empty where the kernel
    keeps none."""
    found: dict[int, ThreadTime] = {}
    tasks = Path(f"/proc/{process}/task")
    try:
        for task in tasks.iterdir() if thread is None else (tasks / str(thread),):
            ran, waited, _ = map(int, (task / "schedstat").read_bytes().split())
            if ran:  # a kernel that was built without the accounts writes zeros
                state = (task / "stat").read_bytes().rpartition(b")")[2].split()[0]
                found[int(task.name)] = ThreadTime(ran / 1e9, waited / 1e9, state == b"R")
    except (OSError, ValueError):
        return {}
    return found


class AvailableTime:
    """Sum of the time in which every one of some threads could have run."""

    def __init__(self, read: Callable[[], Mapping[int, ThreadTime]]) -> None:
        self._read = read
        self._before: Mapping[int, ThreadTime] = {}
        self.seconds = 0.0

    def restart(self) -> None:
        """Start at zero, now."""
        self._before = self._read()
        self.seconds = 0.0

    def add(self, asked: float, passed: float) -> None:
        """Add a pause since the last call that was meant to last `asked` seconds, and lasted `passed`."""
        before, self._before = self._before, self._read()
        could = [
            passed - (now.waited - before[thread].waited)
            # The kernel adds a wait when it ends; of a thread that may be waiting now, what it ran is certain.
            if not now.runnable
            else now.ran - before[thread].ran
            for thread, now in self._before.items()
            if thread in before
        ]
        self.seconds += max(min(asked, passed, *could), 0.0)
