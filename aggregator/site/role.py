"""The site role of a member: what nodes draw goes to all members, and one of them leads.

Every member says once a second what the nodes of its groups draw, hears all of it and computes all
circuits, so that one that takes the lead knows how warm each breaker is, and any can show them. Only the leader
pages about them, publishes them, and reads the meters, of which it tells the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from aggregator.cluster.port import LEASE_SECONDS, CoordinationError, Handler
from aggregator.site.leadership import Leadership
from aggregator.site.node_power import NodePowerSender
from aggregator.site.site_energy import SiteEnergy
from aggregator.site.site_power import SitePower
from aggregator.site.unfenced import UNFENCED_SECONDS
from power.meters.meter_record import MeterState
from power.meters.reading import MeterReading
from telemetry.fleet import Fleet
from telemetry.text.decoders import of_msgpack

if TYPE_CHECKING:
    from aggregator.cluster.port import Coordination
    from aggregator.impairments import Impairments
    from aggregator.settings.members import MembersConfig

log = logging.getLogger(__name__)

ROLE = "site"
POWER, ENERGY, BEACON = "power", "energy", "site"
"""Subjects of what nodes draw, of what groups add to the site's energy, and of what the leader says each second."""
STEP_SECONDS = LEASE_SECONDS / 4
"""Seconds from one write of the lease, or look at it, to the next: one that is not answered for 2 s leaves time
for another."""
UNHELD_SECONDS = 3 * LEASE_SECONDS
"""Seconds without a leader after which that is reported; a change of leaders takes two leases."""


