"""kill -9 at any point between a decision and its journal: all arrive, one dedup key, no second page.

`KILOWATCH_KILLS=100` kills so many times instead of the few that a test has time for.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from alerts.config import AlertsConfig
from alerts.delivery.clock import DeliveryClock
from alerts.delivery.routing import Router
from api.alerts import DeliveryOutcome
from tests.alerts.notices import NoticeWriter
from tests.alerts.outbox_victims import key_of
from tests.alerts.pager import ACCEPTS, DROPS, FAILS, Behaviour, Call, Pager

KILLS = int(os.environ.get("KILOWATCH_KILLS", "15"))
SEED = int(os.environ.get("KILOWATCH_SEED", "7"))


class VictimParent:
    """Forks victims, one at a time."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = 0

    async def fork(self, last: int) -> None:
        """Start a victim that notifies incidents up to a number."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"go {last}\n".encode())
        self.pid = int(await self._line())

    async def ended(self) -> None:
        """Wait for its end."""
        assert await self._line() == "done"
        self.pid = 0

    def kill(self) -> None:
        """End it as a power cut does."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    async def _line(self) -> str:
        assert self._process.stdout is not None
        return (await asyncio.wait_for(self._process.stdout.readline(), 60)).decode().strip()


@asynccontextmanager
async def victim_parent(path: Path, config: AlertsConfig) -> AsyncIterator[VictimParent]:
    """Run one, and leave nothing behind."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.alerts.outbox_victims",
        str(path),
        msgspec.json.encode(config, enc_hook=str).decode(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    found = VictimParent(process)
    try:
        yield found
    finally:
        found.kill()
        process.kill()
        await process.wait()


async def test_killed_anywhere_every_incident_arrives_once_under_one_key(tmp_path: Path) -> None:
    dice = random.Random(SEED)
    pager = Pager()
    config = AlertsConfig(channels={"oncall": pager.settings(tmp_path, per_minute=60_000, burst=1000, at_once=4)})
    path = tmp_path / "journal.sqlite"
    async with pager.listening(), victim_parent(path, config) as victims:
        total, lives = 0, []
        for kill in range(KILLS):
            total += dice.randint(1, 6)
            way = kill % 4
            pager.script.clear()
            pager.received = pager.answered = None
            left = dice.randint(1, 4)

            def countdown() -> None:
                nonlocal left
                left -= 1
                if left == 0:
                    victims.kill()

            async def received(_: Call) -> None:
                countdown()

            match way:
                case 0:  # the pager has it, and no answer was sent
                    pager.received = received
                case 1:  # the answer is on its way, and the journal is not
                    pager.answered = countdown
                case 2:  # while the pager is ill
                    pager.script.extend(dice.choices([ACCEPTS, FAILS, DROPS, Behaviour(seconds=0.02)], k=6))
                    pager.received = received
                case _:  # at any time
                    asyncio.get_running_loop().call_later(dice.uniform(0, 0.12), victims.kill)
            await victims.fork(total)
            await victims.ended()
            lives.append(pager.take_calls())
        pager.script.clear()
        pager.received = pager.answered = None
        await victims.fork(total)
        await victims.ended()
        lives.append(pager.take_calls())
    writer = NoticeWriter(path, DeliveryClock(), Router(config).route)
    assert not writer.journal.waiting()
    outcomes = {one.outcome for one in writer.journal.history(limit=100_000)}
    assert outcomes <= {DeliveryOutcome.DELIVERED, DeliveryOutcome.SUPERSEDED}
    writer.journal.close()
    for number in range(1, total + 1):
        key, over = key_of(number), number % 3 == 0
        state = pager.state.get(key)
        # What ended before its notice needs no page; all else paged once, and ended if it is over.
        assert state == ("resolved" if over else "triggered") or (over and state is None), key
        assert pager.opened[key] == (state is not None), key
    for calls in lives:
        told = Counter((call.key, call.action) for call in calls if call.status == 202)
        # Twice only where a life ended between the two, or the pager kept its answer for itself.
        assert all(count == 1 for count in told.values()), told
