"""The register of nodes over several members: what is declared at any of them holds at all, whoever dies."""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from aggregator.cluster.cluster_register import ClusterRegister
from aggregator.cluster.memory import MemoryServers
from aggregator.cluster.port import Bucket, CoordinationError
from aggregator.register.node_register import NodeRecord, NodeRegister
from telemetry.errors import BusError, NodeError
from telemetry.fleet import Fleet
from tests.aggregator.fake_view import inventory
from tests.cluster.loop import Loop

SECOND = 10**9
DAY = 86_400 * SECOND
NAMES = "abcd"


def fleet_of(*online: str, offline: str = "") -> Fleet:
    """Return a fleet of nodes; those that are offline were never heard here."""
    fleet = Fleet()
    for name in (*online, *offline):
        node = fleet.place(inventory(name))
        node.online, node.seen = name in online, 1.0 if name in online else -math.inf
    return fleet


class Trio:
    """Three members' registers, each with its file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.servers = MemoryServers(lambda: 0.0, {})
        self.registers = {name: self.start(name) for name in "xyz"}

    def start(self, name: str) -> NodeRegister:
        """Start a member by what is on its disk."""
        register = NodeRegister(self.folder / f"{name}.json")
        register.load()
        register.shared = ClusterRegister(self.servers.connect(name))
        return register

    def records(self) -> list[dict[str, NodeRecord]]:
        """Return what each member has in force."""
        return [register._records for register in self.registers.values()]

    async def follow(self) -> None:
        """Let all hear of all."""
        for _ in range(2):
            for register in self.registers.values():
                await register.follow()


@pytest.fixture
def trio(tmp_path: Path) -> Trio:
    return Trio(tmp_path)


async def test_what_is_declared_at_one_member_holds_at_all_and_outlives_it(trio: Trio) -> None:
    """A member that is new has nothing on its disk."""
    x, y = trio.registers["x"], trio.registers["y"]
    await x.retire("a", "ann", "dead board", DAY)
    await x.rename("b", "c", fleet_of("b"), "ann", "rack 7", DAY)
    del trio.registers["x"]
    (trio.folder / "z.json").unlink(missing_ok=True)
    trio.registers["z"] = trio.start("z")
    for register in (y, trio.registers["z"]):
        await register.follow()
        assert register.left("a")
        row = register.row("c", Fleet(), 0.0)
        assert (row.formerly, row.by, row.why) == (["b"], "ann", "rack 7")


async def test_whoever_hears_the_new_name_says_so_to_all(trio: Trio) -> None:
    """The old name is another member's, which lets it go then."""
    x, y = trio.registers["x"], trio.registers["y"]
    await x.rename("b", "c", fleet_of("b"), "ann", "", DAY)
    await trio.follow()
    old = fleet_of(offline="b")
    assert await x.note(old, DAY) == []
    assert await y.note(fleet_of("c"), 2 * DAY) == []
    await trio.follow()
    assert await x.note(old, 3 * DAY) == ["b"]
    for register in trio.registers.values():
        assert register.left("b")
        assert register.names_of("c", Fleet()) == [("b", None, 2 * DAY), ("c", DAY, None)]


async def test_a_node_that_retired_leaves_a_member_that_only_stored_it_once(trio: Trio) -> None:
    """As one that took its group over before it knew."""
    await trio.registers["x"].retire("a", "ann", "", DAY)
    y = trio.registers["y"]
    fleet = fleet_of("b", offline="a")
    assert await y.note(fleet, DAY) == []
    await y.follow()
    assert await y.note(fleet, DAY) == ["a"]
    back = fleet_of("a")
    assert await y.note(back, DAY) == [], "it sends again: people are told"


async def test_of_two_who_give_one_name_or_rename_one_node_the_first_is_heard(trio: Trio) -> None:
    fleet = fleet_of("a", "b")
    x, y = trio.registers["x"], trio.registers["y"]
    done = await asyncio.gather(
        x.rename("a", "c", fleet, "ann", "", DAY), y.rename("b", "c", fleet, "bob", "", DAY), return_exceptions=True
    )
    assert [type(each) for each in done] == [type(None), NodeError]
    done = await asyncio.gather(
        x.rename("b", "d", fleet, "ann", "", DAY), y.rename("b", "e", fleet, "bob", "", DAY), return_exceptions=True
    )
    assert [type(each) for each in done] == [type(None), NodeError]
    await trio.follow()
    for records in trio.records():
        assert records["c"].formerly[-1].name == "a"
        assert {name for name, each in records.items() if each.formerly} == {"c", "d"}


