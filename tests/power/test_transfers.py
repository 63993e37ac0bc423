"""Transfer switches: which input carries the load, by the meters of both."""

from __future__ import annotations

import json

import pytest

from power.devices.wall_power import WallSource
from power.meters.reading import MeterReading
from tests.power.stage import Stage, meter

SITE = """
region = "EU"
[panels.PA]
breaker = 32
volts = 400
wiring = "3ph-wye"
[panels.PB]
breaker = 32
volts = 400
wiring = "3ph-wye"
[transfers.ats]
preferred = "PA"
alternate = "PB"
[circuits.c1]
parent = "ats"
breaker = 20
phase = "L1"
nodes = ["n1"]
[nodes.n1]
gpus = "4x RTX 5090"
"""
NODE, OTHERS = 1500.0, 300.0


def site() -> Stage:
    """A node behind a switch between two panels, each of which feeds other things too."""
    return Stage(SITE, gpus=4, limits={"n1": 2300.0})


def reading(stage: Stage, seconds: float, pa: float | None, pb: float | None) -> None:
    """Let the meters of the panels report; None: silent."""
    told = [meter(name, watts=watts) for name, watts in (("PA", pa), ("PB", pb)) if watts is not None]
    stage.play(seconds, gpu={"n1": NODE}, meters=told)


def on_alternate(stage: Stage) -> bool:
    """Whether the switch stands on its alternate input."""
    (found,) = stage.live.transfers.alternate.tolist()
    return bool(found)


def test_a_switch_moves_when_one_input_gives_its_load_to_the_other() -> None:
    """And back."""
    stage = site()
    load = 1.1 * NODE
    reading(stage, 300, OTHERS + load, OTHERS)
    assert not on_alternate(stage)
    reading(stage, 30, OTHERS, OTHERS + load)
    assert on_alternate(stage)
    assert "C08" not in stage.ids("PA"), "the meter of the input that was left is right"
    reading(stage, 300, OTHERS, OTHERS + load)
    reading(stage, 30, OTHERS + load, OTHERS)
    assert not on_alternate(stage)


@pytest.mark.parametrize("others", [300.0, 1000.0, 3000.0])
def test_a_meter_that_reads_kilowatts_as_watts_is_no_move(others: float) -> None:
    """The load of the input stays what its nodes draw, whatever else hangs on the other one."""
    stage = site()
    reading(stage, 300, 1.8, others)
    assert not on_alternate(stage)
    assert stage.value("circuit_watts", "PA") > NODE
    assert stage.value("circuit_meter_fault", "PA") > 0


def test_a_load_that_comes_up_elsewhere_is_no_move() -> None:
    """The alternate panel gains as much as the switch carries while the preferred one keeps its load."""
    stage = site()
    reading(stage, 300, OTHERS + NODE, OTHERS)
    reading(stage, 60, OTHERS + NODE, OTHERS + 2 * NODE)
    assert not on_alternate(stage)


def test_a_meter_that_reports_a_minute_after_the_other_shows_the_same_move() -> None:
    stage = site()
    reading(stage, 300, OTHERS + NODE, OTHERS)
    reading(stage, 45, OTHERS, OTHERS)
    assert not on_alternate(stage), "one side alone shows no move"
    reading(stage, 10, OTHERS, OTHERS + NODE)
    assert on_alternate(stage)


def test_a_switch_stands_where_it_did_before_a_restart() -> None:
    """Its meters alone no longer show the move."""
    stage = site()
    reading(stage, 300, OTHERS + NODE, OTHERS)
    reading(stage, 30, OTHERS, OTHERS + NODE)
    memory = json.loads(json.dumps(stage.live.checkpoint()))
    other = site()
    other.now = stage.now + 20
    other.live.restore(memory, other.now, other.wall())
    assert on_alternate(other)
    reading(other, 30, OTHERS, OTHERS + NODE)
    assert on_alternate(other)
    assert other.value("circuit_watts", "PB") == pytest.approx(OTHERS + NODE)


UPS_SITE = SITE.replace('preferred = "PA"', 'preferred = "U"') + '[ups.U]\nwatts = 6000\nparent = "PA"\n'


def test_a_ups_that_a_switch_has_left_is_believed() -> None:
    """It is the meter of its output, and 20 W are right; a UPS that fails alone is no move."""
    stage = Stage(UPS_SITE, gpus=4, limits={"n1": 2300.0})

    def play(seconds: float, ups: float, pb: float) -> None:
        own = MeterReading(
            meter="nut", kind="ups", target="U", source=WallSource.UPS, at=0.0, period=5.0, watts=ups, flags=("OL",)
        )
        stage.play(seconds, gpu={"n1": NODE}, meters=[own, meter("PB", watts=pb)])

    load = 1.1 * NODE
    play(120, load, OTHERS)
    play(60, 20.0, OTHERS)
    assert not on_alternate(stage)
    assert stage.value("ups_load_ratio", "U") > 0.2, "refused: nothing else has taken the load"
    play(60, load, OTHERS)
    play(60, 20.0, OTHERS + load)
    assert on_alternate(stage)
    assert stage.value("ups_load_ratio", "U") < 0.01
    assert stage.value("circuit_watts", "c1") > NODE, "its 20 W are not those of the node"
    play(60, load, OTHERS)
    assert not on_alternate(stage)
    assert stage.value("ups_load_ratio", "U") == pytest.approx(load / 6000, rel=0.1)


def test_a_dead_input_whose_meter_is_silent_is_not_counted_beside_the_other() -> None:
    """The panel has no power, nor has its meter; and back, when both return."""
    stage = site()
    load = 1.1 * NODE
    reading(stage, 300, OTHERS + load, OTHERS)
    reading(stage, 60, None, OTHERS + load)
    assert on_alternate(stage)
    assert stage.value("circuit_watts", "PA") <= 1.1 * OTHERS
    assert stage.value("circuit_watts", "PB") == pytest.approx(OTHERS + load, rel=0.01)
    reading(stage, 60, OTHERS + load, OTHERS)
    assert not on_alternate(stage)
    assert stage.value("circuit_watts", "PA") == pytest.approx(OTHERS + load, rel=0.01)


@pytest.mark.parametrize("other", [OTHERS, OTHERS + 0.4 * NODE, OTHERS + 4 * NODE])
def test_a_meter_that_falls_silent_moves_no_switch_by_itself(other: float) -> None:
    """The other input goes on as before, or rises by something else."""
    stage = site()
    reading(stage, 300, OTHERS + 1.1 * NODE, OTHERS)
    reading(stage, 60, None, other)
    assert not on_alternate(stage)
    assert stage.value("circuit_watts", "PA") >= NODE
