"""Nodes that kilowatch itself does not hear: their load pages as blindness, and never as a trip."""

from __future__ import annotations

import numpy as np
import pytest

from api.alerts import AlertState
from power.wiring import Flags
from tests.power.stage import Stage, meter

SITE = """
[circuits.main]
breaker = 100
volts = 230
[circuits.a]
breaker = 32
volts = 230
parent = "main"
[circuits.b]
breaker = 32
volts = 230
parent = "main"
"""
NAMES = tuple(f"{letter}{number}" for letter in "nm" for number in range(1, 5))
SITE += "".join(
    f'[nodes.{name}]\ngpus = "8x RTX 4090"\ncords = [{{ circuit = "{"a" if name[0] == "n" else "b"}" }}]\n'
    for name in NAMES
)
DRAW = dict.fromkeys(NAMES, 1000.0)


def stage() -> Stage:
    found = Stage(SITE, limits=dict.fromkeys(NAMES, 3000.0))
    found.play(30, wall=DRAW)
    return found


def unheard(found: Stage, *names: str) -> Flags:
    return np.array([name in names for name in found.live.machines])


def test_a_circuit_knows_which_part_of_its_load_is_not_heard() -> None:
    site = stage()
    assert site.value("circuit_unheard_ratio", "a") == 0.0
    site.play(3, wall=DRAW, unheard=unheard(site, "n1"))
    assert site.value("circuit_unheard_ratio", "a") == pytest.approx(0.25)
    assert site.value("circuit_unheard_ratio", "b") == 0.0
    assert site.value("circuit_unheard_ratio", "main") == pytest.approx(0.125)


def test_a_meter_of_the_circuit_hears_all_of_it() -> None:
    site = stage()
    readings = [meter("a", watts=4100.0)]
    site.play(3, wall=DRAW, meters=readings, unheard=unheard(site, *NAMES[:4]))
    assert site.value("circuit_unheard_ratio", "a") == 0.0


def test_a_take_over_pages_nobody_and_blindness_pages_once() -> None:
    site = stage()
    site.told.clear()
    gone = unheard(site, *NAMES[:4])
    site.play(20, wall=DRAW, unheard=gone)
    site.play(20, wall=DRAW)
    assert [alert.rule for alert in site.told] == []
    site.play(60, wall=DRAW, unheard=gone)
    assert [(alert.rule, alert.name) for alert in site.told] == [("circuit_unheard", "main"), ("circuit_unheard", "a")]


def test_an_overload_of_which_a_part_is_not_heard_any_more_is_not_over() -> None:
    """What is heard of it is below the limit; it ends when all of it is heard, and not by our blindness."""
    site = stage()
    full = dict.fromkeys(NAMES, 2000.0)
    site.play(120, wall=full)
    overloads = {alert.key for alert in site.told if alert.rule == "circuit_overload"}
    assert overloads
    site.told.clear()
    site.play(120, wall=DRAW, unheard=unheard(site, *NAMES[2:4], *NAMES[6:]))
    assert not [alert for alert in site.told if alert.key in overloads]
    site.play(120, wall=DRAW)
    ended = {alert.key for alert in site.told if alert.state is AlertState.RESOLVED}
    assert overloads <= ended


def test_what_an_aggregator_no_longer_hears_is_no_tripped_breaker() -> None:
    full = dict.fromkeys(NAMES, 1750.0)
    alone, ours = stage(), stage()
    for site, gone in ((alone, None), (ours, unheard(ours, *NAMES[:4]))):
        site.play(30, wall=full)
        site.told.clear()
        for name in NAMES[:4]:
            site.silent[name] = site.now
        site.play(90, wall={name: full[name] for name in NAMES[4:]}, unheard=gone)
    assert "circuit_trip_suspected" in {alert.rule for alert in alone.told}
    assert "circuit_trip_suspected" not in {alert.rule for alert in ours.told}
    assert "circuit_unheard" in {alert.rule for alert in ours.told}


def test_a_load_that_nobody_ever_heard_is_unheard_and_not_zero() -> None:
    site = Stage(SITE, limits={})
    site.play(3, unheard=np.ones(len(NAMES), bool))
    assert site.value("circuit_unheard_ratio", "a") == 1.0
