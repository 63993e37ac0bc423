"""Outcome of contingencies: the loads of all elements after every case, and the worst of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from power.network.contingency import Contingencies
from power.network.feeds import add_up
from power.network.flow import Flow, Ints
from power.network.switching import SwitchingState
from power.wiring import Flags, Floats, highest_of_three

GROWTH = 1.001
"""Load after a loss over the load now from which the loss puts something on an element."""
MODULE = -2
"""Case of an element that is worst after the loss of one of its own modules."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Loads after every case; arrays over the entries of the contingencies."""

    contingencies: Contingencies
    amps: Floats
    """Of the highest pole."""
    watts: Floats
    volt_amps: Floats
    limit_ratio: Floats
    """Over the limits in watts and volt-amperes; 0 without one."""
    grown: Flags
    """Whether the highest pole of the element carries more than now."""
    limit_grown: Flags
    """Whether the element is loaded more than now over its limits in watts and volt-amperes: what comes
    onto another pole counts there, too."""
    now: Flow
    """Present flow of all elements."""
    now_limit_ratio: Floats
    """Over elements."""

    @property
    def state(self) -> SwitchingState:
        """State before every case."""
        return self.contingencies.state

    @property
    def case(self) -> Ints:
        """Case of each entry."""
        return self.contingencies.case

    @property
    def row(self) -> Ints:
        """Element of each entry, ascending."""
        return self.contingencies.row

    def worst_loss(self, row: int) -> str | None:
        """Return the name of the case that puts most amps on an element; None where none puts more on it."""
        start, end = np.searchsorted(self.row, [row, row + 1])
        amps = np.where(self.grown[start:end], self.amps[start:end], -np.inf)
        if not np.isfinite(amps).any():
            return None
        return self.contingencies.cases[int(self.case[start + np.argmax(amps)])].name

    def loss_name(self, case: int, row: int) -> str | None:
        """Return the name of the loss that is an element's worst: `RPP1-A`, `A1 + A2`, or one of its modules."""
        if case == MODULE:
            return f"one of its {self.state.graph.limits.modules[row]} modules"
        return self.contingencies.cases[case].name if case >= 0 else None

    def worst_amps(self) -> tuple[Floats, Ints]:
        """Return the highest amps of each element after a case, and that case; NaN and -1 where none puts more on
        it."""
        return self._worst(self.amps, self.grown)

    def survivor_amps(self) -> Floats:
        """Return the highest amps of each circuit after the worst case; NaN where none puts more on it and it is in
        no group."""
        state = self.state
        worst = self.worst_amps()[0][: state.graph.rows]
        rest = np.where(state.graph.grouped & ~state.dead, self.now.highest[: state.graph.rows], np.nan)
        return np.where(np.isnan(worst), rest, worst)

    def survivor_limits(self) -> tuple[Floats, Ints]:
        """Return each element's highest load over its limits in watts and volt-amperes after a case, and the
        case: -1 with NaN where none puts more on it, `MODULE` for one of its own modules."""
        worst, case = self._worst(self.limit_ratio, self.limit_grown)
        modules = self.state.graph.limits.modules
        # With one module less, the rest of the rating carries the present load.
        less = self.now_limit_ratio * modules / np.maximum(modules - 1, 1)
        module = (modules > 1) & ~(worst >= less)
        return np.where(module, less, worst), np.where(module, MODULE, case)

    def circuit_limits(self) -> dict[str, Floats]:
        """Return `circuit_limit_ratio` and `circuit_survivor_limit_ratio`: of transformers, and on the circuits
        that a source feeds directly, of that source. UPSs have quantities of their own."""
        graph = self.state.graph
        now = np.full(graph.rows, np.nan)
        then = np.full(graph.rows, np.nan)
        worst, _ = self.survivor_limits()
        for row, element in graph.limits.shown:
            now[row] = np.fmax(now[row], self.now_limit_ratio[element])
            then[row] = np.fmax(then[row], worst[element])
        return {"circuit_limit_ratio": now, "circuit_survivor_limit_ratio": then}

    def _worst(self, values: Floats, grown: Flags) -> tuple[Floats, Ints]:
        """Return the highest of the values of entries that have `grown` for each element, and its case; NaN
        and -1 where none has."""
        count = len(self.state.graph.elements)
        found, case = np.full(count, np.nan), np.full(count, -1, dtype=np.int64)
        use = np.flatnonzero(grown)
        if len(use):
            row, value = self.row[use], values[use]
            start = np.flatnonzero(np.diff(row, prepend=-1))
            most = np.maximum.reduceat(value, start)
            found[row[start]] = most
            length = np.diff(np.append(start, len(row)))
            first = np.flatnonzero(value == np.repeat(most, length))[::-1]
            case[row[first]] = self.case[use[first]]
        return found, case


