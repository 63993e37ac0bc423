"""A condition, and its evaluation on every row.

A verdict is three-valued: bad, good, or unknown. A gap gives unknown, which neither fires nor
clears an alert.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from alerts.rules.input import RuleInput
from alerts.rules.names import format_value
from alerts.rules.row_memory import Flags, Floats, RowMemory
from telemetry.devices import Event

GOOD, BAD, UNKNOWN = 0, 1, -1
Verdicts = npt.NDArray[np.int8]
SLOW_SECONDS = 5.0
"""Seconds between two evaluations of a condition on minutes or days; a hold of a minute is off by a
tick at most."""


class Evaluation(NamedTuple):
    """The verdict on each row, and the numbers that are shown beside a bad one."""

    verdicts: Verdicts
    values: Floats | None = None
    """The readings that were compared."""
    limits: Floats | float | None = None
    """The limit that they were compared with: one number, or one a row."""
    parts: Verdicts | None = None
    """Of several conditions, the number of the one that `values` are of."""
    causes: Mapping[int, Event] = {}
    """The event that made a row bad."""


class ConditionKind(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    """Base of all kinds of condition."""

    EDGE: ClassVar[bool] = False
    REMEMBERS: ClassVar[bool] = False
    IS_AGE: ClassVar[bool] = False
    """Whether its value is for how long a row has been so, s: then its alert began so much earlier."""

    def metrics(self) -> Iterator[str]:
        """Yield the names of the metrics that it reads, the one that is compared first."""
        yield from ()

    def counters(self) -> Iterator[str]:
        """Yield those of its metrics that must be counters."""
        yield from ()

    @property
    def edge(self) -> bool:
        """Whether it is bad for one instant only, so that a hold time makes no sense."""
        return self.EDGE

    @property
    def remembers(self) -> bool:
        """Whether its verdict depends on more than this tick."""
        return self.REMEMBERS

    @property
    def digest(self) -> str:
        """Name that it has in common with equal conditions of other processes and releases."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:16]

    @property
    def parts(self) -> Sequence[ConditionKind]:
        """The conditions that it is made of."""
        return ()

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield the mistakes in its fields, each with its cure."""
        yield from ()

    def evaluate(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        """Evaluate every row. `memory` belongs to this condition alone."""
        raise NotImplementedError

    def abstains(self, inputs: RuleInput) -> Flags:
        """Return the rows that stay unknown forever, for their device lacks a metric."""
        abstains = np.zeros(inputs.size, np.bool_)
        for name in self.metrics():
            abstains |= inputs.unsupported(name)
        return abstains

    def fault_of_alert(self, event: Event) -> str:
        """Return what distinguishes the alert of an event from others of its row; "" where a row has
        one alert."""
        return ""

    def recall(self, event: Event, row: int, memory: RowMemory, at: float) -> None:
        """Remember an event of before the start, at a monotonic second, without evaluating it."""

    def describe(self, value: float) -> str:
        """Return a value with its unit, as a sentence has it."""
        name = next(self.metrics(), None)
        return f"{value:g}" if name is None else format_value(name, value)

    def shown(self, value: float) -> str:
        """Return a value with its unit, as it is shown beside an alert."""
        return self.describe(value)


class MetricCondition(ConditionKind, frozen=True):
    """Base of the conditions on one metric."""

    metric: str

    def metrics(self) -> Iterator[str]:
        """Yield the metric."""
        yield self.metric


def three(bad: Flags, unknown: Flags) -> Verdicts:
    """Return verdicts of two masks of rows; a row that is both is unknown."""
    verdicts: Verdicts = bad.view(np.int8)
    verdicts[unknown] = UNKNOWN
    return verdicts


def among(values: npt.NDArray[np.generic], members: Sequence[int]) -> Flags:
    """Return the rows whose value is one of a few."""
    found = np.zeros(len(values), np.bool_)
    for member in members:  # a handful: faster than isin
        found |= values == member
    return found


_SHOWN = ("shown_values", "shown_limits")


def evaluate_slowly(
    memory: RowMemory, now: float, evaluate: Callable[[], Evaluation], seconds: float = SLOW_SECONDS
) -> Evaluation:
    """Return a new evaluation every few seconds, and the last verdicts in between, with the numbers beside bad ones."""
    verdicts = memory.array("verdicts", np.int8, UNKNOWN)
    if now < memory.state.get("evaluate_at", -np.inf):
        if "shown_values" not in memory:
            return Evaluation(verdicts.copy())
        values, limits = (memory.array(name, np.float64, np.nan) for name in _SHOWN)
        return Evaluation(verdicts.copy(), values, limits)
    memory.state["evaluate_at"] = now + seconds * 0.99
    evaluation = evaluate()
    verdicts[:] = evaluation.verdicts
    if evaluation.values is not None and np.count_nonzero(verdicts == BAD):
        for name, numbers in zip(_SHOWN, (evaluation.values, evaluation.limits), strict=True):
            memory.array(name, np.float64, np.nan)[:] = np.nan if numbers is None else numbers
    return evaluation
