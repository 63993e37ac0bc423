"""The electrical side of an aggregator: what it reads, what it remembers, what it takes while it runs."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from aggregator.electrical import service
from aggregator.electrical.bill import bill, bill_of
from aggregator.electrical.checkpoint import NAME
from aggregator.electrical.energy_sampler import machine_zone, zone_text
from aggregator.electrical.fleet_power import FleetPowerReader
from aggregator.electrical.month_files import MonthFiles, copy_of
from aggregator.electrical.service import ElectricalService
from aggregator.electrical.throughput import ThroughputSampler
from aggregator.meters.mqtt import MeterBus
from power.live.inputs import PowerInputs
from power.live.wall_power import WallPower, WallPowerModel
from power.report.load_profile import LoadProfile
from power.report.month_ledger import UNMAPPED, NodeIdle
from power.report.months import month_named
from telemetry.devices import Gpu
from telemetry.errors import ConfigError
from telemetry.fleet import Fleet
from telemetry.gap import DEVICE_LOST, NOT_SUPPORTED
from telemetry.metric import Table
from telemetry.wire.inventory import Inventory
from telemetry.wire.mqtt import BrokerConfig
from telemetry.wire.schema import SCHEMA
from tests.kit.waiting import until

START = 1_790_000_000_000_000_000
NAN = math.nan
SITE: dict[str, Any] = {
    "region": "US",
    "site": {"tariff": 0.2, "timezone": "UTC"},
    "circuits": {"office": {"breaker": 20, "nodes": ["rig"]}},
    "nodes": {"rig": {"gpus": "4x RTX 5090"}},
}


class Room:
    """A fleet of desktops whose readings a test sets, and a clock that it moves."""

    def __init__(self, *names: str, gpus: int = 4) -> None:
        self.fleet = Fleet()
        self.now = 1000.0
        for name in names:
            cards = tuple(
                Gpu(uuid=f"{name}-{n}", index=n, name="NVIDIA GeForce RTX 5090", power_limit_watts=575.0)
                for n in range(gpus)
            )
            self.fleet.place(Inventory(node=name, gpus=cards, host={"job": f"job of {name}"}))

    @property
    def wall(self) -> int:
        """In step with `now`, ns since 1970."""
        return START + round((self.now - 1000.0) * 1e9)

    def say(self, node: str, **values: float | list[float]) -> None:
        """Let a node's frame arrive: these readings, all others not supported."""
        place = self.fleet.nodes[node]
        for number, block in enumerate(SCHEMA.blocks):
            rows = place.rows[block.table]
            count = rows.stop - rows.start
            if block.table is Table.LINK or not count:
                continue
            table = np.full((count, len(block.names)), NOT_SUPPORTED)
            for column, name in enumerate(block.names):
                if name in values:
                    table[:, column] = values[name]
            split = len(block.gauges)
            self.fleet.store(number, rows, table[:, :split].astype(np.float32), table[:, split:], self.now)
        place.seen = self.now

    def read(self, *machines: str, listening_since: float = -np.inf) -> PowerInputs:
        """What the reader makes of it."""
        return FleetPowerReader(machines).read(self.fleet, self.now, listening_since)


def test_gpus_that_do_not_tell_are_counted_apart() -> None:
    """A lost GPU has the limit that it had; the sum is of those that speak."""
    room = Room("rig")
    room.say("rig", gpu_power_watts=[500.0, 510.0, DEVICE_LOST, NAN], gpu_power_limit_watts=[450.0, 450.0, DEVICE_LOST, 450.0], gpu_power_limit_min_watts=400.0)  # fmt: skip
    tick = room.read("rig")
    assert tick.gpu_watts.tolist() == [1010]
    assert tick.gpus_unread.tolist() == [2]
    assert tick.gpu_limit_watts.tolist() == [3 * 450 + 575]
    assert tick.unread_limit_watts.tolist() == [575 + 450]
    assert (tick.gpus.tolist(), tick.floor_watts.tolist()) == ([4], [400])
    assert tick.jobs == {"rig": "job of rig"}


def test_a_node_without_gpus_is_no_machine_with_unread_ones() -> None:
    """Its circuit counts what it measures itself, and its host otherwise."""
    room = Room("rig")
    room.fleet.place(Inventory(node="head", role="head", driver_state="none"))
    room.say("head", node_wall_power_watts=310.0)
    tick = room.read("head")
    assert (tick.gpus.tolist(), tick.gpus_unread.tolist()) == ([0], [0])
    assert (tick.gpu_limit_watts.tolist(), tick.wall_watts.tolist()) == ([0], [310])


def test_a_silent_node_tells_nothing_and_a_node_that_never_spoke_neither() -> None:
    """Its limits stay known, for it is not off; a name that no node has is a row of unknowns."""
    room = Room("rig", "new")
    room.say("rig", gpu_power_watts=500.0)
    room.now += 60
    tick = room.read("rig", "new", "nobody")
    assert np.isnan(tick.gpu_watts).all()
    assert tick.gpus_unread.tolist() == [4, 4, 0]
    assert tick.gpu_limit_watts[:2].tolist() == [2300, 2300]
    assert math.isnan(tick.gpu_limit_watts[2])
    assert math.isnan(tick.gpus[2])
    assert tick.silent_seconds.tolist() == [60, math.inf, math.inf]
    assert tick.wall_age.tolist()[0] == 60
    assert room.read("rig", listening_since=room.now - 2).silent_seconds.tolist() == [2]


