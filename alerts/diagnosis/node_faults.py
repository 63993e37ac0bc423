"""Faults of a node outside of its GPU drivers, and lines that read like a fault but are in no catalogue."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import reduce

import msgspec

from alerts.diagnosis.finding import MOST_LINES, Finding, FindingGpu, Observation, of_gpus
from alerts.diagnosis.log_time import Clock, LogTime
from alerts.xid.catalogue import XidSeverity
from telemetry.statements.node import (
    GPU_DRIVER,
    HARMLESS,
    FirmwareRecords,
    NodeNote,
    NodeStatement,
    ending_faults,
    find_node_statement,
    subsystem_of,
    subsystems,
    suspicious,
)

MOST_FAULTS = 20_000
"""Faults of units that are kept apart: a fleet's log of a year has a few hundred."""
CAUSE_SECONDS = 60.0
"""Most seconds between the loss of a drive and what follows from it."""
_STACK_LINES = 64
_STACK_SECONDS = 2.0
_SHOWN = 500
_MODULE = re.compile(r"(?:RIP: 0010:|pc : | ?(?:\? )?)[\w.]{1,120}\+0x[0-9a-f]+/0x[0-9a-f]+ \[([\w-]{1,60})\]")
_GPU_MODULES = re.compile("nvidia.*|amdgpu|xe")
_TOGETHER = 1.0
"""Seconds below which times do not tell an order: syslog has whole ones, and CPUs write side by side."""
_HALF_YEAR = 183 * 86400.0
_ANY = "*"
"""Stands for each unit that a line says something about, for faults whose lines name none."""
PCIE_OF_GPUS = "pcie_errors"
"""Fault whose unit is a GPU."""


@dataclass(slots=True, eq=False)
class NodeFault:
    """The lines of one fault of one unit, on one clock of one log."""

    statement: NodeStatement
    """The worst that its lines state."""
    unit: str | None
    node: str | None
    first: LogTime
    last: LogTime
    line: str
    count: int = 0
    lines: list[str] = field(default_factory=list)
    recent: deque[LogTime] = field(default_factory=deque)
    """The newest lines, as many as make a ticket."""
    repeated: bool = False
    ended: bool = False
    """Whether a later line says that it has ended, after `findings`."""
    module: str | None = None
    """Module of the kernel in which the stack behind it begins."""

    @property
    def severity(self) -> XidSeverity:
        """Severity of its lines together."""
        severity = XidSeverity(self.statement.severity)
        if self.ended:
            severity = XidSeverity.INFO
        if self.module is not None and _GPU_MODULES.fullmatch(self.module):
            severity = XidSeverity.PAGE
        if self.repeated and severity.rank > XidSeverity.TICKET.rank:
            severity = XidSeverity.TICKET
        return severity


