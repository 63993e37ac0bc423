"""The dead-man switch: silence must mean that we do not work, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from alerts.config import HeartbeatConfig
from alerts.delivery.heartbeat import Heartbeat
from tests.alerts.alertmanagers import Hook
from tests.alerts.fast_clock import FastClock
from tests.kit.waiting import until

SPEED = 100


@asynccontextmanager
async def beating(url: str, **more: object) -> AsyncIterator[Heartbeat]:
    """One that pings each ten seconds of a fast clock."""
    config = HeartbeatConfig(url=url, every=10, **more)  # type: ignore[arg-type]
    heart = Heartbeat(config, clock=FastClock(SPEED))
    task = asyncio.create_task(heart.run())
    try:
        yield heart
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_it_pings_while_rules_and_store_make_progress_and_stops_when_one_does_not() -> None:
    hook = Hook()
    async with hook.listening(), beating(hook.url) as heart:
        while len(hook.headers) < 5:
            heart.progress("rules")
            heart.progress("store")
            await asyncio.sleep(0.01)
        while not heart.stuck():
            heart.progress("rules")
            await asyncio.sleep(0.01)
        assert heart.stuck() == "store"
        await asyncio.sleep(0)
        pings = len(hook.headers)
        clock = heart._clock.monotonic
        began = clock()
        while clock() - began < 50:
            heart.progress("rules")
            await asyncio.sleep(0.01)
        assert len(hook.headers) <= pings + 1  # one may have been on its way
        heart.progress("store")
        heart.progress("rules")
        await until(lambda: len(hook.headers) > pings + 1)


async def test_a_ping_that_is_not_heard_is_counted_and_the_next_one_comes() -> None:
    hook = Hook()
    hook.status = 500
    async with hook.listening(), beating(hook.url, limit=1e9) as heart:
        await until(lambda: heart.stats.failed >= 2)
        assert heart.stats.last_error.startswith("HTTP 500")
        hook.status = 200
        await until(lambda: heart.stats.delivered >= 1)
        assert heart.stats.trouble_since is None


async def test_its_url_may_stand_in_a_file(tmp_path: Path) -> None:
    hook, file = Hook(), tmp_path / "url"
    async with hook.listening():
        config = HeartbeatConfig(url_file=file, every=10, limit=1e9)
        heart = Heartbeat(config, clock=FastClock(SPEED))
        task = asyncio.create_task(heart.run())
        await until(lambda: "can't be read" in heart.stats.last_error)
        file.write_text(hook.url + "\n")
        await until(lambda: hook.headers)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
