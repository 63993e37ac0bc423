"""A condition in the operator's own words."""

from __future__ import annotations

from collections.abc import Iterator

from alerts.engine.row_memory import RowMemory
from alerts.rules.condition import ConditionInput, ConditionKind, Judgement
from alerts.rules.expression import ExpressionError, parse


class Formula(ConditionKind, frozen=True, tag="expr"):
    """Bad while an expression over names of metrics is true; see `alerts.rules.expression`."""

    expr: str
    """Its first metric is the one that is shown."""

    def metrics(self) -> Iterator[str]:
        """Those that it names."""
        try:
            yield from parse(self.expr).names
        except ExpressionError:
            return

    def problems(self) -> Iterator[tuple[str, str]]:
        """What is wrong with the expression."""
        try:
            names = parse(self.expr).names
        except ExpressionError as error:
            yield f"{self.expr!r}: {error.problem}", error.cure
        else:
            if not names:
                yield f"{self.expr!r} reads nothing", "Name a metric in it."

    def judge(self, sight: ConditionInput, rows: RowMemory) -> Judgement:
        """Work it out for every row."""
        expression = parse(self.expr)
        values = sight.values(expression.names[0]) if expression.names else None
        return Judgement(expression.judge(sight.values, sight.size), values)
