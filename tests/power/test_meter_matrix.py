"""Every kind of meter dies in every way, whatever else is known of its load (`tests/power/meter_matrix.py`).

All combinations are circuits of one site, so that the whole matrix runs the live state and the shipped rules in seconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest

from alerts.rules.rule import Rule
from power.wiring import Floats
from tests.power.meter_matrix import KINDS, KNOWN, WAYS, Cell, cells
from tests.power.stage import RULES, Stage, live_of

WARM, AFTER, EVERY = 360, 240, 15
OVER, NEAR = 1.08, 0.76
"""Load over the rating: an overload that a breaker carries for minutes, and one near the continuous limit of 0.8."""
PAGES = {"circuit_overload", "circuit_continuous", "circuit_thermal_warm", "circuit_thermal_hot"}
BLIND, TRIP = "circuit_meter_blind", "circuit_trip_suspected"
USED: Sequence[Rule] = [rule for rule in RULES if rule.name in PAGES | {BLIND, TRIP}]


@dataclass
class Run:
    """Cells that ran together, before and after their meters died. Arrays over the circuits: watts and heat."""

    stage: Stage
    before: Floats
    least: Floats
    """The lowest since; an unknown load is not lower."""
    now: Floats
    paged: dict[str, set[str]]
    """Rules that fired when the meters died, by circuit."""
    firing: dict[str, set[str]]
    told: dict[str, set[str]]
    """Rules that fired or resolved since."""
    resolved: dict[str, set[str]]

    def row(self, name: str) -> int:
        """Return the row of a circuit."""
        return self.stage.live._at[name]


def run(wanted: Sequence[Cell]) -> Run:
    """Let the meters of some cells die after minutes of load."""
    text = "\n".join(['region = "US"', *(line for cell in wanted for line in cell.lines)])
    stage = Stage(text, rules=USED)
    metered = frozenset((one.kind, one.target) for cell in wanted for one in cell.meters(0, None))

    def play(seconds: int, died: float | None) -> Floats:
        """Let time pass; return the least watts and heat of each circuit."""
        least = np.full((2, len(stage.live.topology.network.names)), np.nan)
        for _ in range(0, seconds, EVERY):
            now = stage.now + EVERY
            stage.play(
                EVERY,
                every=EVERY,
                metered=metered,
                meters=[one for cell in wanted for one in cell.meters(now, died)],
                gpu=dict(one for cell in wanted for one in cell.gpus(died=died is not None).items()),
                wall=dict(one for cell in wanted for one in cell.wall(died=died is not None).items()),
            )
            least = np.fmin(least, values(stage))
        return least

    play(WARM, None)
    before, paged = values(stage), by_circuit(stage.firing())
    if any(KNOWN[cell.known].restart for cell in wanted):
        memory, stage.live = stage.live.checkpoint(), live_of(text)
        stage.now += EVERY
        stage.live.restore(memory, stage.now, stage.wall())
    stage.hush(*(node for cell in wanted if KNOWN[cell.known].with_it for node in cell.nodes))
    stage.told.clear()
    least = play(AFTER, stage.now)
    ended = by_circuit((one.rule, one.name) for one in stage.told if one.state == "resolved")
    told = by_circuit((one.rule, one.name) for one in stage.told)
    return Run(stage, before, least, values(stage), paged, by_circuit(stage.firing()), told, ended)


def values(stage: Stage) -> Floats:
    """Return watts and heat of all circuits."""
    assert stage.snapshots is not None
    columns = stage.snapshots.circuit.columns
    return np.array([columns["circuit_watts"], columns["circuit_heat_ratio"]])


def by_circuit(alerts: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """Return the rules by circuit."""
    found = defaultdict(set)
    for rule, name in alerts:
        found[name].add(rule)
    return found


def wrong(cell: Cell, ran: Run, load: float) -> list[str]:
    """Return what is wrong with a cell."""
    way, name, row = WAYS[cell.way], cell.circuit, ran.row(cell.circuit)
    tripped = TRIP in ran.told[name] | ran.told[f"c{cell.number}"]
    if way.true or tripped:  # which pages
        return []
    (watts, heat), (least, coolest) = ran.before[:, row], ran.least[:, row]
    if np.isnan(watts):
        return [] if cell.unknown else ["its load was unknown before"]
    found = []
    # A counter that stands still tells of a load that goes off, slowly.
    off = way.stops and KINDS[cell.kind].tells == ("energy_joules",)
    if (not way.falls or cell.witnessed) and not off:
        found += [f"{rule} resolved" for rule in sorted(ran.resolved[name] & PAGES)]
        if least < 0.98 * watts:
            found.append(f"{watts:.0f} W became {least:.0f} W")
        if coolest < heat - 0.02:
            found.append(f"its heat fell from {heat:.2f} to {coolest:.2f}")
    if ran.now[0, row] < 0.98 * cell.measured:
        found.append(f"{ran.now[0, row]:.0f} W is below {cell.measured:.0f} W that are measured")
    if way.blinds and not way.falls and not KNOWN[cell.known].other and BLIND not in ran.firing[name]:
        found.append("its blindness does not page")
    if load == OVER and not ran.paged[name] >= PAGES:
        found.append("its overload did not page before")
    return found


def test_the_matrix_is_whole() -> None:
    assert (len(KINDS), len(WAYS), len(KNOWN)) >= (8, 9, 5)


@pytest.mark.parametrize("load", [OVER, NEAR], ids=["overloaded", "nearly full"])
def test_no_meters_death_makes_a_breaker_look_safe(load: float) -> None:
    every = [cell for cell in cells(load) if load == OVER or WAYS[cell.way].blinds]
    bad = []
    # Where all nodes of a site fall silent at once no breaker is suspected, which would page instead.
    for restart, with_it in product((False, True), repeat=2):
        wanted = [
            cell for cell in every if (KNOWN[cell.known].restart, KNOWN[cell.known].with_it) == (restart, with_it)
        ]
        ran = run(wanted)
        assert not ran.stage.live.aside.recent()
        bad += [f"{cell.kind}, {cell.way}, {cell.known}: {text}" for cell in wanted for text in wrong(cell, ran, load)]
    assert not bad, "\n".join(bad)
