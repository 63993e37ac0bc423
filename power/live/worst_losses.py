"""Loads after the loss of each element of a live site, followed from tick to tick."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from power.network.contingency import Contingencies, contingencies_of
from power.network.graph import build_graph
from power.network.outcome import Outcome, compute_outcome
from power.network.switching import SwitchingState, switching_state
from power.network.topology import SiteTopology
from power.site.layout import SiteLayout
from power.wiring import Flags, Floats

_TURNS, _MACHINES_AT_ONCE = 5, 25_000
"""Ticks from one computation of what is left after each loss to the next: at most so many, and one for so many
machines of the site."""


class WorstLosses:
    """Present switching state of a live site, its contingencies, and their latest outcome."""

    def __init__(self, layout: SiteLayout, topology: SiteTopology) -> None:
        self.state: SwitchingState = switching_state(build_graph(layout, topology))
        self._turns = max(1, min(_TURNS, len(layout.machines) // _MACHINES_AT_ONCE))
        self._turn = -1
        self._contingencies: Contingencies | None = None
        """Of some earlier state or the present one; None before they are needed."""
        self._outcome: Outcome | None = None
        """None before the first, and after one that raised."""

    def switch(self, dead: Flags, alternate: Collection[int]) -> SwitchingState:
        """Return the state in which some circuits are off, with what they feed, and some transfer switches stand on
        their alternate input: the present one from now on."""
        state = self.state
        if not np.array_equal(dead, state.dead) or state.graph.transfers.intersection(alternate) != state.alternate:
            self.state = switching_state(state.graph, dead, alternate)
        return self.state

    def outcome(self, machine_watts: Floats, local_watts: Floats) -> Outcome:
        """Return the loads after every loss; of a large site those of a few seconds ago, unless the state is another
        since."""
        self._turn = (self._turn + 1) % self._turns
        known, self._outcome = self._outcome, None
        if self._contingencies is None or self._contingencies.state is not self.state:
            self._contingencies = known = None
            self._contingencies = contingencies_of(self.state)
        if known is None or self._turn == 0:
            known = compute_outcome(self._contingencies, machine_watts, local_watts)
        self._outcome = known
        return known


def survivor_amps(outcome: Outcome) -> Floats:
    """Return the highest amps of each circuit after the worst loss; 0 for a feed that is lost itself."""
    state = outcome.state
    return np.where(state.dead & state.graph.grouped, 0.0, outcome.survivor_amps())


def ups_survivors(outcome: Outcome, ups: Collection[str]) -> dict[str, tuple[float, str]]:
    """Return each UPS' load over its rating after the worst loss, and that loss."""
    worst, case = outcome.survivor_limits()
    return {
        name: (float(worst[number]), outcome.loss_name(int(case[number]), number) or "")
        for number, name in enumerate(outcome.state.graph.elements)
        if name in ups and not np.isnan(worst[number])
    }
