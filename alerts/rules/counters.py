"""Conditions on counters, which only grow: but for resets, when the driver is loaded anew."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from alerts.engine.row_memory import RowMemory
from alerts.rules.condition import ConditionInput, ConditionKind, Flags, Floats, Judgement, three
from alerts.rules.gate import Gate, is_open, under
from alerts.rules.levels import In
from alerts.rules.names import WORDS
from alerts.rules.window import RollingWindow, SinceWindow
from telemetry.metric import Unit


class Rises(ConditionKind, frozen=True, tag="rises"):
    """Bad at the instant in which a counter has grown; a decrease is a reset to zero before."""

    metric: str
    settle: float = 0.0
    """Seconds after a reset or a reload of the driver in which growth is no news."""

    def metrics(self) -> Iterator[str]:
        """The counter."""
        yield self.metric

    def counters(self) -> Iterator[str]:
        """The counter."""
        yield self.metric

    @property
    def edge(self) -> bool:
        """It is an instant."""
        return True

    def judge(self, sight: ConditionInput, rows: RowMemory) -> Judgement:
        """Compare with the last number known, however long ago."""
        growth, known = growth_of(sight.values(self.metric), rows)
        grown = growth > 0
        if self.settle and grown.any():
            grown &= sight.now - sight.calm() >= self.settle
        return Judgement(three(grown, ~known), growth)

    def said(self, value: float) -> str:
        """Return by how much it grew."""
        return f"{value:+g}"


class Rate(ConditionKind, frozen=True, tag="rate"):
    """Bad when a counter grew by at least `level` a second over the last `window` seconds.

    Bad as soon as the growth is too much for a whole window; good only when a whole window is
    known. What grew while nobody could read counts when it is read again, unless the gap was
    longer than the window: then nobody can say when it grew, and the row starts anew. Nor can
    anybody say it of what a counter holds that was reset in a gap: it counts from there on.
    """

    metric: str
    level: float
    window: float

    def metrics(self) -> Iterator[str]:
        """The counter."""
        yield self.metric

    def counters(self) -> Iterator[str]:
        """The counter."""
        yield self.metric

    @property
    def remembers(self) -> bool:
        """The window."""
        return True

    def problems(self) -> Iterator[tuple[str, str]]:
        """A window of nothing."""
        if not self.window > 0:
            yield "a rate needs a window of more than 0 s", ""

    def said(self, value: float) -> str:
        """Return growth a second; seconds a second are a share of the time."""
        if WORDS[self.metric].unit is Unit.SECONDS:
            return f"{100 * value:.1f} %"
        return f"{value:.4g}/s"

    def judge(self, sight: ConditionInput, rows: RowMemory) -> Judgement:
        """Compare the growth since the start of the window with what the level allows."""
        now, values = sight.now, sight.values(self.metric)
        reset = values < rows.array("last", np.float64, np.nan)
        growth, known = growth_of(values, rows)
        seen, born = SinceWindow(rows, "seen", now), SinceWindow(rows, "born", now)
        unread = seen.ago(now) > now - rows.state.get("judged", now) + 1.0
        rows.state["judged"] = now
        anew = known & (seen.ago(now) > self.window)
        growth[anew | ~known | (reset & unread)] = 0.0
        seen.moments[known] = seen.short(now)
        born.moments[anew] = born.short(now)
        (total,), elapsed = RollingWindow(rows, self.window, ["grown"]).add([growth], now)
        rate = total / max(self.window, elapsed)
        bad = rate >= self.level
        young = born.ago(now) < self.window
        return Judgement(three(bad, ~known | (~bad & young)), rate, self.level)


class Fraction(ConditionKind, frozen=True, tag="fraction"):
    """Bad when something was so for at least a share of the last `window` seconds.

    Of the time in which it was known, and in which `load` was so where that is given: then half a
    window of it must have passed before anything is said.
    """

    metric: str
    """A flag, or a counter of seconds."""
    level: float
    """0 to 1."""
    window: float
    load: Gate | None = None

    def metrics(self) -> Iterator[str]:
        """The flag, and what the load is told by."""
        return under(self.load, self.metric)

    @property
    def remembers(self) -> bool:
        """The window."""
        return True

    def problems(self) -> Iterator[tuple[str, str]]:
        """A share that is none, of something that is not on or off."""
        if not self.window > 0:
            yield "a fraction needs a window of more than 0 s", ""
        if not 0 < self.level <= 1:
            yield f"a fraction of {self.level:g} can't be", "It is above 0 and at most 1."
        word = WORDS.get(self.metric)
        if word is not None and word.unit not in {Unit.FLAG, Unit.SECONDS}:
            yield f"{self.metric} is neither a flag nor seconds", 'Use type = "above", with `hold`.'
        if isinstance(self.load, In) and self.load.after:
            yield "`load` can only ask what is now", "Remove `after`."

    def said(self, value: float) -> str:
        """Return a share."""
        return f"{100 * value:.1f} %"

    def judge(self, sight: ConditionInput, rows: RowMemory) -> Judgement:
        """Compare the time in which it was so with the time that counts."""
        now, values = sight.now, sight.values(self.metric)
        seen = SinceWindow(rows, "seen", now)
        if WORDS[self.metric].unit is Unit.FLAG:
            known = ~np.isnan(values)
            passed = now - rows.state.get("tick", now)
            since = np.where(known & rows.array("was", np.bool_, 0), passed, 0.0)
            active = np.where(values > 0, since, 0.0)
            rows.array("was", np.bool_, 0)[:] = known
            rows.state["tick"] = now
        else:
            active, known = growth_of(values, rows)
            since = np.where(known, seen.ago(now), 0.0)
            forgotten = since > self.window  # or never seen before
            since[forgotten] = 0.0
            active[forgotten | ~known] = 0.0
        seen.moments[known] = seen.short(now)
        counts = is_open(self.load, sight, rows.part(0))
        if counts is not None:
            active = np.where(counts, active, 0.0)
            since = np.where(counts, since, 0.0)
        (on, all_), elapsed = RollingWindow(rows, self.window, ["on", "all"]).add(
            [active, since], now
        )
        longer = max(1.0, elapsed / self.window)
        need = self.window * (1.0 if self.load is None else 0.5) * longer
        share = on / np.maximum(all_, need)
        bad = share >= self.level
        return Judgement(three(bad, ~known | (~bad & (all_ < 0.98 * need))), share, self.level)


def growth_of(values: Floats, rows: RowMemory) -> tuple[Floats, Flags]:
    """Return how much a counter grew since it was last known (NaN where that can't be said), and
    where it is known now. A decrease is a reset to zero before."""
    last = rows.array("last", np.float64, np.nan)
    known = ~np.isnan(values)
    growth = values - last
    back = growth < 0
    if back.any():
        growth[back] = values[back]
    np.copyto(last, values, where=known)
    return growth, known
