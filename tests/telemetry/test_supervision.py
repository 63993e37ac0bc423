"""Supervised tasks and threads: whatever ends one, it is reported and started again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from telemetry.errors import ConfigError
from telemetry.runtime.supervision import FAILING_AFTER, ProgressMarks, Supervisor, TaskState, in_thread
from telemetry.runtime.tasks import end, unending
from telemetry.runtime.worker_threads import WorkerThreads
from tests.killing import InjectedError
from tests.kit.waiting import until

QUICK = (0.001, 0.002)


class Watched:
    """A supervisor with all that it reported."""

    def __init__(self, *, healthy_after: float = 60.0) -> None:
        self.reports: list[tuple[str, int, str]] = []
        self.supervisor = Supervisor(self._keep, pauses=QUICK, healthy_after=healthy_after)
        self.supervisor.started()

    def _keep(self, state: TaskState) -> None:
        self.reports.append((state.name, state.failures, state.reason))

    def run(self, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        return asyncio.create_task(self.supervisor.run("work", work), name="work")


def in_turn(*works: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
    """Work that is another each time that it is started; the last for ever."""
    rest = [*works]

    def work() -> Awaitable[None]:
        return (rest.pop(0) if rest else forever)()

    return work


async def forever() -> None:
    await asyncio.Event().wait()


async def raises() -> None:
    raise InjectedError("of its own")


async def returns() -> None:
    return


async def waits_for_what_is_cancelled() -> None:
    waited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waited.cancel()
    await waited


async def raises_in_a_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(raises())
        group.create_task(forever())


async def has_a_thread_that_raises() -> None:
    def work() -> None:
        raise InjectedError("in the thread")

    await in_thread("short-lived", work)


async def has_a_thread_that_exits() -> None:
    def work() -> None:
        raise SystemExit(3)

    await in_thread("short-lived", work)


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        (raises, "InjectedError: of its own"),
        (returns, "it ended without an error"),
        (waits_for_what_is_cancelled, "what it waited for was cancelled"),
        (raises_in_a_group, "InjectedError: of its own"),
        (has_a_thread_that_raises, "InjectedError: in the thread"),
        (has_a_thread_that_exits, "SystemExit: 3"),
    ],
    ids=lambda each: each.__name__ if callable(each) else "",
)
async def test_whatever_ends_a_task_is_reported_and_it_is_started_again(
    work: Callable[[], Awaitable[None]], reason: str
) -> None:
    watched = Watched()
    task = watched.run(in_turn(work))
    await until(lambda: watched.reports)
    state = watched.supervisor.states["work"]
    await until(lambda: state.running)
    assert reason in state.reason
    assert watched.supervisor.unhealthy() == [state]
    await end({task}, 5)
    assert task.cancelled()
    assert watched.supervisor.states == {}


async def test_it_counts_as_failing_after_some_failures_and_as_healthy_after_some_work() -> None:
    watched = Watched(healthy_after=0.05)
    task = watched.run(in_turn(*[raises] * FAILING_AFTER))
    await until(lambda: len(watched.reports) == FAILING_AFTER + 1)
    assert [failures for _, failures, _ in watched.reports] == [*range(1, FAILING_AFTER + 1), 0]
    state = watched.supervisor.states["work"]
    assert (state.failing, state.reason, state.restarts) == (False, "", FAILING_AFTER)
    await end({task}, 5)


async def test_work_that_failed_in_a_group_does_not_vanish_when_it_returns_later() -> None:
    """On Python 3.11 the group leaves a cancellation counted: that is not one of the task."""
    watched = Watched()
    task = watched.run(in_turn(raises_in_a_group, returns, waits_for_what_is_cancelled))
    await until(lambda: len(watched.reports) == 3 or task.done())
    assert [failures for _, failures, _ in watched.reports] == [1, 2, 3]
    await end({task}, 5)
    assert task.cancelled()


async def test_an_operators_mistake_ends_the_start_and_nothing_later() -> None:
    async def refuses() -> None:
        raise ConfigError("aggregator.listen", "is taken")

    with pytest.raises(ConfigError, match="is taken"):
        await Supervisor(pauses=QUICK).run("http", refuses)
    watched = Watched()
    task = watched.run(in_turn(refuses))
    await until(lambda: watched.reports)
    assert "aggregator.listen: is taken" in watched.reports[0][2]
    await end({task}, 5)


async def test_work_that_swallows_a_cancellation_ends_all_the_same() -> None:
    async def swallows() -> None:
        try:
            await forever()
        except asyncio.CancelledError:
            return

    watched = Watched()
    task = watched.run(swallows)
    await until(lambda: "work" in watched.supervisor.states)
    await end({task}, 5)
    assert task.cancelled()
    assert watched.reports == []


async def test_work_that_is_over_ends() -> None:
    watched = Watched()
    await watched.supervisor.run("work", returns, over=lambda: True)
    assert watched.reports == []


async def test_a_report_that_fails_does_not_end_the_supervision() -> None:
    def refuse(_: TaskState) -> None:
        raise InjectedError("no report")

    supervisor = Supervisor(refuse, pauses=QUICK)
    supervisor.started()
    task = asyncio.create_task(supervisor.run("work", in_turn(raises, raises)))
    await until(lambda: supervisor.states and supervisor.states["work"].restarts == 2)
    await end({task}, 5)


@pytest.mark.parametrize("work", [returns, waits_for_what_is_cancelled])
async def test_a_task_of_a_group_that_must_not_end_fails_its_group(work: Callable[[], Awaitable[None]]) -> None:
    async def together() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(unending(work(), lambda: False))
            group.create_task(forever())

    with pytest.raises(ExceptionGroup) as caught:
        await together()
    assert caught.group_contains(RuntimeError)


async def test_a_pool_whose_thread_has_died_is_replaced() -> None:
    """A pool of the standard library would never answer again."""
    threads = WorkerThreads(1, "pool")
    assert await threads.run(threading.get_native_id)
    victim = next(each for each in threading.enumerate() if each.name == "pool_0")
    # The only way out of such a thread that the work itself has not: None ends it.
    threads._pool._work_queue.put(None)  # type: ignore[attr-defined]
    threads._pool._shutdown = True  # type: ignore[attr-defined]
    await until(lambda: not victim.is_alive())
    threads._pool._shutdown = False  # type: ignore[attr-defined]
    lost = asyncio.create_task(threads.run(threading.get_native_id))
    await asyncio.sleep(0)  # it is given to the pool
    with pytest.raises(RuntimeError, match="thread pool_0 has died"):
        await threads.watch()
    with pytest.raises(asyncio.CancelledError):
        await lost
    assert await threads.run(lambda: 7) == 7
    threads.close()


def test_progress_is_blocked_by_its_limit_and_only_vital_parts_matter_to_a_watchdog() -> None:
    now = [100.0]
    marks = ProgressMarks({"rules": 30.0, "checkpoint": 5.0}, vital=("rules",), clock=lambda: now[0])
    now[0] += 6.0
    assert marks.blocked() == {"checkpoint": 6.0}
    assert marks.vital_blocked() == {}
    now[0] += 25.0
    assert marks.vital_blocked() == {"rules": 31.0}
    marks.mark("rules")
    assert marks.ages() == {"rules": 0.0, "checkpoint": 31.0}
    assert marks.vital_blocked() == {}


def test_a_part_that_has_nothing_to_do_is_not_blocked_and_its_time_begins_with_its_work() -> None:
    now = [100.0]
    marks = ProgressMarks({"frame sent": 20.0}, vital=("frame sent",), clock=lambda: now[0])
    marks.rest("frame sent")
    now[0] += 7200.0  # the broker is away
    assert marks.blocked() == {}
    marks.expect("frame sent")
    now[0] += 20.0
    assert marks.blocked() == {}
    now[0] += 1.0
    assert marks.vital_blocked() == {"frame sent": 21.0}
    assert marks.ages() == {"frame sent": 7221.0}
    marks.mark("frame sent")
    assert marks.blocked() == {}
    now[0] += 21.0
    assert marks.blocked() == {"frame sent": 21.0}
