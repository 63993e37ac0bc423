"""State machine of alerts, for all rows of a table at once: inactive, pending, firing, resolved.

Unknown neither fires nor clears: a row without a reading stays in its state.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from alerts.rules.condition import BAD, GOOD, Evaluation
from alerts.rules.input import AlertPhase
from alerts.rules.row_memory import Index, RowMemory, RowMove

_ENTRY = np.dtype(
    [
        ("row", np.intp),
        ("since", np.float64),
        ("good_since", np.float64),
        ("held", np.float64),
        ("calm", np.float64),
        ("began", np.int64),
        ("changed", np.int64),
        ("value", np.float64),
        ("limit", np.float64),
        ("part", np.int8),
    ]
)
"""Fields of a row that is pending or firing.

since       when it was first seen bad, monotonic seconds
good_since  when a firing row was first seen good again; NaN while it is bad
held        seconds in which it was bad, of a rule that counts time under load alone
calm        seconds in which it was good since it was last bad, of such a rule
began       `since` as ns since 1970, for people
changed     when the phase was reached, ns since 1970
value       the reading that was last bad; NaN where there is none to show
limit       the limit of that reading
part        number of its condition, where a rule has several
"""


class AlertStateMachine:
    """The phase of each row under one rule, and an entry for each row that is not inactive.

    An inactive row costs one byte.
    """

    def __init__(self, memory: RowMemory) -> None:
        self._memory = memory
        self.entries: npt.NDArray[Any] = np.zeros(0, _ENTRY)
        """An `_ENTRY` for each row that is pending or firing."""
        self.turns = 0
        """Number of changes that must survive a restart."""
        self.stepped = math.nan
        """Monotonic seconds of the last step."""

    @property
    def phase(self) -> npt.NDArray[np.int8]:
        """`AlertPhase` of each row."""
        return self._memory.array("phase", np.int8, AlertPhase.INACTIVE)

    @property
    def active(self) -> bool:
        """Whether any row is not inactive."""
        return len(self.entries) > 0

    def find(self, row: int) -> int | None:
        """Return the number of a row's entry, or None when the row is inactive."""
        found = np.flatnonzero(self.entries["row"] == row)
        return int(found[0]) if len(found) else None

    def put(self, row: int, phase: AlertPhase, **entry: float) -> None:
        """Set a row to the phase that it had before a restart."""
        new = np.zeros(1, _ENTRY)
        for name, value in (entry | {"row": row}).items():
            new[name] = value
        self.entries = np.concatenate([self.entries, new])
        self.phase[row] = phase
        self.turns += 1

    def begin(self, rows: Index, now: float, wall: int) -> None:
        """Make rows pending."""
        new = np.zeros(len(rows), _ENTRY)
        new["row"], new["since"], new["began"], new["changed"] = rows, now, wall, wall
        new["good_since"] = new["value"] = new["limit"] = np.nan
        self.entries = np.concatenate([self.entries, new])
        self.phase[rows] = AlertPhase.PENDING

    def end(self, over: npt.NDArray[np.bool_]) -> None:
        """Make the rows of some entries inactive."""
        self.phase[self.entries["row"][over]] = AlertPhase.INACTIVE
        self.entries = self.entries[~over]

    def repair(self) -> None:
        """Make phases and entries agree after an exception in the middle of a step."""
        rows = self.entries["row"]
        phase = self.phase.copy()
        phase[rows] = np.where(phase[rows] == AlertPhase.INACTIVE, AlertPhase.PENDING, phase[rows])
        without = np.ones(len(phase), np.bool_)
        without[rows] = False
        phase[without] = AlertPhase.INACTIVE
        self.phase[:] = phase

    def move(self, change: RowMove) -> None:
        """Move the entries of the devices to their new rows; the phases move with the other arrays."""
        if not self.active:
            return
        highest = max(
            change.size,
            int(self.entries["row"].max()) + 1,
            int(change.touched.max(initial=-1)) + 1,  # rows that no longer exist are touched, too
        )
        moved = np.arange(highest)
        moved[change.touched] = -1
        moved[change.old] = change.new
        self.entries["row"] = moved[self.entries["row"]]
        self.entries = self.entries[self.entries["row"] >= 0]
        self.turns += 1


def step(
    machine: AlertStateMachine,
    evaluation: Evaluation,
    *,
    now: float,
    wall: int,
    hold: float,
    keep: float,
    under_load: bool = False,
    ages: Sequence[int] = (),
) -> tuple[Sequence[int], npt.NDArray[Any]]:
    """Advance every row by one tick; return the rows that now fire, and the entries of the rows that
    resolved.

    `hold`: seconds that it must be bad before it fires. `keep`: seconds that it must be good before
    it resolves. Unknown in between changes neither; good in between starts the hold time again.
    `under_load`: unknown time, in which the device may have been idle, does not count toward either;
    after a restart both begin anew. `ages`: parts of the condition whose value is for how long it has been so, s.
    """
    passed = 0.0 if math.isnan(machine.stepped) else now - machine.stepped
    machine.stepped = now
    verdicts = evaluation.verdicts
    bad_rows = (verdicts == BAD).nonzero()[0]
    if not machine.active and not len(bad_rows):  # nearly every rule at nearly every tick
        return (), machine.entries
    fresh = bad_rows[machine.phase[bad_rows] == AlertPhase.INACTIVE]
    if len(fresh):
        machine.begin(fresh, now, wall)
    entries = machine.entries
    rows = entries["row"]
    verdict, phase = verdicts[rows], machine.phase[rows]
    bad, good = verdict == BAD, verdict == GOOD
    _store_values(entries, bad, evaluation)
    if ages and len(fresh):
        aged = np.isin(rows, fresh) & np.isin(entries["part"], ages) & np.isfinite(entries["value"])
        entries["began"][aged] -= (entries["value"][aged] * 1e9).astype(np.int64)
    again = bad & ~np.isnan(entries["good_since"])
    entries["good_since"][again] = np.nan

    entries["held"][bad & (entries["since"] < now)] += passed
    entries["calm"][good & ~np.isnan(entries["good_since"])] += passed
    entries["calm"][bad] = 0.0
    held = entries["held"] if under_load else now - entries["since"]
    fires = bad & (phase == AlertPhase.PENDING) & (held >= hold)
    entries["changed"][fires] = wall
    fired: list[int] = rows[fires].tolist()
    machine.phase[fired] = AlertPhase.FIRING

    recovering = good & (phase == AlertPhase.FIRING)
    first = recovering & np.isnan(entries["good_since"])
    entries["good_since"][first] = now
    calm = entries["calm"] if under_load else now - entries["good_since"]
    resolves = recovering & (calm >= keep)
    over = resolves | (good & (phase == AlertPhase.PENDING))
    resolved = entries[resolves]
    if len(fresh) or fires.any() or first.any() or again.any() or over.any():
        machine.turns += 1
    if over.any():
        machine.end(over)
    return fired, resolved


def _store_values(entries: npt.NDArray[Any], bad: npt.NDArray[np.bool_], evaluation: Evaluation) -> None:
    """Store the value and limit of the rows that are bad."""
    rows = entries["row"][bad]
    if evaluation.values is not None:
        entries["value"][bad] = evaluation.values[rows]
    limits = evaluation.limits
    if limits is not None:
        entries["limit"][bad] = limits[rows] if isinstance(limits, np.ndarray) else limits
    if evaluation.parts is not None:
        entries["part"][bad] = evaluation.parts[rows]
