"""Conditions on the present reading; they remember at most which states a row has shown before."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from alerts.rules.condition import BAD, ConditionKind, Evaluation, MetricCondition, among, three
from alerts.rules.expression import ExpressionError, parse
from alerts.rules.input import RuleInput
from alerts.rules.row_memory import Flags, Floats, RowMemory


class _Level(ConditionKind, frozen=True):
    metric: str
    level: float | str
    """A number in the metric's base unit, or another metric of the same device."""
    clear: float | None = None

    def metrics(self) -> Iterator[str]:
        """Yield the metric, and its level when that is a metric too."""
        yield self.metric
        if isinstance(self.level, str):
            yield self.level

    def _limit(self, inputs: RuleInput) -> Floats | float:
        return inputs.values(self.level) if isinstance(self.level, str) else self.level

    def problems(self) -> Iterator[tuple[str, str]]:
        """Report a number to clear at beside a level that is a metric."""
        if self.clear is not None and isinstance(self.level, str):
            yield "`clear` needs a level that is a number", "Remove `clear`."


class Above(_Level, frozen=True, tag="above"):
    """Bad at or above a level; once firing, good only below `clear`."""

    def evaluate(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        """Compare each row's reading with the level."""
        values, level = inputs.values(self.metric), self._limit(inputs)
        bad = values >= level
        if self.clear is not None and np.count_nonzero(inputs.phase):
            bad |= inputs.firing & (values >= self.clear)
        return Evaluation(three(bad, np.isnan(values) | np.isnan(level)), values, level)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Report a level of clearing on the bad side."""
        yield from super().problems()
        if self.clear is not None and isinstance(self.level, float) and self.clear > self.level:
            yield "`clear` is above `level`", "It clears below `clear`, which is the lower one."


class Below(_Level, frozen=True, tag="below"):
    """Bad at or below a level; once firing, good only above `clear`."""

    def evaluate(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        """Compare each row's reading with the level."""
        values, level = inputs.values(self.metric), self._limit(inputs)
        bad = values <= level
        if self.clear is not None and np.count_nonzero(inputs.phase):
            bad |= inputs.firing & (values <= self.clear)
        return Evaluation(three(bad, np.isnan(values) | np.isnan(level)), values, level)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Report a level of clearing on the bad side."""
        yield from super().problems()
        if self.clear is not None and isinstance(self.level, float) and self.clear < self.level:
            yield "`clear` is below `level`", "It clears above `clear`, which is the higher one."


class In(MetricCondition, frozen=True, tag="in"):
    """Bad while a state or flag is one of some values."""

    values: tuple[int, ...]
    after: tuple[int, ...] = ()
    """Only on a device that has shown one of these before: a link that was never up is not down."""

    @property
    def remembers(self) -> bool:
        """Whether the states of before count."""
        return bool(self.after)

    def evaluate(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        """Compare each row's state with the values."""
        values = inputs.values(self.metric)
        bad = among(values, self.values)
        if self.after:
            primed = memory.array("primed", np.bool_, 0)
            primed |= among(values, self.after)
            bad &= primed | inputs.active  # active may be from before a restart
        return Evaluation(three(bad, np.isnan(values)), values)


class Formula(ConditionKind, frozen=True, tag="expr"):
    """Bad while an expression over names of metrics is true; see `alerts.rules.expression`."""

    expr: str
    """The value of its first metric is shown."""

    def metrics(self) -> Iterator[str]:
        """Yield the metrics that the expression names."""
        try:
            yield from parse(self.expr).names
        except ExpressionError:
            return

    def problems(self) -> Iterator[tuple[str, str]]:
        """Report a mistake in the expression."""
        try:
            names = parse(self.expr).names
        except ExpressionError as error:
            yield f"{self.expr!r}: {error.problem}", error.cure
        else:
            if not names:
                yield f"{self.expr!r} reads nothing", "Name a metric in it."

    def evaluate(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        """Evaluate the expression on every row."""
        expression = parse(self.expr)
        values = inputs.values(expression.names[0]) if expression.names else None
        return Evaluation(expression.truth(inputs.values, inputs.size), values)


Gate = Above | Below | In | Formula
"""Conditions that decide whether a device is under load; `expr` joins several."""


def is_open(gate: Gate | None, inputs: RuleInput, memory: RowMemory) -> Flags | None:
    """Return the rows where a gate is open; None where there is no gate."""
    if gate is None:
        return None
    found: Flags = gate.evaluate(inputs, memory).verdicts == BAD
    return found


class GatedCondition(MetricCondition, frozen=True, kw_only=True):
    """Base of the conditions on a metric of devices under load."""

    load: Gate | None = None
    """Only devices on which this is bad are under load; all if it is not given."""

    def metrics(self) -> Iterator[str]:
        """Yield the metric, and those of the gate."""
        yield self.metric
        if self.load is not None:
            yield from self.load.metrics()
