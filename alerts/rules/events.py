"""Conditions on events: one of some kind, or repetitions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from alerts.rules.condition import ConditionKind, Evaluation
from alerts.rules.input import RuleInput
from alerts.rules.row_memory import RowMemory
from alerts.xid.catalogue import XidSeverity, catalogue
from alerts.xid.event import fault_of, numbered_gpu, site_of, unit_labels
from api.alerts import Severity, Subject
from telemetry.devices import Event
from telemetry.errors import did_you_mean
from telemetry.metric import Table
from telemetry.statements.catalogue import statements

_FAULTS = frozenset({known.fault for known in catalogue().values()}) | {
    "unknown_xid", "nvlink_noise", "recovery_action_p2p", "recovery_drain", "driver_mismatch",
    "driver_hung", "nvswitch_link", "nvswitch_fatal", "nvswitch_noise", "nvswitch_unknown",
    *(statement.fault for statement in statements().values()),
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
    whatever: tuple[int, ...] = ()
    """XIDs that fit whatever their severity."""

    def fits(self, event: Event) -> bool:
        """Return whether an event is one of these."""
        if event.kind not in self.kinds:
            return False
        number = event.data.get("xid", event.data.get("sxid"))
        if self.xids and number not in self.xids:
            return False
        if not (self.faults or self.other_than or self.severity):
            return True
        fault, severity = fault_of(event)
        return (
            (not self.faults or fault in self.faults)
            and fault not in self.other_than
            and (self.severity is None or severity.value == self.severity.value or number in self.whatever)
        )

    def problems(self) -> Iterator[tuple[str, str]]:
        """Report faults that no XID has."""
        for fault in (*self.faults, *self.other_than):
            if fault not in _FAULTS:
                yield f"there is no fault {fault!r}", did_you_mean(fault, _FAULTS)


_FIRST_SXID = 10_000


@dataclass(slots=True)
class _Waiting:
    """Events of a row whose verdict waits, and when another XID last spared the row."""

    events: dict[str, tuple[float, Event]] = field(default_factory=dict)
    """By fault: monotonic seconds of the first event, and the event."""
    spared_at: float = -np.inf


class Happens(_OfEvents, frozen=True, tag="event"):
    """Bad at the instant at which an event comes: of some kind, XID, fault or severity."""

    EDGE: ClassVar[bool] = True

    spared_by: tuple[int, ...] = ()
    """XIDs that, coming to the same device within `wait`, leave the event to another rule."""
    spared_by_page: bool = False
    """Whether an XID that is worth a page, on any GPU of the node within `wait`, leaves an event of the
    node to its rule."""
    wait: float = 0.0
    """Seconds for which the verdict waits for what spares."""
    each: bool = False
    """Whether an event of the node, while the rule fires there, is an alert of its own if it has a
    fault that no alert there has: of another GPU, by the number in the line, of another kind, or of
    another unit that the line names (a drive, an adapter)."""

    def fault_of_alert(self, event: Event) -> str:
        """Return what distinguishes the alert of an event from others of its row, or ""."""
        if not self.each or event.gpu is not None:
            return ""
        unit = unit_labels(event).get("unit", "")
        if event.kind == "sxid":  # one of many ports of a switch is no news
            unit = event.pci or ""
        return numbered_gpu(event) or f"{fault_of(event)[0]} {unit}".rstrip()

    def evaluate(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        """Return the rows that have such an event; a row without any is good, not unknown."""
        bad = np.zeros(inputs.size, np.int8)
        events = inputs.events()
        spared = self._spared(inputs)
        if not events and not spared and not memory.notes:
            return Evaluation(bad)
        values = np.full(inputs.size, np.nan, np.float32)
        causes: dict[int, Event] = {}
        for row, event in self._due(inputs, memory, spared) if self.wait else events:
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

    def _spared(self, inputs: RuleInput) -> set[int]:
        """Return the rows whose events are left to the rule of an XID of this tick."""
        spared = {row for row, event in inputs.events() if event.data.get("xid") in self.spared_by}
        if self.spared_by_page and inputs.subject is Subject.NODE:
            holders = inputs.snapshot.owner[Table.GPU]
            spared |= {int(holders[row]) for row, event in inputs.snapshot.events[Table.GPU] if _is_page(event)}
            spared |= {row for row, event in inputs.events() if _is_page(event)}
        return spared

    def _due(self, inputs: RuleInput, memory: RowMemory, spared: set[int]) -> list[tuple[int, Event]]:
        """Return the events that have waited long enough, and that no other XID has spared: one a row,
        the others at the next ticks."""
        now, notes = inputs.snapshot.now, memory.notes
        for row in spared:
            notes[row] = _Waiting(spared_at=now)
        for row, event in inputs.events():
            if event.data.get("xid") in self.spared_by or not self.fits(event):
                continue
            waiting = notes.setdefault(row, _Waiting())
            if now - waiting.spared_at >= self.wait:
                waiting.events.setdefault(self.fault_of_alert(event), (now, event))
        due = []
        for row, waiting in list(notes.items()):
            ready = (fault for fault, (since, _) in waiting.events.items() if now - since >= self.wait)
            fault = next(ready, None)
            if fault is not None:
                due.append((row, waiting.events.pop(fault)[1]))
            if not waiting.events and now - waiting.spared_at >= self.wait:
                del notes[row]
        return due


def _is_page(event: Event) -> bool:
    return event.kind in {"xid", "gpu_lost"} and fault_of(event)[1] is XidSeverity.PAGE


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
    ports: bool = False
    """Count different ports of one NVSwitch."""

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
            past = memory.notes[row] = [one for one in memory.notes[row] if inputs.snapshot.now - one.at < self.window]
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
        site = site_of(event) if self.programs else ""
        if self.ports:
            process, site = event.data.get("link"), event.pci or ""
        past.append(_PastEvent(at, event.node, process, site))
        del past[:-256]

    def _most(self, past: list[_PastEvent]) -> int:
        """Return how many separate events there are, or different programs at one unit, ports of one switch."""
        if self.programs or self.ports:
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