async def test_a_rename_of_which_half_was_written_is_none_and_can_be_made_again(
    trio: Trio, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The member died between the two names."""
    x = trio.registers["x"]
    cut_after(x, 1, monkeypatch)
    with pytest.raises(BusError, match="NATS does not answer"):
        await x.rename("a", "b", fleet_of("a"), "ann", "", DAY)
    y = trio.registers["y"]
    await y.follow()
    assert len(trio.servers.living(Bucket.NODES)) == 1
    assert len(y) == 0
    await y.rename("a", "b", fleet_of("a"), "bob", "", 2 * DAY)
    assert y.row("b", Fleet(), 0.0).formerly == ["a"]
    cut_after(x, 1, monkeypatch)
    with pytest.raises(BusError):
        await x.rename("c", "d", fleet_of("c"), "ann", "", 3 * DAY)
    await y.rename("c", "e", fleet_of("c"), "bob", "", 4 * DAY)
    await trio.registers["z"].follow()
    assert {name for name, each in trio.records()[2].items() if each.formerly} == {"b", "e"}


async def test_what_nats_lost_is_written_again_and_what_is_newer_wins(trio: Trio) -> None:
    """A member that was away has the older word on its disk."""
    await trio.registers["x"].expect("a", "ann", "", DAY)
    await trio.follow()
    trio.servers.cut_off.add("z")
    await trio.registers["x"].retire("a", "ann", "", 2 * DAY)
    trio.servers.wipe()
    trio.servers.cut_off.clear()
    for name in "zyx":
        await trio.registers[name].follow()
    await trio.follow()
    assert all(records["a"].retired for records in trio.records())
    assert len(trio.servers.living(Bucket.NODES)) == 1


async def test_without_nats_nothing_is_declared_and_what_was_stays(trio: Trio) -> None:
    x = trio.registers["x"]
    await x.expect("a", "ann", "", DAY)
    trio.servers.down = True
    with pytest.raises(BusError, match="kilowatch cluster"):
        await x.retire("a", "ann", "", 2 * DAY)
    with pytest.raises(BusError):
        await x.follow()
    assert x.row("a", Fleet(), 0.0).expected
    trio.servers.down = False
    await trio.follow()
    assert all(records["a"].expected for records in trio.records())


async def test_a_clock_that_is_behind_does_not_make_a_declaration_the_older_one(trio: Trio) -> None:
    await trio.registers["x"].expect("a", "ann", "", 2 * DAY)
    await trio.registers["y"].retire("a", "bob", "", DAY)
    await trio.follow()
    assert all(records["a"].retired for records in trio.records())


def cut_after(register: NodeRegister, writes: int, patch: pytest.MonkeyPatch | None = None) -> Callable[[], None]:
    """Let a member reach NATS for some writes more; return what mends it."""
    shared = register.shared
    assert isinstance(shared, ClusterRegister)
    coordination, left = shared._coordination, [writes]
    write = coordination.compare_and_set

    async def counted(bucket: Bucket, key: str, value: bytes, revision: int) -> int | None:
        if not left[0]:
            raise CoordinationError("no server can be reached")
        left[0] -= 1
        return await write(bucket, key, value, revision)

    def mend() -> None:
        coordination.compare_and_set = write  # type: ignore[method-assign]

    if patch is not None:
        patch.setattr(coordination, "compare_and_set", counted)
    else:
        coordination.compare_and_set = counted  # type: ignore[method-assign]
    return mend


class AnyOrder(RuleBasedStateMachine):
    """Declarations at any member, with cuts, deaths and losses between: what was acknowledged last holds at all."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.loop = asyncio.new_event_loop()
        self.trio = Trio(Path(self.folder.name))
        self.now = DAY
        self.wanted: dict[str, Callable[[NodeRecord], bool]] = {}
        """By name, a check of the record that was acknowledged last."""
        self.fleet = fleet_of(*NAMES)

    def attempt(
        self,
        member: str,
        names: str,
        change: Callable[[NodeRegister], Awaitable[None]],
        **wanted: Callable[[NodeRecord], bool],
    ) -> None:
        """Declare something at a member."""
        self.now += SECOND
        try:
            self.loop.run_until_complete(change(self.trio.registers[member]))
        except BusError:  # what of it was written is not known
            for name in names:
                self.wanted.pop(name, None)
        except NodeError:
            pass
        else:
            self.wanted |= wanted

    @rule(member=st.sampled_from("xyz"), name=st.sampled_from(NAMES))
    def expect(self, member: str, name: str) -> None:
        self.attempt(
            member,
            name,
            lambda its: its.expect(name, "", "", self.now),
            **{name: lambda record: record.expected and not record.retired},
        )

    @rule(member=st.sampled_from("xyz"), name=st.sampled_from(NAMES))
    def retire(self, member: str, name: str) -> None:
        self.attempt(
            member,
            name,
            lambda its: its.retire(name, "", "", self.now),
            **{name: lambda record: record.retired and not record.expected},
        )

    @rule(member=st.sampled_from("xyz"), old=st.sampled_from(NAMES), new=st.sampled_from(NAMES))
    def rename(self, member: str, old: str, new: str) -> None:
        self.attempt(
            member,
            old + new,
            lambda its: its.rename(old, new, self.fleet, "", "", self.now, heard=True),
            **{old: lambda record: record.renamed_to == new, new: lambda record: record.formerly[-1].name == old},
        )

    @rule(
        member=st.sampled_from("xyz"), writes=st.integers(0, 2), old=st.sampled_from(NAMES), new=st.sampled_from(NAMES)
    )
    def rename_in_part(self, member: str, writes: int, old: str, new: str) -> None:
        mend = cut_after(self.trio.registers[member], writes)
        self.rename(member, old, new)
        mend()

    @rule(member=st.sampled_from("xyz"))
    def cut(self, member: str) -> None:
        self.trio.servers.cut_off = {member}

    @rule()
    def mend(self) -> None:
        self.trio.servers.cut_off = set()

    @rule(member=st.sampled_from("xyz"))
    def restart(self, member: str) -> None:
        self.trio.registers[member] = self.trio.start(member)

    @rule()
    def lose(self) -> None:
        """Lose all that NATS has: every member that lives has a copy."""
        self.trio.servers.wipe()

    @rule(member=st.sampled_from("xyz"))
    def follow(self, member: str) -> None:
        if member not in self.trio.servers.cut_off:
            self.loop.run_until_complete(self.trio.registers[member].follow())

    def teardown(self) -> None:
        self.trio.servers.cut_off = set()
        try:
            self.loop.run_until_complete(self.trio.follow())
        finally:
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()
            self.folder.cleanup()
        first, *others = self.trio.records()
        assert all(each == first for each in others)
        for name, holds in self.wanted.items():
            assert holds(first[name]), (name, first[name])


AnyOrder.TestCase.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
TestAnyOrder = AnyOrder.TestCase


# -- On real processes ----------------------------------------------------------------------------


@pytest.fixture
def loop(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loop]:
    folder = tmp_path_factory.mktemp("register")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    monkeypatch.setenv("STATE_DIRECTORY", "")
    loop = Loop(folder)
    loop.nats.start()
    loop.start(*loop.members, *loop.nodes)
    yield loop
    loop.end_all()


@pytest.mark.systems
@pytest.mark.timeout(600)
def test_a_take_over_neither_forgets_a_rename_nor_brings_a_retired_node_back(loop: Loop) -> None:
    """The member that takes over has the node in its store, of a time when it held it."""

    def nodes(member: str) -> set[str]:
        return {each["node"] for each in (loop.page(member, "/api/v1/nodes") or {}).get("nodes", ())}

    def row(member: str, name: str) -> dict[str, object]:
        page = loop.page(member, "/api/v1/register") or {"nodes": []}
        return next((each for each in page["nodes"] if each["node"] == name), {})

    def declare(member: str, *words: str) -> None:
        at = ("--http", f"127.0.0.1:{loop.http[member]}")
        ran = subprocess.run(
            [sys.executable, "-m", "kilowatch", "nodes", *words, *at], capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr

    def told(member: str) -> bool:
        retired, renamed = row(member, gone), row(member, "renamed")
        names = (retired.get("state"), row(member, old).get("renamed_to"), renamed.get("formerly"))
        listed = nodes(member)
        return names == ("retired", "renamed", [old]) and bool(listed) and gone not in listed

    gone, old = loop.nodes[:2]
    loop.until(
        "all nodes",
        lambda: loop.held_by(*loop.members) and all(nodes(name) == set(loop.nodes) for name in loop.members),
    )
    first = loop.holder(gone)
    loop.kill(first)
    rest = [name for name in loop.members if name != first]
    loop.until("its groups at the others", lambda: loop.held_by(*rest))
    heir = loop.holder(gone)
    loop.until(
        "its node stored by the heir",
        lambda: (
            loop.gpu(gone) and loop.page(heir, f"/api/v1/history?gpu={loop.gpu(gone)}&metric=gpu_power_watts").get("at")
        ),
    )
    loop.start(first)
    loop.until("it has its share again", lambda: loop.held_by(*loop.members))
    loop.end(gone)
    asked = next(name for name in loop.members if name not in {loop.holder(gone), heir})
    loop.until(
        "it is offline",
        lambda: (
            {"offline"}
            == {each["state"] for each in loop.page(asked, "/api/v1/nodes")["nodes"] if each["node"] == gone}
        ),
    )
    declare(asked, "retire", gone)
    declare(asked, "rename", old, "renamed")
    for name in loop.members:
        loop.until("what was declared", partial(told, name))
    loop.kill(loop.holder(gone))
    left = [name for name in loop.members if name in loop.processes]
    loop.until("its groups at the others", lambda: loop.held_by(*left))
    for name in left:
        loop.until("what was declared, also of who died", partial(told, name))
