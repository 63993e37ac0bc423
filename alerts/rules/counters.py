"""Conditions on counters, which only grow, except for resets when the driver is loaded again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from alerts.rules.condition import Evaluation, MetricCondition, three
from alerts.rules.input import RuleInput
from alerts.rules.levels import GatedCondition, In, is_open
from alerts.rules.names import WORDS
from alerts.rules.row_memory import Flags, Floats, RowMemory
from alerts.rules.window import RollingWindow, SinceWindow
from present.units import percent
from telemetry.metric import Unit


class Rises(MetricCondition, frozen=True, tag="rises"):
    """Bad at the instant at which a counter has grown; a decrease is a reset to zero before it."""

    EDGE: ClassVar[bool] = True

    settle: float = 0.0
    """Seconds after a reset or a reload of the driver in which growth is ignored."""
    spared_by: tuple[int, ...] = ()
    """XIDs that, coming to the same device within `wait` of the growth, leave it to another rule."""
    wait: float = 0.0
    """Seconds for which the verdict waits for one of `spared_by`."""

    def counters(self) -> Iterator[str]:
        """Yield the counter."""
        yield self.metric

    def evaluate(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        """Compare with the last known number, however old."""
        growth, known = growth_of(inputs.values(self.metric), memory)
        grown = growth > 0
        if self.settle and np.count_nonzero(grown):
            grown &= inputs.snapshot.now - inputs.disturbed_at() >= self.settle
        if self.wait:
            return self._waited(grown, growth, known, inputs, memory)
        return Evaluation(three(grown, ~known), growth)

    def _waited(self, grown: Flags, growth: Floats, known: Flags, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        """Return the growth that has waited long enough, and that no XID has explained."""
        now = inputs.snapshot.now
        for row, event in inputs.events():
            if event.data.get("xid") in self.spared_by:
                memory.notes[row] = now, None
        for grower in np.flatnonzero(grown).tolist():
            memory.notes.setdefault(grower, (now, float(growth[grower])))
        due = [row for row, (since, _) in memory.notes.items() if now - since >= self.wait]
        found = [(row, memory.notes.pop(row)[1]) for row in due]
        bad, shown = np.zeros(inputs.size, np.bool_), np.full(inputs.size, np.nan, np.float64)
        for row, size in found:
            if size is not None:
                bad[row], shown[row] = True, size
        return Evaluation(three(bad, ~known & ~bad), shown)

    def describe(self, value: float) -> str:
        """Return the growth."""
        return f"{value:+g}"


class Rate(MetricCondition, frozen=True, tag="rate"):
    """Bad when a counter grew by at least `level` a second over the last `window` seconds.

    Bad as soon as the growth is too much for a whole window; good only when a whole window is
    known. Growth during a gap counts when the counter is read again, unless the gap was longer than
    the window: its time is unknown then, and the row restarts. The same holds for the value of
    a counter that was reset during a gap: it counts from there on.
    """

    REMEMBERS: ClassVar[bool] = True

    level: float
    window: float

    def counters(self) -> Iterator[str]:
        """Yield the counter."""
        yield self.metric

    def problems(self) -> Iterator[tuple[str, str]]:
        """Report an empty window."""
        if not self.window > 0:
            yield "a rate needs a window of more than 0 s", ""

    def describe(self, value: float) -> str:
        """Return the growth a second; of seconds, the share of the time."""
        if WORDS[self.metric].unit is Unit.SECONDS:
            return percent(value, 1)
        return rate_text(value)

    def evaluate(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        """Compare the growth since the start of the window with what the level allows."""
        now, values = inputs.snapshot.now, inputs.values(self.metric)
        growth, known, passed, in_gap = growth_since(values, memory, now)
        born = SinceWindow(memory, "born", now)
        restarted = known & (passed > self.window)
        growth[restarted | in_gap] = 0.0
        born.moments[restarted] = born.short(now)
        (total,), elapsed = RollingWindow(memory, self.window, ["grown"]).add([growth], now)
        rate = total / max(self.window, elapsed)
        bad = rate >= self.level
        young = born.ago(now) < self.window
        return Evaluation(three(bad, ~known | (~bad & young)), rate, self.level)


class Fraction(GatedCondition, frozen=True, tag="fraction"):
    """Bad when a flag was set for at least a share of the last `window` seconds.

    The metric may also be a counter of seconds. The share is of the time in which it was known and,
    where `load` is given, the gate was open: half a window of such time must have passed then.
    """

    REMEMBERS: ClassVar[bool] = True

    level: float
    """0 to 1."""
    window: float

    def problems(self) -> Iterator[tuple[str, str]]:
        """Report a share out of range, or a metric that is no flag."""
        if not self.window > 0:
            yield "a fraction needs a window of more than 0 s", ""
        if not 0 < self.level <= 1:
            yield f"a fraction of {self.level:g} can't be", "It is above 0 and at most 1."
        word = WORDS.get(self.metric)
        if word is not None and word.unit not in {Unit.FLAG, Unit.SECONDS}:
            yield f"{self.metric} is neither a flag nor seconds", 'Use type = "above", with `hold`.'
        if isinstance(self.load, In) and self.load.after:
            yield "`load` can only read the present", "Remove `after`."

    def describe(self, value: float) -> str:
        """Return the share."""
        return percent(value, 1)

    def evaluate(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        """Compare the time in which the flag was set with the time that counts."""
        now, values = inputs.snapshot.now, inputs.values(self.metric)
        seen = SinceWindow(memory, "seen", now)
        if WORDS[self.metric].unit is Unit.FLAG:
            known = ~np.isnan(values)
            passed = now - memory.state.get("tick", now)
            since = np.where(known & memory.array("was", np.bool_, 0), passed, 0.0)
            active = np.where(values > 0, since, 0.0)
            memory.array("was", np.bool_, 0)[:] = known
            memory.state["tick"] = now
        else:
            active, known = growth_of(values, memory)
            since = np.where(known, seen.ago(now), 0.0)
            forgotten = since > self.window  # or never seen before
            since[forgotten] = 0.0
            active[forgotten | ~known] = 0.0
        seen.moments[known] = seen.short(now)
        counts = is_open(self.load, inputs, memory.part(0))
        if counts is not None:
            active = np.where(counts, active, 0.0)
            since = np.where(counts, since, 0.0)
        (on, all_), elapsed = RollingWindow(memory, self.window, ["on", "all"]).add([active, since], now)
        longer = max(1.0, elapsed / self.window)
        need = self.window * (1.0 if self.load is None else 0.5) * longer
        share = on / np.maximum(all_, need)
        bad = share >= self.level
        return Evaluation(three(bad, ~known | (~bad & (all_ < 0.98 * need))), share, self.level)


def rate_text(value: float) -> str:
    """Return a growth a second as text: a second, an hour or a week, so that it is no tiny number."""
    for seconds, unit, least in ((1.0, "s", 0.01), (3600.0, "h", 0.1)):
        if value * seconds >= least or not value:
            return f"{value * seconds:.4g}/{unit}"
    return f"{value * 604_800:.4g}/week"


def growth_since(values: Floats, memory: RowMemory, now: float) -> tuple[Floats, Flags, Floats, Flags]:
    """Return how much a counter grew since it was last known (0 where it is not known now), where it is
    known now, the seconds that this took (inf for the first time), and where it was reset during a gap,
    so that its growth is not known after all."""
    reset = values < memory.array("last", np.float64, np.nan)
    growth, known = growth_of(values, memory)
    seen = SinceWindow(memory, "seen", now)
    passed = seen.ago(now)
    unread = passed > now - memory.state.get("evaluated", now) + 1.0
    memory.state["evaluated"] = now
    growth[~known] = 0.0
    seen.moments[known] = seen.short(now)
    return growth, known, passed, reset & unread


def growth_of(values: Floats, memory: RowMemory) -> tuple[Floats, Flags]:
    """Return how much a counter grew since it was last known (NaN where that is unknown), and where
    it is known now. A decrease is a reset to zero before."""
    last = memory.array("last", np.float64, np.nan)
    known = ~np.isnan(values)
    growth = values - last
    back = growth < 0
    if np.count_nonzero(back):
        growth[back] = values[back]
    np.copyto(last, values, where=known)
    return growth, known