class NodeFaultLog:
    """Collector of the statements about a node, line by line."""

    def __init__(self) -> None:
        self.left_out = 0
        """Lines of faults beyond `MOST_FAULTS`."""
        self.found: dict[tuple[object, ...], NodeFault] = {}
        self._records = FirmwareRecords()
        self._record_at: tuple[str, LogTime, str | None] | None = None
        self._stack: tuple[NodeFault, LogTime] | None = None
        self._unknown: dict[int, dict[str, tuple[int, str]]] = {}
        """Number of lines of unknown meaning and the first, by log and part of the node."""
        self._bare: dict[int, dict[str, tuple[int, str]]] = {}
        """The same of lines that do not say whether the kernel wrote them."""
        self._ends: dict[tuple[object, ...], tuple[LogTime, LogTime, LogTime]] = {}
        """Lines that say what has ended, by log, node, fault and unit: those read first and last, and the newest."""
        self._before: LogTime | None = None
        self._steps: dict[int, int] = {}
        """Lines of a log that are later than the line before them, less those that are earlier."""

    def next_log(self) -> None:
        """Begin another log."""
        self._end_record()
        self._records = FirmwareRecords()
        self._stack = self._before = None
        self._bare.clear()

    def feed(
        self, message: str, level: int | None, from_kernel: bool | None, line: str, at: LogTime, node: str | None
    ) -> None:
        """Add a message of the kernel or a daemon that no catalogue of a driver has."""
        self._read_stack(message, at)
        before, self._before = self._before, at
        if before is not None and before.axis == at.axis and before.seconds != at.seconds:
            step = 1 if before.seconds < at.seconds else -1
            self._steps[at.file] = self._steps.get(at.file, 0) + step
        of_record, errors = self._records.feed(message)
        for text in errors:
            self._add_record(text)
        if of_record:
            if errors or self._record_at is None:
                self._record_at = (line, at, node)
            if message.startswith("{"):
                return
        note = find_node_statement(message)
        if note is not None:
            self._add(note, line, at, node)
        elif from_kernel is not False and suspicious(message, level):
            known = self._bare if from_kernel is None else self._unknown
            _count_unknown(known, subsystem_of(message), message, at)

    def add_unknown(self, subsystem: str, message: str, at: LogTime) -> None:
        """Count a line that reads like a fault, and whose meaning is not known."""
        _count_unknown(self._unknown, subsystem, message, at)

    def count_bare_lines(self, file: int) -> None:
        """Count the lines with nothing before their message too: the log has no others of the kernel."""
        known = self._unknown.setdefault(file, {})
        for subsystem, (count, first) in self._bare.pop(file, {}).items():
            before, shown = known.get(subsystem, (0, first))
            known[subsystem] = before + count, shown

    def unknown(self, file: int) -> dict[str, tuple[int, str]]:
        """Return how many lines of a log read like a fault but are in no catalogue, and the first of them, by
        part of the node."""
        return self._unknown.get(file, {})

    def withdraw(self, fault: str, unit: str, at: LogTime, node: str | None) -> None:
        """Forget the newest line of a fault of a node: the one at `at` says that it is a driver's."""
        for key, one in reversed(self.found.items()):
            (file, _, _, of, _, _) = key
            if (file, of, one.statement.fault, one.unit) == (at.file, node, fault, unit):
                one.count -= 1
                if one.count <= 0:
                    del self.found[key]
                return

    def _add_record(self, text: str) -> None:
        note = find_node_statement(text)
        begun, self._record_at = self._record_at, None
        if note is not None and begun is not None:
            self._add(note, *begun)

    def _end_record(self) -> None:
        for text in self._records.flush():
            self._add_record(text)

    def _add(self, note: NodeNote, line: str, at: LogTime, node: str | None) -> None:
        statement, unit = note
        if statement.severity == HARMLESS:
            self._end(statement.fault, unit, at, node)
            return
        key = (at.file, at.axis, at.boot, node, statement.fault, unit)
        one = self.found.get(key)
        if one is None:
            if len(self.found) >= MOST_FAULTS:
                self.left_out += 1
                return
            one = NodeFault(statement, unit, node, at, at, line.strip()[:_SHOWN])
            one.recent = deque(maxlen=statement.repeats or 1)
            self.found[key] = one
        if XidSeverity(statement.severity).rank < XidSeverity(one.statement.severity).rank:
            one.statement, one.line = statement, line.strip()[:_SHOWN]
        one.count += 1
        one.first, one.last = self._earlier(one.first, at), self._later(one.last, at)
        if len(one.lines) < MOST_LINES:
            one.lines.append(line.strip()[:_SHOWN])
        one.recent.append(at)
        if statement.repeats is not None and len(one.recent) == statement.repeats:
            since = one.recent[0].before(at)
            one.repeated = one.repeated or (since is not None and abs(since) <= statement.within)
        self._stack = (one, at) if statement.stack else self._stack

    def _end(self, fault: str, unit: str | None, at: LogTime, node: str | None) -> None:
        """Note that a line says what has ended: the fault of that unit, or of all where it names none."""
        if fault not in ending_faults():
            return
        for ended in (unit, _ANY):
            key = (at.file, node, fault, ended)
            if key in self._ends or len(self._ends) < MOST_FAULTS:
                first, _, newest = self._ends.get(key, (at, at, at))
                self._ends[key] = (first, at, self._later(newest, at))

    def _settle(self) -> None:
        """Find what has ended, now that the order of the lines of each log is known."""
        self._end_record()
        for (file, _, _, node, _, unit), one in self.found.items():
            units = (_ANY,) if unit is None else (unit, None)
            ends = (self._ends.get((file, node, one.statement.ended_by, of), ()) for of in units)
            one.ended = any(self._follows(one.last, at) for each in ends for at in each)

    def _follows(self, one: LogTime, other: LogTime) -> bool:
        """Return whether a line is later than another: by time, else by its place in the log, whose newest
        line may be its first."""
        passed = one.before(other)
        if passed is not None and abs(passed) >= _TOGETHER:
            new_year = one.axis is Clock.YEARLESS and abs(passed) > _HALF_YEAR
            return (passed > 0) != new_year
        return (one.order < other.order) == (self._steps.get(one.file, 0) >= 0)

    def _earlier(self, one: LogTime, other: LogTime) -> LogTime:
        return other if self._follows(other, one) else one

    def _later(self, one: LogTime, other: LogTime) -> LogTime:
        return other if self._follows(one, other) else one

    def _span(self, groups: list[list[NodeFault]]) -> tuple[LogTime, LogTime]:
        """Return the first and the last moment of faults."""
        read = sorted((one for each in groups for one in each), key=lambda one: one.first.order)
        begin = reduce(self._earlier, (one.first for one in read))
        return begin, reduce(self._later, (one.last for one in read))

    def _read_stack(self, message: str, at: LogTime) -> None:
        if self._stack is None:
            return
        one, since = self._stack
        passed = since.before(at)
        if at.order - since.order > _STACK_LINES or passed is None or abs(passed) > _STACK_SECONDS:
            self._stack = None
        elif (found := _MODULE.match(message)) is not None:
            one.module, self._stack = found[1], None
            one.lines.append(message[:_SHOWN])

    def faulty(self, file: int) -> set[str]:
        """Return the parts of the node that have a page or a ticket in a log, after `findings`."""
        return {
            one.statement.subsystem
            for one in self.found.values()
            if one.first.file == file and one.severity.rank <= XidSeverity.TICKET.rank
        }

    def findings(self, names: list[str]) -> list[Finding]:
        """Return one finding for each fault of a unit, with what follows from it. `names`: of the logs."""
        self._settle()
        kept: dict[tuple[str | None, str, str | None], list[NodeFault]] = {}
        for one in self._shown():
            kept.setdefault((one.node, one.statement.fault, one.unit), []).append(one)
        for key in [key for key in kept if key[2] is None]:  # a line that names no unit, beside one that does
            named = next((k for k in kept if k[:2] == key[:2] and k[2] is not None), None)
            if named is not None:
                kept[named] += kept.pop(key)
        joined: dict[int, list[list[NodeFault]]] = {}
        groups = list(kept.values())
        roots = {id(group): group for group in groups}
        for group in groups:
            cause = next((other for other in groups if _causes(other, group)), None)
            if cause is not None:
                roots[id(group)] = cause
        for group in groups:
            root = group
            while roots[id(root)] is not root:
                root = roots[id(root)]
            joined.setdefault(id(root), []).append(group)
        return [_finding(roots[key], groups, names, self._span(groups)) for key, groups in joined.items()]

    def observations(self, names: list[str]) -> Iterator[Observation]:
        """Yield what the lines of each fault say, for the evidence of others."""
        for one in self._shown():
            file = names[one.first.file]
            yield Observation(
                what=one.statement.name,
                fault=one.statement.fault,
                severity=one.severity,
                node=one.node,
                file=file,
                count=one.count,
                at=one.first.in_file(file),
                line=one.line,
            )

    def _shown(self) -> Iterator[NodeFault]:
        """Yield all faults but those that have ended."""
        return (one for one in self.found.values() if not one.ended or one.repeated)


