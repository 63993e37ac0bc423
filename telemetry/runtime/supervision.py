"""Supervision of tasks and threads: one that ends by a fault is reported, and started again.

await supervisor.run("rules", alerting.run)   # until cancelled, whatever `alerting.run` raises
await supervisor.run("kernel log", lambda: in_thread("kernel-log", reader.read))

An operator's mistake that shows while the process starts (a port that is taken, a file that can't be
read) ends it, as without supervision: `Supervisor.started` ends that phase.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass

from telemetry.errors import KilowattError
from telemetry.runtime.backoff import STEADY, Backoff

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds between the end of a task and its restart."""
HEALTHY_AFTER = 30.0
"""Seconds of work after which a task that was restarted counts as healthy."""
FAILING_AFTER = 3
"""Failures in a row from which a task counts as failing rather than restarted."""
ENDED = "it ended without an error"


@dataclass(slots=True)
class TaskState:
    """State of one task or thread."""

    name: str
    running: bool = False
    failures: int = 0
    """Ends by a fault in a row; 0 when it is healthy."""
    restarts: int = 0
    """Ends by a fault since the start of the process."""
    reason: str = ""
    """The last fault; "" when it is healthy."""

    @property
    def failing(self) -> bool:
        """Whether restarts have not helped."""
        return self.failures >= FAILING_AFTER


class Supervisor:
    """The tasks and threads of one service, with their states. For the event loop."""

    def __init__(
        self,
        report: Callable[[TaskState], None] = lambda _: None,
        *,
        pauses: tuple[float, float] = (FIRST_PAUSE, LONGEST_PAUSE),
        healthy_after: float = HEALTHY_AFTER,
    ) -> None:
        """`report` is called with the state of a task when it failed, and when it is healthy again."""
        self._report = report
        self._pauses = pauses
        self._healthy_after = healthy_after
        self._starting = True
        self.states: dict[str, TaskState] = {}
        """States of all tasks that were started and have not ended on purpose, by name."""

    def started(self) -> None:
        """Note that the service has started: from now on no error ends it."""
        self._starting = False

    def unhealthy(self) -> list[TaskState]:
        """Return the states of the tasks that failed and have not worked for a while since."""
        return [state for state in self.states.values() if state.failures]

    async def run(
        self, name: str, work: Callable[[], Awaitable[None]], *, over: Callable[[], bool] = lambda: False
    ) -> None:
        """Do `work` until cancelled; again when it raises or returns, with growing pauses.

        `over`: whether work that returns has ended on purpose. Raises a `KilowattError` of the work, but
        only until `started`.
        """
        state = self.states[name] = TaskState(name)
        backoff = Backoff(*self._pauses, STEADY)
        try:
            while True:
                problem = await self._work(state, backoff, work, over)
                if problem is None:
                    return
                state.running = False
                state.failures, state.restarts = state.failures + 1, state.restarts + 1
                state.reason = problem
                self._send_report(state)
                await asyncio.sleep(backoff.next())
        finally:
            self.states.pop(name, None)

    async def _work(
        self, state: TaskState, backoff: Backoff, work: Callable[[], Awaitable[None]], over: Callable[[], bool]
    ) -> str | None:
        """Do the work once; return what ended it, or None when it ended on purpose."""
        task = asyncio.current_task()
        # A task group of Python 3.11 that fails while it waits for its tasks leaves a cancellation counted.
        before = 0 if task is None else task.cancelling()
        timer = asyncio.get_running_loop().call_later(self._healthy_after, self._healthy, state, backoff)
        state.running = True
        try:
            await work()
        except asyncio.CancelledError:
            if task is None or task.cancelling() > before:
                raise
            # Something that it waited for was cancelled. A task group would let it vanish unseen.
            log.exception("task %s: what it waited for was cancelled; it is started again", state.name)
            return "what it waited for was cancelled"
        except Exception as error:
            if self._starting and _own(error):
                raise
            log.exception("task %s failed; it is started again", state.name)
            return describe(error)
        finally:
            timer.cancel()
        if task is not None and task.cancelling() > before:  # the work swallowed the cancellation
            raise asyncio.CancelledError
        if over():
            return None
        log.error("task %s: %s; it is started again", state.name, ENDED)
        return ENDED

    def _healthy(self, state: TaskState, backoff: Backoff) -> None:
        backoff.reset()
        if state.failures:
            state.failures, state.reason = 0, ""
            log.warning("task %s works again", state.name)
            self._send_report(state)

    def _send_report(self, state: TaskState) -> None:
        try:
            self._report(state)
        except Exception:  # a report that fails must not end the supervision
            log.exception("the state of task %s could not be reported", state.name)


