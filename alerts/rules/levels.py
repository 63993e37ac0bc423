"""Conditions on a reading as it is now; they need no memory but that of what was up before."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from alerts.engine.row_memory import RowMemory
from alerts.rules.condition import ConditionInput, ConditionKind, Floats, Judgement, among, three


class _Level(ConditionKind, frozen=True):
    metric: str
    level: float | str
    """A number in the metric's base unit, or another metric of the same device."""
    clear: float | None = None

    def metrics(self) -> Iterator[str]:
        """The metric, and its level when that is one too."""
        yield self.metric
        if isinstance(self.level, str):
            yield self.level

    def _limit(self, sight: ConditionInput) -> Floats | float:
        return sight.values(self.level) if isinstance(self.level, str) else self.level

    def problems(self) -> Iterator[tuple[str, str]]:
        """A level of clearing beside a level that moves would be a number of its own."""
        if self.clear is not None and isinstance(self.level, str):
            yield "`clear` needs a level that is a number", "Remove `clear`."


class Above(_Level, frozen=True, tag="above"):
    """Bad at or above a level; once firing, good only below `clear`."""

    def judge(self, sight: ConditionInput, rows: RowMemory) -> Judgement:
        """Compare each row's reading with the level."""
        values, level = sight.values(self.metric), self._limit(sight)
        bad = values >= level
        if self.clear is not None:
            bad |= sight.firing & (values >= self.clear)
        return Judgement(three(bad, np.isnan(values) | np.isnan(level)), values, level)

    def problems(self) -> Iterator[tuple[str, str]]:
        """The level of clearing lies on the good side."""
        yield from super().problems()
        if self.clear is not None and isinstance(self.level, float) and self.clear > self.level:
            yield "`clear` is above `level`", "It clears below `clear`, which is the lower one."


class Below(_Level, frozen=True, tag="below"):
    """Bad at or below a level; once firing, good only above `clear`."""

    def judge(self, sight: ConditionInput, rows: RowMemory) -> Judgement:
        """Compare each row's reading with the level."""
        values, level = sight.values(self.metric), self._limit(sight)
        bad = values <= level
        if self.clear is not None:
            bad |= sight.firing & (values <= self.clear)
        return Judgement(three(bad, np.isnan(values) | np.isnan(level)), values, level)

    def problems(self) -> Iterator[tuple[str, str]]:
        """The level of clearing lies on the good side."""
        yield from super().problems()
        if self.clear is not None and isinstance(self.level, float) and self.clear < self.level:
            yield "`clear` is below `level`", "It clears above `clear`, which is the higher one."


class In(ConditionKind, frozen=True, tag="in"):
    """Bad while a state or flag is one of some values."""

    metric: str
    values: tuple[int, ...]
    after: tuple[int, ...] = ()
    """Only on a device that has shown one of these before: a link that was never up is not down."""

    def metrics(self) -> Iterator[str]:
        """The state."""
        yield self.metric

    @property
    def remembers(self) -> bool:
        """Whether what it was before counts."""
        return bool(self.after)

    def judge(self, sight: ConditionInput, rows: RowMemory) -> Judgement:
        """Look each row's state up."""
        values = sight.values(self.metric)
        bad = among(values, self.values)
        if self.after:
            primed = rows.array("primed", np.bool_, 0)
            primed |= among(values, self.after)
            bad &= primed | sight.active  # active may be from before a restart
        return Judgement(three(bad, np.isnan(values)), values)
