"""The site role: who leads, what all candidates know, and when it is said that nobody does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import msgspec

from aggregator.cluster.memory import MemoryServers
from aggregator.cluster.port import LEASE_SECONDS, Bucket, BucketEntry
from aggregator.impairments import Impairments
from aggregator.settings.members import MembersConfig
from aggregator.site import role as roles
from aggregator.site.leadership import Leadership, Lease
from aggregator.site.role import SiteBeacon, SiteMeters, SiteRole
from power.devices.wall_power import WallSource
from power.meters.meter_record import MeterState
from power.meters.reading import MeterReading
from telemetry.fleet import Fleet
from tests.kit.waiting import until

READING = MeterReading(
    meter="pdu", kind="circuit", target="feed", source=WallSource.PDU, at=95.0, period=10.0, watts=1.0
)


@dataclass
class Members:
    """Members on one coordination, whose tasks run for real."""

    now: float = 100.0
    roles: list[SiteRole] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.servers = MemoryServers(lambda: self.now, {Bucket.LEADERS: LEASE_SECONDS})

    def add(self, name: str, *, site: bool = True) -> SiteRole:
        config = MembersConfig(nats=("nats://a:4222",), member=name, site=site)
        found = SiteRole(config, self.servers.connect(name), Impairments(), lambda: self.now)
        self.roles.append(found)
        return found

    async def play(self, scene: Callable[[], object]) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(_run(work))
                for number, role in enumerate(self.roles)
                for work in role.works(
                    Fleet(),
                    held=lambda at=number: {f"{at:02x}": 1},
                    owners=dict,  # type: ignore[misc]
                    listening=lambda: True,
                    beacon=lambda: ((READING,), ()),
                ).values()
            ]
            await scene()  # type: ignore[misc]
            for task in tasks:
                task.cancel()


async def _run(work: Callable[[], Awaitable[None]]) -> None:
    await work()


def test_one_member_leads_all_hear_the_watts_and_the_next_leads_when_it_resigns() -> None:
    members = Members()
    one, two, three = members.add("a"), members.add("b"), members.add("c", site=False)
    changes: list[str] = []
    one.when_lead_changes.append(lambda: changes.append("a"))
    heard: list[str] = []
    two.reader_of(("node1",))

    def receive(_payload: bytes, _now: float) -> bool:
        heard.append("message")
        return True

    two.power.receive = receive  # type: ignore[method-assign, assignment]

    async def scene() -> None:
        await until(lambda: one.leads)
        assert (two.leads, three.leads) == (False, False)
        await until(lambda: {one.leader, two.leader, three.leader} == {"a"})
        await until(lambda: len(heard) >= 3)
        await until(lambda: two.meters.readings)
        assert two.electrical()["meters_of"]() is two.meters
        assert one.electrical()["meters_of"]() is None, "who leads reads the meters"
        await one.resign()
        await until(lambda: two.leads)
        assert changes == ["a", "a"]
        assert not one.leads

    asyncio.run(members.play(scene))


def test_what_a_meter_said_keeps_its_age_from_member_to_member() -> None:
    here, there = SiteMeters(lambda: 100.0), SiteMeters(lambda: 7000.0)
    state = MeterState(name="pdu", type="shelly", where="x", targets=(), last_seen=95.0)
    readings, states = here.pack((READING,), (state,))
    there.update(SiteBeacon("a", 1, readings, states))
    assert there.readings[0].at == 6995.0
    assert there.states[0].last_seen == 6995.0
    assert there.readings[0].watts == 1.0


def test_it_is_said_when_nobody_leads_and_not_before_a_change_of_leaders_is_over() -> None:
    members = Members()
    standby = members.add("c", site=False)
    standby._note_lead()
    assert standby.problem == ""
    members.now += roles.UNHELD_SECONDS
    standby._note_lead()
    assert "no aggregator has led the site for 12 s" in standby.problem
    [impairment] = standby._impairments.current()
    assert (impairment.rule, impairment.whole) == ("site_unheld", True)


def test_who_leads_keeps_the_lease_by_one_write_and_obeys_who_wrote_since() -> None:
    async def play() -> None:
        now = 0.0
        servers = MemoryServers(lambda: now, {Bucket.LEADERS: LEASE_SECONDS})
        connection = servers.connect("a")
        looks = 0

        class Counted:
            """A connection that counts looks at the lease."""

            compare_and_set = connection.compare_and_set

            async def read(self, bucket: Bucket, key: str) -> BucketEntry | None:
                nonlocal looks
                looks += bucket is Bucket.LEADERS
                return await connection.read(bucket, key)

        lead = Leadership(
            Counted(),
            "site",
            "a",
            1,
            lease_seconds=LEASE_SECONDS,
            clock=lambda: now,  # type: ignore[arg-type]
        )
        assert await lead.step()
        for _ in range(5):
            now += 1.0
            assert await lead.step()
        assert looks == 1, "the first"
        now += 1.0
        servers.no_quorum = True
        assert await lead.step(), "until its lease is over"
        assert lead.failing_since == now
        servers.no_quorum = False
        servers.write(Bucket.LEADERS, "site", msgspec.json.encode(Lease("b", 9, 2)))
        now += 1.0
        assert not await lead.step()
        assert (looks, lead.leader, lead.failing_since) == (2, Lease("b", 9, 2), None)
        now += LEASE_SECONDS + LEASE_SECONDS  # also after its own blackout
        assert await lead.step()
        assert lead.epoch == 10

    asyncio.run(play())
