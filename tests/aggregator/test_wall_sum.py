"""The sum at the wall is of the instant of the GPUs beside it, or says how old it is, and how much of it is known."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest

from aggregator.electrical.service import ElectricalService
from present.fleet.wall import WallSum, wall_row
from present.row import Tone
from tests.aggregator.test_electrical import SITE, Room, meters_of, started


def look(electrical: ElectricalService, room: Room) -> WallSum:
    """The sum of now, whose age is that of the last tick."""
    return electrical.wall_sum(room.fleet, room.now)


def tick(electrical: ElectricalService, room: Room) -> None:
    electrical.snapshots(room.fleet, room.now, room.wall)


def played(electrical: ElectricalService, room: Room, **values: float) -> None:
    """Play five seconds with these readings, and a tick in each."""
    for _ in range(5):
        room.now += 1.0
        room.say("rig", node_uptime_seconds=1.0, **values)
        tick(electrical, room)


@pytest.mark.parametrize("tree", [SITE, {}], ids=["on a circuit", "on none"])
@pytest.mark.parametrize("own", [600.0, math.nan], ids=["metered", "modelled"])
def test_a_frame_between_two_ticks_moves_gpus_and_wall_together(
    tmp_path: Path, tree: dict[str, Any], own: float
) -> None:
    electrical, room = started(tmp_path, copy.deepcopy(tree)), Room("rig")
    played(electrical, room, gpu_power_watts=60.0, node_wall_power_watts=own)
    before = look(electrical, room)
    assert before.watts is not None
    assert 400 < before.watts < 700
    room.now += 0.5
    room.say("rig", gpu_power_watts=560.0, node_wall_power_watts=own + 2200.0)
    risen = look(electrical, room)
    assert risen.watts is not None
    assert risen.watts > 4 * 560.0, "the wall of before the rise stood below the GPUs of after it"
    assert (risen.nodes, risen.partial, risen.age) == (1, 0, 0.0)
    room.now += 0.5
    tick(electrical, room)
    now = look(electrical, room).watts
    assert now == pytest.approx(risen.watts, rel=0.1), "the tick says the same, and of a model what the fans add"


def test_a_node_whose_gpus_are_not_read_yet_is_known_in_part(tmp_path: Path) -> None:
    """After a restart a node is heard before its GPUs: 278 W of its host are no sum beside GPUs of 2.3 kW."""
    electrical, room = started(tmp_path), Room("rig")
    played(electrical, room, gpu_power_watts=math.nan)
    part = look(electrical, room)
    assert part.watts is not None
    assert part.watts < 400
    assert (part.nodes, part.partial) == (1, 1)
    room.now += 0.5
    room.say("rig", gpu_power_watts=567.0)
    whole = look(electrical, room)
    assert whole.watts is not None
    assert whole.watts > 4 * 567.0
    assert whole.partial == 0


def test_a_meter_apart_from_the_node_says_its_age(tmp_path: Path) -> None:
    """The rise is measured at the next tick only."""
    tree = copy.deepcopy(SITE) | {"meters": {"plug": {"type": "json", "topic": "plug", "on": "node:rig"}}}
    electrical, room = started(tmp_path, tree), Room("rig")
    bus = meters_of(electrical, room)
    for _ in range(5):
        room.now += 1.0
        room.say("rig", gpu_power_watts=60.0)
        bus.dispatch("plug", b"520")
        tick(electrical, room)
    assert look(electrical, room) == (520.0, 1, 0, 0.0)
    room.now += 0.5
    room.say("rig", gpu_power_watts=560.0)
    assert look(electrical, room) == (520.0, 1, 0, 0.5)


def test_another_fleet_of_the_same_version_is_not_taken_for_that_of_the_tick(tmp_path: Path) -> None:
    """A member of a cluster ticks with its own nodes, and its pages show those of all."""
    electrical, room, every = started(tmp_path), Room("rig"), Room("other", "rig")
    played(electrical, room, gpu_power_watts=60.0, node_wall_power_watts=600.0)
    every.now = room.now
    every.fleet.version = room.fleet.version
    for node in ("other", "rig"):
        every.say(node, gpu_power_watts=60.0, node_wall_power_watts=700.0)
    assert look(electrical, every)[:3] == (1300.0, 2, 0)
    assert look(electrical, room)[:3] == (600.0, 1, 0)


def test_a_fleet_of_nobody_has_no_sum(tmp_path: Path) -> None:
    electrical = started(tmp_path)
    assert look(electrical, Room()) == (None, 0, 0, 0.0)
    assert electrical.failure is None


def test_the_words_say_what_is_missing_and_how_old_it_is() -> None:
    """One wording, of the header and of the page."""
    whole = WallSum(2_900.0, 1)
    assert [wall_row(whole, 1, 2_300.0).value, wall_row(whole, 1, 2_300.0).note] == ["2.9 kW", ""]
    assert wall_row(WallSum(278.0, 1, 1), 1, 2_300.0).whole == "≥278 W, 1 in part"
    assert wall_row(WallSum(2_900.0, 1), 2, 4_600.0).whole == "≥2.9 kW"
    assert wall_row(WallSum(520.0, 1, 0, 0.5), 1, 2_300.0).whole == "520 W, 0.5 s older than the GPUs"
    assert wall_row(WallSum(2_900.0, 1, 0, 0.5), 1, 2_300.0).whole == "2.9 kW", "both may be true"
    assert wall_row(WallSum(2_900.0, 1, 0, 7.0), 1, 2_300.0).note == "7.0 s older than the GPUs"
    false = wall_row(WallSum(520.0, 1), 1, 2_300.0)
    assert (false.whole, false.tone) == ("520 W, contradicted by the GPUs", Tone.WARN)