class SiteBeacon(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message of the leader, once a second. Fields are only added, with a default."""

    member: str
    epoch: int
    readings: tuple[MeterReading, ...] = ()
    """Newest readings of the meters; `at` is how many seconds ago."""
    meters: tuple[MeterState, ...] = ()
    """`last_seen` is how many seconds ago."""


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = of_msgpack(SiteBeacon)


class SiteMeters:
    """The meters of the site, as its leader reads them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.readings: tuple[MeterReading, ...] = ()
        self.states: tuple[MeterState, ...] = ()

    def pack(
        self, readings: Sequence[MeterReading], states: Sequence[MeterState]
    ) -> tuple[tuple[MeterReading, ...], tuple[MeterState, ...]]:
        """Return our readings and states with ages for times."""
        now = self._clock()
        return tuple(_aged(one, now) for one in readings), tuple(_moved(one, now) for one in states)

    def update(self, beacon: SiteBeacon) -> None:
        """Take the leader's readings, with times of our clock."""
        now = self._clock()
        self.readings = tuple(_aged(one, now) for one in beacon.readings)
        self.states = tuple(_moved(one, now) for one in beacon.meters)


class SiteRole:
    """The part of a member in the site; run its `works`, and `resign` before the end."""

    def __init__(
        self,
        config: MembersConfig,
        coordination: Coordination,
        impairments: Impairments,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.candidate = config.site
        """Whether this member may lead."""
        self.admitted: Callable[[], bool] = lambda: True
        """Whether this member's release may take part."""
        self.name = config.name
        self.coordination = coordination
        self.leadership = Leadership(
            coordination, ROLE, config.name, secrets.randbits(48), lease_seconds=LEASE_SECONDS, clock=clock
        )
        self.power = SitePower((), clock(), config.dead_after_seconds)
        self.energy = SiteEnergy(secrets.randbits(48), config.dead_after_seconds)
        self.meters = SiteMeters(clock)
        self.when_lead_changes: list[Callable[[], None]] = []
        """Called when this member takes or loses the lead."""
        self._impairments = impairments
        self._dead_after = config.dead_after_seconds
        self._clock = clock
        self._led = False
        self._leader_seen = self._beacon_at = clock()
        self._sender = NodePowerSender(secrets.randbits(48))
        self._connected_since, self._connected = -float("inf"), True
        self._resigned = False

    # -- What the rest of the aggregator asks -----------------------------------------------------

    @property
    def leads(self) -> bool:
        """Whether this member judges the site now."""
        return self.leadership.leads()

    @property
    def leader(self) -> str:
        """Name of the member that leads, "" for none, as far as is known here."""
        if self.leads:
            return self.name
        seen = self.leadership.leader
        return "" if seen is None or seen.member == self.name else seen.member

    @property
    def unfenced(self) -> bool:
        """Whether NATS has had no quorum for so long that pages go out without it."""
        since = self.leadership.failing_since
        return since is not None and self._clock() - since >= UNFENCED_SECONDS

    @property
    def speaks_unfenced(self) -> bool:
        """Whether this member pages about the site then: it led last, or hears nobody who does."""
        if not self.unfenced or not self.candidate or self._resigned:
            return False
        seen = self.leadership.leader
        led = seen is not None and seen.member == self.name
        return led or self._clock() - self._beacon_at >= UNHELD_SECONDS

    @property
    def problem(self) -> str:
        """Why nobody pages about circuits now; "" where somebody does."""
        alone = self._clock() - self._leader_seen
        if alone < UNHELD_SECONDS:
            return ""
        return f"no aggregator has led the site for {alone:.0f} s: nobody is paged about circuits and incidents"

    def reader_of(self, machines: Sequence[str]) -> SitePower:
        """Return the reader of what the machines of the site draw, from now on."""
        self.power = SitePower(machines, self._clock(), self._dead_after)
        return self.power

    def electrical(self) -> dict[str, Any]:
        """Return what makes circuits those of the site: arguments of `ElectricalService`."""
        return {
            "reader_of": self.reader_of,
            "meters_of": lambda: None if self.leads else self.meters,
            "shared": self.energy,
        }

    # -- Tasks ------------------------------------------------------------------------------------

    def works(
        self,
        fleet: Fleet,
        held: Callable[[], Mapping[str, int]],
        owners: Callable[[], Mapping[str, int]],
        listening: Callable[[], bool],
        beacon: Callable[[], tuple[Sequence[MeterReading], Sequence[MeterState]]],
    ) -> dict[str, Callable[[], Awaitable[None]]]:
        """Return the tasks of this member. `held`: epochs of the groups that it holds; `owners`: the epochs
        of all groups, as far as known; `listening`: whether nodes can be heard; `beacon`: the
        readings and states of the meters that are read here."""
        return {
            "watts to the site": lambda: self._send(fleet, held, listening),
            "lead of the site": self._lead,
            "watts of the site": lambda: self._receive(owners),
            "energy of the site": self._hear_energy,
            "beacon of the site": lambda: self._beacon(beacon),
        }

    async def resign(self) -> None:
        """Give the lead back, and take it no more."""
        self._resigned = True
        await self.leadership.resign()
        self._note_lead()

    async def _send(self, fleet: Fleet, held: Callable[[], Mapping[str, int]], listening: Callable[[], bool]) -> None:
        """Say once a second what the nodes of our groups draw."""
        async for now in _every(1.0, self._clock):
            heard = listening()
            if heard and not self._connected:
                self._connected_since = now
            self._connected = heard
            if not heard:  # what we don't hear is unheard, not silent
                continue
            with contextlib.suppress(CoordinationError):  # reported by the member's rounds
                payloads = self._sender.messages(fleet, now, held(), self._connected_since)
                for payload in payloads:
                    await self.coordination.publish(POWER, payload)
                await self.coordination.publish(ENERGY, self.energy.message(held()))

    async def _receive(self, owners: Callable[[], Mapping[str, int]]) -> None:
        async def take(payload: bytes) -> None:
            self.power.receive(payload, self._clock())

        async with self._serving(POWER, take):
            fenced: Mapping[str, int] = {}
            reader = self.power
            async for _ in _every(1.0, self._clock):
                epochs = owners()
                if epochs == fenced and reader is self.power:
                    continue
                fenced, reader = epochs, self.power
                for group, epoch in epochs.items():
                    self.power.fence(group, epoch)

    async def _hear_energy(self) -> None:
        async def take(payload: bytes) -> None:
            self.energy.receive(payload, self._clock())

        async with self._serving(ENERGY, take):
            await asyncio.Event().wait()

    async def _beacon(self, beacon: Callable[[], tuple[Sequence[MeterReading], Sequence[MeterState]]]) -> None:
        """Say once a second who leads, and what its meters say."""

        async def take(payload: bytes) -> None:
            try:
                found = _DECODER.decode(payload)
            except msgspec.MsgspecError:  # of a later release
                return
            if found.epoch >= self.leadership.highest and not self.leads:
                self._leader_seen = self._beacon_at = self._clock()
                self.meters.update(found)

        async with self._serving(BEACON, take):
            async for _ in _every(1.0, self._clock):
                if not (self.leads or self.speaks_unfenced):
                    continue
                readings, states = self.meters.pack(*beacon())
                beacon_now = SiteBeacon(self.name, self.leadership.epoch, readings, states)
                with contextlib.suppress(CoordinationError):
                    await self.coordination.publish(BEACON, _ENCODER.encode(beacon_now))

    @contextlib.asynccontextmanager
    async def _serving(self, subject: str, take: Handler) -> AsyncIterator[None]:
        """Have messages of a subject taken; waits for a server at the start."""
        async with contextlib.AsyncExitStack() as stack:
            while True:
                try:
                    await stack.enter_async_context(self.coordination.serve(subject, take))
                    break
                except CoordinationError:
                    await asyncio.sleep(1.0)
            yield

    async def _lead(self) -> None:
        """Take or keep the lead, or look who has it."""
        async for _ in _every(STEP_SECONDS, self._clock):
            if self.candidate and self.admitted() and not self._resigned:
                await self.leadership.step()
            else:
                await self._look()
            if not self._resigned:
                self._note_lead()

    async def _look(self) -> None:
        with contextlib.suppress(CoordinationError):
            await self.leadership.look()

    def _note_lead(self) -> None:
        leads = self.leads
        if self.leadership.leader is not None:
            self._leader_seen = self._clock()
        if leads != self._led:
            self._led = leads
            log.warning("site: this member %s", "leads" if leads else "leads no more")
            for changed in self.when_lead_changes:
                changed()
        if self.problem:
            self._impairments.report("site_unheld", "cluster/site", self.problem, whole=True)
        else:
            self._impairments.clear("site_unheld", "cluster/site")


def _aged(reading: MeterReading, now: float) -> MeterReading:
    """Return a reading with an age for its time, or with a time for its age: one is `now` less the other."""
    return msgspec.structs.replace(reading, at=now - reading.at)


def _moved(state: MeterState, now: float) -> MeterState:
    """Return a meter's state with an age for its time, or the other way round."""
    return state if state.last_seen is None else replace(state, last_seen=now - state.last_seen)


async def _every(seconds: float, clock: Callable[[], float]) -> AsyncIterator[float]:
    """Yield the time every so many seconds; at once after what took longer."""
    due = clock()
    while True:
        yield clock()
        now = clock()
        due = min(max(due + seconds, now - seconds), now + seconds)
        await asyncio.sleep(max(0.0, due - now))