def _count_unknown(known: dict[int, dict[str, tuple[int, str]]], subsystem: str, message: str, at: LogTime) -> None:
    lines = known.setdefault(at.file, {})
    count, first = lines.get(subsystem, (0, message))
    lines[subsystem] = count + 1, first


def parts_of_a_node() -> list[str]:
    """Return the parts of a node that a kernel log says something about."""
    return [GPU_DRIVER, *(one for one in subsystems() if one != GPU_DRIVER)]


def _causes(cause: list[NodeFault], group: list[NodeFault]) -> bool:
    """Return whether one fault is the cause of another: of the drive below it, and before it or at once."""
    first, then = cause[0], group[0]
    drive = first.unit
    if cause is group or first.node != then.node or drive is None or then.unit is None:
        return False
    if first.statement.fault not in then.statement.caused_by:
        return False
    part = then.unit.removeprefix(drive)
    if not then.unit.startswith(drive) or (part and part[0].isdigit() and drive[-1].isdigit()):
        return False  # nvme1 is no cause of nvme10n1
    near = (a.last.before(b.first) for a in cause for b in group)
    back = (b.last.before(a.first) for a in cause for b in group)
    return any(seconds is not None and seconds <= CAUSE_SECONDS for seconds in near) and any(
        seconds is not None and seconds <= CAUSE_SECONDS for seconds in back
    )


def _finding(
    root: list[NodeFault], groups: list[list[NodeFault]], names: list[str], span: tuple[LogTime, LogTime]
) -> Finding:
    ordered = [root, *(group for group in groups if group is not root)]
    all_of_it = [one for group in ordered for one in group]
    severity = min((one.severity for one in all_of_it), key=lambda one: one.rank)
    shown = min(root, key=lambda one: one.severity.rank)
    begin, end = span
    known = shown.statement
    action = f"{known.meaning} {known.remedy}"
    module = next((one.module for one in root if one.module is not None), None)
    if module is not None:
        action += f" The stack begins in the module {module}."
    if len(ordered) > 1:
        results = dict.fromkeys(f"{group[0].statement.fault} ({group[0].unit})" for group in ordered[1:])
        action += f" With it: {', '.join(results)}."
    lines = [line for one in all_of_it for line in one.lines]
    found = Finding(
        severity=severity,
        fault=known.fault,
        unit=shown.unit,
        node=shown.node,
        rule=known.rule if severity.rank <= XidSeverity.TICKET.rank else None,
        count=sum(_count(group) for group in ordered),
        first=begin.text,
        last=end.text,
        moment=shown.first.in_file(names[shown.first.file]),
        action=action,
        line=shown.line,
        lines=list(dict.fromkeys([shown.line, *lines]))[:MOST_LINES],
        files=sorted({names[one.first.file] for one in all_of_it} - {""}),
    )
    if known.fault == PCIE_OF_GPUS and shown.unit is not None:
        found = of_gpus(msgspec.structs.replace(found, unit=None), [FindingGpu(pci=shown.unit)])
    return found


def _count(group: Iterable[NodeFault]) -> int:
    """Count lines; a bug report has the same lines twice, with time since boot and wall time."""
    files: dict[int, dict[str, int]] = {}
    for one in group:
        axes = files.setdefault(one.first.file, {})
        axes[one.first.axis] = axes.get(one.first.axis, 0) + one.count
    return sum(max(axes.values()) for axes in files.values())
