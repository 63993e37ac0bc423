"""Units: the mounts, drives, memory modules and adapters behind a reading that is a sum over all of a node.

A collector sends, with the frame whose reading changes, an event that names the metric and the unit (`data.metric`,
`data.unit`); where no part has a count of its own, the kernel's line names it. A rule of that metric keeps the units
that are at fault now, so that its alert can name them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from alerts.rules.row_memory import RowMemory
from alerts.xid.event import rule_of_reading, unit_labels
from telemetry.devices import WELL, Event

COUNTED_SECONDS = 3600.0
"""Seconds for which a unit is at fault whose errors are counted: no event says that it is well again."""


@dataclass(slots=True)
class _Unit:
    at: float
    lasts: bool
    """Whether it is at fault until an event says that it is well."""
    labels: dict[str, str]


class UnitIndex:
    """Units that are at fault now, by row, of the metrics of one rule."""

    def __init__(self, memory: RowMemory, rule: str, metrics: Collection[str]) -> None:
        self._memory = memory
        self._rule = rule
        self._metrics = frozenset(metrics)

    def __bool__(self) -> bool:
        """Return whether any unit is at fault."""
        return bool(self._memory.notes)

    def note(self, row: int, event: Event, at: float) -> None:
        """Take in an event of a node, if it is of these metrics or this rule. `at`: monotonic seconds."""
        of_line = rule_of_reading(event) == self._rule
        labels = unit_labels(event)
        if not (of_line or event.data.get("metric") in self._metrics) or not labels:
            return
        units = self._memory.notes.setdefault(row, {})
        units.pop(labels["unit"], None)
        if event.data.get("state") != WELL:
            units[labels["unit"]] = _Unit(at, not of_line and "count" not in event.data, labels)
        elif not units:
            del self._memory.notes[row]

    def current(self, row: int, now: float) -> Iterator[dict[str, str]]:
        """Yield the labels of each unit of a row that is at fault, the newest last."""
        for unit in self._memory.notes.get(row, {}).values():
            if unit.lasts or now - unit.at <= COUNTED_SECONDS:
                yield unit.labels
