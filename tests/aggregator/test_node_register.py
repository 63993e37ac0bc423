"""The register of nodes: expected, retired and renamed ones, and what becomes of their history."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import msgspec
import pytest

from aggregator.http.history import spans_between
from aggregator.impairments import Impairments
from aggregator.register.node_register import STOPPED_SECONDS, NodeRegister, drift
from aggregator.service import Aggregator
from api.node_register import RegisterReply, RegisterState, ReleaseDrift
from collector.host.machine import facts
from kilowatch.text.nodes import node_lines
from telemetry.errors import ConfigError, NodeError
from telemetry.fleet import Fleet
from telemetry.runtime.release import release
from telemetry.wire import inventory as messages
from telemetry.wire.topics import Topic, topic
from tests.aggregator.fake_view import inventory
from tests.aggregator.node import ScriptedNode, now
from tests.aggregator.node import inventory as scripted
from tests.aggregator.test_forget import end, retained
from tests.aggregator.test_service import config, running
from tests.brokers import Broker, Mosquitto, plain_client
from tests.kit.waiting import until

SECOND = 10**9
DAY = 86_400 * SECOND


def fleet_of(*names: str, machine: str = "") -> Fleet:
    """Return a fleet of nodes that are online at second 1000."""
    fleet = Fleet()
    for name in names:
        found = msgspec.structs.replace(inventory(name), host={"machine": machine})
        node = fleet.place(found)
        node.online, node.seen = True, 1000.0
    return fleet


async def test_what_was_declared_outlives_a_restart_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "data" / "nodes.json"
    register = NodeRegister(path)
    register.load()
    await register.expect("a", "ann", "new rack", 5 * DAY)
    await register.retire("b", "bob", "", 6 * DAY)
    await register.rename("a", "c", Fleet(), "ann", "", 7 * DAY)
    assert path.stat().st_mode & 0o777 == 0o600
    again = NodeRegister(path)
    again.load()
    rows = {row.node: row for row in again.reply(Fleet(), 0.0, 0).nodes}
    assert {name: str(row.state) for name, row in rows.items()} == {"a": "renamed", "b": "retired", "c": "missing"}
    assert (rows["c"].expected, rows["c"].formerly, rows["a"].renamed_to) == (True, ["a"], "c")
    assert (rows["b"].by, rows["b"].since) == ("bob", 6 * DAY)


async def test_a_file_that_can_not_be_used_is_set_aside(tmp_path: Path) -> None:
    """A torn one, and a folder in its place; declarations can be made anew."""
    path = tmp_path / "nodes.json"
    path.write_bytes(b'{"nodes": [{"name":')
    register = NodeRegister(path)
    register.load()
    assert (tmp_path / "nodes.json.damaged-1").read_bytes() == b'{"nodes": [{"name":'
    await register.expect("a", "ann", "", DAY)
    again = NodeRegister(path)
    again.load()
    assert len(again) == 1
    path.unlink()
    path.mkdir()
    again.load()
    assert (tmp_path / "nodes.json.damaged-2").is_dir()
    await again.expect("a", "ann", "", DAY)
    assert path.is_file()


async def test_a_file_of_a_newer_release_is_kept_whole(tmp_path: Path) -> None:
    newer = b'{"version": 2, "nodes": {"a": "expected"}}'
    (tmp_path / "nodes.json").write_bytes(newer)
    NodeRegister(tmp_path / "nodes.json").load()
    assert (tmp_path / "nodes.json.newer-1").read_bytes() == newer


async def test_what_can_not_be_on_disk_is_not_in_force(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file in the place of the folder")
    register = NodeRegister(tmp_path / "data" / "nodes.json")
    with pytest.raises(NodeError, match="can't be written"):
        await register.expect("a", "ann", "", DAY)
    assert len(register) == 0


async def test_names_that_can_not_be_given_are_refused_with_the_reason() -> None:
    register, fleet = NodeRegister(), fleet_of("a", "b")
    await register.rename("a", "new", fleet, "", "", DAY)
    await register.expect("gone", "", "", DAY)
    await register.rename("gone", "elsewhere", fleet, "", "", DAY)
    for old, new, problem in (
        ("b", "b", "has that name already"),
        ("nobody", "x", "was ever heard"),
        ("a", "x", "was renamed to new"),
        ("b", "a", "the name of another node"),
        ("b", "new", "the name of another node"),
        ("b", "gone", "gone is being renamed to elsewhere, which was not heard yet"),
    ):
        with pytest.raises(NodeError, match=problem):
            await register.rename(old, new, fleet, "", "", DAY)
    with pytest.raises(ConfigError, match="can't be part of an MQTT topic"):
        await register.rename("b", "no/name", fleet, "", "", DAY)
    with pytest.raises(ConfigError, match="can't be part of an MQTT topic"):
        await register.expect("no/name", "", "", DAY)


async def test_only_what_is_expected_is_missed_and_only_what_left_returns() -> None:
    register, fleet = NodeRegister(), fleet_of("there", "free", "stopped", "left")
    for name in ("there", "never", "stopped"):
        await register.expect(name, "ann", "", DAY)
    await register.retire("left", "bob", "", 2 * DAY)
    fleet.nodes["stopped"].online, fleet.nodes["stopped"].ended = False, True

    def problems(now: float) -> dict[str, set[str]]:
        return {rule: set(parts) for rule, parts in register.problems(fleet, now, 0.0).items()}

    assert problems(1001.0) == {"node_missing": {"node/never"}, "node_returned": {"node/left"}}
    late = 1000.0 + STOPPED_SECONDS
    assert problems(late)["node_missing"] == {"node/never", "node/stopped"}
    reasons = register.problems(fleet, late, 0.0)
    assert reasons["node_missing"]["node/stopped"] == "its collector was stopped 60 min ago"
    assert reasons["node_returned"]["node/left"] == "retired on 1970-01-03 by bob, and sends again"
    await register.expect("left", "ann", "", 3 * DAY)
    await register.retire("never", "ann", "", 3 * DAY)
    assert problems(1001.0) == {"node_missing": set(), "node_returned": set()}


async def test_history_is_joined_by_time_unless_it_is_another_machine() -> None:
    register, fleet = NodeRegister(), fleet_of("a", machine="m1")
    await register.rename("a", "b", fleet, "", "", DAY)
    await register.note(fleet, DAY)
    assert register.names_of("b", fleet) == [("a", None, None)]
    assert register.row("a", fleet, 1000.0).state is RegisterState.ONLINE
    assert not register.problems(fleet, 1000.0, 0.0)["node_returned"]
    fleet.nodes["a"].online = False
    heard = fleet.place(msgspec.structs.replace(inventory("b"), host={"machine": "m1"}))
    heard.online, heard.seen = True, 1100.0
    assert await register.note(fleet, 2 * DAY) == ["a"]
    assert register.names_of("b", fleet) == [("a", None, 2 * DAY), ("b", DAY, None)]
    assert register.names_then(DAY, fleet) == {"b": "a"}
    assert register.names_then(3 * DAY, fleet) == {}
    fleet.nodes["a"].online = True
    assert set(register.problems(fleet, 1100.0, 0.0)["node_returned"]) == {"node/a"}
    fleet.place(msgspec.structs.replace(inventory("b"), host={"machine": "m2"}))
    assert register.names_of("b", fleet) == [("b", None, None)]
    assert "b is another machine" in register.problems(fleet, 1100.0, 0.0)["node_missing"]["node/b"]
    row = register.row("b", fleet, 1100.0)
    assert row.conflict == "b is another machine than a was: m2, not m1"


async def test_what_another_machine_measured_under_the_name_before_is_not_this_nodes() -> None:
    """The old b is retired, and its name given to a."""
    register, fleet = NodeRegister(), fleet_of("a", machine="m1")
    await register.retire("b", "ann", "dead board", DAY)
    await register.rename("a", "b", fleet, "ann", "", 2 * DAY)
    fleet.nodes["a"].online = False
    heard = fleet.place(msgspec.structs.replace(inventory("b"), host={"machine": "m1"}))
    heard.online, heard.seen = True, 1100.0
    await register.note(fleet, 3 * DAY)
    spans = register.names_of("b", fleet)
    assert spans == [("a", None, 3 * DAY), ("b", 2 * DAY, None)]
    assert spans_between(spans, 0, DAY) == [("a", 0, DAY)]
    assert spans_between(spans, 0, 4 * DAY) == [("a", 0, 3 * DAY), ("b", 2 * DAY, 4 * DAY)]
    assert spans_between(spans, 3 * DAY, 4 * DAY) == [("b", 3 * DAY, 4 * DAY)]


async def test_another_machine_under_the_new_name_does_not_end_a_rename() -> None:
    register, fleet = NodeRegister(), fleet_of("a", machine="m1")
    await register.rename("a", "b", fleet, "", "", DAY)
    fleet.nodes["a"].online = False
    other = fleet.place(msgspec.structs.replace(inventory("b"), host={"machine": "m2"}))
    other.online, other.seen = True, 1100.0
    assert await register.note(fleet, 2 * DAY) == []
    assert register.row("b", fleet, 1100.0).formerly == ["a"]
    assert set(register.problems(fleet, 1100.0, 0.0)["node_missing"]) == {"node/b"}


async def test_changes_at_one_time_are_all_kept(tmp_path: Path) -> None:
    """Each is on disk before the next one reads what there is."""
    register, fleet = NodeRegister(tmp_path / "nodes.json"), fleet_of("a")
    await asyncio.gather(
        register.rename("a", "b", fleet, "ann", "", DAY),
        register.expect("a", "bob", "stays", 2 * DAY),
        register.retire("c", "bob", "", 2 * DAY),
    )
    rows = {row.node: row for row in register.reply(fleet, 0.0, 0).nodes}
    assert set(rows) == {"a", "b", "c"}
    assert (rows["a"].expected, rows["a"].renamed_to, rows["b"].formerly) == (True, "", ["a"])


@pytest.mark.parametrize(
    ("its", "ours", "expected"),
    [
        ("2026.1", "2026.2", ReleaseDrift.OLDER),
        ("2026.10", "2026.9", ReleaseDrift.NEWER),
        ("2026.1", "2026.1", ReleaseDrift.SAME),
        ("", "2026.1", ReleaseDrift.UNKNOWN),
        ("unknown", "unknown", ReleaseDrift.SAME),
        ("2026.1", "2026.1.dev3", ReleaseDrift.UNKNOWN),
        ("2026.1+g12345678", "2026.1+g12345678", ReleaseDrift.SAME),
        ("2026.1+g12345678", "2026.1+g87654321", ReleaseDrift.OTHER),
        ("2026.1+g12345678", "2026.1", ReleaseDrift.UNKNOWN),
        ("2026.1+g12345678", "2026.2+g12345678", ReleaseDrift.OLDER),
    ],
)
def test_releases_are_compared_as_numbers(its: str, ours: str, expected: ReleaseDrift) -> None:
    assert drift(its, ours) is expected


async def test_the_list_begins_with_what_needs_a_person_and_marks_drift() -> None:
    register, fleet = NodeRegister(), fleet_of("a", "b")
    old = msgspec.structs.replace(inventory("b"), kilowatch="1.0")
    fleet.place(old)
    await register.expect("ghost", "ann", "rack 9", DAY)
    lines = node_lines(register.reply(fleet, 1001.0, DAY))
    assert lines[1].split()[:4] == ["ghost", "missing", "-", "yes"]
    assert lines[1].endswith("by ann; rack 9")
    assert any("1.0 (older)" in line for line in lines)
    assert f"the aggregator is {release()}" in lines[-1]
    assert node_lines(RegisterReply(0, "1", [])) == ["no node was heard or expected yet"]


def test_a_machine_tells_an_identity_and_not_its_machine_id(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    assert "machine" not in facts(tmp_path)
    for text, known in (("uninitialized", False), ("4c4c4544003332108053b4c04f4e3332", True)):
        (tmp_path / "etc/machine-id").write_text(f"{text}\n")
        found = facts(tmp_path).get("machine", "")
        assert bool(found) is known
        assert text not in found


# -- On a real broker, by the commands ------------------------------------------------------------


@pytest.fixture
def broker(mosquitto: Broker) -> Broker:
    """Retained messages are cleared on the broker that clusters use."""
    return mosquitto


async def nodes(*arguments: str, state: Path) -> tuple[int, str]:
    """Run `kilowatch nodes`; return its exit code and all that it printed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "kilowatch",
        "nodes",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "XDG_STATE_HOME": str(state), "STATE_DIRECTORY": ""},
    )
    text, _ = await process.communicate()
    return process.returncode or 0, text.decode()


