"""Conditions on whether anything is said at all, and whether what is said is alive."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from alerts.engine.row_memory import RowMemory
from alerts.rules.condition import (
    ConditionInput,
    ConditionKind,
    Flags,
    Floats,
    Index,
    Judgement,
    among,
    three,
)
from alerts.rules.evaluation_interval import paced
from telemetry.errors import did_you_mean
from telemetry.fleet import gaps_of
from telemetry.gap import Gap
from telemetry.text import duration

_ANSWERS = (255, int(Gap.NOT_SUPPORTED), int(Gap.NO_PERMISSION))
"""`gaps_of` says 255 where there is a value."""


class Absent(ConditionKind, frozen=True, tag="gap"):
    """Bad while a reading is absent for one of some reasons; good when the driver answered."""

    metric: str
    reasons: tuple[str, ...]
    """Words of `telemetry.gap.Gap`: `device_lost`, `timed_out`, `error`."""

    def metrics(self) -> Iterator[str]:
        """The reading that stands for all of its device."""
        yield self.metric

    def abstains(self, sight: ConditionInput) -> Flags:
        """Never: that a metric is not supported is an answer too."""
        return np.zeros(sight.size, np.bool_)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Reasons that nobody gives."""
        known = [gap.word for gap in Gap]
        for reason in self.reasons:
            if reason not in known:
                yield f"no gap is called {reason!r}", did_you_mean(reason, known)

    def judge(self, sight: ConditionInput, rows: RowMemory) -> Judgement:
        """Look each row's reason up. That a metric is not supported is an answer too."""
        values = sight.values(self.metric)
        if not np.isnan(values).any():
            return Judgement(np.zeros(len(values), np.int8))
        gaps = gaps_of(values)
        bad = among(gaps, [int(Gap[reason.upper()]) for reason in self.reasons])
        return Judgement(three(bad, ~bad & ~among(gaps, _ANSWERS)))


class Silent(ConditionKind, frozen=True, tag="silent"):
    """Bad when no frame of a node came for some intervals, and at least for some seconds."""

    intervals: float
    least: float = 0.0
    """Seconds; so that a node that reads ten times a second is not silent after 0.3 s."""
    planned: bool = False
    """Judge the nodes whose collector said goodbye, in place of those that were lost."""
    several: int = 1
    """Only when so many fell silent ..."""
    together: float = 120.0
    """... within so many seconds of one another."""

    def judge(self, sight: ConditionInput, rows: RowMemory) -> Judgement:
        """Compare each node's silence with its own interval."""
        ages, intervals = sight.silence()
        limits = np.maximum(self.intervals * intervals, self.least)
        bad = (ages >= limits) & (sight.ended() == self.planned)
        if self.several > 1:
            bad &= _together(ages, bad, self.together) >= self.several
        return Judgement(three(bad, np.isnan(ages)), ages, limits)

    def said(self, value: float) -> str:
        """Return a span of time."""
        return duration(value)


def _together(ages: Floats, silent: Flags, seconds: float) -> Index:
    """For each silent node, how many fell silent within some seconds of it."""
    ranked = np.sort(ages[silent])
    first = np.searchsorted(ranked, ages - seconds, "left")
    last = np.searchsorted(ranked, ages + seconds, "right")
    return last - first


class DriverCondition(ConditionKind, frozen=True, tag="driver"):
    """Bad while a node's inventory says that its driver is in one of some states."""

    states: tuple[str, ...]
    """`missing`, `mismatched`, `hung`, `no_permission`, `released`."""

    def problems(self) -> Iterator[tuple[str, str]]:
        """States that no inventory names."""
        for state in self.states:
            if state not in DRIVER_STATES:
                yield f"no driver is {state!r}", did_you_mean(state, DRIVER_STATES)

    def judge(self, sight: ConditionInput, rows: RowMemory) -> Judgement:
        """Look each node's state up."""
        return Judgement(sight.drivers(self.states).view(np.int8))


DRIVER_STATES = ("up", "missing", "mismatched", "hung", "no_permission", "released", "none")


class Skewed(ConditionKind, frozen=True, tag="skew"):
    """Bad when a node's clock is off ours by some seconds, either way.

    What a frame took to come counts as being behind, so the level is seconds, not milliseconds.
    """

    level: float

    def judge(self, sight: ConditionInput, rows: RowMemory) -> Judgement:
        """Compare each node's clock with ours."""
        return paced(rows, sight.now, lambda: self._judge(sight))

    def _judge(self, sight: ConditionInput) -> Judgement:
        skew = sight.skew()
        return Judgement(three(np.abs(skew) >= self.level, np.isnan(skew)), skew, self.level)

    @property
    def remembers(self) -> bool:
        """The last verdict, between two judgements."""
        return True

    def said(self, value: float) -> str:
        """Return how far it is off, and which way."""
        return f"{abs(value):.1f} s {'ahead' if value > 0 else 'behind'}"
