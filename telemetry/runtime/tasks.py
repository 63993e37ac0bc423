"""Reliable cancellation of tasks, and the errors of task groups."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from telemetry.errors import KilowattError

log = logging.getLogger(__name__)

AGAIN = 0.05
"""Seconds after which a task that has not ended is cancelled again."""
LEAST_TIMES = 2
"""So often a task that does not end is cancelled at least."""
CLEANUP_SECONDS = 10.0
"""Seconds after which a task group cancels a task again: more than any needs to clean up."""


async def end(tasks: Iterable[asyncio.Task[Any]], seconds: float) -> bool:
    """Cancel tasks until they have ended, for about `seconds`; return whether all have.

    Once is not enough: what a task waits for in a library can lose a cancellation, as nats-py does, and
    `asyncio.wait_for` on Python 3.11 (python/cpython#86296). On a machine so busy that the time is over at
    once, it is done twice all the same.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    rest = {task for task in tasks if not task.done()}
    times = 0
    while rest and (times < LEAST_TIMES or loop.time() < deadline):
        for task in rest:
            task.cancel()
        _, rest = await asyncio.wait(rest, timeout=AGAIN)
        times += 1
    return not rest


class TaskGroup(asyncio.TaskGroup):
    """A task group that cancels its tasks again while they do not end.

    asyncio's cancels each once, and waits for ever for one that loses this cancellation; that the group
    itself is cancelled has no effect any more.
    """

    def __init__(self, again_after: float = CLEANUP_SECONDS) -> None:
        """`again_after`: seconds that a task has to clean up."""
        super().__init__()
        self._again_after = again_after

    def cancel_tasks(self) -> None:
        """Cancel all tasks, and leave the body alone."""
        for task in self._tasks:
            task.cancel()
        self._look_again()

    def _abort(self) -> None:
        super()._abort()  # type: ignore[misc]
        self._look_again()

    def _look_again(self) -> None:
        if self._tasks:
            asyncio.get_running_loop().call_later(self._again_after, self._cancel_again)

    def _cancel_again(self) -> None:
        for task in self._tasks:
            log.warning("task %s was cancelled and has not ended: it is cancelled again", task.get_name())
        self.cancel_tasks()


@contextmanager
def keeping_cancellation() -> Iterator[None]:
    """Raise `asyncio.CancelledError` at the end where what was done within lost a cancellation: returned, or
    raised another error. Not for a task group: one of Python 3.11 that fails leaves a cancellation counted."""
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    try:
        yield
    except Exception as error:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError from error
        raise
    if task is not None and task.cancelling() > before:
        raise asyncio.CancelledError


async def unending(work: Awaitable[object], over: Callable[[], bool]) -> None:
    """Do work that must not end before `over`; raise `RuntimeError` when it returns, or when what it
    waits for is cancelled: a task group would not notice either."""
    try:
        await work
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling() or over():
            raise
        raise RuntimeError("what it waited for was cancelled") from error
    if not over():
        raise RuntimeError("it ended without an error")


def first_error(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error to show to an operator: one of kilowatch's own if there is one."""
    own = errors.subgroup(KilowattError)
    first = (errors if own is None else own).exceptions[0]
    return first_error(first) if isinstance(first, BaseExceptionGroup) else first
