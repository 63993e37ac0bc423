"""Conditions on whether readings, frames and drivers are present, and on the nodes' clocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from alerts.rules.condition import ConditionKind, Evaluation, MetricCondition, among, evaluate_slowly, three
from alerts.rules.input import RuleInput
from alerts.rules.row_memory import Flags, Floats, Index, RowMemory
from api.alerts import Subject
from telemetry.errors import did_you_mean
from telemetry.fleet import gaps_of
from telemetry.gap import Gap
from telemetry.metric import Table
from telemetry.text import duration

_ANSWERS = (255, int(Gap.NOT_SUPPORTED), int(Gap.NO_PERMISSION))
"""Gaps that are answers of the driver; `gaps_of` gives 255 where there is a value."""


class Absent(MetricCondition, frozen=True, tag="gap"):
    """Bad while a reading is absent for one of some reasons; good when the driver answered."""

    reasons: tuple[str, ...]
    """Words of `telemetry.gap.Gap`: `device_lost`, `timed_out`, `error`."""

    def abstains(self, inputs: RuleInput) -> Flags:
        """Return no row: that a metric is not supported is an answer too."""
        return np.zeros(inputs.size, np.bool_)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Report unknown reasons."""
        known = [gap.word for gap in Gap]
        for reason in self.reasons:
            if reason not in known:
                yield f"there is no gap {reason!r}", did_you_mean(reason, known)

    def evaluate(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        """Compare each row's gap with the reasons; one that is not supported is an answer too."""
        values = inputs.values(self.metric)
        if not np.isnan(values).any():
            return Evaluation(np.zeros(len(values), np.int8))
        gaps = gaps_of(values)
        bad = among(gaps, [int(Gap[reason.upper()]) for reason in self.reasons])
        return Evaluation(three(bad, ~bad & ~among(gaps, _ANSWERS)))


class Silent(ConditionKind, frozen=True, tag="silent"):
    """Bad when no frame of a node came for some intervals, and at least for some seconds."""

    IS_AGE = True

    intervals: float
    least: float = 0.0
    """Seconds; so that a node that reads ten times a second is not silent after 0.3 s."""
    planned: bool = False
    """Evaluate the nodes whose collector stopped on purpose, in place of those that were lost."""
    several: int = 1
    """Least number of nodes that fell silent ..."""
    together: float = 120.0
    """... within so many seconds of one another."""

    def evaluate(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        """Compare each node's silence with its own interval."""
        ages, intervals = inputs.snapshot.silence()
        limits = np.maximum(self.intervals * intervals, self.least)
        bad = (ages >= limits) & (inputs.snapshot.ended() == self.planned)
        if self.several > 1:
            bad &= _together(ages, bad, self.together) >= self.several
        return Evaluation(three(bad, np.isnan(ages)), ages, limits)

    def describe(self, value: float) -> str:
        """Return a duration."""
        return duration(value)


def _together(ages: Floats, silent: Flags, seconds: float) -> Index:
    """Return for each node how many silent ones fell silent within some seconds of it."""
    ranked = np.sort(ages[silent])
    first = np.searchsorted(ranked, ages - seconds, "left")
    last = np.searchsorted(ranked, ages + seconds, "right")
    return last - first


class Worked(ConditionKind, frozen=True, tag="worked"):
    """Bad when a node had work within some seconds of its last frame, however long ago that is.

    Work is a GPU in use, one that draws clearly more than at rest (use is not reported where a GPU is
    split by MIG), or a process with a compute context. A node of which that was never read is unknown;
    time without readings does not count as rest.
    """

    REMEMBERS: ClassVar[bool] = True

    within: float
    """Seconds before the last frame."""
    use: float = 0.05
    """Least `gpu_utilization_ratio` that is work."""
    power: float = 0.35
    """Least share of `gpu_power_limit_watts` that is work; idle GPUs draw a tenth to a quarter."""

    def problems(self) -> Iterator[tuple[str, str]]:
        """Report a window of no time."""
        if self.within <= 0:
            yield f"within = {self.within:g} is no time", "Write seconds, as 600."

    def evaluate(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        """Count for each node that is heard the seconds of rest since it last had work."""
        return evaluate_slowly(memory, inputs.snapshot.now, lambda: self._evaluate(inputs, memory))

    def _evaluate(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        snapshot = inputs.snapshot
        # A state as of the last frame, so that neither silence nor a restart changes it.
        idle = memory.array(IDLE_SECONDS, np.float32, np.nan)
        before = memory.array("heard", np.float64, np.nan)
        heard = snapshot.heard()
        passed = heard - before
        before[:] = np.where(np.isfinite(heard), heard, np.nan)
        use = snapshot.values("gpu_utilization_ratio", Subject.GPU)
        watts = snapshot.values("gpu_power_watts", Subject.GPU)
        limits = snapshot.values("gpu_power_limit_watts", Subject.GPU)
        processes = snapshot.values("gpu_processes", Subject.GPU)
        known = ~np.isnan(use) | ~np.isnan(watts)
        busy = (use >= self.use) | (watts >= self.power * limits) | (known & (processes > 0))
        nodes = snapshot.owner[Table.GPU]
        worked, read = (_of_any(nodes, flags, inputs.size) for flags in (busy, known))
        # Time of which nothing was read is neither rest nor work: a driver that hangs ends no job.
        idle += np.where((passed > 0) & read, passed, 0.0)
        idle[read & np.isnan(idle)] = np.inf  # no work has been seen
        idle[worked] = 0.0
        return Evaluation(three(idle <= self.within, np.isnan(idle)))


IDLE_SECONDS = "idle_seconds"
"""Array of `Worked`: the seconds that a node was read at rest since its last work; NaN where unknown."""


def _of_any(nodes: Index, flags: Flags, size: int) -> Flags:
    """Return the nodes of which one GPU at least has the flag."""
    found = np.zeros(size, np.bool_)
    found[nodes[flags & (nodes >= 0)]] = True
    return found


class DriverCondition(ConditionKind, frozen=True, tag="driver"):
    """Bad while a node's driver is in one of some states, by its inventory."""

    states: tuple[str, ...]
    """`missing`, `mismatched`, `hung`, `no_permission`, `released`."""

    def problems(self) -> Iterator[tuple[str, str]]:
        """Report unknown states."""
        for state in self.states:
            if state not in DRIVER_STATES:
                yield f"no driver is {state!r}", did_you_mean(state, DRIVER_STATES)

    def evaluate(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        """Compare each node's state with the states."""
        return Evaluation(inputs.snapshot.driver_rows(self.states).view(np.int8))


DRIVER_STATES = ("up", "missing", "mismatched", "hung", "no_permission", "released", "none")


class Skewed(ConditionKind, frozen=True, tag="skew"):
    """Bad when a node's clock differs from the aggregator's by some seconds, either way.

    The time that a frame took to arrive counts as being behind, so the level is seconds, not
    milliseconds.
    """

    REMEMBERS: ClassVar[bool] = True

    level: float

    def evaluate(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        """Compare each node's clock with the aggregator's."""
        return evaluate_slowly(memory, inputs.snapshot.now, lambda: self._evaluate(inputs))

    def _evaluate(self, inputs: RuleInput) -> Evaluation:
        skew = inputs.snapshot.skew()
        return Evaluation(three(np.abs(skew) >= self.level, np.isnan(skew)), skew, self.level)

    def describe(self, value: float) -> str:
        """Return the difference, and its direction."""
        return f"{abs(value):.1f} s {'ahead' if value > 0 else 'behind'}"
