"""The electrical side of an aggregator: what it reads, what it remembers, what it takes while it runs."""

from __future__ import annotations

import copy
import json
import logging
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregator.electrical.checkpoint import NAME
from aggregator.electrical.fleet_power import FleetPowerReader
from aggregator.electrical.service import ElectricalService
from power.live.inputs import PowerInputs
from telemetry.devices import Gpu
from telemetry.errors import ConfigError
from telemetry.fleet import Fleet
from telemetry.gap import DEVICE_LOST, NOT_SUPPORTED
from telemetry.inventory import Inventory
from telemetry.metric import Table
from telemetry.schema import SCHEMA

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
            )  # fmt: skip
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
            self.fleet.store(number, rows, table[:, :split].astype(np.float32), table[:, split:], self.now)  # fmt: skip
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


def run(electrical: ElectricalService, room: Room, seconds: int, watts: float = 2833.0) -> None:
    """Let time pass while the rig draws."""
    for _ in range(seconds):
        room.now += 1
        room.say("rig", gpu_power_watts=575.0, gpu_power_limit_watts=575.0, node_wall_power_watts=watts, gpu_utilization_ratio=1.0)  # fmt: skip
        electrical.snapshots(room.fleet, room.now, room.wall)


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
    assert electrical.ledger.watts == pytest.approx(2833)


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
    kwh = electrical.ledger.days["2026-09-21"].joules
    again = started(tmp_path)
    room.now += 10
    run(again, room, 1)
    assert heat(again) == pytest.approx(before, abs=0.2)
    assert again.ledger.days["2026-09-21"].joules >= kwh
    assert again.latest is not None
    joules = again.latest.circuit.column("circuit_energy_joules")[0]
    assert joules >= 60 * 1000 + 39 * 2833 - 3000


def test_a_damaged_memory_is_set_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And never read as if it were whole."""
    (tmp_path / NAME).write_text('{"version":1,"live":{')
    electrical, room = started(tmp_path), Room("rig")
    run(electrical, room, 2)
    assert (tmp_path / f"{NAME}.damaged-1").exists()
    assert "is damaged" in caplog.text
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
    assert again.ledger.days == electrical.ledger.days


def test_a_bad_configuration_keeps_the_last_good_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
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
    assert electrical.latest.circuit.column("circuit_heat_ratio")[at] == pytest.approx(
        warm, abs=0.05
    )


def test_a_node_on_no_circuit_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not at every tick."""
    electrical, room = started(tmp_path), Room("rig", "spare")
    with caplog.at_level(logging.INFO):
        run(electrical, room, 5)
        room.fleet.version += 1
        run(electrical, room, 5)
    assert electrical.unmapped == ("spare",)
    assert caplog.text.count("spare hang on no circuit") == 1


def test_notes_on_a_configuration_are_logged_when_it_is_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
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
    assert electrical.ledger.watts == pytest.approx((4 * 575 + 250) / 0.92, rel=0.01)
    run(electrical, room, 2, watts=2600.0)
    assert electrical.ledger.watts == 2600


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"site": {"timezone": "Mars/Olympus"}}, "there is no time zone 'Mars/Olympus'"),
        ({"circuits": {"office": {"breaker": 20, "nods": ["rig"]}}}, "nodes"),
        ({"meters": {"plug": {"type": "tasmota", "topic": "t", "on": "ofice"}}}, "office"),
    ],
)
def test_a_wrong_configuration_is_refused_at_the_start(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    """With place and cure."""
    with pytest.raises(ConfigError, match=words):
        ElectricalService({**SITE, **change}, tmp_path)


def test_a_fault_of_ours_is_said_once_and_ends_when_it_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No power snapshots then, which is not knowing; the account goes on."""
    electrical, room = started(tmp_path), Room("rig")
    run(electrical, room, 2)
    live = electrical._live
    assert live is not None
    whole, live.model = live.model, None  # type: ignore[assignment]  # breaks every tick
    run(electrical, room, 3)
    assert electrical.latest is None
    assert electrical.failure is not None
    assert caplog.text.count("can't be computed") == 1
    assert electrical.ledger.watts == 2833
    live.model = whole
    run(electrical, room, 1)
    assert (electrical.failure, electrical.latest is None) == (None, False)


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
    (day,) = electrical.ledger.days.values()
    before, circuit = day.joules, energy(electrical)
    assert before == pytest.approx(59 * 2833)
    for _ in range(80):  # longer than what it may draw stands for it
        room.now += 10
        electrical.snapshots(room.fleet, room.now, room.wall)
    assert silent(electrical) == 1
    assert electrical.latest is not None
    assert electrical.latest.circuit.column("circuit_watts")[0] > 0
    assert electrical.ledger.watts is None
    assert electrical.reporting_nodes == 0
    (day,) = electrical.ledger.days.values()
    assert day.joules - before < 60 * 2833  # until it was found silent, and no more
    assert energy(electrical) - circuit < 60 * 2833


def energy(electrical: ElectricalService) -> float:
    """Of the only circuit, joules."""
    assert electrical.latest is not None
    return float(electrical.latest.circuit.column("circuit_energy_joules")[0])
