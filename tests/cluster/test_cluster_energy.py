"""The energy of a site with several members: each counts all nodes once, and catches up on what it missed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregator.cluster.cluster_energy import ClusterEnergy
from aggregator.cluster.groups import GROUPS, OLDEST_PROTOCOL, PROTOCOL, GroupEntry, MemberBeat
from aggregator.cluster.holder import GroupHolder
from aggregator.cluster.member import ClusterMember
from aggregator.cluster.memory import MemoryServers
from aggregator.cluster.port import BucketEntry
from aggregator.electrical.bill import bill, bill_of
from aggregator.electrical.energy_sampler import NODE_SUMS, EnergySampler
from aggregator.electrical.month_parts import MonthPart, lacking, merge_part, rows_of
from aggregator.electrical.service import ElectricalService
from aggregator.impairments import Impairments
from aggregator.settings.members import MembersConfig
from aggregator.site.site_energy import HOLD_EXTRA_SECONDS, SiteEnergy
from api.bill import MonthBill
from api.decoding import decode
from power.report.energy_ledger import Day, EnergySample
from power.report.load_profile import LoadProfile
from power.report.month_ledger import UNMAPPED
from power.report.months import STEP, month_named
from telemetry.wire.topics import shard_of
from tests.aggregator.fake_view import FakeView
from tests.aggregator.http_client import door
from tests.aggregator.test_electrical import Room
from tests.cluster.loop import Loop
from tests.kit.works import running

DEAD_AFTER = 10.0
HOLD = int(DEAD_AFTER + HOLD_EXTRA_SECONDS)
TREE = {"site": {"tariff": 0.2, "timezone": "UTC"}}
NODES = ("n0", "n1", "n2", "n3")
SCALARS = ("watts", "nodes", "gpu_joules", "gpus", "busy_gpus", "idle_gpus", "idle_watts", "unmapped_watts", "silent_watts")  # fmt: skip


@dataclass
class Hall:
    """Members that have some nodes each, and one aggregator that has them all."""

    folder: Path
    holders: dict[str, str] = field(default_factory=lambda: dict(zip(NODES, "aabb", strict=True)))
    epochs: dict[str, int] = field(default_factory=lambda: dict.fromkeys(GROUPS, 1))
    rooms: dict[str, Room] = field(default_factory=dict)
    sums: dict[str, SiteEnergy] = field(default_factory=dict)
    electrical: dict[str, ElectricalService] = field(default_factory=dict)
    members: dict[str, ClusterMember] = field(default_factory=dict)
    energies: dict[str, ClusterEnergy] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.one = Room(*NODES)
        self.alone = ElectricalService(TREE, self.folder / "one", clock=lambda: self.one.wall)
        self.servers = MemoryServers(lambda: self.one.now, {})
        for number, name in enumerate("ab"):
            self.rooms[name] = Room(*(node for node, its in self.holders.items() if its == name))
            self.start(name, number)

    def start(self, name: str, session: int) -> None:
        """Start a member, or a new one in its place with nothing on its disk."""
        folder = self.folder / f"{name}{session}"
        folder.mkdir(parents=True)
        sums = self.sums[name] = SiteEnergy(session, DEAD_AFTER)
        own = self.electrical[name] = ElectricalService(TREE, folder, clock=lambda: self.one.wall, shared=sums)
        config = MembersConfig(nats=("nats://x:4222",), member=name, dead_after_seconds=1e9)
        member = self.members[name] = ClusterMember(
            config, self.servers.connect(name), cast(GroupHolder, None), Impairments(), clock=lambda: self.one.now
        )
        own.energy.elsewhere = self.energies[name] = ClusterEnergy(
            own, member, lambda: self.one.now, lambda: self.one.wall
        )
        entries = {
            group: BucketEntry(msgspec.json.encode(GroupEntry(self.holder(group), "p", 1)), 1) for group in GROUPS
        }
        beat = MemberBeat("p", protocol=PROTOCOL, oldest=OLDEST_PROTOCOL)
        beats = {name: BucketEntry(msgspec.json.encode(beat), 1) for name in "ab"}
        member.planner.observe(beats, entries, self.one.now)

    def holder(self, group: str) -> str:
        """Return the member that has a group."""
        return next((its for node, its in self.holders.items() if shard_of(node) == group), "a")

    def move(self, node: str, to: str) -> None:
        """Give a node to another member, while the old one still has it too."""
        self.epochs[shard_of(node)] += 1
        self.holders[node] = to
        place = self.one.fleet.nodes[node]
        self.rooms[to].fleet.place(place.inventory)

    def run(self, seconds: int, watts: float = 100.0) -> None:
        """Let the time go on; all members hear what each says."""
        for _ in range(seconds):
            self.one.now += 1.0
            for room in (self.one, *self.rooms.values()):
                room.now = self.one.now
                for node in room.fleet.nodes:
                    drawn = watts * (1 + NODES.index(node))
                    room.say(
                        node, gpu_power_watts=drawn, gpu_utilization_ratio=0.0, gpu_energy_joules_total=drawn * room.now
                    )
            self.alone.snapshots(self.one.fleet, self.one.now, self.one.wall)
            for name in self.rooms.keys() - self.down:
                its = self.rooms[name]
                self.electrical[name].snapshots(its.fleet, its.now, its.wall)
            for name in self.rooms.keys() - self.down:
                held = {group: epoch for group, epoch in self.epochs.items() if self.holder(group) == name}
                payload = self.sums[name].message(held)
                for other in self.rooms.keys() - self.down:
                    self.sums[other].receive(payload, self.one.now)

    def day(self, name: str) -> Day:
        """Return the day as a member has counted it."""
        (found,) = self.electrical[name].energy.ledger.days.values()
        return found

    @asynccontextmanager
    async def answering(self, *names: str) -> AsyncIterator[None]:
        """Let members answer, and no more than that."""
        async with running(*(self._serve(name) for name in names)):
            yield

    async def _serve(self, name: str) -> None:
        its = self.energies[name]
        async with its._answers.serving({"energy": its.answer}):
            await asyncio.Event().wait()


@pytest.fixture
def hall(tmp_path: Path) -> Hall:
    return Hall(tmp_path)


def test_each_member_counts_all_nodes_once_also_while_one_is_at_two_of_them(hall: Hall) -> None:
    """Half way a node moves; the member that had it goes on hearing it."""
    hall.run(60)
    hall.move("n1", "b")
    hall.run(60)
    (wanted,) = hall.alone.energy.ledger.days.values()
    for name in "ab":
        found = hall.day(name)
        # The first second is before anybody was heard, and what is heard is a second old.
        assert found.joules == pytest.approx(wanted.joules, rel=0.03)
        assert found.gpu_joules == pytest.approx(wanted.gpu_joules, rel=0.05)
        assert found.idle_gpu_seconds == pytest.approx(wanted.idle_gpu_seconds, rel=0.03)
        assert found.peak_watts == pytest.approx(wanted.peak_watts, rel=1e-5)
        its, one = (each.months.ledger.profile for each in (hall.electrical[name], hall.alone))
        assert its is not None
        assert one is not None
        assert its.energy([UNMAPPED]).sum() == pytest.approx(one.energy([UNMAPPED]).sum(), rel=0.03)


def test_what_nobody_says_is_not_known_and_never_less(hall: Hall) -> None:
    """For as long as a member may take to be found dead its last sums count."""
    hall.run(30)
    before = hall.day("a").joules
    hall.down = {"b"}
    hall.run(HOLD - 1)
    a = hall.electrical["a"].energy
    assert a.ledger.watts == pytest.approx(hall.alone.energy.ledger.watts)
    hall.run(20)
    assert a.ledger.watts is None
    known = hall.day("a")
    assert known.unknown_seconds >= 18
    assert known.joules == pytest.approx(before + (HOLD + 1) * (hall.alone.energy.ledger.watts or 0), rel=0.1)
    profile = hall.electrical["a"].months.ledger.profile
    assert profile is not None
    assert profile.going_on() == [UNMAPPED], "it has not ended, for nodes may be there"
    for node in ("n2", "n3"):
        hall.move(node, "a")
    for group in GROUPS:
        hall.epochs[group] += 1
    hall.holders = dict.fromkeys(NODES, "a")
    hall.run(5)
    assert a.ledger.watts == pytest.approx(hall.alone.energy.ledger.watts)


def test_late_foreign_and_broken_messages_change_nothing() -> None:
    one, other = SiteEnergy(1, DEAD_AFTER), SiteEnergy(2, DEAD_AFTER)
    first = one.message({"0a": 3})
    second = one.message({"0a": 3})
    hears = SiteEnergy(3, DEAD_AFTER)
    assert hears.receive(second, 1.0)
    for payload in (first, second, other.message({"0a": 2}), b"", b"\xc1"):
        assert not hears.receive(payload, 2.0)
    broken = msgspec.msgpack.decode(second)
    broken["columns"]["watts"] = np.array([np.nan], "<f4").tobytes()
    broken["number"] = 9
    assert not hears.receive(msgspec.msgpack.encode(broken), 2.0)
    assert hears.receive(other.message({"0a": 4}), 2.0)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from("abc"), min_size=6, max_size=6), st.lists(st.floats(0, 700), min_size=6, max_size=6))
def test_sums_of_members_are_those_of_one_aggregator(holders: list[str], watts: list[float]) -> None:
    """However nodes are divided among them."""
    names = [f"node-{number}" for number in range(6)]

    def sample(nodes: list[str]) -> EnergySample:
        room, sampler, found = Room(*nodes), EnergySampler(), EnergySample(watts=0.0)
        for second in range(2):
            room.now += 1.0
            for name in nodes:
                drawn = watts[names.index(name)]
                room.say(
                    name,
                    gpu_power_watts=drawn,
                    gpu_utilization_ratio=drawn / 700,
                    gpu_energy_joules_total=1e5 + drawn * second,
                )
            found = sampler.sample(
                room.fleet, room.now, (names[0],), np.array([50.0]) if names[0] in nodes else None, by_node=True
            )
        return found

    wanted, parts = sample(names), {}
    hears = SiteEnergy(9, DEAD_AFTER)
    for number, member in enumerate("abc"):
        its = sample([name for name, holder in zip(names, holders, strict=True) if holder == member])
        parts[member] = its
        assert its.node_sums.shape == (len(its.node_names), len(NODE_SUMS))
        says = SiteEnergy(number, DEAD_AFTER)
        says._note(its)
        held = {shard_of(name): 1 for name in its.node_names}
        rest = {group: 1 for group in GROUPS if group not in map(shard_of, names)} if member == "a" else {}
        hears.receive(says.message(held | rest), 5.0)
    found = hears.joined(parts["a"], 6.0)
    assert found.whole
    for name in SCALARS:
        assert getattr(found, name) == pytest.approx(getattr(wanted, name), rel=1e-4, abs=1e-3, nan_ok=True), name


# -- What a member did not count --------------------------------------------------------------------

OCTOBER = month_named("2026-10", UTC)


def profile_of(counted: set[int], begins: int) -> LoadProfile:
    """Return a month in which a circuit and one that is fed by it were counted in some hours, and a third one began
    later."""
    profile = LoadProfile(OCTOBER)
    for hour in range(24):
        if hour not in counted:
            continue
        at = OCTOBER.start + 3600.0 * (hour + 1)
        names = ["main", "rack", *(["late"] if hour >= begins else [])]
        rows = profile.rows(names, OCTOBER.start if hour < begins else OCTOBER.start + 3600.0 * begins)
        joules = 3600.0 * np.array([1000.0 + hour, 400.0, 100.0][: len(rows)])
        profile.add(rows, at, 3600.0, joules, np.ones(len(rows), bool), np.full(len(rows), np.nan))
    profile.roots.add("main")
    return profile


@settings(max_examples=40, deadline=None)
@given(st.sets(st.integers(0, 23), min_size=1), st.sets(st.integers(0, 23)), st.integers(1, 23))
def test_two_parts_of_a_month_are_what_either_knows(ours: set[int], theirs: set[int], begins: int) -> None:
    """Whoever counted an hour; and an hour that both counted is there once."""
    now = OCTOBER.start + 86_400.0
    own, other = profile_of(ours, begins), profile_of(theirs, begins)
    wanted = profile_of(ours | theirs, begins)
    columns = lacking(own, now)
    assert {column * STEP // 3600 for column in columns} == set(range(24)) - ours
    part = MonthPart(columns, rows_of(other, columns))
    body = msgspec.msgpack.encode(part)
    for _ in merge_part(own, msgspec.msgpack.decode(body, type=MonthPart)):
        pass
    for name in wanted.names:
        np.testing.assert_allclose(own.energy([name]), wanted.energy([name]), rtol=1e-6)
        np.testing.assert_allclose(own.series("seconds", [name]), wanted.series("seconds", [name]))
    assert own.roots == {"main"}
    assert {column * STEP // 3600 for column in lacking(own, now)} == set(range(24)) - ours - theirs


def test_rows_that_do_not_fit_their_intervals_are_refused() -> None:
    profile = profile_of({1}, 1)
    rows = rows_of(profile, [4, 5])
    for columns in ([4], [4, 99_999], [-1, 4]):
        with pytest.raises(ValueError, match=r"intervals|broadcast|shape"):
            list(merge_part(profile_of({2}, 1), MonthPart(columns, rows)))


async def test_a_member_that_was_away_catches_up_with_what_the_others_counted(hall: Hall) -> None:
    """Its bill and its days are then those of a member that was there all the time, though that one is gone."""
    hall.run(STEP + 60)
    hall.rooms["b"] = Room("n2", "n3")
    hall.start("b", 7)  # its disk is lost
    hall.run(STEP + 60)
    hall.down = set()
    assert hall.day("b").joules < 0.6 * hall.day("a").joules
    b = hall.energies["b"]
    async with hall.answering("a"):
        await b.catch_up()
    assert b._whole
    hall.run(5)
    assert hall.day("b").joules == pytest.approx(hall.day("a").joules, rel=0.01)
    found = bill(hall.electrical["b"], None, hall.one.wall)
    wanted = bill(hall.electrical["a"], None, hall.one.wall)
    assert found.kwh_measured == pytest.approx(wanted.kwh_measured, rel=0.01)
    assert found.hours_known == pytest.approx(wanted.hours_known, abs=0.02)
    assert hall.electrical["b"].months.ledger.changed_from <= OCTOBER.start, "to be written"


async def test_a_bill_has_the_idle_gpus_of_all_and_says_who_does_not_answer(hall: Hall) -> None:
    hall.run(120)
    hall.move("n1", "b")
    hall.rooms["a"].fleet.remove("n1")
    hall.run(120)
    wanted = {one.node: one.gpu_hours for one in bill(hall.alone, None, hall.one.wall).idle}
    for name in "ab":
        its = hall.electrical[name]
        async with hall.answering("a", "b"):
            found = await hall.energies[name].month(None)
        whole = bill_of(its, None, hall.one.wall, found)()
        assert whole.missing == []
        assert {one.node: one.gpu_hours for one in whole.idle} == pytest.approx(wanted, rel=0.05)
    view = FakeView()
    view.electrical, view.monotonic = hall.electrical["a"], hall.one.now
    async with door(view) as client:
        reply = decode((await client.text("/api/v1/bill"))[1].encode(), MonthBill)
        page = (await client.text("/energy", headers=client.bearer))[1]
    assert reply.missing == ["b"]
    assert {one.node for one in reply.idle} == {"n0", "n1"}
    assert "that b counted" in reply.rules[-1]
    assert "that b counted" in page


async def test_a_month_of_which_only_another_member_has_something_is_answered(hall: Hall) -> None:
    """As one that began after it."""
    hall.run(60)
    now = month_named("2026-09", UTC)
    assert now.start * 1e9 < hall.one.wall < now.end * 1e9
    held = hall.electrical["a"].months.ledger
    august = month_named("2026-08", UTC)
    profile = LoadProfile(august)
    rows = profile.rows([UNMAPPED])
    profile.add(rows, august.start + 7200.0, 7200.0, np.array([7.2e6]), np.array([True]), np.array([np.nan]))
    held.finished.append((profile, held.idle))
    async with hall.answering("a"):
        found = await hall.energies["b"].month("2026-08")
    assert bill_of(hall.electrical["b"], "2026-08", hall.one.wall, found)().kwh_measured == pytest.approx(2.0)


# -- On real processes ----------------------------------------------------------------------------


@pytest.fixture
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loop]:
    loop = Loop(tmp_path_factory.mktemp("energy"))
    loop.nats.start()
    loop.start(*loop.members, *loop.nodes)
    yield loop
    loop.end_all()


@pytest.mark.systems
@pytest.mark.timeout(600)
def test_any_member_counts_the_draw_of_all_nodes_whoever_dies(loop: Loop) -> None:
    """And names in its bill who holds idle GPUs that it can't ask for."""

    def all_counted(*members: str) -> bool:
        """Return whether who leads the site, which exports that, counts them all."""
        return max(loop.sample(name, "kilowatch_power_wall_nodes") for name in members) == len(loop.nodes)

    def bill_at(member: str) -> Any:
        return loop.page(member, "/api/v1/bill") or {}

    loop.until("all groups held", lambda: loop.held_by(*loop.members))
    loop.until("all nodes counted", lambda: all_counted(*loop.members))
    loop.until(
        "idle GPUs of all", lambda: {each["node"] for each in bill_at(loop.members[0])["idle"]} == set(loop.nodes)
    )
    assert bill_at(loop.members[0])["missing"] == []
    loop.until("energy measured", lambda: min(bill_at(name).get("kwh_measured", 0) for name in loop.members) > 0)
    killed = loop.holder(loop.nodes[0])
    loop.kill(killed)
    rest = [name for name in loop.members if name != killed]
    loop.until("its groups at the others", lambda: loop.held_by(*rest))
    loop.until("all nodes counted again", lambda: all_counted(*rest))
    bills = [bill_at(name) for name in rest]
    assert [found["missing"] for found in bills] == [[killed]] * 2
    measured = [found["kwh_measured"] for found in bills]
    assert min(measured) > 0.7 * max(measured) > 0
