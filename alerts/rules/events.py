"""Conditions on events: one of some kind, or repetitions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from alerts.rules.condition import ConditionKind, Evaluation
from alerts.rules.input import RuleInput
from alerts.rules.row_memory import RowMemory
from alerts.xid.catalogue import catalogue
from alerts.xid.event import fault_of, site_of
from api.alerts import Severity
from telemetry.devices import Event
from telemetry.errors import did_you_mean

_FAULTS = frozenset({known.fault for known in catalogue().values()}) | {
    "unknown_xid", "nvlink_noise", "recovery_action_p2p", "recovery_drain", "driver_mismatch",
    "driver_hung", "nvswitch_link", "nvswitch_fatal", "nvswitch_noise", "nvswitch_unknown",
}  # fmt: skip


class _OfEvents(ConditionKind, frozen=True):
    kinds: tuple[str, ...] = ("xid",)
    xids: tuple[int, ...] = ()
    """Numbers of XIDs or SXIDs; none are all."""
    faults: tuple[str, ...] = ()
    """Words of the XID catalogue, with the sub-codes of NVLink errors decoded; none are all."""
    other_than: tuple[str, ...] = ()
    """Faults that are left to other rules."""
    severity: Severity | None = None
    """Severity of the line alone, by the catalogue."""

    def fits(self, event: Event) -> bool:
        """Return whether an event is one of these."""
        if event.kind not in self.kinds:
            return False
        if self.xids and event.data.get("xid", event.data.get("sxid")) not in self.xids:
            return False
        if not (self.faults or self.other_than or self.severity):
            return True
        fault, severity = fault_of(event)
        return (
            (not self.faults or fault in self.faults)
            and fault not in self.other_than
            and (self.severity is None or severity.value == self.severity.value)
        )

    def problems(self) -> Iterator[tuple[str, str]]:
        """Report faults that no XID has."""
        for fault in (*self.faults, *self.other_than):
            if fault not in _FAULTS:
                yield f"there is no fault {fault!r}", did_you_mean(fault, _FAULTS)


_FIRST_SXID = 10_000


class Happens(_OfEvents, frozen=True, tag="event"):
    """Bad at the instant at which an event comes: of some kind, XID, fault or severity."""

    EDGE: ClassVar[bool] = True

    spared_by: tuple[int, ...] = ()
    """XIDs that, coming to the same device within `wait`, leave the event to another rule."""
    wait: float = 0.0
    """Seconds for which the verdict waits for one of `spared_by`."""

    def evaluate(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        """Return the rows that have such an event; a row without any is good, not unknown."""
        bad = np.zeros(inputs.size, np.int8)
        events = inputs.events()
        if not events and not memory.notes:
            return Evaluation(bad)
        values = np.full(inputs.size, np.nan, np.float32)
        causes: dict[int, Event] = {}
        for row, event in self._due(inputs, memory) if self.wait else events:
            if self.fits(event):
                bad[row] = True
                causes[row] = event
                number = event.data.get("xid", event.data.get("sxid"))
                if isinstance(number, int):
                    values[row] = number
        return Evaluation(bad, values, causes=causes)

    def shown(self, value: float) -> str:
        """Return the number as an XID, or an SXID of an NVSwitch, which has five digits."""
        return f"{'SXid' if value >= _FIRST_SXID else 'XID'} {value:g}"

    def _due(self, inputs: RuleInput, memory: RowMemory) -> list[tuple[int, Event]]:
        """Return the events that have waited long enough, and that no other XID has spared."""
        for row, event in inputs.events():
            if event.data.get("xid") in self.spared_by:
                memory.notes[row] = inputs.snapshot.now, None
            elif self.fits(event) and row not in memory.notes:
                memory.notes[row] = inputs.snapshot.now, event
        due = [
            row
            for row, (since, _) in memory.notes.items()
            if inputs.snapshot.now - since >= self.wait
        ]
        found = [(row, memory.notes.pop(row)[1]) for row in due]
        return [(row, event) for row, event in found if event is not None]


@dataclass(slots=True)
class _PastEvent:
    """An event of a row, as it is remembered."""

    at: float
    node: str
    process: object
    site: str


class Repeats(_OfEvents, frozen=True, kw_only=True, tag="repeats"):
    """Bad while `count` separate events lie within the last `window` seconds."""

    REMEMBERS: ClassVar[bool] = True

    count: int
    window: float
    apart: float = 60.0
    """Seconds; events nearer to one another than this count as one, however many lines they have."""
    programs: bool = False
    """Count different processes, at the same unit of the GPU where the lines name one; but not when
    another GPU of the node has the same, for then the program is the cause."""

    def problems(self) -> Iterator[tuple[str, str]]:
        """Report a count of one, or an empty window."""
        yield from super().problems()
        if self.count < 2 or not self.window > 0:
            yield "a repetition is twice or more within a window", 'Use type = "event".'

    def evaluate(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        """Count the events that each row remembers."""
        bad = np.zeros(inputs.size, np.int8)
        causes: dict[int, Event] = {}
        for row, event in inputs.events():
            if self.fits(event):
                self._remember(event, row, memory, inputs.snapshot.now - inputs.snapshot.age(event))
                causes[row] = event
        if not memory.notes:
            return Evaluation(bad)
        values = np.full(inputs.size, np.nan, np.float32)
        reached: dict[str, list[int]] = {}
        for row in list(memory.notes):
            past = memory.notes[row] = [
                one for one in memory.notes[row] if inputs.snapshot.now - one.at < self.window
            ]
            if not past:
                del memory.notes[row]
                continue
            values[row] = self._most(past)
            if values[row] >= self.count:
                reached.setdefault(past[-1].node, []).append(row)
        for alike in reached.values():
            if len(alike) == 1 or not self.programs:
                bad[alike] = True
        return Evaluation(bad, values, float(self.count), causes=causes)

    def recall(self, event: Event, row: int, memory: RowMemory, at: float) -> None:
        """Remember an event of before the start."""
        if self.fits(event):
            self._remember(event, row, memory, at)

    def describe(self, value: float) -> str:
        """Return how often it came."""
        return f"{value:g} times"

    def _remember(self, event: Event, row: int, memory: RowMemory, at: float) -> None:
        process = event.data.get("pid", event.data.get("process"))
        past = memory.notes.setdefault(row, [])
        past.append(_PastEvent(at, event.node, process, site_of(event) if self.programs else ""))
        del past[:-256]

    def _most(self, past: list[_PastEvent]) -> int:
        """Return how many separate events there are, or different programs at one unit."""
        if self.programs:
            sites: dict[str, set[object]] = {}
            for one in past:
                if one.process is not None:
                    sites.setdefault(one.site, set()).add(one.process)
            return max((len(processes) for processes in sites.values()), default=0)
        count, before = 0, -np.inf
        for one in sorted(past, key=lambda one: one.at):
            count += one.at - before >= self.apart
            before = one.at
        return count
