"""What a judgement is, and what a condition may look at to come to one.

A judgement is three-valued: bad, good, or unknown. Unknown is what a gap gives, and it neither
fires nor clears.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from alerts.engine.row_memory import RowMemory
from alerts.rules.names import say
from telemetry.inventory import Event

GOOD, BAD, UNKNOWN = 0, 1, -1
Verdicts = npt.NDArray[np.int8]
Floats = npt.NDArray[np.floating[Any]]
"""float32 or float64, one entry a row."""
Flags = npt.NDArray[np.bool_]
Index = npt.NDArray[np.intp]


class Judgement(NamedTuple):
    """One verdict a row, and the numbers that a person should see beside it."""

    verdicts: Verdicts
    values: Floats | None = None
    """What was judged."""
    limits: Floats | float | None = None
    """What it was compared with: one number, or one a row."""
    parts: Verdicts | None = None
    """Of several conditions, the number of the one that `values` are of."""
    causes: Mapping[int, Event] = {}
    """The event that made a row bad."""


class ConditionInput(Protocol):
    """What a condition may look at: the rows of its rule's table or power snapshot, now."""

    @property
    def size(self) -> int:
        """How many rows there are."""

    @property
    def now(self) -> float:
        """Monotonic seconds."""

    @property
    def firing(self) -> Flags:
        """Rows where the rule fires, for a level of clearing apart from the level of firing."""

    @property
    def active(self) -> Flags:
        """Rows where the rule is pending or fires."""

    def values(self, metric: str) -> Floats:
        """One metric of every row, gaps as NaN. A link sees its GPU's, a GPU its node's."""

    def unsupported(self, metric: str) -> Flags:
        """Rows whose device will never have a metric: that is an answer, not a gap."""

    def silence(self) -> tuple[Floats, Floats]:
        """Seconds since each node was heard, and the interval that it promised."""

    def ended(self) -> Flags:
        """Nodes whose collector said goodbye and has not come back."""

    def skew(self) -> Floats:
        """Seconds by which each node's clock is ahead of ours; negative when it is behind."""

    def kinds(self, among: str) -> tuple[Index, int]:
        """A number for each row that GPUs which may be compared share (0 for a free row), and how
        many numbers there are. `among`: `job` or `model`."""

    def intervals(self) -> Floats:
        """Seconds between two frames of each row's node."""

    def happened(self) -> list[tuple[int, Event]]:
        """What has happened since the last look: row and event."""

    def calm(self) -> Floats:
        """When the readings of each row were last disturbed, monotonic seconds."""

    def drivers(self, states: Sequence[str]) -> Flags:
        """Nodes whose driver is in one of some states, by their inventories."""

    def age(self, event: Event) -> float:
        """Seconds since an event, by its node's clock; never below 0."""


class ConditionKind(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    """What all kinds share."""

    def metrics(self) -> Iterator[str]:
        """Names of the metrics that are looked at, the one that is judged first."""
        yield from ()

    def counters(self) -> Iterator[str]:
        """Those of them that must be counters."""
        yield from ()

    @property
    def edge(self) -> bool:
        """Whether it is bad for one instant only, so that holding it makes no sense."""
        return False

    @property
    def remembers(self) -> bool:
        """Whether its verdict depends on more than this tick."""
        return False

    @property
    def parts(self) -> Sequence[ConditionKind]:
        """The conditions that it is made of."""
        return ()

    def problems(self) -> Iterator[tuple[str, str]]:
        """What is wrong with its numbers, with the cure."""
        yield from ()

    def judge(self, sight: ConditionInput, rows: RowMemory) -> Judgement:
        """Judge every row. `rows` is this condition's own memory."""
        raise NotImplementedError

    def abstains(self, sight: ConditionInput) -> Flags:
        """Rows of which it can never say anything, for the device has not what it looks at."""
        abstains = np.zeros(sight.size, np.bool_)
        for name in self.metrics():
            abstains |= sight.unsupported(name)
        return abstains

    def recall(self, event: Event, row: int, rows: RowMemory, at: float) -> None:
        """Take in an event of before the start, at a monotonic second, without judging it."""

    def said(self, value: float) -> str:
        """Return a judged value with its unit."""
        name = next(self.metrics(), None)
        return f"{value:g}" if name is None else say(name, value)

    def shown(self, value: float) -> str:
        """Return a judged value as it stands by itself, beside an alert."""
        return self.said(value)


def three(bad: Flags, unknown: Flags) -> Verdicts:
    """Join two masks of rows into verdicts: unknown outdoes bad."""
    verdicts: Verdicts = bad.view(np.int8)
    verdicts[unknown] = UNKNOWN
    return verdicts


def among(values: npt.NDArray[np.generic], members: Sequence[int]) -> Flags:
    """Rows whose value is one of a few."""
    found = np.zeros(len(values), np.bool_)
    for member in members:  # a handful: faster than isin
        found |= values == member
    return found