def describe(error: BaseException) -> str:
    """Return an error in one line: its type and message; of a group, the first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = str(error).partition("\n")[0]
    if isinstance(error, KilowattError):  # its message says it all
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _own(error: Exception) -> bool:
    """Return whether an error is one that an operator must correct."""
    if isinstance(error, ExceptionGroup):
        return error.subgroup(KilowattError) is not None
    return isinstance(error, KilowattError)


async def in_thread(name: str, work: Callable[[], None]) -> None:
    """Do `work` in a daemon thread; return or raise when the thread has ended, however it ended.

    When cancelled, the thread goes on: its owner ends it. A thread that hangs in a call can't be ended,
    and a daemon does not keep the process.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def settle(error: BaseException | None) -> None:
        if ended.done():
            return
        if error is None:
            ended.set_result(None)
        else:
            ended.set_exception(ThreadEndedError(name, error))

    def body() -> None:
        error: BaseException | None = None
        try:
            work()
        except BaseException as fault:  # noqa: BLE001 - SystemExit too would end the thread unseen
            error = fault
        try:
            loop.call_soon_threadsafe(settle, error)
        except RuntimeError:  # the loop has ended
            return

    threading.Thread(target=body, name=name, daemon=True).start()
    await ended


class ThreadEndedError(Exception):
    """A thread ended by an error."""

    def __init__(self, name: str, error: BaseException) -> None:
        super().__init__(describe(error))
        self.name = name
        self.__cause__ = error


class ProgressMarks:
    """When each part of a service last made progress. Thread-safe: a mark is one assignment."""

    def __init__(
        self, limits: Mapping[str, float], vital: Collection[str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`limits`: seconds by part after which it counts as blocked. `vital`: the parts without whose
        progress nothing is monitored. The start counts as progress."""
        self.limits = limits
        self.vital = vital
        self._clock = clock
        self._at: dict[str, float] = {}
        self._due: dict[str, float] = {}
        """From when progress is due, of parts that had nothing to do."""
        self.restart()

    def restart(self) -> None:
        """Count from now: what came before was not yet the work of the parts."""
        self._at = dict.fromkeys(self.limits, self._clock())

    def mark(self, part: str) -> None:
        """Note that a part has made progress."""
        self._at[part] = self._clock()

    def rest(self, part: str) -> None:
        """Note that a part has nothing to do: until `expect` no progress is due."""
        self._due[part] = math.inf

    def expect(self, part: str) -> None:
        """Note that a part has something to do from now on."""
        self._due[part] = self._clock()

    def ages(self) -> dict[str, float]:
        """Return the seconds since each part last made progress."""
        now = self._clock()
        return {part: now - at for part, at in self._at.items()}

    def blocked(self) -> dict[str, float]:
        """Return the parts without progress that is due for longer than their limit, with the seconds."""
        now = self._clock()
        since = {part: max(at, self._due.get(part, at)) for part, at in self._at.items()}
        return {part: now - at for part, at in since.items() if now - at > self.limits[part]}

    def vital_blocked(self) -> dict[str, float]:
        """Return the vital ones of the blocked parts: what a watchdog watches."""
        return {part: age for part, age in self.blocked().items() if part in self.vital}
