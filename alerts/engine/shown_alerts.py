"""Which alerts of a rule have changed since their texts were made, so that no other is made again.

A tick compares arrays: alerts that did not change cost nothing each. Texts whose numbers alone have changed
(`silent for 63 s`) are made again for a few alerts at a time, so that 10,000 of them don't fill a tick.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from alerts.rules.row_memory import Flags, RowMove
from api.alerts import Alert

_KEY = np.dtype(
    [
        ("row", np.intp),
        ("phase", np.int8),
        ("began", np.int64),
        ("changed", np.int64),
        ("value", np.float64),
        ("limit", np.float64),
        ("part", np.int8),
        ("made", np.int64),
    ]
)
"""Values that the texts of an alert were made of, and the number of the turn in which that was."""
_STATE, _NUMBERS = ("phase", "began", "changed"), ("value", "limit", "part")


@dataclass(frozen=True, slots=True)
class PlaceFacts:
    """Facts and labels of the place of an alert."""

    facts: object
    """The inventory of its node, or the facts of its row."""
    labels: Mapping[str, str] | None
    """Labels of its node from elsewhere."""
    job: Mapping[str, str] = field(default_factory=dict)
    """Labels of the job that has it."""


class ShownAlerts(dict[int, Alert]):
    """The alert of each active row as it was last made."""

    def __init__(self) -> None:
        super().__init__()
        self.sources: dict[int, PlaceFacts] = {}
        self.context: object = None
        """The state of the fleet at which the sources were last compared."""
        self.stale: set[int] = set()
        """Rows whose alert must be made again, whatever its numbers."""
        self.fresh: set[int] = set()
        """Rows whose alert was made in this tick."""
        self._keys = np.zeros(0, _KEY)
        self._turn = 0

    def outdated(
        self, entries: npt.NDArray[Any], phases: npt.NDArray[np.int8], most: int, *, always: bool
    ) -> list[int]:
        """Return the numbers of the entries whose alert is to be made now: those whose state has changed,
        and of those whose numbers alone have changed the `most` that were made longest ago.

        `always`: the texts name more than the numbers of the entry.
        """
        self._turn += 1
        known = self._keys
        new = np.zeros(len(entries), _KEY)
        new["phase"], new["made"] = phases, self._turn
        for name in ("row", "began", "changed", "value", "limit", "part"):
            new[name] = entries[name]
        before = _aligned(known, new["row"])
        must = before["row"] != new["row"]
        for name in _STATE:
            must |= before[name] != new[name]
        if self.stale:
            must |= np.isin(new["row"], list(self.stale))
        may = np.ones(len(new), np.bool_) if always else _numbers_differ(before, new)
        later = np.flatnonzero(may & ~must)
        if len(later) > most:
            later = later[np.argpartition(before["made"][later], most)[:most]]
        make = must
        make[later] = True
        fresh = np.isin(new["row"], list(self.fresh)) if self.fresh else np.zeros(len(new), np.bool_)
        self._keys = np.where(make | fresh, new, before)
        self.fresh.clear()
        self.stale.clear()
        found: list[int] = np.flatnonzero(make & ~fresh).tolist()
        return found

    def move(self, change: RowMove) -> None:
        """Move the alerts of the devices to their new rows."""
        self.fresh.clear()
        if not self and not len(self._keys):
            return
        moved = dict(zip(change.old.tolist(), change.new.tolist(), strict=True))
        gone = set(change.touched.tolist()) - set(moved)
        alerts = {moved.get(row, row): one for row, one in self.items() if row not in gone}
        self.sources = {moved.get(row, row): one for row, one in self.sources.items() if row not in gone}
        self.clear()
        self.update(alerts)
        rows = [-1 if row in gone else moved.get(row, row) for row in self._keys["row"].tolist()]
        self._keys["row"] = rows
        self._keys = self._keys[self._keys["row"] >= 0]
        self.stale = {moved.get(row, row) for row in self.stale if row not in gone}


def _aligned(known: npt.NDArray[Any], rows: npt.NDArray[np.intp]) -> npt.NDArray[Any]:
    """Return the known key of each row; -1 as row where there is none."""
    if len(known) == len(rows) and np.array_equal(known["row"], rows):
        return known
    found = np.zeros(len(rows), _KEY)
    found["row"] = -1
    if len(known):
        order = np.argsort(known["row"])
        at = np.minimum(np.searchsorted(known["row"], rows, sorter=order), len(known) - 1)
        there = known["row"][order[at]] == rows
        found[there] = known[order[at]][there]
    return found


def _numbers_differ(before: npt.NDArray[Any], new: npt.NDArray[Any]) -> Flags:
    differ = np.zeros(len(new), np.bool_)
    for name in _NUMBERS:
        one, other = before[name], new[name]
        differ |= (one != other) & ~(np.isnan(one) & np.isnan(other))
    return differ
