"""Conditions on how a reading moves: away from its own past, or towards a level."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from alerts.engine.row_memory import RowMemory
from alerts.rules.condition import ConditionInput, ConditionKind, Floats, Judgement, three
from alerts.rules.evaluation_interval import paced
from alerts.rules.gate import Gate, is_open, under
from alerts.rules.names import WORDS
from alerts.rules.window import SinceWindow
from telemetry.metric import Unit
from telemetry.text import duration


class Drift(ConditionKind, frozen=True, tag="drift"):
    """Bad when a reading has moved by `by` or more from what it was on the mean of `window`.

    Only time under load counts, so that a mean is of like with like. The mean does not learn while
    it is bad; what stays for a whole `window` is taken for the new normal.
    """

    metric: str
    by: float
    """In the metric's unit; negative for a fall."""
    window: float
    """Seconds that the past is the mean of."""
    over: float = 0.0
    """Seconds that the present is the mean of; 0 takes the reading as it is."""
    after: float = 3600.0
    """Seconds of past that must be known before anything is said."""
    load: Gate | None = None

    def metrics(self) -> Iterator[str]:
        """The reading, and what the load is told by."""
        return under(self.load, self.metric)

    @property
    def remembers(self) -> bool:
        """The past."""
        return True

    def problems(self) -> Iterator[tuple[str, str]]:
        """A past that is shorter than the present."""
        if self.by == 0:
            yield "a drift by 0 is none", "Write how far it must move; negative for a fall."
        if not self.window > max(self.over, 0) or self.after > self.window:
            yield "`window` is the past, and longer than `over` and `after`", "Make it longer."

    def judge(self, sight: ConditionInput, rows: RowMemory) -> Judgement:
        """Compare the present with the past, and let the past learn."""
        return paced(rows, sight.now, lambda: self._judge(sight, rows))

    def _judge(self, sight: ConditionInput, rows: RowMemory) -> Judgement:
        now, values = sight.now, sight.values(self.metric).astype(np.float32)
        counts = ~np.isnan(values)
        gate = is_open(self.load, sight, rows.part(0))
        if gate is not None:
            counts &= gate
        past = rows.array("past", np.float32, np.nan)
        present = rows.array("present", np.float32, np.nan)
        known = rows.array("known", np.float32, 0.0)
        bad_for = rows.array("bad_for", np.float32, 0.0)
        seen = SinceWindow(rows, "seen", now)
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
        learns = counts & ~bad
        pull = passed / np.minimum(self.window, known + passed + 1e-9)
        past += np.where(learns, pull * (values - past), 0)
        known += np.where(learns, passed, 0)
        bad &= ~settled
        return Judgement(three(bad, ~counts | (known < self.after)), present, past + self.by)


class Worse(ConditionKind, frozen=True, tag="worse"):
    """Bad when a reading under load is a share of the best that this device has shown, or less."""

    metric: str
    share: float
    """0.5 is half of its best."""
    load: Gate | None = None

    def metrics(self) -> Iterator[str]:
        """The reading, and what the load is told by."""
        return under(self.load, self.metric)

    @property
    def remembers(self) -> bool:
        """The best."""
        return True

    def problems(self) -> Iterator[tuple[str, str]]:
        """A share that is none."""
        if not 0 < self.share < 1:
            yield f"share = {self.share:g} is no share of the best", "Write a number from 0 to 1."

    def judge(self, sight: ConditionInput, rows: RowMemory) -> Judgement:
        """Compare each row with its own best."""
        values = sight.values(self.metric)
        best = rows.array("best", np.float32, np.nan)
        np.fmax(best, values, out=best, casting="same_kind")
        limits = best * self.share
        unknown = np.isnan(values)
        gate = is_open(self.load, sight, rows.part(0))
        if gate is not None:
            unknown |= ~gate
        return Judgement(three(values <= limits, unknown), values, limits)


_POINTS = 12