def compute_outcome(contingencies: Contingencies, machine_watts: Floats, local_watts: Floats) -> Outcome:
    """Return the loads after every case, from the watts of machines at the wall and each circuit's own
    loads in the present state."""
    state, row = contingencies.state, contingencies.row
    graph, limits = state.graph, state.graph.limits
    variants = contingencies.variants
    cord_watts, cord_amps = variants.cord_flow(
        _wall_of_variants(contingencies, machine_watts), graph.topology.kind_amps
    )
    present = slice(0, len(state.variants.cord_row))
    now, into, above = state.carry(cord_watts[present], cord_amps[present], local_watts)
    watts, currents = now.watts, now.currents
    after, after_currents = watts[row], currents[row]
    less = contingencies.relieved
    add_up(less.entry, into[less.line] * less.factor, above[less.line] * less.factor[:, None], after, after_currents)
    cords = contingencies.cords
    add_up(
        cords.entry,
        cord_watts[cords.cord] * cords.sign,
        cord_amps[cords.cord] * cords.sign[:, None],
        after,
        after_currents,
    )
    for step in contingencies.climbs:
        w, i = after[step.source], after_currents[step.source]
        more, higher = graph.lines.enter(step.line, w, i)
        if step.plain.any():
            more = np.where(step.plain, w, more)
            higher = np.where(step.plain[:, None], i * graph.lines.ratio[step.line, None], higher)
        add_up(step.target, more * step.weight, higher * step.weight[:, None], after, after_currents)
    amps, now_amps = np.abs(after_currents), np.abs(currents)
    volt_amps = amps.sum(axis=1) * graph.volts[row]
    now_volt_amps = now_amps.sum(axis=1) * graph.volts
    highest, now_highest = highest_of_three(amps), highest_of_three(now_amps)
    ratio = np.maximum(after / limits.watts[row], volt_amps / limits.volt_amps[row])
    now_ratio = np.maximum(watts / limits.watts, now_volt_amps / limits.volt_amps)
    return Outcome(
        contingencies=contingencies,
        amps=highest,
        watts=after,
        volt_amps=volt_amps,
        limit_ratio=ratio,
        grown=highest > GROWTH * now_highest[row] + 1e-6,
        limit_grown=ratio > GROWTH * now_ratio[row] + 1e-9,
        now=now,
        now_limit_ratio=now_ratio,
    )


def _wall_of_variants(contingencies: Contingencies, machine_watts: Floats) -> Floats:
    """Return the watts at the wall of each machine of each variant, with the supplies that it has power on."""
    state, variants, again = contingencies.state, contingencies.variants, contingencies.again
    wall = machine_watts[variants.machine]
    if len(again):
        classes = state.graph.classes
        inside = classes.curves.inside(machine_watts, np.maximum(state.working, 1e-9))
        machines = variants.machine[again]
        reduced = contingencies.curves.wall(inside[machines], variants.working[again])
        wall[again] = classes.bounded(machines, reduced, machine_watts)
    return wall