def impaired(of: Impairments) -> set[tuple[str, str]]:
    """Return rule and part of what is impaired."""
    return {(one.rule, one.part) for one in of.current() if one.rule.startswith("node_")}


@pytest.mark.systems
async def test_a_node_is_expected_renamed_and_retired_by_commands(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aggregator.service.UPKEEP_SECONDS", 0.05)
    state = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    monkeypatch.setenv("STATE_DIRECTORY", "")
    settings = msgspec.structs.replace(config(broker.config, tmp_path / "data"), listen="127.0.0.1:0")
    async with running(settings) as aggregator:
        await until(lambda: aggregator.http_address is not None)
        host, port = aggregator.http_address or ("", 0)
        at = ("--http", f"{host}:{port}")

        code, text = await nodes("expect", "old", *at, state=state)
        assert (code, text) == (0, "old is expected, and missing\n")
        await until(lambda: ("node_missing", "node/old") in impaired(aggregator.impairments))
        async with ScriptedNode(broker.config, "old") as node:
            for _ in range(3):
                await node.tick()
            await node.event(1)
            await until(lambda: aggregator.stats.frames_stored == 3)
            await until(lambda: impaired(aggregator.impairments) == set())
            code, text = await nodes("retire", "old", *at, state=state)
            assert code == 3
            assert "old is online" in text
        code, text = await nodes("rename", "old", "new", *at, "--why", "rack 7", state=state)
        assert code == 0, text
        assert "1. kilowatch pki node new" in text
        await end(broker, "old")
        await until(lambda: not aggregator.fleet.nodes["old"].online)

        await _renamed(aggregator, broker)

        code, text = await nodes("list", *at, state=state)
        assert code == 0, text
        assert "formerly old" in text
        assert "now new" in text

        code, text = await nodes("retire", "new", *at, state=state)
        assert code == 0, text
        assert set(aggregator.fleet.nodes) == set()
        assert await retained(broker, "new") == set()
        await until(lambda: impaired(aggregator.impairments) == set())
        async with ScriptedNode(broker.config, "new", session=7) as back:
            await back.tick()
            await until(lambda: ("node_returned", "node/new") in impaired(aggregator.impairments))
            row = aggregator.register.row("new", aggregator.fleet, aggregator.now())
            assert row.state is RegisterState.RETURNED


async def _renamed(aggregator: Aggregator, broker: Broker) -> None:
    """Start the node under its new name with the same GPUs, and look for its history."""
    async with ScriptedNode(broker.config, "new", session=2) as moved:
        moved.step, moved.begin = 7 * SECOND, aggregator.wall()
        found = msgspec.structs.replace(scripted("old", 2, 2), node="new")
        await moved.publish(Topic.INVENTORY, messages.encode(found), retain=True)
        for _ in range(3):
            await moved.tick()
        await until(lambda: set(aggregator.fleet.nodes) == {"new"})
        await until(lambda: aggregator.stats.frames_stored == 6)
        assert await retained(broker, "old") == set()
        assert aggregator.register.row("new", aggregator.fleet, aggregator.now()).expected
        series = await _history(aggregator, "node=new&metric=node_load_1m")
        assert [(at - now()) // SECOND for at in series["at"][:3]] == [0, 1, 2]
        assert [(at - moved.begin) // SECOND for at in series["at"][3:]] == [0, 7, 14]
        series = await _history(aggregator, "gpu=GPU-old-0&metric=gpu_power_watts")
        assert len(series["at"]) >= 5
        events = await _get(aggregator, "/api/v1/events?node=new&from=-1h")
        assert [one["event"]["node"] for one in events["events"]] == ["old"]
    async with plain_client(broker.config) as client:
        await client.publish(topic("default", "new", Topic.INVENTORY), b"", 1, retain=True)
    await end(broker, "new", session=2)
    await until(lambda: not aggregator.fleet.nodes["new"].online)


async def _history(aggregator: Aggregator, query: str) -> dict[str, list[int]]:
    start, end_ = now() / SECOND - 1, time.time() + 60
    found: dict[str, list[int]] = await _get(aggregator, f"/api/v1/history?{query}&from={start}&to={end_}&step=0s")
    return found


async def _get(aggregator: Aggregator, path: str) -> dict[str, list]:  # type: ignore[type-arg]
    import aiohttp

    host, port = aggregator.http_address or ("", 0)
    async with aiohttp.ClientSession() as http, http.get(f"http://{host}:{port}{path}") as answer:
        found: dict[str, list] = await answer.json()  # type: ignore[type-arg]
        assert answer.status == 200, found
        return found


async def test_a_new_name_in_the_settings_of_a_node_is_taken_over_with_its_history(
    mosquitto: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`kilowatch run`, then `[collector] node = "new"`, and `run` again: nothing is retained meanwhile."""
    monkeypatch.setattr("aggregator.service.UPKEEP_SECONDS", 0.05)
    monkeypatch.setattr("aggregator.ingest.router.RENAMED_SECONDS", 0.2)
    settings = config(mosquitto.config, tmp_path / "data")
    machine = msgspec.structs.replace(scripted("old", 2), host={"machine": "m1"})
    async with running(settings) as aggregator, ScriptedNode(mosquitto.config, "old", made_of=machine) as node:
        for _ in range(3):
            await node.tick()
        await until(lambda: aggregator.stats.frames_stored == 3)
    async with plain_client(mosquitto.config) as client:
        for kind in (Topic.STATUS, Topic.INVENTORY):
            await client.publish(topic("default", "old", kind), b"", 1, retain=True)
    for session in (2, 3):  # after another restart too
        async with (
            running(settings) as aggregator,
            ScriptedNode(mosquitto.config, "new", session=session, made_of=machine) as moved,
        ):
            moved.ring |= node.ring
            while not moved.made or set(aggregator.fleet.nodes) != {"new"}:
                await moved.tick()
                await moved.hello()
                await asyncio.sleep(0.05)
            ticks = moved.made[session]
            await until(lambda: aggregator.stats.frames_stored >= ticks)  # noqa: B023
            row = aggregator.register.row("new", aggregator.fleet, aggregator.now())
            assert (row.formerly, row.state) == (["old"], RegisterState.ONLINE)
            assert aggregator.stats.frames_stored == ticks, "what was stored under the old name is not again"
            assert [one for one in moved.commands if one.about == 1] == []