class Forecast(ConditionKind, frozen=True, tag="forecast"):
    """Bad when the trend of the last `window` seconds reaches `level` within `within` seconds.

    The trend is the line from the median of the window's first third to that of its last; there is
    none unless the middle third lies between them, so noise and a single step foretell nothing.
    """

    metric: str
    level: float | str
    """A number, or another metric of the same device."""
    within: float
    window: float

    def metrics(self) -> Iterator[str]:
        """The metric, and its level when that is one too."""
        yield self.metric
        if isinstance(self.level, str):
            yield self.level

    @property
    def remembers(self) -> bool:
        """The window."""
        return True

    def problems(self) -> Iterator[tuple[str, str]]:
        """No time to look back or ahead."""
        if not self.window > 0 or not self.within > 0:
            yield "a forecast looks back and ahead", "Write `window` and `within` in seconds."

    def said(self, value: float) -> str:
        """Return when it will be there."""
        return f"in {duration(value)}"

    def judge(self, sight: ConditionInput, rows: RowMemory) -> Judgement:
        """Take a point when one is due, and draw the line anew."""
        now, values = sight.now, sight.values(self.metric)
        moments: list[float] = rows.moments
        if moments and now - moments[-1] < self.window / _POINTS * 0.99:
            seconds = rows.array("eta", np.float32, np.nan)
            unknown = np.isnan(values) | np.isnan(seconds)
            return Judgement(three(seconds <= self.within, unknown), seconds, self.within)
        ring = rows.array("ring", np.float32, np.nan, depth=_POINTS)
        if len(moments) == _POINTS:
            ring[:-1] = ring[1:]
            del moments[0]
        ring[len(moments)] = values
        moments.append(now)
        seconds = self._eta(sight, values, ring[: len(moments)], moments)
        rows.array("eta", np.float32, np.nan)[:] = seconds
        return Judgement(
            three(seconds <= self.within, np.isnan(values) | np.isnan(seconds)),
            seconds,
            self.within,
        )

    def _eta(
        self, sight: ConditionInput, values: Floats, points: Floats, moments: list[float]
    ) -> Floats:
        """Seconds until the level; inf when it is not in sight, NaN when too little is known."""
        if len(moments) < _POINTS:
            return np.full(len(values), np.nan)
        third = _POINTS // 3
        early, middle, late = (
            np.median(points[part * third : (part + 1) * third], axis=0) for part in range(3)
        )
        seconds = 2 / 3 * (moments[-1] - moments[0]) * _POINTS / (_POINTS - 1)
        slope = (late - early) / seconds
        steady = (np.minimum(early, late) < middle) & (middle < np.maximum(early, late))
        level = sight.values(self.level) if isinstance(self.level, str) else self.level
        left = level - values
        with np.errstate(divide="ignore", invalid="ignore"):
            eta = np.where(steady & (left * slope > 0), left / slope, np.inf)
        eta[np.isnan(early) | np.isnan(middle) | np.isnan(late) | np.isnan(left)] = np.nan
        found: Floats = eta
        return found


class Frozen(ConditionKind, frozen=True, tag="frozen"):
    """Bad when none of several readings has changed for some seconds while all are read.

    Over five of the node's intervals at least. A counter of joules that stands while watts are drawn is frozen; one reading alone may well
    stand still.
    """

    of: tuple[str, ...]
    """Metrics; all must be known, and the first must be above 0."""
    seconds: float

    def metrics(self) -> Iterator[str]:
        """Those that must move."""
        yield from self.of

    @property
    def remembers(self) -> bool:
        """What they were."""
        return True

    def problems(self) -> Iterator[tuple[str, str]]:
        """One reading may stand still."""
        if len(self.of) < 2 or not self.seconds > 0:
            yield "too little to call frozen", "Name two metrics or more in `of`, and `seconds`."
        for name in self.of:
            if name in WORDS and WORDS[name].unit in {Unit.STATE, Unit.FLAG}:
                yield f"{name} may stand still for ever", "Name readings that move by themselves."

    def said(self, value: float) -> str:
        """Return for how long."""
        return duration(value)

    def judge(self, sight: ConditionInput, rows: RowMemory) -> Judgement:
        """Compare each reading with what it was when one of them last moved."""
        now = sight.now
        since = SinceWindow(rows, "since", now)
        known = sight.values(self.of[0]) > 0
        moved = np.zeros(sight.size, np.bool_)
        for number, name in enumerate(self.of):
            values = sight.values(name)
            known = known & ~np.isnan(values)
            last = rows.array(f"last{number}", values.dtype, np.nan)
            moved |= values != last
            np.copyto(last, values, where=~np.isnan(values))
        since.moments[moved & known] = since.short(now)
        still = since.ago(now)
        limits = np.maximum(self.seconds, 5 * sight.intervals())
        return Judgement(three(still >= limits, ~known), still, limits)
