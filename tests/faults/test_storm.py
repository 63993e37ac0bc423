"""A broker that dies takes all sessions with it; when it is back, they come in no lockstep."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from collector.config import CollectorConfig
from collector.publish.publisher import Publisher
from telemetry.wire.mqtt import BrokerConfig
from tests.faults.plant import PARTS, Plant
from tests.faults.record import OUTAGE, SESSIONS, Observe, fault
from tests.kit.waiting import until

BACK_WITHIN = 60.0
AWAY = min(OUTAGE, 30.0)
"""Seconds."""
FULLEST = 2.5 if AWAY > 25 else 5.0
"""Times the mean that the fullest second may have. Pauses below a bound of 15 s, begun at any time,
end twice as often in the first second as in the mean; until the bound has grown, more of them are
short. In lockstep it would be fifteen times."""

LOCKSTEP = 0.5
"""Part of all sessions in one second that is a wave, whatever the mean: this machine may stand still
for seconds, and who was due meanwhile comes at once."""


class Session(Publisher):
    """What a collector has on the bus, without anything to send: its own pauses, its own status."""

    def __init__(self, broker: BrokerConfig, number: int) -> None:
        config = CollectorConfig(node=f"light-{number:05}", broker=broker, source="none")
        super().__init__(config, number + 1, None, lambda _: None, time.time_ns)
        self.came: list[float] = []
        """When it was connected, monotonic seconds."""

    def _log_up(self, address: str) -> None:
        super()._log_up(address)
        self.came.append(time.monotonic())


@asynccontextmanager
async def _sessions(broker: BrokerConfig) -> AsyncIterator[list[Session]]:
    """So many sessions, connected."""
    sessions = [Session(broker, number) for number in range(SESSIONS)]
    tasks = [asyncio.create_task(session.run()) for session in sessions]
    try:
        await until(lambda: all(session.came for session in sessions), seconds=120)
        yield sessions
    finally:
        for session in sessions:
            session.close()
        await asyncio.wait(tasks)


@fault("11", "all are back within 60 s, in no lockstep, and nobody is thrown out again")
async def test_reconnect_storm(plant: Plant, observe: Observe) -> None:
    """The broker dies with all its sessions, is away for a while, and comes back empty."""
    async with _sessions(plant.broker.config) as sessions:
        plant.broker.kill()
        await asyncio.sleep(AWAY)
        returned = time.monotonic()
        await asyncio.to_thread(plant.broker.start)
        await until(lambda: all(session.came[-1] > returned for session in sessions), seconds=BACK_WITHIN)
        waits = sorted(session.came[-1] - returned for session in sessions)
        dropped = sum(len(session.came) > 2 for session in sessions)
        await asyncio.to_thread(plant.wait_for_more, 1)
        times = [plant.chaos[part].connected for part in PARTS]
        await until(lambda: all(_first_after(one, returned) is not None for one in times), seconds=BACK_WITHIN)
        real = [_first_after(one, returned) or 0.0 for one in times]
    seconds = Counter(int(wait) for wait in waits)
    mean = len(waits) / (waits[-1] - waits[0])
    most = max(seconds.values())
    assert most <= max(FULLEST * mean, LOCKSTEP * len(waits)), (most, mean, sorted(seconds.items()))
    assert dropped == 0, "a second wave"
    account = await asyncio.to_thread(plant.finish)
    assert account.lost == 0
    observe(
        f"{SESSIONS} sessions and three real parts after {AWAY:g} s: the last back after "
        f"{max(waits[-1], *real):.1f} s, {most} in the fullest second, {mean:.0f} in the mean, "
        f"no second wave; {account}"
    )


def _first_after(times: list[float], since: float) -> float | None:
    """Return how long after a time the first of others came, seconds; None before any has."""
    return next((at - since for at in times if at >= since), None)
