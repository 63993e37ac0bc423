"""Sick GPUs and sick drivers, seen from the bus: the real collector, the real nvidia-ml-py, a real
broker; only the driver is scripted. What is told here is told to an aggregator too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from kilowatch.__main__ import main
from telemetry.gap import Gap
from telemetry.wire.frame import Frame
from telemetry.wire.inventory import Command, CommandKind
from telemetry.wire.schema import NODE_FAST, SCHEMA
from tests.brokers import Embedded, Mosquitto
from tests.collector.bus import NODE
from tests.endtoend.node import INTERVAL, Node, aggregating, collecting, once, rows, runs
from tests.fake_nvml import FakeDriver

GPUS = range(8)
LIBRARY_MISMATCH = 18
NOT_LOADED = 9


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeDriver]:
    """Eight H100 with two links each."""
    with FakeDriver(tmp_path, gpus=len(GPUS), links=2) as driver:
        yield driver


async def test_one_hung_gpu_costs_the_other_seven_not_one_tick(
    mosquitto: Mosquitto, tmp_path: Path, fake: FakeDriver
) -> None:
    async with collecting(mosquitto, tmp_path, fake) as node:
        await registered(node, fake)
        first = len(node.live)
        fake.set(3, state="hang")
        await node.until("the hang", lambda: node.events("gpu_hung"))
        await assert_absent(node, {3: Gap.TIMED_OUT}, 60)
        assert fake.hanging == 1
        fake.set(3, state="ok")
        await node.until("the answer", lambda: node.events("gpu_answers"))
        await node.until("numbers", lambda: not gaps(node, node.live[-1]))
        frames = node.live[first:]
        for frame in frames:  # the tick of the hang itself too, and that of its end
            assert set(without_late(gaps(node, frame))) <= {3}
        assert_no_tick_is_missing(frames)
        assert node.kinds() == ["gpu_hung", "gpu_answers"]
        assert {event.gpu for event in node.events("gpu_hung", "gpu_answers")} == {fake.uuid(3)}
        assert all(gpu.present for gpu in node.inventory.gpus)
        assert len(node.see_probes()) == 1  # no other process was needed


async def test_lost_gpus_are_gaps_and_events_until_the_driver_is_restarted(
    embedded_broker: Embedded, tmp_path: Path, fake: FakeDriver
) -> None:
    """One off the bus, one that must be reset; on the broker that `kilowatch run` starts."""
    async with collecting(embedded_broker, tmp_path, fake) as node:
        await registered(node, fake)
        fake.set(2, state="lost")
        fake.set(5, state="reset_required")
        await node.until("both losses", lambda: len(node.events("gpu_lost")) == 2)
        await assert_absent(node, {2: Gap.DEVICE_LOST, 5: Gap.DEVICE_LOST}, 10)
        told = {event.gpu: event for event in node.events("gpu_lost")}
        assert set(told) == {fake.uuid(2), fake.uuid(5)}
        assert {event.pci for event in told.values()} == {fake.pci(2), fake.pci(5)}
        assert "reset" in told[fake.uuid(5)].message
        assert [gpu.index for gpu in node.inventory.gpus if not gpu.present] == [2, 5]
        fake.driver(init=NOT_LOADED, everything=NOT_LOADED)
        await node.until("driver_down", lambda: node.events("driver_down"))
        fake.set(2, state="ok")
        fake.set(5, state="ok")
        fake.driver(init=0, everything=0)
        await node.until("both back", lambda: len(node.events("gpu_back")) == 2)
        await node.until("numbers", lambda: not gaps(node, node.live[-1]))
        await node.until("presence", lambda: all(gpu.present for gpu in node.inventory.gpus))
        assert_numbered(node)


async def test_a_driver_that_goes_away_and_comes_back_is_two_events_and_no_hole(
    mosquitto: Mosquitto, tmp_path: Path, fake: FakeDriver
) -> None:
    """The module is unloaded; a library that does not fit it is installed; it fits again."""
    async with collecting(mosquitto, tmp_path, fake) as node:
        await registered(node, fake)
        fake.driver(init=NOT_LOADED, everything=NOT_LOADED)
        await node.until("missing", lambda: node.inventory.driver_state == "missing")
        assert "modprobe" in node.inventory.driver_message
        await assert_absent(node, dict.fromkeys(GPUS, Gap.ERROR), 5)
        fake.driver(init=LIBRARY_MISMATCH)
        await node.until("mismatch", lambda: node.inventory.driver_state == "mismatched")
        assert "reboot" in node.inventory.driver_message
        fake.driver(init=0, everything=0, version="590.10")
        await node.until("the driver", lambda: node.inventory.driver_state == "up")
        await node.until("numbers", lambda: not gaps(node, node.live[-1]))
        await node.until("all events", lambda: "driver_reloaded" in node.kinds())
        assert node.kinds() == ["driver_down", "driver_up", "driver_reloaded"]
        assert node.inventory.driver_version == "590.10"
        assert [gpu.uuid for gpu in node.inventory.gpus] == [fake.uuid(gpu) for gpu in GPUS]
        assert_numbered(node)
        assert_no_tick_is_missing(node.live)


async def test_a_library_that_does_not_fit_its_module_at_the_start_is_a_state(
    mosquitto: Mosquitto, tmp_path: Path, fake: FakeDriver
) -> None:
    fake.driver(init=LIBRARY_MISMATCH)
    async with collecting(mosquitto, tmp_path, fake) as node:
        await node.until("the state", lambda: node.inventory.driver_state == "mismatched")
        assert "reboot" in node.inventory.driver_message
        await node.more(5)
        assert node.kinds() == ["driver_down"]
        assert node.inventory.gpus == ()


async def test_no_driver_at_all_is_a_state(mosquitto: Mosquitto, tmp_path: Path, fake: FakeDriver) -> None:
    (tmp_path / "empty").mkdir()
    empty = str(tmp_path / "empty")
    async with collecting(mosquitto, tmp_path, fake, LD_LIBRARY_PATH=empty) as node:
        await node.until("the state", lambda: node.inventory.driver_state == "missing")
        assert "install the NVIDIA driver" in node.inventory.driver_message
        await node.more(5)
        assert await node.terminate() == 0


async def test_sigterm_in_the_middle_of_a_hang_ends_the_collector_and_kills_nobody(
    mosquitto: Mosquitto, tmp_path: Path, fake: FakeDriver
) -> None:
    async with collecting(mosquitto, tmp_path, fake) as node:
        await registered(node, fake)
        (probe,) = node.see_probes()
        for gpu in GPUS:
            fake.set(gpu, state="hang")
        await node.until("a driver that hangs", lambda: node.inventory.driver_state == "hung")
        assert await node.terminate() == 0  # although no call returns yet
        await node.until_heard("its goodbye", lambda: node.reader.statuses[-1].reason == "shutdown")
        assert runs(probe)  # left alone in its call
        assert fake.hanging > 0
        shutdowns = fake.calls().get("nvmlShutdown", 0)
        fake.close()
        await node.until_heard("the probe's end", lambda: not runs(probe))
        # One that was killed could not have let go of the driver.
        assert fake.calls()["nvmlShutdown"] == shutdowns + 1


async def test_the_driver_is_released_and_resumed_by_commands_on_the_bus(
    mosquitto: Mosquitto, tmp_path: Path, fake: FakeDriver
) -> None:
    """In the middle of a hang: a call that does not return holds the driver, but not the frames."""
    async with collecting(mosquitto, tmp_path, fake) as node:
        await registered(node, fake)
        (probe,) = node.see_probes()
        fake.set(4, state="hang")
        await node.until("the hang", lambda: node.events("gpu_hung"))
        await node.reader.command(Command(kind=CommandKind.RELEASE))
        await node.until("the release", lambda: node.inventory.driver_state == "released")
        assert "holds the driver" in node.inventory.driver_message
        await assert_absent(node, dict.fromkeys(GPUS, Gap.NOT_READ), 5)
        assert runs(probe)
        fake.set(4, state="ok")
        await node.until("its end", lambda: "holds" not in node.inventory.driver_message)
        assert node.inventory.driver_state == "released"
        assert not runs(probe)
        assert fake.calls()["nvmlShutdown"] == fake.calls()["nvmlInitWithFlags"] == 1
        command = ("command", NODE, "resume", "--broker", f"{mosquitto.host}:{mosquitto.port}")
        done = await asyncio.to_thread(CliRunner().invoke, main, command)
        assert (done.exit_code, done.output) == (0, f"{NODE}: the driver is up\n")
        await node.until("the driver", lambda: node.inventory.driver_state == "up")
        await node.until("numbers", lambda: not gaps(node, node.live[-1]))
        await node.until("the answer", lambda: node.events("gpu_answers"))
        assert node.kinds() == ["gpu_hung", "driver_down", "driver_up", "gpu_answers"]
        assert_no_tick_is_missing(node.live)


async def test_a_gpu_lost_while_no_collector_ran_is_missed(
    mosquitto: Mosquitto, tmp_path: Path, fake: FakeDriver
) -> None:
    await remember_all(mosquitto, tmp_path, fake)
    fake.driver(gpus=7)
    fake.set(3, state="lost")
    async with collecting(mosquitto, tmp_path, fake) as node:
        await node.until("both losses", lambda: len(node.events("gpu_lost")) == 2)
        assert {event.gpu for event in node.events("gpu_lost")} == {fake.uuid(3), fake.uuid(7)}
        await assert_absent(node, {3: Gap.DEVICE_LOST, 7: Gap.DEVICE_LOST}, 3)
        assert [gpu.uuid for gpu in node.inventory.gpus] == [fake.uuid(gpu) for gpu in GPUS]
        assert [gpu.index for gpu in node.inventory.gpus if not gpu.present] == [3, 7]
        assert len(node.inventory.links) == 16


async def test_one_reading_as_json_has_gaps_for_a_hung_gpu_and_a_lost_one(
    mosquitto: Mosquitto, tmp_path: Path, fake: FakeDriver
) -> None:
    stored = await remember_all(mosquitto, tmp_path, fake)
    before = stored.read_bytes()
    fake.set(3, state="hang")
    fake.set(5, state="lost")
    document = await asyncio.to_thread(once, tmp_path, fake)
    for gpu in document["gpus"]:
        expected = {3: {"timed_out"}, 5: {"device_lost"}}.get(gpu["index"], {"not_supported"})
        assert set(gpu["gaps"].values()) == expected
        assert bool(gpu["readings"]) == (gpu["index"] not in {3, 5})
    assert [gpu["uuid"] for gpu in document["gpus"]] == [fake.uuid(gpu) for gpu in GPUS]
    assert document["inventory"]["driver_state"] == "up"
    assert {event["kind"] for event in document["events"]} >= {"gpu_lost"}
    assert stored.read_bytes() == before  # the folder is the running collector's


async def test_an_xid_is_one_event_and_an_alert(mosquitto: Mosquitto, tmp_path: Path, fake: FakeDriver) -> None:
    """NVML and the kernel log tell of the same fault; a person is notified once."""
    async with aggregating(mosquitto, tmp_path) as aggregator, collecting(mosquitto, tmp_path, fake) as node:
        await registered(node, fake)
        fake.xid(gpu=1, xid=79)
        with (tmp_path / "kernel.log").open("a") as log:
            log.write(f"6,1,2,-;NVRM: Xid (PCI:{fake.pci(1)[:-2]}): 79, GPU has fallen off the bus.\n")
        await node.until("the XID", lambda: node.events("xid"))
        await node.until("the alert", lambda: aggregator.alerts(fake.uuid(1)))
        alerts = aggregator.alerts(fake.uuid(1))
        assert [(each["rule"], each["node"], each["severity"]) for each in alerts] == [("gpu_lost", "n1", "page")]
        assert fake.pci(1) in alerts[0]["description"]
        (xid,) = node.events("xid")
        assert (xid.gpu, xid.pci, xid.data["xid"]) == (fake.uuid(1), fake.pci(1), 79)
        assert aggregator.alerts(fake.uuid(0)) == []
        assert node.kinds() == ["xid"]


async def remember_all(mosquitto: Mosquitto, folder: Path, fake: FakeDriver) -> Path:
    """Have a collector run until it has written down all GPUs; return where."""
    stored = folder / "state" / "gpus.json"
    async with collecting(mosquitto, folder, fake) as node:
        await node.until("the list", lambda: stored.exists() and fake.uuid(7) in stored.read_text())
    return stored


async def assert_absent(node: Node, expected: dict[int, Gap], frames: int) -> None:
    """These GPUs are absent, for these reasons, soon; and then in so many frames in a row, in which others may be
    late at most."""
    await node.until(f"{expected}", lambda: gaps(node, node.live[-1]) == expected)
    for frame in await node.more(frames):
        found = gaps(node, frame)
        known = {gpu: gap for gpu, gap in expected.items() if found.get(gpu) is not Gap.LATE}
        assert without_late(found) == known


def gaps(node: Node, frame: Frame) -> dict[int, Gap]:
    """Return the GPUs without power readings in a frame, and why; a busy machine's first frames
    have no rows yet."""
    found = {gpu: node.gap(frame, gpu) if gpu < len(rows(frame)) else Gap.NOT_READ for gpu in GPUS}
    return {gpu: reason for gpu, reason in found.items() if reason is not None}


def without_late(found: dict[int, Gap]) -> dict[int, Gap]:
    """Return the gaps that a busy machine does not make."""
    return {gpu: reason for gpu, reason in found.items() if reason is not Gap.LATE}


async def registered(node: Node, fake: FakeDriver) -> None:
    """Wait until each GPU has a row, and has been asked for its events: only what comes later is delivered, and
    the thread that asks would hang with the GPU."""
    await node.until("registration", lambda: fake.calls().get("nvmlDeviceRegisterEvents", 0) >= len(GPUS))
    await node.until("rows", lambda: len(rows(node.live[-1])) == len(GPUS))


def assert_numbered(node: Node) -> None:
    """Frames came one by one: every number once, in order, none left out."""
    numbers = [frame.seq for frame in node.frames]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert len({frame.session for frame in node.frames}) == 1


def skips(frame: Frame) -> float:
    """Return how many ticks the collector has skipped until a frame."""
    (values,) = rows(frame, NODE_FAST)
    return values[SCHEMA.blocks[NODE_FAST].names.index("node_ticks_skipped_total")]


def assert_no_tick_is_missing(frames: list[Frame]) -> None:
    """There are as many frames as ticks, but for those that a busy machine had the collector skip."""
    numbers = [frame.seq for frame in frames]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    ticks = (frames[-1].sampled_at - frames[0].sampled_at) / 1e9 / INTERVAL
    skipped = skips(frames[-1]) - skips(frames[0])
    assert abs(len(frames) - 1 + skipped - ticks) < 1
