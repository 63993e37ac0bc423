"""Cancellations that are lost on their way, and the tasks that end all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from telemetry.runtime.tasks import TaskGroup, keeping_cancellation
from tests.killing import InjectedError


async def forever() -> None:
    await asyncio.Event().wait()


class Losing:
    """Work that loses its first cancellations, as what waits by `asyncio.wait_for` can on Python 3.11."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.lost = asyncio.Event()

    async def run(self) -> None:
        while True:
            try:
                await forever()
            except asyncio.CancelledError:
                if not self.left:
                    raise
                self.left -= 1
                self.lost.set()


async def raises(when: asyncio.Event) -> None:
    await when.wait()
    raise InjectedError("of its own")


async def grouped(works: list[Awaitable[None]], begun: asyncio.Event) -> None:
    async with TaskGroup(again_after=0.0) as group:
        for work in works:
            group.create_task(work)  # type: ignore[arg-type]
        begun.set()
        await forever()


@pytest.mark.parametrize("times", [0, 1, 3])
async def test_a_group_whose_task_fails_ends_although_another_loses_its_cancellation(times: int) -> None:
    losing, fail = Losing(times), asyncio.Event()
    group = asyncio.create_task(grouped([losing.run(), raises(fail)], asyncio.Event()))
    await asyncio.sleep(0)
    fail.set()
    with pytest.raises(ExceptionGroup) as found:
        await group
    assert [type(each) for each in found.value.exceptions] == [InjectedError]
    assert losing.left == 0


async def test_a_group_that_is_cancelled_ends_although_a_task_loses_its_cancellation() -> None:
    losing, begun = Losing(2), asyncio.Event()
    group = asyncio.create_task(grouped([losing.run()], begun))
    await begun.wait()
    await asyncio.sleep(0)
    group.cancel()
    with pytest.raises(asyncio.CancelledError):
        await group
    assert losing.left == 0


async def test_tasks_of_a_group_are_cancelled_without_its_body_and_again() -> None:
    losing = Losing(1)
    async with TaskGroup(again_after=0.0) as group:
        task = group.create_task(losing.run())
        await asyncio.sleep(0)
        group.cancel_tasks()
        await losing.lost.wait()
    assert task.cancelled()


async def test_a_group_that_ends_its_tasks_is_cancelled_itself_all_the_same() -> None:
    """As where meters are read anew, and the aggregator is stopped before the old ones have ended."""
    cleaned = asyncio.Event()

    async def cleans_up() -> None:
        try:
            await forever()
        finally:
            await cleaned.wait()

    async def twice() -> None:
        async with TaskGroup(again_after=3600.0) as group:
            group.create_task(cleans_up())
            await asyncio.sleep(0)
            group.cancel_tasks()
        await forever()

    task = asyncio.create_task(twice())
    for _ in range(4):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    cleaned.set()
    for _ in range(10):
        await asyncio.sleep(0)
    assert task.cancelled()


async def test_a_task_has_its_time_to_clean_up() -> None:
    """The group says so once that is over, and not before."""
    cleaned = asyncio.Event()

    async def cleans_up() -> None:
        try:
            await forever()
        finally:
            await cleaned.wait()

    async with TaskGroup(again_after=3600.0) as group:
        task = group.create_task(cleans_up())
        await asyncio.sleep(0)
        group.cancel_tasks()
        await asyncio.sleep(0)
        assert not task.done()
        cleaned.set()
    assert task.cancelled()
    assert task.cancelling() == 1


async def returns(given: asyncio.Event) -> None:
    try:
        await given.wait()
    except asyncio.CancelledError:
        return


async def raises_another(given: asyncio.Event) -> None:
    try:
        await given.wait()
    except asyncio.CancelledError:
        raise OSError("the connection is gone") from None


@pytest.mark.parametrize("library", [returns, raises_another])
async def test_what_a_library_loses_is_raised_again(library: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    async def work() -> None:
        with keeping_cancellation():
            await library(asyncio.Event())

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()


async def test_without_a_cancellation_a_result_and_an_error_stay_what_they_are() -> None:
    done = asyncio.Event()
    done.set()
    with keeping_cancellation():
        await returns(done)
    with pytest.raises(OSError, match="gone"), keeping_cancellation():
        raise OSError("gone")


async def test_a_task_that_was_cancelled_before_can_still_clean_up() -> None:
    cleaned = []

    async def work() -> None:
        try:
            await forever()
        finally:
            with keeping_cancellation():
                await asyncio.sleep(0)
            cleaned.append(True)

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert cleaned
