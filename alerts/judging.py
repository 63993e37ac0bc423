"""What a judgement is, and what a condition may look at to come to one.

A judgement is three-valued: bad, good, or unknown. Unknown is what a gap gives, and it neither
fires nor clears.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from telemetry.inventory import Event

GOOD, BAD, UNKNOWN = 0, 1, -1
Verdicts = npt.NDArray[np.int8]
Floats = npt.NDArray[np.floating]
"""float32 or float64, one entry a row."""


class Judgement(NamedTuple):
    """One verdict a row, and the number that a person should see beside it."""

    verdicts: Verdicts
    values: Floats | None = None


class Sight(Protocol):
    """What a condition may look at: the rows of its rule's table, now."""

    @property
    def size(self) -> int:
        """How many rows there are."""

    @property
    def now(self) -> float:
        """Monotonic seconds."""

    @property
    def firing(self) -> npt.NDArray[np.bool_]:
        """Rows where the rule fires, for a level of clearing apart from the level of firing."""

    def values(self, metric: str) -> Floats:
        """One metric of every row, gaps as NaN. A link sees its GPU's, a GPU its node's."""

    def silence(self) -> tuple[Floats, Floats]:
        """Seconds since each node was heard, and the interval that it promised."""

    def happened(self) -> list[tuple[int, Event]]:
        """What has happened since the last look: row and event."""


class Kind(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    """What all kinds share."""

    def metrics(self) -> Iterator[str]:
        """Names of the metrics that are looked at, the one that is judged first."""
        yield from ()

    @property
    def edge(self) -> bool:
        """Whether it is bad for one instant only, so that holding it makes no sense."""
        return False


def three(bad: npt.NDArray[np.bool_], unknown: npt.NDArray[np.bool_]) -> Verdicts:
    """Join two masks of rows into verdicts: unknown outdoes bad."""
    verdicts: Verdicts = bad.view(np.int8)
    verdicts[unknown] = UNKNOWN
    return verdicts


def among(values: npt.NDArray[np.generic], members: Sequence[int]) -> npt.NDArray[np.bool_]:
    """Rows whose value is one of a few."""
    found = np.zeros(len(values), np.bool_)
    for member in members:  # a handful: faster than isin
        found |= values == member
    return found