def test_module_power_stands_for_gpus_that_tell_nothing_else() -> None:
    """And says that the CPU is in it."""
    room = Room("gh")
    room.say("gh", gpu_module_power_watts=900.0)
    tick = room.read("gh")
    assert tick.gpu_watts.tolist() == [3600]
    assert tick.module_scope.tolist() == [True]
    room.say("gh", gpu_power_watts=600.0, gpu_module_power_watts=900.0)
    assert room.read("gh").gpu_watts.tolist() == [2400]
    assert not room.read("gh").module_scope.any()


def test_cpu_power_is_the_growth_of_its_counter() -> None:
    """Over seconds, by the frames' arrival; a reset is not known, and never negative."""
    room = Room("rig")
    reader = FleetPowerReader(["rig"])
    joules, watts = 0.0, []
    for second in range(40):
        joules = 0.0 if second == 22 else joules + 180.0
        room.say("rig", node_cpu_package_energy_joules_total=joules)
        watts.append(reader.read(room.fleet, room.now).host_watts[0])
        room.now += 1
    assert math.isnan(watts[0])
    assert watts[21] == pytest.approx(180)
    assert math.isnan(watts[22])
    assert watts[39] == pytest.approx(180)
    assert all(math.isnan(w) or 0 <= w < 181 for w in watts)


def test_another_gpu_in_the_row_is_another_limit() -> None:
    """Rows get another meaning when the fleet changes; the reader follows."""
    room = Room("a", "b")
    reader = FleetPowerReader(["b"])
    room.say("b", gpu_power_watts=100.0)
    assert reader.read(room.fleet, room.now).gpu_watts.tolist() == [400]
    room.fleet.remove("a")
    room.fleet.remove("b")
    room.fleet.place(Inventory(node="c", gpus=(Gpu(uuid="c0", index=0, name="X"),)))
    room.fleet.place(Inventory(node="b", gpus=(Gpu(uuid="b0", index=0, name="X"),)))
    room.say("c", gpu_power_watts=7.0)
    room.say("b", gpu_power_watts=300.0)
    tick = reader.read(room.fleet, room.now)
    assert (tick.gpu_watts.tolist(), tick.gpus.tolist()) == ([300], [1])
    assert math.isnan(tick.gpu_limit_watts[0])


def started(folder: Path, tree: dict[str, Any] | None = None, **more: Any) -> ElectricalService:
    """An electrical side that has recalled what its folder holds."""
    electrical = ElectricalService(SITE if tree is None else tree, folder, **more)
    electrical.load_checkpoint()
    return electrical


def run(electrical: ElectricalService, room: Room, seconds: int, watts: float = 2833.0, every: int = 1) -> None:
    """Let time pass while the rig draws."""
    for _ in range(0, seconds, every):
        room.now += every
        room.say(
            "rig",
            gpu_power_watts=575.0,
            gpu_power_limit_watts=575.0,
            node_wall_power_watts=watts,
            gpu_utilization_ratio=1.0,
        )
        electrical.snapshots(room.fleet, room.now, room.wall)


def meters_of(electrical: ElectricalService, room: Room) -> MeterBus:
    """Return the configured MQTT meters; what `dispatch` is given is as if it came from a broker."""
    records = list(electrical.meters._hub._records.values())
    return MeterBus(BrokerConfig(), records, lambda: room.now)


def heat(electrical: ElectricalService) -> float:
    """Of the only breaker, earliest edge."""
    assert electrical.latest is not None
    return float(electrical.latest.circuit.column("circuit_heat_ratio")[0])


def test_boards_follow_the_wall_meter(tmp_path: Path) -> None:
    """2,833 W on 120 V at a power factor of 0.97 are 24.3 A."""
    electrical, room = started(tmp_path), Room("rig")
    run(electrical, room, 3)
    assert electrical.latest is not None
    snapshot = electrical.latest.circuit
    assert snapshot.names == ("office",)
    assert snapshot.column("circuit_amps")[0] == pytest.approx(2833 / 120 / 0.97, rel=0.01)
    assert electrical.energy.ledger.watts == pytest.approx(2833)


def test_asked_too_often_it_gives_what_it_gave(tmp_path: Path) -> None:
    """Rules may run five times a second; a breaker is slower."""
    electrical, room = started(tmp_path), Room("rig")
    run(electrical, room, 2)
    first = electrical.latest
    assert electrical.snapshots(room.fleet, room.now + 0.2, room.wall) is first
    assert electrical.snapshots(room.fleet, room.now + 1.0, room.wall) is not first


def test_a_restart_keeps_heat_and_energy(tmp_path: Path) -> None:
    """The gap of ten seconds is bridged; a start without the memory knows nothing of the past."""
    electrical, room = started(tmp_path), Room("rig")
    run(electrical, room, 60, watts=1000.0)
    run(electrical, room, 40)
    before = heat(electrical)
    electrical.save()
    kwh = electrical.energy.ledger.days["2026-09-21"].joules
    again = started(tmp_path)
    room.now += 10
    run(again, room, 1)
    assert heat(again) == pytest.approx(before, abs=0.2)
    assert again.energy.ledger.days["2026-09-21"].joules >= kwh
    assert again.latest is not None
    joules = again.latest.circuit.column("circuit_energy_joules")[0]
    assert joules >= 60 * 1000 + 39 * 2833 - 3000


