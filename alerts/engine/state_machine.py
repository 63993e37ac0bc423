"""The life of an alert, for all rows of a table at once: inactive, pending, firing, resolved.

Unknown neither fires nor clears: a row that nobody can read stays as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from alerts.engine.row_memory import RowChange, RowMemory
from alerts.rules.condition import BAD, GOOD, Index, Judgement


class AlertPhase(IntEnum):
    """Where a row stands. That it has resolved is an instant, not a phase."""

    INACTIVE = 0
    PENDING = 1
    FIRING = 2


_ENTRY = np.dtype([
    ("row", np.intp),
    ("since", np.float64),
    ("good_since", np.float64),
    ("began", np.int64),
    ("changed", np.int64),
    ("value", np.float64),
    ("limit", np.float64),
    ("part", np.int8),
])  # fmt: skip
"""What is kept of a row that is pending or firing.

since       when it was first seen bad, monotonic seconds
good_since  when a firing row was first seen good again; NaN while it is bad
began       `since` as ns since 1970, for people
changed     when the phase was reached, ns since 1970
value       the reading that was last judged bad; NaN where there is none to show
limit       what it was compared with
part        number of the condition that it is of, where a rule has several
"""


class AlertStateMachine:
    """The phase of each row under one rule; and of the few that are not inactive, since when.

    A row costs one byte while nothing is wrong with it.
    """

    def __init__(self, rows: RowMemory) -> None:
        self._rows = rows
        self.entries: npt.NDArray[Any] = np.zeros(0, _ENTRY)
        """One `_ENTRY` for each row that is pending or firing."""
        self.turns = 0
        """Counts up whenever something changes that a restart must not forget."""

    @property
    def phase(self) -> npt.NDArray[np.int8]:
        """`AlertPhase` of each row."""
        return self._rows.array("phase", np.int8, AlertPhase.INACTIVE)

    @property
    def active(self) -> bool:
        """Whether any row is not inactive; most rules on most ticks have nothing to do."""
        return len(self.entries) > 0

    def find(self, row: int) -> int | None:
        """Return the number of a row's entry, or None when the row is inactive."""
        found = np.flatnonzero(self.entries["row"] == row)
        return int(found[0]) if len(found) else None

    def put(self, row: int, phase: AlertPhase, **entry: float) -> None:
        """Let a row stand where it stood before a restart."""
        new = np.zeros(1, _ENTRY)
        for name, value in (entry | {"row": row}).items():
            new[name] = value
        self.entries = np.concatenate([self.entries, new])
        self.phase[row] = phase
        self.turns += 1

    def begin(self, rows: Index, now: float, wall: int) -> None:
        """Let rows be pending from now on."""
        new = np.zeros(len(rows), _ENTRY)
        new["row"], new["since"], new["began"], new["changed"] = rows, now, wall, wall
        new["good_since"] = new["value"] = new["limit"] = np.nan
        self.entries = np.concatenate([self.entries, new])
        self.phase[rows] = AlertPhase.PENDING

    def end(self, over: npt.NDArray[np.bool_]) -> None:
        """Let the rows of some entries be inactive again."""
        self.phase[self.entries["row"][over]] = AlertPhase.INACTIVE
        self.entries = self.entries[~over]

    def move(self, change: RowChange) -> None:
        """Follow the devices to their new rows; the phases are moved with the other arrays."""
        if not self.active:
            return
        highest = max(change.size, int(self.entries["row"].max()) + 1)
        stands = np.arange(highest)
        stands[change.touched] = -1
        stands[change.old] = change.new
        self.entries["row"] = stands[self.entries["row"]]
        self.entries = self.entries[self.entries["row"] >= 0]
        self.turns += 1


def step(
    life: AlertStateMachine,
    judgement: Judgement,
    *,
    now: float,
    wall: int,
    hold: float,
    keep: float,
) -> tuple[Sequence[int], npt.NDArray[Any]]:
    """Move every row on by one tick; return the rows that now fire, and the entries (with their
    rows) of those that resolved.

    `hold`: seconds that it must be bad before it fires. `keep`: seconds that it must be good before
    it resolves. Bad after unknown goes on where it was; good in between starts the hold anew.
    """
    verdicts = judgement.verdicts
    bad_rows = np.flatnonzero(verdicts == BAD)
    if not life.active and not len(bad_rows):
        return (), life.entries
    fresh = bad_rows[life.phase[bad_rows] == AlertPhase.INACTIVE]
    if len(fresh):
        life.begin(fresh, now, wall)
    entries = life.entries
    rows = entries["row"]
    verdict, phase = verdicts[rows], life.phase[rows]
    bad, good = verdict == BAD, verdict == GOOD
    _note(entries, bad, judgement)
    again = bad & ~np.isnan(entries["good_since"])
    entries["good_since"][again] = np.nan

    fires = bad & (phase == AlertPhase.PENDING) & (now - entries["since"] >= hold)
    entries["changed"][fires] = wall
    fired: list[int] = rows[fires].tolist()
    life.phase[fired] = AlertPhase.FIRING

    recovering = good & (phase == AlertPhase.FIRING)
    first = recovering & np.isnan(entries["good_since"])
    entries["good_since"][first] = now
    resolves = recovering & (now - entries["good_since"] >= keep)
    over = resolves | (good & (phase == AlertPhase.PENDING))
    resolved = entries[resolves]
    if len(fresh) or fires.any() or first.any() or again.any() or over.any():
        life.turns += 1
    if over.any():
        life.end(over)
    return fired, resolved


def _note(entries: npt.NDArray[Any], bad: npt.NDArray[np.bool_], judgement: Judgement) -> None:
    """Keep what a person should see beside a verdict that is bad."""
    rows = entries["row"][bad]
    if judgement.values is not None:
        entries["value"][bad] = judgement.values[rows]
    limits = judgement.limits
    if limits is not None:
        entries["limit"][bad] = limits[rows] if isinstance(limits, np.ndarray) else limits
    if judgement.parts is not None:
        entries["part"][bad] = judgement.parts[rows]
