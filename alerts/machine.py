"""The life of an alert, for all rows of a table at once: inactive, pending, firing, resolved.

Unknown neither fires nor clears: a row that nobody can read stays as it was.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from alerts.judging import BAD, GOOD, Floats, Verdicts
from alerts.rows import Index, Rows


class Phase(IntEnum):
    """Where a row stands. That it has resolved is an instant, not a phase."""

    INACTIVE = 0
    PENDING = 1
    FIRING = 2


class Life:
    """The phase of each row under one rule, and since when."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self.active = False
        """Whether any row is not inactive; most rules on most ticks have nothing to do."""

    @property
    def phase(self) -> npt.NDArray[np.int8]:
        """`Phase` of each row."""
        return self._rows.array("phase", np.int8, Phase.INACTIVE)

    @property
    def since(self) -> npt.NDArray[np.float64]:
        """When it was first seen bad, monotonic seconds."""
        return self._rows.array("since", np.float64, np.nan)

    @property
    def good_since(self) -> npt.NDArray[np.float64]:
        """When a firing row was first seen good again; NaN while it is bad."""
        return self._rows.array("good_since", np.float64, np.nan)

    @property
    def began(self) -> npt.NDArray[np.int64]:
        """`since` as ns since 1970, for people."""
        return self._rows.array("began", np.int64, 0)

    @property
    def changed(self) -> npt.NDArray[np.int64]:
        """When the phase was reached, ns since 1970."""
        return self._rows.array("changed", np.int64, 0)

    @property
    def value(self) -> npt.NDArray[np.float64]:
        """The reading that was last judged bad; NaN where there is none to show."""
        return self._rows.array("value", np.float64, np.nan)

    def listed(self) -> Index:
        """Rows that are pending or firing."""
        return np.flatnonzero(self.phase) if self.active else np.zeros(0, np.intp)


def step(
    life: Life,
    verdicts: Verdicts,
    values: Floats | None,
    *,
    now: float,
    wall: int,
    hold: float,
    keep: float,
) -> tuple[Index, Index]:
    """Move every row on by one tick; return the rows that now fire and those that resolved.

    `hold`: seconds that it must be bad before it fires. `keep`: seconds that it must be good before
    it resolves. Bad after unknown goes on where it was; good in between starts the hold anew.
    """
    if not life.active and not (verdicts == BAD).any():
        return _NONE, _NONE
    rows = np.flatnonzero((verdicts == BAD) | (life.phase != Phase.INACTIVE))
    phase, verdict = life.phase[rows], verdicts[rows]
    bad, good = verdict == BAD, verdict == GOOD

    fresh = rows[bad & (phase == Phase.INACTIVE)]
    life.phase[fresh] = Phase.PENDING
    life.since[fresh] = now
    life.began[fresh] = life.changed[fresh] = wall
    life.good_since[rows[bad]] = np.nan
    if values is not None:
        life.value[rows[bad]] = values[rows[bad]]

    phase = life.phase[rows]
    fires = rows[bad & (phase == Phase.PENDING) & (now - life.since[rows] >= hold)]
    life.phase[fires] = Phase.FIRING
    life.changed[fires] = wall

    recovering = rows[good & (phase == Phase.FIRING)]
    first = recovering[np.isnan(life.good_since[recovering])]
    life.good_since[first] = now
    resolves = recovering[now - life.good_since[recovering] >= keep]
    life.phase[resolves] = Phase.INACTIVE
    life.phase[rows[good & (phase == Phase.PENDING)]] = Phase.INACTIVE
    life.active = bool(life.phase[rows].any())
    return fires, resolves


_NONE: Index = np.zeros(0, np.intp)
