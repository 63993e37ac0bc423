"""The meters of a site for one of its aggregators: read here, or as another one that reads them tells of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from aggregator.meters.hub import MeterHub
from power.meters.meter_record import MeterState
from power.meters.reading import MeterReading
from power.site.config import PowerConfig
from telemetry.runtime.supervision import Supervisor


class RemoteMeters(Protocol):
    """Meters that another aggregator reads, as it tells of them."""

    @property
    def readings(self) -> Sequence[MeterReading]:
        """Newest readings, with times of our clock."""

    @property
    def states(self) -> Sequence[MeterState]:
        """State of each meter, with times of our clock."""


MeterSource = Callable[[], RemoteMeters | None]
"""Returns the meters as another aggregator reads them; None where this one does."""


class MeterFeed:
    """The meters in force: those of the hub here, or another aggregator's."""

    def __init__(self, hub: MeterHub, other: MeterSource | None = None) -> None:
        """`other`: who reads the meters now, where that may be another aggregator."""
        self._hub = hub
        self._other = other

    def readings(self) -> Sequence[MeterReading]:
        """Return the newest readings."""
        other = None if self._other is None else self._other()
        return self._hub.readings() if other is None else other.readings

    def states(self) -> Sequence[MeterState]:
        """Return the state of each meter."""
        other = None if self._other is None else self._other()
        return self._hub.states() if other is None else other.states

    def own(self) -> tuple[Sequence[MeterReading], Sequence[MeterState]]:
        """Return the readings and states of the meters as they are read here."""
        return self._hub.readings(), self._hub.states()

    def configure(self, site: PowerConfig) -> None:
        """Replace the meters of the hub here. Raises `ConfigError`, and then changes nothing."""
        self._hub.configure(site)

    async def run(self, supervisor: Supervisor) -> None:
        """Read the meters until cancelled, while no other aggregator does: some devices answer one alone."""
        if self._other is None:
            await self._hub.run(supervisor)
            return
        while True:
            while self._other() is not None:  # noqa: ASYNC110 - a lease ends by time alone
                await asyncio.sleep(0.2)
            reading = asyncio.create_task(self._hub.run(supervisor), name="meters of the site")
            try:
                while self._other() is None and not reading.done():  # noqa: ASYNC110
                    await asyncio.sleep(0.2)
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
