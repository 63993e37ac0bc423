"""Generated small sites whose meters and nodes die in every way: nothing raises, and silence makes nothing look safe.

The ways are those of `tests/power/meter_matrix.py`. `KILOWATCH_NIGHT=7 pytest tests/power/test_worlds.py` has 20,000 of
them; `make search` begins with 20,000 fresh ones.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from power.thresholds import LOAD_CLEAR
from tests.kit.night import seed, size
from tests.power.meter_matrix import WAYS
from tests.power.stage import RULES, Stage
from tests.power.worlds import World, world

COUNT = size(300, 20_000)
BATCH = size(50, 500)
FIRST = seed(0)
SECONDS, EVERY = 60, 15
"""Time before and after a death: stale meters are known to be after 30 s or three periods."""
LASTS = 120
PAGES = {"circuit_overload", "circuit_continuous", "circuit_thermal_warm", "circuit_thermal_hot"}
USED = [rule for rule in RULES if rule.name in PAGES]


def alive(number: int) -> tuple[World, Stage]:
    """Return a world that has run for a minute with all its meters."""
    made = world(number)
    stage = Stage(made.text, limits=dict.fromkeys(made.nodes, 2300.0), gpus=4, rules=USED)
    stage.play(SECONDS, gpu=made.gpus, meters=made.meters, every=EVERY)
    return made, stage


def raised(stage: Stage) -> list[str]:
    """Return the parts of the electrical state that an exception set aside."""
    return [f"{part}: {reason}" for part, reason in stage.live.aside.recent().items()]


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(FIRST, FIRST + COUNT, BATCH))
def test_nothing_raises_and_nothing_is_safe_by_silence(first: int) -> None:
    """Pages stay, no load and no heat falls by silence, and a circuit carries no less than its meter that
    goes on; one that was nearly full and whose meter is silent is blind."""
    wrong = []
    for number in range(first, first + BATCH):
        made, stage = alive(number)
        pick = random.Random(number)
        how = pick.choice(list(WAYS))
        reads = WAYS[how].reads
        dead = {one.meter for one in made.meters if pick.random() < 0.7}
        hushed = [name for name in made.nodes if pick.random() < 0.3]
        paged = {(rule, name) for rule, name in stage.firing() if rule in PAGES}
        heat = {name: stage.value("circuit_heat_ratio", name) for name in made.circuits}
        # A feed that is lost carries next to nothing: its load counts on its partner.
        load = {
            name: stage.value("circuit_watts", name)
            for name in made.circuits
            if not stage.value("circuit_feed_lost", name)
        }
        near = nearly_full(made, stage)
        stage.hush(*hushed)
        tripped: set[str] = set()
        for after in range(0, LASTS, EVERY):
            left = [
                told for one in made.meters if (told := reads(one, after) if one.meter in dead else one) is not None
            ]
            stage.play(EVERY, gpu=made.gpus, meters=left, every=EVERY)
            tripped |= off(stage)
        wrong += [f"world {number} ({how}): {text}" for text in raised(stage)]
        if WAYS[how].silence:
            # Nodes and meters of an overloaded circuit that fall silent together are a trip, and paged as one.
            wrong += [
                f"world {number}: {rule} of {name} resolved by silence"
                for rule, name in paged - stage.firing()
                if name not in tripped
            ]
            wrong += [
                f"world {number}: heat of {name} fell from {before:.3f} to {now:.3f}"
                for name, before in heat.items()
                if (now := stage.value("circuit_heat_ratio", name)) < before - 0.02 and name not in tripped
            ]
            # An unknown load is NaN, which is not less.
            wrong += [
                f"world {number}: {name} carried {before:.0f} W and carries {now:.0f} W by silence"
                for name, before in load.items()
                if (now := stage.value("circuit_watts", name)) < 0.98 * before and name not in tripped
            ]
        if WAYS[how].silence and WAYS[how].blinds:
            wrong += [
                f"world {number}: {name} was nearly full, and is not blind"
                for name in near & unread(made, stage, dead) - tripped
                if not stage.value("circuit_meter_blind", name)
            ]
        wrong += [f"world {number} ({how}): {text}" for text in below_what_is_measured(made, stage, dead)]
    assert not wrong, "\n".join(wrong)


def off(stage: Stage) -> set[str]:
    """Return the circuits whose breaker, or one before or behind it, has probably tripped: that one pages for all."""
    names = stage.live.topology.network.names
    return {names[row] for row in np.flatnonzero(stage.live.trips.suspected | stage.live.trips.off)}


def nearly_full(made: World, stage: Stage) -> set[str]:
    """Return the circuits that carry so much that a silent meter may hide an alert."""
    return {
        name
        for name in made.circuits
        if stage.value("circuit_amps", name) > 1.02 * LOAD_CLEAR * stage.value("circuit_continuous_amps", name)
    }


def unread(made: World, stage: Stage, dead: set[str]) -> set[str]:
    """Return the circuits whose own meter is among the dead, or that of a node on them where they have none that goes on."""
    network = stage.live.topology.network
    own = {one.target for one in made.meters if one.kind == "circuit"}
    silent = {(one.kind, one.target) for one in made.meters if one.meter in dead}
    nodes = {network.machines.index(name) for kind, name in silent if kind == "node"}
    cords = zip(network.cord_circuit.tolist(), network.cord_machine.tolist(), strict=True)
    on = {network.names[circuit] for circuit, machine in cords if machine in nodes}
    plugs = {one.target for one in made.meters if one.kind == "node"}
    measured = [
        name not in plugs and known
        for name, known in zip(network.machines, stage.live.model.measured.known, strict=True)
    ]
    on |= {"c0" for one in stage.live._ups if ("ups", one.name) in silent and np.any(np.array(measured)[one.machines])}
    return {name for kind, name in silent if kind == "circuit"} | (on - own)


def below_what_is_measured(made: World, stage: Stage, dead: set[str]) -> list[str]:
    """Return the circuits that carry less than a meter of theirs that goes on reads."""
    found = []
    for one in made.meters:
        if one.meter in dead or one.kind != "circuit" or one.watts is None:
            continue
        watts = stage.value("circuit_watts", one.target)
        fault = stage.value("circuit_meter_fault", one.target)
        if not fault and watts < 0.98 * one.watts:
            found.append(f"{one.target} has {watts:.0f} W, its meter reads {one.watts:.0f} W")
    return found
