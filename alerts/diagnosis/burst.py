"""Records of the kernel log as bursts: equal lines about one device within a minute."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from alerts.diagnosis.log_time import LogTime
from alerts.xid.catalogue import XidSeverity
from alerts.xid.evaluate import SITE, evaluate_statement, evaluate_switch, evaluate_xid
from alerts.xid.nvlink5 import XIDS as NVLINK5
from alerts.xid.nvlink5 import SubCode, decode
from telemetry.notations.kernel_log import DriverNote, GpuLost, KernelRecord, SXid, Xid
from telemetry.statements.catalogue import OF_GPUS, statements

BURST_SECONDS = 60.0
"""Most seconds between two equal lines of one burst."""

MOST_BURSTS = 50_000
"""Bursts that are kept: a fleet's log of a year has a few thousand; a forged one has a line each."""
_MAX_PIDS = 64
_MAX_LINES = 4
"""Lines of a burst that are kept as they were read."""
_AGAIN = re.compile(r"NVRM: Xid \(([^)]{1,80})\): (\d{1,6})(?:, pid=(\d{1,10}),)?")
_BY_DETAIL = frozenset({13, 74, 94, *NVLINK5, 154})
"""XIDs whose verdict depends on the rest of the line: each line must be parsed in full."""


@dataclass(slots=True)
class Burst:
    """Equal lines about one device within a minute."""

    fault: str
    severity: XidSeverity
    """Severity of these lines alone."""
    node: str | None
    gpu: str | None
    """PCI address in normal form where it is one; None when the lines name no GPU."""
    first: LogTime
    last: LogTime
    line: str
    """The first line as it was read."""
    unit: str | None = None
    """PCI address of a switch or a port, which are no GPUs."""
    xid: int | None = None
    sxid: int | None = None
    count: int = 1
    code: SubCode | None = None
    """Sub-code of an NVLink error of Blackwell."""
    recovery: int | None = None
    """XID 154: the recovery action that the driver requests."""
    continuation: bool = False
    statement: str | None = None
    """Name of the driver's statement, where the lines are one."""
    sites: dict[str, set[int]] = field(default_factory=dict)
    """Processes by the unit of the GPU (`GPC 2, TPC 1`, or "") that their errors name."""
    links: set[int] = field(default_factory=set)
    """Numbers of the NVLinks that the lines name."""
    lines: list[str] = field(default_factory=list)
    """The first lines as they were read, after `line`."""

    def near(self, moment: LogTime, seconds: float) -> bool:
        """Return whether a moment is within `seconds` of this burst."""
        since = self.last.before(moment)
        until = moment.before(self.first)
        return (since is not None and since <= seconds) and (until is not None and until <= seconds)


class BurstCollector:
    """Bursts of the records of a log, which are added in its order."""

    def __init__(self) -> None:
        self.bursts: list[Burst] = []
        self._open: dict[tuple[object, ...], Burst] = {}
        self._quick: dict[tuple[object, ...], Burst] = {}
        self.left_out = 0
        """Lines of bursts beyond `MOST_BURSTS`."""

    def counts_again(self, line: str, start: int, at: LogTime, node: str | None) -> bool:
        """Count a line whose XID and GPU have a burst within the last minute, without parsing the rest
        of it: a job that ends may leave thousands, and they are most of a long log."""
        match = _AGAIN.match(line, start)
        if match is None or (line[0].isdigit() and "," in line[2:6]):
            return False  # of /dev/kmsg with a priority of two digits: a program wrote it
        known = self._quick.get((match[1], match[2], node, at.file, at.axis))
        if known is None or not known.near(at, BURST_SECONDS):
            return False
        known.last = at
        known.count += 1
        if match[3] is not None and known.xid == 31:
            _add_pids(known.sites.setdefault("", set()), {int(match[3])})
        return True

    def add(self, record: KernelRecord, line: str, start: int, at: LogTime, node: str | None) -> None:
        """Add a record; `line` is its text, whose message begins at `start`."""
        burst = self._add(record, line, at, node)
        if burst is None:
            return
        match = _AGAIN.match(line, start)
        if match is not None and int(match[2]) not in _BY_DETAIL:
            key = (match[1], match[2], node, at.file, at.axis)
            self._quick[key] = burst

    def _add(self, record: KernelRecord, line: str, at: LogTime, node: str | None) -> Burst | None:
        burst = _burst(record, line, at, node)
        key: tuple[object, ...] = (
            burst.fault, burst.severity, burst.node, burst.gpu, burst.xid, burst.sxid,
            burst.recovery, burst.code, at.file, at.axis,
        )  # fmt: skip
        known = self._open.get(key)
        if burst.continuation:
            known = self._begun_by(burst) or known
        if known is None or not known.near(at, BURST_SECONDS):
            if len(self.bursts) >= MOST_BURSTS:
                self.left_out += 1
                return None
            self._open[key] = burst
            self.bursts.append(burst)
            return burst
        known.last = at
        known.count += 0 if burst.continuation else 1
        known.links |= burst.links
        if len(known.lines) < _MAX_LINES - 1:
            known.lines.append(line)
        for site, pids in burst.sites.items():
            _add_pids(known.sites.setdefault(site, set()), pids)
        return known

    def _begun_by(self, further: Burst) -> Burst | None:
        """Return the error of an NVSwitch that `Severity ...` and `Data {...}` lines continue."""
        return next(
            (
                burst
                for burst in reversed(self.bursts[-64:])
                if burst.sxid == further.sxid and burst.gpu == further.gpu and burst.near(further.first, BURST_SECONDS)
            ),
            None,
        )


def _add_pids(seen: set[int], more: set[int]) -> None:
    if len(seen) < _MAX_PIDS:
        seen |= more


def _burst(record: KernelRecord, line: str, at: LogTime, node: str | None) -> Burst:
    match record:
        case Xid():
            code = decode(record.xid, record.registers)
            fault, severity = evaluate_xid(record, code)
            site = SITE.search(record.detail)
            return Burst(
                fault,
                severity,
                node,
                record.pci or record.bdf,
                at,
                at,
                line,
                xid=record.xid,
                code=code,
                links=set() if record.link is None or record.link < 0 else {record.link},
                recovery=None if record.action is None else record.action[1],
                sites={"" if site is None else site[0]: set() if record.pid is None else {record.pid}},
            )
        case SXid():
            fault, severity = evaluate_switch(record)
            return Burst(
                fault,
                severity,
                node,
                record.pci or record.bdf,
                at,
                at,
                line,
                sxid=record.sxid,
                continuation=record.continuation,
                unit=record.pci,
                links=set() if record.link is None or record.link < 0 else {record.link},
            )
        case GpuLost():
            shown = line if "PCI ID" not in record.detail else record.detail  # in three lines
            return Burst("gpu_lost", XidSeverity.PAGE, node, record.pci, at, at, shown)
        case DriverNote():
            fault, severity = evaluate_statement(record.what)
            known = statements().get(record.what)
            of_gpu = known is not None and known.speaker in OF_GPUS
            return Burst(
                fault,
                severity,
                node,
                record.pci if of_gpu else None,
                at,
                at,
                line,
                unit=None if of_gpu else record.pci,
                statement=record.what,
            )