def test_a_restart_keeps_the_throughput_by_watts(tmp_path: Path) -> None:
    """What was measured before goes on; a damaged part of it begins anew, and nothing else does."""
    electrical, room = started(tmp_path), Room("rig")
    for _ in range(20):
        room.now += 1
        room.say(
            "rig",
            gpu_power_watts=400.0,
            gpu_power_limit_watts=400.0,
            gpu_utilization_ratio=1.0,
            gpu_sm_clock_hertz=1.8e9,
            gpu_clocks_event_sw_power_cap=1.0,
        )
        electrical.snapshots(room.fleet, room.now, room.wall)
    (model,) = electrical.throughput.measured()
    assert model.points[0].sm_clock_hertz == 1.8e9
    electrical.save()
    assert started(tmp_path).throughput.measured() == [model]
    file = tmp_path / NAME
    tree = json.loads(file.read_bytes())
    tree["throughput"] = {"NVIDIA GeForce RTX 5090": [[16, -1, 400, 1.8e9]]}
    file.write_text(json.dumps(tree))
    damaged = started(tmp_path)
    assert damaged.throughput.measured() == []
    run(damaged, room, 1)
    assert heat(damaged) == pytest.approx(heat(electrical), abs=0.05)


def test_a_crash_at_any_instant_takes_nothing_back_and_invents_nothing(tmp_path: Path) -> None:
    """What Prometheus has scraped is on disk: `increase()` finds what was drawn while kilowatch ran, up
    to the ten seconds before each crash, and never more."""
    random, room = Random(16), Room("rig")
    scraped = [0.0]
    drawn = 0.0
    for _ in range(40):
        electrical = started(tmp_path)
        for second in range(random.randrange(1, 40)):
            run(electrical, room, 1)
            drawn += 2833
            scraped.append(energy(electrical))
            if second % 10 == 9:
                electrical.save()
        room.now += random.randrange(1, 100)  # killed: nothing is saved, nothing is closed
    assert scraped == sorted(scraped)
    lost = drawn - scraped[-1]
    assert 0 <= lost <= 40 * 11 * 2833
    missing = electrical.latest.circuit.column("circuit_energy_missing_seconds")[0]  # type: ignore[union-attr]
    assert missing > 0


def test_a_disk_that_takes_nothing_stops_the_counter_and_a_new_configuration_does_not(tmp_path: Path) -> None:
    """What is not on disk is not exported, because the next crash would take it back."""
    trees = [SITE, copy.deepcopy(SITE)]
    trees[1]["circuits"]["office"]["breaker"] = 30
    electrical, room = started(tmp_path, reread=lambda: trees[1]), Room("rig")
    run(electrical, room, 20)
    electrical.save()
    run(electrical, room, 20)
    held = energy(electrical)
    assert held == pytest.approx(19 * 2833)
    electrical.reload()
    run(electrical, room, 5)
    assert energy(electrical) == held
    (tmp_path / f"{NAME}.new").mkdir()  # nothing can be written there now
    electrical.save()
    run(electrical, room, 5)
    assert energy(electrical) == held
    (tmp_path / f"{NAME}.new").rmdir()
    electrical.save()
    run(electrical, room, 1)
    assert energy(electrical) == pytest.approx(48 * 2833, rel=0.05)


def test_a_step_that_raises_waits_for_its_next_try_and_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    electrical, room, tries = started(tmp_path), Room("rig"), []

    def broken(*_: object) -> None:
        tries.append(room.now)
        raise IndexError("put in by the test")

    monkeypatch.setattr(ThroughputSampler, "sample", broken)
    run(electrical, room, 10)
    assert [at - tries[0] for at in tries] == [0, 1, 3, 7]
    assert [one.part for one in electrical.faults()] == ["circuits/throughput"]
    electrical.save()
    run(electrical, room, 1)
    assert energy(electrical) > 0


def test_what_is_restored_at_the_first_tick_waits_for_no_try(tmp_path: Path) -> None:
    """A checkpoint that could not be made just before does not cost what is to be restored."""
    electrical, room = started(tmp_path), Room("rig")
    run(electrical, room, 60)
    electrical.save()
    again = started(tmp_path)
    again._aside.fail("circuits/checkpoint", "put in by the test", room.now + 10)
    run(again, room, 1)
    assert energy(again) > 59 * 2833 * 0.9


def test_a_damaged_memory_is_set_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And never read as if it were whole."""
    (tmp_path / NAME).write_text('{"version":1,"live":{')
    electrical, room = started(tmp_path), Room("rig")
    run(electrical, room, 2)
    assert (tmp_path / f"{NAME}.damaged-1").exists()
    assert "can't be used" in caplog.text
    electrical.save()
    assert json.loads((tmp_path / NAME).read_text())["live"]


def test_a_memory_that_can_not_be_written_is_said_and_nothing_else_happens(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The folder is gone, for instance."""
    electrical = started(tmp_path / "gone")
    electrical.save()
    assert "would not survive a restart" in caplog.text


