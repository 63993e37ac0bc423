"""A running hub of meters, for tests: the real one, on real brokers and servers."""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from aggregator.meters import MeterHub
from power.meters.meter_record import MeterState
from power.meters.reading import MeterReading
from power.site.config import PowerConfig
from power.site.decode import decode
from telemetry.wire.mqtt import BrokerConfig

T = TypeVar("T")

CIRCUITS = """
[circuits.lab]
breaker = 60
volts = 208
poles = 3
nodes = ["rig1", "rig2"]
[circuits.office]
breaker = 15
"""


def site_of(meters: str) -> PowerConfig:
    """A small site with these meters."""
    return decode("site.toml", tomllib.loads(CIRCUITS + meters))


def reading(hub: MeterHub, target: str, pole: str | None = None) -> MeterReading | None:
    """The newest reading of a target."""
    found = [one for one in hub.readings() if (one.target, one.pole) == (target, pole)]
    return found[0] if found else None


def newer(hub: MeterHub, target: str, than: MeterReading, *flags: str) -> MeterReading | None:
    """A reading after another one, with these flags if any."""
    found = reading(hub, target)
    good = found is not None and found.at > than.at and set(flags) <= set(found.flags)
    return found if good else None


def state(hub: MeterHub, name: str) -> MeterState:
    """How a meter stands."""
    return next(one for one in hub.states() if one.name == name)


@asynccontextmanager
async def running(meters: str, broker: BrokerConfig | None = None) -> AsyncIterator[MeterHub]:
    """Run a hub until the block ends."""
    hub = MeterHub(site_of(meters), broker or BrokerConfig(port=1))
    task = asyncio.create_task(hub.run())
    try:
        yield hub
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
