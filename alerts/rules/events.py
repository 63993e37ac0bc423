"""Conditions on what happened: an event of some kind, or the same one again and again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from alerts.engine.row_memory import RowMemory
from alerts.rules.condition import ConditionInput, ConditionKind, Judgement
from alerts.xid.catalogue import catalogue
from alerts.xid.event import fault_of, site_of
from api.alerts import Severity
from telemetry.errors import did_you_mean
from telemetry.inventory import Event

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
    """How bad the line is alone, by the catalogue."""

    def fits(self, event: Event) -> bool:
        """Whether an event is one of those that are meant."""
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
        """Faults that no XID has."""
        for fault in (*self.faults, *self.other_than):
            if fault not in _FAULTS:
                yield f"no fault is called {fault!r}", did_you_mean(fault, _FAULTS)


_FIRST_SXID = 10_000


class Happens(_OfEvents, frozen=True, tag="event"):
    """Bad at the instant in which an event comes: of some kind, XID, fault or severity."""

    spared_by: tuple[int, ...] = ()
    """XIDs that, coming to the same device within `wait`, say that it is another rule's ..."""
    wait: float = 0.0
    """... seconds, for which the verdict waits."""

    @property
    def edge(self) -> bool:
        """It is an instant."""
        return True

    def judge(self, sight: ConditionInput, rows: RowMemory) -> Judgement:
        """Find the rows that something happened to. That nothing happened is known: good."""
        bad = np.zeros(sight.size, np.int8)
        happened = sight.happened()
        if not happened and not rows.notes:
            return Judgement(bad)
        values = np.full(sight.size, np.nan, np.float32)
        causes: dict[int, Event] = {}
        for row, event in self._due(sight, rows) if self.wait else happened:
            if self.fits(event):
                bad[row] = True
                causes[row] = event
                number = event.data.get("xid", event.data.get("sxid"))
                if isinstance(number, int):
                    values[row] = number
        return Judgement(bad, values, causes=causes)

    def shown(self, value: float) -> str:
        """Return the number with what it is of: those of NVSwitches have five digits."""
        return f"{'SXid' if value >= _FIRST_SXID else 'XID'} {value:g}"

    def _due(self, sight: ConditionInput, rows: RowMemory) -> list[tuple[int, Event]]:
        """Events that have waited long enough, and that nothing has spared."""
        for row, event in sight.happened():
            if event.data.get("xid") in self.spared_by:
                rows.notes[row] = sight.now, None
            elif self.fits(event) and row not in rows.notes:
                rows.notes[row] = sight.now, event
        due = [row for row, (since, _) in rows.notes.items() if sight.now - since >= self.wait]
        found = [(row, rows.notes.pop(row)[1]) for row in due]
        return [(row, event) for row, event in found if event is not None]


@dataclass(slots=True)
class _Past:
    """One event of a row, as it is remembered."""

    at: float
    node: str
    who: object
    site: str


class Repeats(_OfEvents, frozen=True, kw_only=True, tag="repeats"):
    """Bad while `count` separate events lie within the last `window` seconds."""

    count: int
    window: float
    apart: float = 60.0
    """Seconds; events nearer to one another than this are one, however many lines it left."""
    programs: bool = False
    """Count different processes, at the same unit of the GPU where the lines name one; and not
    when another GPU of the node does likewise, for that would be the program's fault."""

    @property
    def remembers(self) -> bool:
        """The window."""
        return True

    def problems(self) -> Iterator[tuple[str, str]]:
        """Once is no repetition."""
        yield from super().problems()
        if self.count < 2 or not self.window > 0:
            yield "what repeats comes twice or more within a window", 'Use type = "event".'

    def judge(self, sight: ConditionInput, rows: RowMemory) -> Judgement:
        """Count what each row remembers."""
        bad = np.zeros(sight.size, np.int8)
        causes: dict[int, Event] = {}
        for row, event in sight.happened():
            if self.fits(event):
                self._keep(event, row, rows, sight.now - sight.age(event))
                causes[row] = event
        if not rows.notes:
            return Judgement(bad)
        values = np.full(sight.size, np.nan, np.float32)
        reached: dict[str, list[int]] = {}
        for row in list(rows.notes):
            past = rows.notes[row] = [
                one for one in rows.notes[row] if sight.now - one.at < self.window
            ]
            if not past:
                del rows.notes[row]
                continue
            values[row] = self._most(past)
            if values[row] >= self.count:
                reached.setdefault(past[-1].node, []).append(row)
        for alike in reached.values():
            if len(alike) == 1 or not self.programs:
                bad[alike] = True
        return Judgement(bad, values, float(self.count), causes=causes)

    def recall(self, event: Event, row: int, rows: RowMemory, at: float) -> None:
        """Remember an event of before the start."""
        if self.fits(event):
            self._keep(event, row, rows, at)

    def said(self, value: float) -> str:
        """Return how often."""
        return f"{value:g} times"

    def _keep(self, event: Event, row: int, rows: RowMemory, at: float) -> None:
        who = event.data.get("pid", event.data.get("process"))
        past = rows.notes.setdefault(row, [])
        past.append(_Past(at, event.node, who, site_of(event) if self.programs else ""))
        del past[:-256]

    def _most(self, past: list[_Past]) -> int:
        """How many separate events there are, or different programs at one unit."""
        if self.programs:
            sites: dict[str, set[object]] = {}
            for one in past:
                if one.who is not None:
                    sites.setdefault(one.site, set()).add(one.who)
            return max((len(who) for who in sites.values()), default=0)
        count, before = 0, -np.inf
        for one in sorted(past, key=lambda one: one.at):
            count += one.at - before >= self.apart
            before = one.at
        return count
