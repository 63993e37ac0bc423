"""Ten thousand trips of simulated breakers, against the bands of the library."""

from __future__ import annotations

import ast
import tomllib
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from power.devices.breaker import Curve, band
from power.devices.thermal import Element, seconds_to_trip, steady, step
from power.site.decode import decode
from power.site.layout import lay_out
from tests.power import simulated_breaker
from tests.power.simulated_breaker import STANDARDS, Floats, draw
from tests.power.stage import RULES, Stage

COUNT = 16_000
TRIPS = 10_000
SEGMENTS = 5
SEVERITY = {rule.name: rule.severity for rule in RULES}


def test_the_simulation_imports_nothing_of_the_bands() -> None:
    """NumPy and the standard library only."""
    tree = ast.parse(Path(simulated_breaker.__file__).read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names} | {
        node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
    }
    assert names <= {"__future__", "dataclasses", "numpy", "numpy.typing"}


def loads(random: np.random.Generator) -> tuple[Floats, list[tuple[Floats, Floats]]]:
    """Return hours of load before, and (ratio, seconds) of each segment after."""
    before = random.uniform(0, 0.95, COUNT)
    segments = []
    for _ in range(SEGMENTS):
        kind = random.uniform(size=COUNT)
        ratio = np.where(
            kind < 0.4,
            random.uniform(0.3, 1.1, COUNT),
            np.where(kind < 0.9, random.uniform(1.05, 2.8, COUNT), np.exp(random.uniform(1, 3.1, COUNT))),
        )
        segments.append((ratio, np.exp(random.uniform(np.log(3), np.log(900), COUNT))))
    return before, segments


def test_simulated_breakers_trip_inside_their_bands() -> None:
    """At least 99 % of 10,000 trips by random loads, thermal and magnetic, on warm and cold breakers; and
    none of those that hold should have tripped."""
    random = np.random.default_rng(16)
    breakers = draw(COUNT, random)
    element = Element.of([band(Curve(STANDARDS[n].name), STANDARDS[n].rated_amps) for n in breakers.standard])
    before, segments = loads(random)
    breakers.warm(before)
    heat = steady(before)
    tripped = np.full(COUNT, np.inf)
    edges = np.full((COUNT, 3), np.inf)
    now = np.zeros(COUNT)
    for ratio, seconds in segments:
        opens = now + breakers.trip_after(ratio, seconds, 1500)
        tripped = np.minimum(tripped, opens)
        breakers.advance(ratio, seconds)
        found = seconds_to_trip(heat, ratio, element)
        edges = np.minimum(edges, np.where(found <= seconds[:, None], now[:, None] + found, np.inf))
        heat = step(heat, ratio, seconds, element)
        now = now + seconds
    rows = np.flatnonzero(np.isfinite(tripped))[:TRIPS]
    assert len(rows) == TRIPS
    early = edges[rows, 0] > tripped[rows] + 0.5
    late = edges[rows, 2] < tripped[rows] * 0.995 - 0.5
    by_class = {
        one.name: int((early | late)[breakers.standard[rows] == number].sum()) for number, one in enumerate(STANDARDS)
    }
    assert 1 - (early | late).mean() >= 0.99, (int(early.sum()), int(late.sum()), by_class)
    held = np.flatnonzero(~np.isfinite(tripped))
    assert (edges[held, 2] < now[held]).mean() <= 0.01


CLASSES = (
    ("UL489", 20, 120), ("UL489", 60, 120), ("IEC-B", 16, 230), ("IEC-C", 16, 230), ("IEC-D", 32, 230),
    ("IEC-K", 16, 230), ("IEC-Z", 16, 230), ("JIS", 20, 100), ("gG", 32, 230), ("BS1362", 13, 230),
    ("hydraulic-magnetic", 20, 120), ("IEC-60947", 100, 230),
)  # fmt: skip
OVERLOADS = (1.06, 1.12, 1.2, 1.3, 1.4, 1.5, 1.65, 1.8, 2.0, 2.2, 2.6, 3.2)


@pytest.mark.systems
@pytest.mark.parametrize("warm", [0.3, 0.9])
def test_a_page_comes_before_the_earliest_trip_or_the_trip_is_reported(warm: float) -> None:
    """For every class and overload: where the earliest trip is 10 s or more after the first sample above the
    rating, a page came before it; a breaker that opens sooner is reported as tripped (E17)."""
    names = {f"c{i}": (*kind, ratio) for i, (kind, ratio) in enumerate(product(CLASSES, OVERLOADS))}
    text = "region = 'EU'\n" + "".join(
        f"[circuits.{name}]\nbreaker = {amps}\nvolts = {volts}\npf = 1.0\ncurve = '{curve}'\n"
        f"nodes = ['{name}-a', '{name}-b']\n"
        for name, (curve, amps, volts, _) in names.items()
    )
    stage = Stage(text)
    before = {f"{n}-{p}": warm * amps * volts / 2 for n, (_, amps, volts, _) in names.items() for p in "ab"}
    stage.play(90, wall=before)
    layout = lay_out("site.toml", decode("site.toml", tomllib.loads(text)))
    element = Element.of([layout.circuits[name].band for name in names])
    ratios = np.array([ratio for *_, ratio in names.values()])
    earliest = seconds_to_trip(steady(np.full(len(names), warm)), ratios, element)[:, 0]
    paged: dict[str, float] = {}
    reported: set[str] = set()
    wall = {f"{n}-{p}": r * amps * volts / 2 for n, (_, amps, volts, r) in names.items() for p in "ab"}
    for second in range(90):
        for name, opens in zip(names, earliest, strict=True):
            if second > opens and opens < 10 and f"{name}-a" in wall:
                stage.hush(f"{name}-a", f"{name}-b")
                del wall[f"{name}-a"], wall[f"{name}-b"]
        stage.play(1, wall=wall)
        for rule, name in stage.firing():
            if SEVERITY[rule] == "page":
                paged.setdefault(name, second)
            if rule == "circuit_trip_suspected":
                reported.add(name)
    slow = [(name, at) for name, at in zip(names, earliest, strict=True) if 10 <= at < 89]
    fast = [name for name, at in zip(names, earliest, strict=True) if at < 10]
    assert len(slow) > 10
    assert len(fast) > 10
    late = {name: (names[name], at, paged.get(name)) for name, at in slow if not paged.get(name, 999) < at}
    assert not late
    assert not [(name, names[name]) for name in fast if name not in reported]
