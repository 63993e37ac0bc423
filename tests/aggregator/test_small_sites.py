"""Generated small sites (`tests/power/worlds.py`), with a meter on every place, through the aggregator's own settings."""

from __future__ import annotations

import random
import tomllib
from pathlib import Path

import numpy as np
import pytest

from tests.aggregator.test_electrical import Room, meters_of, started
from tests.kit.night import seed, size
from tests.power.worlds import World, world

COUNT, BATCH = size(20, 1000), size(10, 100)
ALIVE, DEAD = 3, 40
"""Seconds; meters are stale after 30."""
PLACES = ("circuits", "panels", "nodes", "ups")


def settings(made: World) -> dict[str, object]:
    """Return a [power] section with a plug or clamp on each circuit, panel, node and UPS, by MQTT."""
    tree = tomllib.loads(made.text)
    kinds = {"circuits": "circuit", "panels": "circuit", "nodes": "node", "ups": "ups"}
    tree["meters"] = {
        f"m-{name}": {"type": "json", "topic": name, "on": f"{kinds[place]}:{name}"}
        for place in PLACES
        for name in tree.get(place, ())
    }
    return tree


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(seed(0), seed(0) + COUNT, BATCH))
def test_meters_on_every_place_are_read_and_their_deaths_raise_nothing(tmp_path: Path, first: int) -> None:
    """However many nodes a circuit has, and circuits a node: a meter's place is none of another kind."""
    for number in range(first, first + BATCH):
        made, pick = world(number), random.Random(number)
        tree, folder = settings(made), tmp_path / str(number)
        folder.mkdir()
        electrical, room = started(folder, tree), Room(*made.nodes)
        bus = meters_of(electrical, room)
        topics: list[str] = [name for place in PLACES for name in tree.get(place, ())]  # type: ignore[attr-defined]  # a table
        dead = {name for name in topics if pick.random() < 0.5}
        for second in range(ALIVE + DEAD):
            room.now += 1
            for name, watts in made.nodes.items():
                room.say(name, gpu_power_watts=watts / 4.8, gpu_power_limit_watts=575.0)
            for name in topics if second < ALIVE else sorted(set(topics) - dead):
                bus.dispatch(name, b"300")
            electrical.snapshots(room.fleet, room.now, room.wall)
            assert (electrical.failure, list(electrical.faults())) == (None, []), number
            assert electrical.latest is not None
            if second == ALIVE - 1:
                circuit = electrical.latest.circuit
                known = dict(zip(circuit.names, circuit.column("circuit_watts"), strict=True))
                wrong = [name for name in made.circuits if np.isnan(known[name])]
                assert not wrong, f"{number}: {wrong}"
