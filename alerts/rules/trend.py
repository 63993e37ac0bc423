"""Conditions on how a reading changes: away from its own past, or towards a level."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from alerts.rules.condition import ConditionKind, Evaluation, evaluate_slowly, three
from alerts.rules.input import RuleInput
from alerts.rules.levels import GatedCondition, is_open
from alerts.rules.names import WORDS
from alerts.rules.row_memory import Floats, RowMemory
from alerts.rules.window import SinceWindow
from telemetry.metric import Unit
from telemetry.text import duration


class Drift(GatedCondition, frozen=True, tag="drift"):
    """Bad when a reading has moved by `by` or more from its mean over `window`.

    Only time under load counts, so that both means are of the same kind of work. The past mean does
    not change while it is bad; a reading that stays for a whole `window` becomes the new normal.
    """

    REMEMBERS: ClassVar[bool] = True

    by: float
    """In the metric's unit; negative for a fall."""
    window: float
    """Seconds of the past mean."""
    over: float = 0.0
    """Seconds of the present mean; 0 is the reading itself."""
    after: float = 3600.0
    """Seconds of the past that must be known; until then it is unknown."""

    def problems(self) -> Iterator[tuple[str, str]]:
        """Report a past that is shorter than the present."""
        if self.by == 0:
            yield "a drift by 0 is none", "Write how far it must move; negative for a fall."
        if not self.window > max(self.over, 0) or self.after > self.window:
            yield "`window` is the past, and longer than `over` and `after`", "Make it longer."

    def evaluate(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        """Compare the present mean with the past, and update both."""
        return evaluate_slowly(memory, inputs.snapshot.now, lambda: self._evaluate(inputs, memory))

    def _evaluate(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        now, values = inputs.snapshot.now, inputs.values(self.metric).astype(np.float32)
        counts = ~np.isnan(values)
        gate = is_open(self.load, inputs, memory.part(0))
        if gate is not None:
            counts &= gate
        past = memory.array("past", np.float32, np.nan)
        present = memory.array("present", np.float32, np.nan)
        known = memory.array("known", np.float32, 0.0)
        bad_for = memory.array("bad_for", np.float32, 0.0)
        seen = SinceWindow(memory, "seen", now)
        passed = np.clip(seen.ago(now), 0.0, self.window / 8).astype(np.float32)
        passed[~counts] = 0.0
        seen.moments[counts] = seen.short(now)

        fresh = counts & np.isnan(past)
        past[fresh] = present[fresh] = values[fresh]
        passed[fresh] = 0.0
        share = passed / np.maximum(self.over, passed + 1e-9)
        present += np.where(counts, share * (values - present), 0)
        moved = (present - past) * np.sign(self.by)
        bad = counts & (moved >= abs(self.by)) & (known >= self.after)
        bad_for[:] = np.where(bad, bad_for + passed, np.where(counts, 0.0, bad_for))
        settled = bad & (bad_for >= self.window)
        past[settled] = present[settled]
        updates = counts & ~bad
        pull = passed / np.minimum(self.window, known + passed + 1e-9)
        past += np.where(updates, pull * (values - past), 0)
        known += np.where(updates, passed, 0)
        bad &= ~settled
        return Evaluation(three(bad, ~counts | (known < self.after)), present, past + self.by)


class Worse(GatedCondition, frozen=True, tag="worse"):
    """Bad when a reading under load is a share of the best that this device has shown, or less."""

    REMEMBERS: ClassVar[bool] = True

    share: float
    """0.5 is half of its best."""

    def problems(self) -> Iterator[tuple[str, str]]:
        """Report a share out of range."""
        if not 0 < self.share < 1:
            yield f"share = {self.share:g} is no share of the best", "Write a number from 0 to 1."

    def evaluate(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        """Compare each row with its own best."""
        values = inputs.values(self.metric)
        best = memory.array("best", np.float32, np.nan)
        np.fmax(best, values, out=best, casting="same_kind")
        limits = best * self.share
        unknown = np.isnan(values)
        gate = is_open(self.load, inputs, memory.part(0))
        if gate is not None:
            unknown |= ~gate
        return Evaluation(three(values <= limits, unknown), values, limits)


_POINTS = 12


class Forecast(ConditionKind, frozen=True, tag="forecast"):
    """Bad when the trend of the last `window` seconds reaches `level` within `within` seconds.

    The trend is the line from the median of the window's first third to that of its last. There is
    no trend unless the middle third lies between them, so that noise and a single step give none.
    """

    REMEMBERS: ClassVar[bool] = True

    metric: str
    level: float | str
    """A number, or another metric of the same device."""
    within: float
    window: float

    def metrics(self) -> Iterator[str]:
        """Yield the metric, and its level when that is a metric too."""
        yield self.metric
        if isinstance(self.level, str):
            yield self.level

    def problems(self) -> Iterator[tuple[str, str]]:
        """Report an empty window or horizon."""
        if not self.window > 0 or not self.within > 0:
            yield "a forecast needs a past and a future", "Write `window` and `within` in seconds."

    def describe(self, value: float) -> str:
        """Return when it reaches the level."""
        return f"in {duration(value)}"

    def evaluate(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        """Add a point when one is due, and compute the trend again."""
        now, values = inputs.snapshot.now, inputs.values(self.metric)
        moments: list[float] = memory.moments
        if moments and now - moments[-1] < self.window / _POINTS * 0.99:
            seconds = memory.array("eta", np.float32, np.nan)
            unknown = np.isnan(values) | np.isnan(seconds)
            return Evaluation(three(seconds <= self.within, unknown), seconds, self.within)
        ring = memory.array("ring", np.float32, np.nan, depth=_POINTS)
        if len(moments) == _POINTS:
            ring[:-1] = ring[1:]
            del moments[0]
        ring[len(moments)] = values
        moments.append(now)
        seconds = self._eta(inputs, values, ring[: len(moments)], moments)
        memory.array("eta", np.float32, np.nan)[:] = seconds
        return Evaluation(three(seconds <= self.within, np.isnan(values) | np.isnan(seconds)), seconds, self.within)

    def _eta(self, inputs: RuleInput, values: Floats, points: Floats, moments: list[float]) -> Floats:
        """Return the seconds until the level; inf without a trend to it, NaN when too little is known."""
        if len(moments) < _POINTS:
            return np.full(len(values), np.nan)
        third = _POINTS // 3
        early, middle, late = (np.median(points[part * third : (part + 1) * third], axis=0) for part in range(3))
        seconds = 2 / 3 * (moments[-1] - moments[0]) * _POINTS / (_POINTS - 1)
        slope = (late - early) / seconds
        steady = (np.minimum(early, late) < middle) & (middle < np.maximum(early, late))
        level = inputs.values(self.level) if isinstance(self.level, str) else self.level
        left = level - values
        with np.errstate(divide="ignore", invalid="ignore"):
            eta = np.where(steady & (left * slope > 0), left / slope, np.inf)
        eta[np.isnan(early) | np.isnan(middle) | np.isnan(late) | np.isnan(left)] = np.nan
        found: Floats = eta
        return found


class Frozen(ConditionKind, frozen=True, tag="frozen"):
    """Bad when none of several readings has changed for some seconds while all are read.

    It takes five of the node's intervals at least. A counter of joules that stays the same while
    watts are drawn is frozen; a single reading may well stay the same.
    """

    REMEMBERS: ClassVar[bool] = True

    of: tuple[str, ...]
    """Metrics; all must be known, and the first must be above 0."""
    seconds: float

    def metrics(self) -> Iterator[str]:
        """Yield the readings that must change."""
        yield from self.of

    def problems(self) -> Iterator[tuple[str, str]]:
        """Report a single reading, or one that may stay the same."""
        if len(self.of) < 2 or not self.seconds > 0:
            yield "too little to call frozen", "Name two metrics or more in `of`, and `seconds`."
        for name in self.of:
            if name in WORDS and WORDS[name].unit in {Unit.STATE, Unit.FLAG}:
                yield (f"{name} may stay the same forever", "Name readings that change by themselves.")

    def describe(self, value: float) -> str:
        """Return the duration."""
        return duration(value)

    def evaluate(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        """Compare each reading with its value when one of them last changed."""
        now = inputs.snapshot.now
        since = SinceWindow(memory, "since", now)
        known = inputs.values(self.of[0]) > 0
        moved = np.zeros(inputs.size, np.bool_)
        for number, name in enumerate(self.of):
            values = inputs.values(name)
            known = known & ~np.isnan(values)
            last = memory.array(f"last{number}", values.dtype, np.nan)
            moved |= values != last
            np.copyto(last, values, where=~np.isnan(values))
        since.moments[moved & known] = since.short(now)
        still = since.ago(now)
        limits = np.maximum(self.seconds, 5 * inputs.snapshot.intervals(inputs.subject))
        return Evaluation(three(still >= limits, ~known), still, limits)
