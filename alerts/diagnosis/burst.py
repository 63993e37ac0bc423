"""Records of the kernel log as bursts: lines that say the same of one device within a minute."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from alerts.diagnosis.log_time import LogTime
from alerts.xid.catalogue import XidSeverity, meaning_of
from alerts.xid.links import judge_registers
from alerts.xid.nvlink5 import XIDS as NVLINK5
from alerts.xid.nvlink5 import SubCode, decode
from alerts.xid.switch import judge_switch
from telemetry.kernel_log import DriverNote, GpuLost, Record, SXid, Xid

BURST_SECONDS = 60.0
"""Equal lines no further apart than this are one event that is counted."""

_CAUSE = re.compile(r"caused by previous Xid (\d{1,6})")
_SITE = re.compile(r"GPC (\d{1,3}), TPC (\d{1,3})")
_MAX_PIDS = 64
_AGAIN = re.compile(r"NVRM: Xid \(([^)]{1,80})\): (\d{1,6})(?:, pid=(\d{1,10}),)?")
_TOLD_BY_DETAIL = frozenset({13, 74, 94, *NVLINK5, 154})
"""XIDs whose verdict lies in the rest of the line: each line must be read in full."""

_NOTES = {
    "init_failed": ("gpu_init_failed", XidSeverity.TICKET),
    "nvlink_failed": ("nvlink_errors", XidSeverity.TICKET),
    "mismatch": ("driver_mismatch", XidSeverity.TICKET),
    "task_hung": ("driver_hung", XidSeverity.PAGE),
}


@dataclass(slots=True)
class Burst:
    """Lines that say the same of one device within a minute."""

    fault: str
    severity: XidSeverity
    """Of these lines alone."""
    node: str | None
    gpu: str | None
    """PCI address in normal form where it is one; None when the lines name no GPU."""
    first: LogTime
    last: LogTime
    line: str
    """The first of them, as it was read."""
    xid: int | None = None
    sxid: int | None = None
    count: int = 1
    code: SubCode | None = None
    """Of NVLink errors of Blackwell."""
    wish: int | None = None
    """XID 154: the recovery action that the driver now asks for."""
    continuation: bool = False
    sites: dict[str, set[int]] = field(default_factory=dict)
    """Processes by the place in the GPU (`GPC 2, TPC 1`, or "") that their errors name."""

    def near(self, moment: LogTime, seconds: float) -> bool:
        """Whether a moment lies within `seconds` of this burst."""
        since = self.last.before(moment)
        until = moment.before(self.first)
        return (since is not None and since <= seconds) and (until is not None and until <= seconds)


Judged = tuple[str, XidSeverity]
"""A fault and how bad it is, alone."""


def judge_xid(record: Xid, code: SubCode | None) -> Judged:
    """Return fault and severity of one line with an XID."""
    meaning = meaning_of(record.xid)
    severity = meaning.severity
    if record.xid in NVLINK5:
        return _judge_nvlink5(record, code)
    if record.xid == 74:
        return judge_registers(record.registers, record.detail)
    if record.xid == 94 and record.reset:
        severity = XidSeverity.PAGE
    if record.xid == 45 and (before := _CAUSE.search(record.detail)) is not None:
        # The log may have lost the error itself; what it left behind still names it.
        cause = meaning_of(int(before[1]))
        if cause.severity.rank <= XidSeverity.TICKET.rank:
            return cause.fault, XidSeverity.TICKET
    if record.xid == 154:
        return _judge_wish(None if record.action is None else record.action[1])
    return meaning.fault, severity


def _judge_nvlink5(record: Xid, code: SubCode | None) -> Judged:
    if code is None:
        harmless = record.xid in {147, 148} or (record.fatal is False and record.registers)
        return (
            ("nvlink_noise", XidSeverity.IGNORE)
            if harmless
            else ("nvlink_errors", XidSeverity.TICKET)
        )
    if code.action == "IGNORE":
        return "nvlink_noise", XidSeverity.IGNORE
    if code.action == "RESET_GPU" and record.xid in {144, 146, 150}:
        return "nvlink_errors", XidSeverity.PAGE
    return "nvlink_errors", XidSeverity.TICKET


def _judge_wish(wish: int | None) -> Judged:
    match wish:
        case 0:
            return "recovery_action", XidSeverity.INFO
        case 1 | 2 | 6 | 7:
            return "recovery_action", XidSeverity.PAGE
        case 3 | 5:
            return "recovery_action_p2p", XidSeverity.PAGE
        case 4:
            return "recovery_drain", XidSeverity.TICKET
        case _:
            return "recovery_action", XidSeverity.TICKET


class Collector:
    """Takes records in the order of the log, gives bursts."""

    def __init__(self) -> None:
        self.bursts: list[Burst] = []
        self._open: dict[tuple[object, ...], Burst] = {}
        self._quick: dict[tuple[object, ...], Burst] = {}

    def counts_again(self, line: str, start: int, at: LogTime, node: str | None) -> bool:
        """Count a line whose XID and GPU were told within the last minute, without reading the
        rest of it: a job that ends may leave thousands, and they are most of a long log."""
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

    def add(self, record: Record, line: str, start: int, at: LogTime, node: str | None) -> None:
        """Take one more record; `line` is what it was read from, its message begins at `start`."""
        burst = self._add(record, line, at, node)
        match = _AGAIN.match(line, start)
        if match is not None and int(match[2]) not in _TOLD_BY_DETAIL:
            key = (match[1], match[2], node, at.file, at.axis)
            self._quick[key] = burst

    def _add(self, record: Record, line: str, at: LogTime, node: str | None) -> Burst:
        burst = _burst(record, line, at, node)
        key: tuple[object, ...] = (
            burst.fault, burst.severity, burst.node, burst.gpu, burst.xid, burst.sxid,
            burst.wish, burst.code, at.file, at.axis,
        )  # fmt: skip
        known = self._open.get(key)
        if burst.continuation:
            known = self._begun_by(burst) or known
        if known is None or not known.near(at, BURST_SECONDS):
            self._open[key] = burst
            self.bursts.append(burst)
            return burst
        known.last = at
        known.count += 0 if burst.continuation else 1
        for site, pids in burst.sites.items():
            _add_pids(known.sites.setdefault(site, set()), pids)
        return known

    def _begun_by(self, further: Burst) -> Burst | None:
        """Return the error of an NVSwitch that `Severity ...` and `Data {...}` lines continue."""
        return next(
            (
                burst
                for burst in reversed(self.bursts[-64:])
                if burst.sxid == further.sxid
                and burst.gpu == further.gpu
                and burst.near(further.first, BURST_SECONDS)
            ),
            None,
        )


def _add_pids(seen: set[int], more: set[int]) -> None:
    if len(seen) < _MAX_PIDS:
        seen |= more


def _burst(record: Record, line: str, at: LogTime, node: str | None) -> Burst:
    match record:
        case Xid():
            code = decode(record.xid, record.registers)
            fault, severity = judge_xid(record, code)
            site = _SITE.search(record.detail)
            return Burst(
                fault, severity, node, record.pci or record.bdf, at, at, line,
                xid=record.xid,
                code=code,
                wish=None if record.action is None else record.action[1],
                sites={
                    "" if site is None else site[0]: set() if record.pid is None else {record.pid}
                },
            )  # fmt: skip
        case SXid():
            fault, severity = judge_switch(record)
            return Burst(
                fault, severity, node, record.pci or record.bdf, at, at, line,
                sxid=record.sxid, continuation=record.continuation,
            )  # fmt: skip
        case GpuLost():
            told = line if "PCI ID" not in record.detail else record.detail  # in three lines
            return Burst("gpu_lost", XidSeverity.PAGE, node, record.pci, at, at, told)
        case DriverNote():
            fault, severity = _NOTES.get(record.what, ("driver_note", XidSeverity.TICKET))
            return Burst(fault, severity, node, record.pci, at, at, line)
