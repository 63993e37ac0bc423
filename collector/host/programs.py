"""Readings that are slow, or that only a program has, and the thread that makes them.

A program takes seconds, or hangs with its device, and a controller answers when it likes. One thread makes one reading
after another, each with a deadline. A tick takes the newest answers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from collector.host.program_thread import ProgramThread
from telemetry.gap import ERROR, NO_PERMISSION, NOT_READ, NOT_SUPPORTED, TIMED_OUT

log = logging.getLogger(__name__)

DEADLINE = 30.0
"""Seconds that a program may take: a BMC has hundreds of sensors, and is slow."""
STALE = 3.0
"""Age in periods at which an answer is too old."""
_POLL = 5.0
Run = Callable[[Sequence[str]], str]
"""Runs a program; returns what it prints. Raises `TimeoutError`, `PermissionError` or `OSError`."""


class UnknownError(Exception):
    """The machine does not have what is asked for."""


@dataclass(slots=True)
class Task:
    """A reading that takes its time."""

    names: tuple[str, ...]
    """Metrics that it has."""
    ask: Callable[[Run], Mapping[str, float]]
    """Return the readings. Raises `UnknownError` where there is nothing to ask, and the errors of `Run`."""
    period: float
    due: float = 0.0
    at: float | None = None
    found: dict[str, float] = field(default_factory=dict)


class Programs:
    """Runner of the tasks, in a thread that no tick waits for."""

    def __init__(
        self,
        work: Sequence[Task],
        deadline: float = DEADLINE,
        monotonic: Callable[[], float] = time.monotonic,
        leave: Callable[[], None] = lambda: None,
    ) -> None:
        """`leave` is called in the thread at its end."""
        self._leave = leave
        self._tasks = work
        self._deadline = deadline
        self._monotonic = monotonic
        self._thread = ProgramThread("programs", self._work)

    def readings(self) -> dict[str, float]:
        """Return the newest answers, or their gaps. Never waits; the first call starts the thread."""
        self._thread.begin()
        now = self._monotonic()
        found: dict[str, float] = {}
        for task in self._tasks:
            if task.at is None:
                found |= dict.fromkeys(task.names, NOT_READ)
            elif now - task.at > STALE * task.period + self._deadline:
                found |= dict.fromkeys(task.names, TIMED_OUT)
            else:
                found |= task.found
        return found

    def close(self) -> None:
        """End the thread, and the program that runs; do not wait for one that hangs."""
        self._thread.close()

    def _work(self) -> None:
        while not self._thread.ended:
            for task in self._tasks:
                if self._monotonic() >= task.due and not self._thread.ended:
                    task.due = self._monotonic() + task.period
                    task.found = self._ask(task)
                    task.at = self._monotonic()
            due = min(task.due for task in self._tasks) - self._monotonic()
            self._thread.wait(max(_POLL, due))
        self._leave()

    def _ask(self, task: Task) -> dict[str, float]:
        try:
            return dict.fromkeys(task.names, NOT_SUPPORTED) | dict(task.ask(self._run))
        except UnknownError:
            gap = NOT_SUPPORTED
        except PermissionError:
            gap = NO_PERMISSION
        except TimeoutError:
            gap = TIMED_OUT
        except Exception as error:
            gap = ERROR
            if not isinstance(error, OSError | ValueError | KeyError | TypeError):
                log.exception("%s can't be read", task.names[0])
        return dict.fromkeys(task.names, gap)

    def _run(self, command: Sequence[str]) -> str:
        found = self._thread.run(command, self._deadline)
        if found.code != 0:
            raise OSError(found.complaint.strip() or f"{command[0]} ended with {found.code}")
        return found.text
