"""Which meters are in force: our own, or those that another aggregator reads."""

from __future__ import annotations

import asyncio

from aggregator.meters.feed import MeterFeed, RemoteMeters
from aggregator.meters.hub import MeterHub
from aggregator.site.role import SiteMeters
from power.meters.meter_record import MeterState
from power.meters.sample import MeterSample
from power.site.decode import decode
from telemetry.runtime.supervision import Supervisor
from telemetry.wire.mqtt import BrokerConfig
from tests.kit.waiting import until

SITE = {
    "circuits": {"office": {"breaker": 20, "nodes": ["rig"]}},
    "nodes": {"rig": {"gpus": "4x RTX 5090"}},
    "meters": {"plug": {"type": "tasmota", "topic": "tele/plug/SENSOR", "on": "office"}},
}


def hub() -> MeterHub:
    """A hub whose plug reads 900 W."""
    found = MeterHub(decode("power", {"power": SITE}), BrokerConfig(port=1), now=lambda: 100.0)
    found._records["plug"].add([MeterSample(watts=900.0)], 100.0)
    return found


def remote() -> SiteMeters:
    """The plug as another aggregator reads it: 700 W."""
    found = SiteMeters(lambda: 100.0)
    other = hub()
    other._records["plug"].add([MeterSample(watts=700.0)], 100.0)
    found.readings, found.states = tuple(other.readings()), tuple(other.states())
    return found


def test_the_readings_in_force_are_of_whoever_reads_the_meters() -> None:
    mine, theirs = hub(), remote()
    now: list[RemoteMeters | None] = [None]
    feed = MeterFeed(mine, lambda: now[0])
    assert [one.watts for one in feed.readings()] == [900.0]
    now[0] = theirs
    assert [one.watts for one in feed.readings()] == [700.0]
    states: list[MeterState] = list(feed.states())
    assert states == list(theirs.states)
    assert [one.watts for one in feed.own()[0]] == [900.0], "what is told to others is ours"


async def test_the_meters_are_read_here_while_nobody_else_does() -> None:
    now: list[RemoteMeters | None] = [remote()]
    feed = MeterFeed(hub(), lambda: now[0])

    def reads() -> bool:
        return any(task.get_name() == "meters of the site" for task in asyncio.all_tasks())

    running = asyncio.create_task(feed.run(Supervisor()))
    await asyncio.sleep(0)
    assert not reads()
    now[0] = None
    await until(reads)
    now[0] = remote()
    await until(lambda: not reads())
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