def test_a_saved_memory_is_whole_or_the_one_before(tmp_path: Path) -> None:
    """Nothing of the half-written file counts."""
    electrical, room = started(tmp_path), Room("rig")
    run(electrical, room, 5)
    electrical.save()
    whole = (tmp_path / NAME).read_bytes()
    (tmp_path / f"{NAME}.new").write_bytes(whole[: len(whole) // 2])
    again = started(tmp_path)
    assert again.energy.ledger.days == electrical.energy.ledger.days


def test_a_bad_configuration_keeps_the_last_good_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With its heat; said once in the log, and until it is mended in the state."""
    tree = copy.deepcopy(SITE)
    electrical, room = started(tmp_path, tree, reread=lambda: tree), Room("rig")
    tree = copy.deepcopy(SITE)
    run(electrical, room, 30)
    warm = heat(electrical)
    tree["circuits"]["office"]["breaker"] = "20 amps"
    with caplog.at_level(logging.WARNING):
        first, second = electrical.reload(), electrical.reload()
    assert first.error is not None
    assert "circuits.office.breaker" in first.error
    assert 'Write 20 or "20A"' in first.error
    assert (first.version, second.error) == (1, first.error)
    assert caplog.text.count("is invalid") == 1
    run(electrical, room, 1)
    assert heat(electrical) >= warm
    tree["circuits"]["office"]["breaker"] = 30
    good = electrical.reload()
    assert (good.version, good.error) == (2, None)
    run(electrical, room, 1)
    assert electrical.latest is not None
    assert electrical.latest.circuit.column("circuit_rated_amps")[0] == 30
    assert electrical.latest.circuit.version == 2


def test_a_reload_keeps_the_heat_of_what_is_still_there(tmp_path: Path) -> None:
    """A change elsewhere does not cool a breaker; the same configuration changes nothing."""
    tree = copy.deepcopy(SITE)
    electrical, room = started(tmp_path, copy.deepcopy(SITE), reread=lambda: tree), Room("rig")
    run(electrical, room, 60)
    warm = heat(electrical)
    assert electrical.reload().version == 1
    tree["circuits"]["lab"] = {"breaker": 15, "nodes": ["other"]}
    assert electrical.reload().version == 2
    run(electrical, room, 1)
    assert electrical.latest is not None
    at = electrical.latest.circuit.names.index("office")
    assert electrical.latest.circuit.column("circuit_heat_ratio")[at] == pytest.approx(warm, abs=0.05)


def test_a_node_on_no_circuit_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Not at every tick."""
    electrical, room = started(tmp_path), Room("rig", "spare")
    with caplog.at_level(logging.INFO):
        run(electrical, room, 5)
        room.fleet.version += 1
        run(electrical, room, 5)
    assert electrical.unmapped.names == ("spare",)
    assert caplog.text.count("spare hang on no circuit") == 1


def test_notes_on_a_configuration_are_logged_when_it_is_taken(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each once, and not more than a page of them."""
    nodes = {f"lost{number}": {"watts": 100} for number in range(12)}
    with caplog.at_level(logging.WARNING):
        ElectricalService({**SITE, "nodes": {**SITE["nodes"], **nodes}}, tmp_path)
    assert "power: nodes.lost0: it hangs on no circuit (E24)" in caplog.text
    assert caplog.text.count("(E24)") == 11
    assert "and 2 more notes" in caplog.text


def test_without_circuits_the_account_goes_on(tmp_path: Path) -> None:
    """By the node's own meter, else by its GPUs and a plain host."""
    electrical, room = started(tmp_path, {}), Room("rig")
    run(electrical, room, 3, watts=NAN)
    assert electrical.latest is None
    assert electrical.energy.ledger.watts == pytest.approx((4 * 575 + 250) / 0.92, rel=0.01)
    run(electrical, room, 2, watts=2600.0)
    assert electrical.energy.ledger.watts == 2600


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"site": {"timezone": "Mars/Olympus"}}, "there is no time zone 'Mars/Olympus'"),
        ({"circuits": {"office": {"breaker": 20, "nods": ["rig"]}}}, "nodes"),
        ({"meters": {"plug": {"type": "tasmota", "topic": "t", "on": "ofice"}}}, "office"),
    ],
)
def test_a_wrong_configuration_is_refused_at_the_start(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    """With place and cure."""
    with pytest.raises(ConfigError, match=words):
        ElectricalService({**SITE, **change}, tmp_path)


def test_a_fault_of_ours_is_said_once_and_ends_when_it_ends(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """No power snapshots then, which is not knowing; the account goes on."""
    electrical, room = started(tmp_path), Room("rig")
    run(electrical, room, 2)
    live = electrical._live
    assert live is not None
    whole, live.model = live.model, None  # type: ignore[assignment]  # breaks every tick
    run(electrical, room, 3)
    assert electrical.latest is None
    assert electrical.failure is not None
    assert electrical.failure.startswith("a fault of kilowatch's own, AttributeError: ")
    assert caplog.text.count("can't be computed") == 1
    assert electrical.energy.ledger.watts == 2833
    live.model = whole
    run(electrical, room, 1)
    assert (electrical.failure, electrical.latest is None) == (None, False)


FEED = {"breaker": 60, "volts": 208, "poles": 3, "wiring": "3ph-wye"}
PLUGGED = {
    "more nodes than circuits": ({"office": {"breaker": 20, "nodes": ["a", "b", "c"]}}, {}),
    "two feeds": (
        {
            "A": {**FEED, "redundancy": {"group": "g", "role": "A"}},
            "B": {**FEED, "redundancy": {"group": "g", "role": "B"}},
        },
        {name: {"profile": "dgx-h100", "cords": [{"circuit": "A"}, {"circuit": "B"}]} for name in "abc"},
    ),
}


@pytest.mark.parametrize("kind", PLUGGED)
def test_every_node_may_have_a_meter_of_its_own(tmp_path: Path, kind: str) -> None:
    """However few circuits there are: a node's number is none of a circuit."""
    circuits, nodes = PLUGGED[kind]
    meters = {name: {"type": "json", "topic": name, "on": f"node:{name}"} for name in "abc"}
    tree = {"region": "US", "circuits": circuits, "nodes": nodes, "meters": meters}
    electrical, room = started(tmp_path, tree), Room("a", "b", "c")
    bus = meters_of(electrical, room)
    for _ in range(3):
        room.now += 1
        for name, watts in (("a", b"400"), ("b", b"500"), ("c", b"600")):
            bus.dispatch(name, watts)
        electrical.snapshots(room.fleet, room.now, room.wall)
    assert electrical.failure is None
    assert electrical.latest is not None
    assert electrical.latest.circuit.column("circuit_watts").sum() == pytest.approx(1500)
    assert (electrical.latest.circuit.column("circuit_load_state") == 0).all()


def test_a_meter_that_breaks_the_tick_costs_itself_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The meter is named, and comes back; until then that of the other circuit is read as before."""
    circuits = {name: {"breaker": 20, "nodes": [name]} for name in "ab"}
    meters = {name: {"type": "json", "topic": name, "on": f"node:{name}"} for name in "ab"}
    electrical, room = started(tmp_path, {"region": "US", "circuits": circuits, "meters": meters}), Room("a", "b")
    bus = meters_of(electrical, room)
    right = WallPowerModel.estimate

    def broken(model: WallPowerModel, tick: PowerInputs, *more: Any) -> WallPower:
        if any(one.meter == "b" for one in tick.readings):
            raise IndexError("index 1 is out of bounds")
        return right(model, tick, *more)

    def seconds(count: int) -> list[float]:
        for _ in range(count):
            room.now += 1
            bus.dispatch("a", b"400")
            bus.dispatch("b", b"500")
            electrical.snapshots(room.fleet, room.now, room.wall)
        assert (electrical.failure, electrical.latest is None) == (None, False)
        assert electrical.latest is not None
        return electrical.latest.circuit.column("circuit_watts").tolist()

    monkeypatch.setattr(WallPowerModel, "estimate", broken)
    watts, _ = seconds(3)
    assert watts == pytest.approx(400)
    assert {one.part: one.reason for one in electrical.faults()} == electrical.set_aside()
    assert list(electrical.set_aside()) == ["meter/b"]
    assert "index 1 is out of bounds" in electrical.set_aside()["meter/b"]
    monkeypatch.setattr(WallPowerModel, "estimate", right)
    assert seconds(90) == pytest.approx([400, 500])
    assert electrical.set_aside() == {}


THREE = {"breaker": 16, "volts": 400, "poles": 3}
TASMOTA = {"type": "tasmota", "topic": "tele/m/SENSOR"}
SENSOR = {"ENERGY": {"Power": [4000, 11, 5], "Current": [17.4, 0.05, 0.02], "Voltage": 230}}
CLAMPS = {
    f"em1:{number}": {"id": number, "act_power": watts, "current": amps, "voltage": 230.0}
    for number, (watts, amps) in enumerate(((4000.0, 17.4), (11.0, 0.05), (5.0, 0.02)))
}
PARTS: dict[str, tuple[dict[str, Any], dict[str, Any], str, dict[str, Any], list[float]]] = {
    "a three-phase Tasmota": (THREE, TASMOTA, "tele/m/SENSOR", SENSOR, [17.4, 0.05, 0.02]),
    "currents alone": (THREE, TASMOTA, "tele/m/SENSOR",
                       {"ENERGY": {"Power": 4016, "Current": [17.4, 0.05, 0.02]}}, [17.4, 0.05, 0.02]),
    "two poles": ({"breaker": 20, "volts": 240, "poles": 2}, TASMOTA, "tele/m/SENSOR",
                  {"ENERGY": {"Power": [2000, 10], "Current": [17.4, 0.1], "Voltage": 120}}, [17.4, 0.1]),
    "two outlets of one pole": ({"breaker": 16, "volts": 230}, TASMOTA, "tele/m/SENSOR",
                                {"ENERGY": {"Power": [1000, 500], "Current": [4.5, 2.2], "Voltage": 230}}, [6.7]),
    "three clamps of a Shelly": (THREE, {"type": "shelly", "topic": "m", "poll": False}, "m/events/rpc",
                                 {"method": "NotifyFullStatus", "params": CLAMPS}, [17.4, 0.05, 0.02]),
}  # fmt: skip
"""Circuit, meter, topic, payload, and the amps of each pole."""


@pytest.mark.parametrize("kind", PARTS)
def test_the_parts_of_a_payload_are_the_poles_of_the_circuit(tmp_path: Path, kind: str) -> None:
    """17.4 A on one leg of 16 A are never 5.8 A on each of three."""
    circuit, meter, topic, payload, amps = PARTS[kind]
    tree = {"region": "EU", "circuits": {"c": circuit}, "meters": {"m": {**meter, "on": "c"}}}
    electrical, room = started(tmp_path, tree), Room()
    bus = meters_of(electrical, room)
    for _ in range(3):
        room.now += 1
        bus.dispatch(topic, json.dumps(payload).encode())
        electrical.snapshots(room.fleet, room.now, room.wall)
    assert electrical.latest is not None
    column = electrical.latest.circuit.column
    found = [float(column(f"circuit_l{pole}_amps")[0]) for pole in (1, 2, 3)]
    assert [one for one in found if not math.isnan(one)] == pytest.approx(amps, abs=0.15)
    assert column("circuit_amps")[0] == pytest.approx(max(amps), abs=0.15)


def test_the_bus_that_is_gone_makes_nobody_silent(tmp_path: Path) -> None:
    """While we are deaf, and for as long as it then takes."""
    electrical, room = started(tmp_path), Room("rig")
    run(electrical, room, 3)
    room.now += 60
    electrical.snapshots(room.fleet, room.now, room.wall, listening=False)
    assert silent(electrical) == 0
    room.now += 2
    electrical.snapshots(room.fleet, room.now, room.wall)
    assert silent(electrical) == 0
    room.now += 60
    electrical.snapshots(room.fleet, room.now, room.wall)
    assert silent(electrical) == 1


def silent(electrical: ElectricalService) -> float:
    """How many nodes of the circuit are."""
    assert electrical.latest is not None
    return float(electrical.latest.circuit.column("circuit_silent_nodes")[0])


def test_a_tick_of_nobody_is_a_tick(tmp_path: Path) -> None:
    """An empty fleet at the start of a cluster."""
    electrical = started(tmp_path)
    snapshots = electrical.snapshots(Fleet(), 1.0, START)
    assert snapshots is not None
    unknown = PowerInputs.unknown(1)
    read = FleetPowerReader(["rig"]).read(Fleet(), 1.0)
    assert replace(read, jobs={}).silent_seconds.tolist() == unknown.silent_seconds.tolist()
    assert np.isnan(read.gpus).all()


def test_energy_counts_what_is_told_and_not_what_is_assumed(tmp_path: Path) -> None:
    """A rig that is switched off for the night costs nothing that anybody has measured."""
    electrical, room = started(tmp_path), Room("rig")
    run(electrical, room, 60)
    (day,) = electrical.energy.ledger.days.values()
    electrical.save()
    run(electrical, room, 1)
    before, circuit = day.joules, energy(electrical)
    assert before == pytest.approx(60 * 2833)
    assert circuit == pytest.approx(59 * 2833)
    for _ in range(80):  # longer than what it may draw stands for it
        room.now += 10
        electrical.snapshots(room.fleet, room.now, room.wall)
        electrical.save()
    assert silent(electrical) == 1
    assert electrical.latest is not None
    assert electrical.latest.circuit.column("circuit_watts")[0] > 0
    assert electrical.energy.ledger.watts is None
    assert electrical.energy.reporting_nodes == 0
    (day,) = electrical.energy.ledger.days.values()
    assert day.joules - before < 60 * 2833  # until it was found silent, and no more
    assert energy(electrical) - circuit < 60 * 2833


def energy(electrical: ElectricalService) -> float:
    """Of the only circuit, joules."""
    assert electrical.latest is not None
    return float(electrical.latest.circuit.column("circuit_energy_joules")[0])


BILLED: dict[str, Any] = {**SITE, "site": {"tariff": 0.2, "timezone": "Europe/Berlin"}, "bill": {"demand_charge": 10.0}}


def test_the_month_survives_crashes_and_counts_nodes_on_no_circuit(tmp_path: Path) -> None:
    """Killed between two checkpoints, twice: what was known before each is there again."""
    room = Room("rig", "stray")
    for crash in range(3):
        electrical = started(tmp_path, BILLED, clock=lambda: room.wall)
        for _ in range(120):
            room.say("stray", gpu_power_watts=100.0, gpu_utilization_ratio=0.0)
            run(electrical, room, 1)
        electrical.save()
        profile = electrical.months.ledger.profile
        assert profile is not None
        assert profile.names == ("office", UNMAPPED)
        kwh = profile.series("joules").sum(axis=1)
        seconds = 119 * (crash + 1)
        assert kwh[0] == pytest.approx(seconds * 2833, rel=0.01)
        assert kwh[1] == pytest.approx(seconds * (4 * 100 + 250) / 0.91, rel=0.02)
        run(electrical, room, 5)  # lost with the process
        room.now += 30
    idle = electrical.months.ledger.idle.totals()
    assert idle["rig"][1] == 0
    assert idle["stray"][:2] == pytest.approx((3 * 119 * 4, 3 * 119 * 4), rel=0.02)
    assert idle["stray"][3] > 0


def test_a_month_that_ends_is_written_and_its_peak_remembered(tmp_path: Path) -> None:
    """Midnight of 1 October in Berlin; the ratchet of the next months looks at September's demand."""
    room = Room("rig")
    room.now = 1000 + (datetime(2026, 9, 30, 23, 40, tzinfo=ZoneInfo("Europe/Berlin")).timestamp() - START / 1e9)
    electrical = started(tmp_path, BILLED, clock=lambda: room.wall)
    run(electrical, room, 1500, every=5)
    electrical.save()
    assert electrical.months.files.names() == ["2026-09", "2026-10"]
    assert electrical.months.ledger.past_peaks == {"2026-09": pytest.approx(2833, rel=0.01)}
    again = started(tmp_path, BILLED, clock=lambda: room.wall)
    assert again.months.ledger.past_peaks == electrical.months.ledger.past_peaks
    found = bill(again, "2026-09", room.wall)
    assert found.finished
    assert found.peak_kw == pytest.approx(2.833, rel=0.01)
    assert found.kwh_measured == pytest.approx(2.833 / 3, rel=0.01)
    present = bill(again, None, room.wall)
    assert (present.month, present.finished) == ("2026-10", False)
    with pytest.raises(ConfigError, match="nothing is stored"):
        bill(again, "2026-08", room.wall)


def strays(electrical: ElectricalService, room: Room, seconds: int, *names: str) -> None:
    """Let time pass while nodes beside the rig draw (4 x 100 + 250) W inside their cases."""
    for _ in range(seconds):
        for name in names:
            room.say(name, gpu_power_watts=100.0, gpu_utilization_ratio=0.5)
        run(electrical, room, 1)


STRAY = (4 * 100 + 250) / 0.91


def month_of(electrical: ElectricalService) -> LoadProfile:
    """The present month's profile."""
    profile = electrical.months.ledger.profile
    assert profile is not None
    return profile


def test_a_node_that_is_mapped_while_kilowatch_runs_is_billed_once(tmp_path: Path) -> None:
    """Its row without a circuit ends where the circuit's begins, over a restart too; and goes on when it is
    dropped again, the circuit's energy staying in the bill."""
    mapped = copy.deepcopy(BILLED)
    mapped["circuits"]["closet"] = {"breaker": 20, "nodes": ["stray"]}
    trees = [BILLED, mapped]
    room = Room("rig", "stray")
    electrical = started(tmp_path, BILLED, clock=lambda: room.wall, reread=lambda: trees[-1])
    strays(electrical, room, 120, "stray")
    assert electrical.reload().version == 2
    at = room.wall / 1e9
    strays(electrical, room, 120, "stray")
    profile = month_of(electrical)
    assert profile.life(UNMAPPED)[1] == pytest.approx(at, abs=2)
    assert profile.life("closet") == (pytest.approx(at, abs=2), math.inf)
    electrical.save()
    again = started(tmp_path, mapped, clock=lambda: room.wall, reread=lambda: trees[-1])
    room.now += 5
    strays(again, room, 60, "stray")
    profile = month_of(again)
    assert profile.life(UNMAPPED)[1] == pytest.approx(at, abs=2)
    trees.append(BILLED)
    again.reload()
    strays(again, room, 60, "stray")
    assert profile.life(UNMAPPED)[1] == math.inf
    assert profile.life("closet")[1] == pytest.approx(room.wall / 1e9 - 60, abs=2)
    found = bill(again, None, room.wall)
    assert found.kwh_measured == pytest.approx(360 * (2833 + STRAY) / 3.6e6, rel=0.04)
    joules, seconds = (profile.series(name).sum(axis=1) for name in ("joules", "seconds"))
    where = profile.names.index(UNMAPPED)
    assert joules[where] == pytest.approx(180 * STRAY, rel=0.04)
    assert seconds[where] == pytest.approx(365, abs=10)  # while it was mapped it drew nothing here
    assert any("closet counts until" in rule for rule in found.rules)


def test_a_silent_node_on_no_circuit_is_filled_and_its_neighbours_are_measured(tmp_path: Path) -> None:
    """Also over a restart, until it is removed."""
    room = Room("rig", "stray", "other")
    electrical = started(tmp_path, BILLED, clock=lambda: room.wall)
    strays(electrical, room, 100, "stray", "other")
    strays(electrical, room, 200, "other")
    profile = month_of(electrical)
    measured, filled = (profile.series(name, [UNMAPPED]).sum() for name in ("joules", "stand_in"))
    assert measured + filled == pytest.approx(2 * 299 * STRAY, rel=0.02)
    assert filled == pytest.approx(200 * STRAY, rel=0.1)
    assert bill(electrical, None, room.wall).kwh_filled == pytest.approx(filled / 3.6e6, abs=0.001)
    electrical.save()
    fresh = Room("rig", "other")
    fresh.now = room.now + 10
    again = started(tmp_path, BILLED, clock=lambda: fresh.wall)
    strays(again, fresh, 100, "other")
    more = month_of(again).series("stand_in", [UNMAPPED]).sum() - filled
    assert more == pytest.approx(99 * STRAY, rel=0.04)
    again.forget("stray")
    strays(again, fresh, 100, "other")
    assert month_of(again).series("stand_in", [UNMAPPED]).sum() - filled == pytest.approx(more, rel=0.03)


def test_energy_that_no_checkpoint_holds_is_written_within_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A counter tells of an hour four hours ago, and kilowatch is killed before the quarter is over."""
    monkeypatch.setattr(service, "SAVE_SECONDS", 0.01)
    room = Room("rig")
    electrical = started(tmp_path, BILLED, clock=lambda: room.wall)
    run(electrical, room, 10)
    electrical.save()
    run(electrical, room, 61)
    wall = room.wall / 1e9
    electrical.months.ledger.recover("office", 7.2e6, wall - 4 * 3600, wall - 3 * 3600)
    assert int(wall // 900) == int((wall - 61) // 900)

    def on_disk() -> bool:
        profile, _ = MonthFiles(tmp_path).load("2026-09", ZoneInfo("Europe/Berlin"))
        return profile.series("recovered").sum() == pytest.approx(7.2e6)

    async def written() -> None:
        running = asyncio.create_task(electrical.run())
        await until(on_disk, seconds=120)
        running.cancel()

    asyncio.run(written())


def written_months(folder: Path, **watts: float) -> None:
    """Months on disk in which the office drew that, by their names."""
    for name, drawn in watts.items():
        profile = LoadProfile(month_named(name.replace("_", "-")[1:], ZoneInfo("Europe/Berlin")))
        rows = profile.rows(["office"])
        for number in range(8):
            profile.add(
                rows,
                profile.month.start + 900.0 * (number + 1),
                900.0,
                np.array([900 * drawn]),
                np.array([True]),
                np.array([NAN]),
            )
        MonthFiles(folder).save(copy_of(profile, NodeIdle()))


def test_a_changed_contract_reads_the_peaks_of_past_months_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[power.bill] is added while kilowatch runs; START is in September 2026."""
    monkeypatch.setattr(service, "SAVE_SECONDS", 0.01)
    written_months(tmp_path, m2026_05=9000.0, m2026_08=5000.0)
    plain = {**BILLED}
    del plain["bill"]
    tree = [plain]
    room = Room("rig")
    electrical = started(tmp_path, plain, clock=lambda: room.wall, reread=lambda: tree[0])
    run(electrical, room, 10)
    assert electrical.months.ledger.past_peaks == {}
    tree[0] = {**BILLED, "bill": {"demand_charge": 10.0, "ratchet": 0.8, "ratchet_months": 3}}
    electrical.reload()

    async def read() -> None:
        running = asyncio.create_task(electrical.run())
        await until(lambda: electrical.months.ledger.past_peaks, seconds=120)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(read())
    assert electrical.months.ledger.past_peaks == {"2026-08": pytest.approx(5000)}
    run(electrical, room, 10)
    assert electrical.latest is not None
    # 80 % of August's 5 kW; in September's last week nothing else is compared with.
    assert electrical.latest.budget.column("budget_peak_ratio")[-1] == pytest.approx(2833 / 4000, rel=0.02)


def test_the_bill_of_a_past_month_looks_at_the_months_before_it(tmp_path: Path) -> None:
    """May's 9 kW count for June with three months, though not for the present one."""
    written_months(tmp_path, m2026_02=20_000.0, m2026_05=9000.0, m2026_06=1000.0)
    room = Room("rig")
    terms = {"demand_charge": 10.0, "ratchet": 0.8, "ratchet_months": 3}
    electrical = started(tmp_path, {**BILLED, "bill": terms}, clock=lambda: room.wall)
    run(electrical, room, 10)
    june = next(one for one in bill(electrical, "2026-06", room.wall).lines if one.name == "demand")
    assert (june.quantity, june.amount) == (pytest.approx(7.2), pytest.approx(72))
    may = next(one for one in bill(electrical, "2026-05", room.wall).lines if one.name == "demand")
    assert may.quantity == pytest.approx(16)  # of February


def test_a_bill_is_computed_from_a_copy_that_ticks_do_not_change(tmp_path: Path) -> None:
    """Another thread computes it."""
    room = Room("rig")
    electrical = started(tmp_path, BILLED, clock=lambda: room.wall)
    run(electrical, room, 60)
    expected, compute = bill(electrical, None, room.wall), bill_of(electrical, None, room.wall)
    run(electrical, room, 60)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(compute).result() == expected
    assert bill(electrical, None, room.wall).kwh_measured > expected.kwh_measured


def test_a_clock_that_is_set_for_a_while_costs_nothing_of_the_month(tmp_path: Path) -> None:
    """To next January and to 1970, written to disk there or not, and back."""
    for saved in (False, True):
        folder = tmp_path / str(saved)
        folder.mkdir()
        room, aside = Room("rig"), [0]
        electrical = started(folder, BILLED, clock=lambda: room.wall + aside[0])  # noqa: B023

        def drawing(seconds: int) -> None:
            for _ in range(seconds):
                room.now += 1  # noqa: B023
                room.say("rig", gpu_power_watts=575.0, node_wall_power_watts=2833.0)  # noqa: B023
                electrical.snapshots(room.fleet, room.now, room.wall + aside[0])  # noqa: B023

        drawing(100)
        for aside[0] in (100 * 86_400 * 10**9, -START, 0):
            drawing(20)
            if saved:
                electrical.save()
        profile = electrical.months.ledger.profile
        assert profile is not None
        assert profile.month.name == "2026-09"
        assert profile.series("joules").sum() == pytest.approx(119 * 2833, rel=0.02)


def test_a_damaged_month_is_set_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And the present one goes on from the checkpoint's newest hours."""
    room = Room("rig")
    electrical = started(tmp_path, BILLED, clock=lambda: room.wall)
    run(electrical, room, 60)
    electrical.save()
    path = tmp_path / "months" / "2026-09.json"
    path.write_text('{"profile": {"start": 1, "rows": {"office": {"joules": ["x"]}}}}')
    again = started(tmp_path, BILLED, clock=lambda: room.wall)
    assert "can't be used" in caplog.text
    assert again.months.ledger.profile is not None
    assert again.months.ledger.profile.series("joules").sum() == pytest.approx(59 * 2833, rel=0.01)


def test_a_node_without_gpus_costs_what_is_configured_for_it(tmp_path: Path) -> None:
    """Its host's watts at the wall, while it reports; a plain one is not known."""
    room = Room("store", "other", gpus=0)
    tree = {"nodes": {"store": {"host_watts": 400.0}}, "site": {"tariff": 0.2}}
    electrical = started(tmp_path, tree)
    for _ in range(5):
        room.now += 1
        for node in ("store", "other"):
            room.say(node, node_uptime_seconds=1.0)
        electrical.snapshots(room.fleet, room.now, room.wall)
    assert electrical.energy.reporting_nodes == 1
    assert electrical.energy.ledger.watts == pytest.approx(400 / 0.91, rel=0.02)
    room.now += 600
    electrical.snapshots(room.fleet, room.now, room.wall)
    assert electrical.energy.ledger.watts is None


def test_the_time_zone_is_the_machines_where_none_is_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the bill says so."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert str(machine_zone()) == "Asia/Tokyo"
    monkeypatch.delenv("TZ")
    place = tmp_path / "zoneinfo" / "Europe"
    place.mkdir(parents=True)
    (place / "Berlin").write_bytes(b"")
    (tmp_path / "localtime").symlink_to(place / "Berlin")
    assert str(machine_zone(tmp_path / "localtime")) == "Europe/Berlin"
    assert machine_zone(tmp_path / "absent") is UTC
    assert zone_text(UTC, configured=False) == "UTC, the machine's: [power.site] timezone is not set"
    with pytest.raises(ConfigError, match="no time zone"):
        started(tmp_path, {**SITE, "site": {"timezone": "Europe/Atlantis"}})
