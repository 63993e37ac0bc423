"""The kinds of condition that a rule can have: each judges all rows of a table at once.

To add a kind, write one class in `alerts/kinds` and name it in the union `Condition`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from alerts.engine.row_memory import RowMemory
from alerts.rules.condition import ConditionInput, ConditionKind, Flags, Judgement
from alerts.rules.counters import Fraction, Rate, Rises
from alerts.rules.events import Happens, Repeats
from alerts.rules.formula import Formula
from alerts.rules.joined import all_of, any_of, recall_parts
from alerts.rules.levels import Above, Below, In
from alerts.rules.peers import Outlier
from alerts.rules.presence import Absent, DriverCondition, Silent, Skewed
from alerts.rules.trend import Drift, Forecast, Frozen, Worse
from telemetry.inventory import Event


class _Joined(ConditionKind, frozen=True):
    of: tuple[Condition, ...]

    @property
    def parts(self) -> Sequence[ConditionKind]:
        """Those that it joins."""
        return self.of

    @property
    def edge(self) -> bool:
        """Whether each of them is an instant."""
        return all(condition.edge for condition in self.of)

    def metrics(self) -> Iterator[str]:
        """Those of all of them."""
        for condition in self.of:
            yield from condition.metrics()

    @property
    def remembers(self) -> bool:
        """Whether one of them does."""
        return any(condition.remembers for condition in self.of)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Joining nothing."""
        if not self.of:
            yield "`any` or `all` of nothing can't be bad", "Name conditions in `of`."

    def recall(self, event: Event, row: int, rows: RowMemory, at: float) -> None:
        """Let each part remember."""
        recall_parts(self.of, event, row, rows, at)


class AnyOf(_Joined, frozen=True, tag="any"):
    """Bad when one of several is bad; good when all are good. What looks at a metric that a device
    will never have is left out."""

    def abstains(self, sight: ConditionInput) -> Flags:
        """Rows of which no part can ever say anything."""
        abstains = np.ones(sight.size, np.bool_)
        for condition in self.of:
            abstains &= condition.abstains(sight)
        return abstains

    def judge(self, sight: ConditionInput, rows: RowMemory) -> Judgement:
        """Judge each and join the verdicts."""
        return any_of(self.of, sight, rows)


class AllOf(_Joined, frozen=True, tag="all"):
    """Bad when each of several is bad; good when one is good."""

    def abstains(self, sight: ConditionInput) -> Flags:
        """Rows of which one part can never say anything."""
        abstains = np.zeros(sight.size, np.bool_)
        for condition in self.of:
            abstains |= condition.abstains(sight)
        return abstains

    def judge(self, sight: ConditionInput, rows: RowMemory) -> Judgement:
        """Judge each and join the verdicts."""
        return all_of(self.of, sight, rows)


Condition = (
    Above
    | Below
    | In
    | Formula
    | Rises
    | Rate
    | Fraction
    | Absent
    | Silent
    | Skewed
    | Happens
    | Repeats
    | Outlier
    | Drift
    | Forecast
    | Frozen
    | Worse
    | DriverCondition
    | AnyOf
    | AllOf
)
"""The registry: a union read by the loader of rules and by the type checker."""


def happenings_of(condition: Condition) -> Condition | None:
    """Return the part of a condition that is about events, or None when it has none."""
    match condition:
        case Happens() | Repeats():
            return condition
        case AnyOf():
            found = tuple(part for part in condition.of if isinstance(part, Happens | Repeats))
            return AnyOf(found) if found else None
        case _:
            return None
