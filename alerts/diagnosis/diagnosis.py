"""Diagnosis of saved logs: one incident per cause, the worst first."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

from alerts.diagnosis.burst import Burst, BurstCollector
from alerts.diagnosis.burst_group import BurstGroup, groups_of
from alerts.diagnosis.finding import Finding, worst_first
from alerts.diagnosis.lines import host_of, relevant_lines
from alerts.diagnosis.log_time import LogClock, LogTime
from alerts.diagnosis.verdict import MEMORY, FaultVerdict, action_of, verdict_of
from alerts.xid.catalogue import XidSeverity
from telemetry.kernel_log import Assembler, DriverNote, message_start

# Patterns over a day: repeated memory errors, and programs that fail in the same way.

DAY = 86400.0
JOBS = 3
"""Number of programs that fail at one unit from which on the GPU is the cause."""


def separate_memory_errors(groups: Iterable[BurstGroup]) -> int:
    """Count the uncorrectable errors of one GPU within a day of one another, or after a reset.

    Each group is one error. A contained error (94) counts only beside a sign of the memory
    itself: an XID 48, or a row that was marked or could not be replaced.
    """
    errors = [group for group in groups if _is_memory_error(group)]
    most = 0
    for kind in {(error.head.first.file, error.head.first.axis) for error in errors}:
        alike = [e for e in errors if (e.head.first.file, e.head.first.axis) == kind]
        count = 1
        for before, after in pairwise(alike):
            since = before.head.first.before(after.head.first)
            again = since is None or since <= DAY  # None: the node was rebooted in between
            count = count + 1 if again else 1
            most = max(most, count)
        most = max(most, count)
    return most


def _is_memory_error(group: BurstGroup) -> bool:
    xids = group.xids
    return 48 in xids or (94 in xids and bool(xids & {63, 64, 171, 172}))


def program_repeats(groups: Iterable[BurstGroup]) -> set[tuple[str | None, str | None]]:
    """Return the GPUs (node, address) on which XID 13 came at one unit, or 31 at all, from three
    programs within a day, but on no other GPU of the node: then the program is the cause."""
    seen: dict[tuple[int, str | None], dict[str | None, bool]] = {}
    bursts: dict[tuple[int, str | None, str | None, str], list[Burst]] = {}
    for group in groups:
        for burst in group.bursts:
            if burst.xid not in {13, 31} or group.faults != {"application"}:
                continue
            for site in burst.sites if burst.xid == 13 else ("",):
                if burst.xid == 31 or site:
                    bursts.setdefault((burst.xid, burst.node, burst.gpu, site), []).append(burst)
    for (xid, node, gpu, site), members in bursts.items():
        if _jobs_within_a_day(members, site if xid == 13 else None):
            seen.setdefault((xid, node), {})[gpu] = True
    return {(node, next(iter(gpus))) for (_, node), gpus in seen.items() if len(gpus) == 1}


def _jobs_within_a_day(bursts: list[Burst], site: str | None) -> bool:
    oldest = 0
    for newest, burst in enumerate(bursts):
        while True:
            since = bursts[oldest].first.before(burst.last)
            if oldest == newest or (since is not None and since <= DAY):
                break
            oldest += 1
        pids: set[int] = set()
        for one in bursts[oldest : newest + 1]:
            for place, programs in one.sites.items():
                if site is None or place == site:
                    pids |= programs
        if len(pids) >= JOBS:
            return True
    return False


# Tasks that hang in the driver: the kernel names the task, and its stack names the driver.

_BEGINS = re.compile(r"INFO: task (.{1,64}?):\d{1,10} blocked for more than \d{1,9} seconds")
_OURS = re.compile(r"nvidia|nv_|nv-")
_STACK_SECONDS = 2.0
_STACK_LINES = 64


class HungTasks:
    """Detector of tasks that hang with a frame of the driver on their stack.

    A stack follows its task at once; lines of other tasks may come in between.
    """

    def __init__(self) -> None:
        self._task: tuple[str, LogTime] | None = None

    def feed(self, line: str, at: LogTime) -> DriverNote | None:
        """Return the record that this line completes, if any."""
        begins = _BEGINS.match(line, message_start(line)) if "INFO: task " in line else None
        if begins is not None:
            text = line[begins.start() :].strip()
            self._task = None if _OURS.match(begins[1]) else (text, at)
            return DriverNote("task_hung", None, text) if _OURS.match(begins[1]) else None
        if self._task is None or "[nvidia" not in line:
            return None
        text, since = self._task
        passed = since.before(at)
        near = at.order - since.order <= _STACK_LINES
        if near and passed is not None and 0 <= passed <= _STACK_SECONDS:
            self._task = None
            return DriverNote("task_hung", None, text)
        return None


_MAX_SHOWN = 500


class Diagnosis:
    """Incidents of the texts of one or several logs."""

    def __init__(self) -> None:
        self._collector = BurstCollector()
        self._clock = LogClock()
        self._assembler = Assembler()
        self._hung = HungTasks()
        self.lines = 0
        """Number of lines of the driver so far."""

    @property
    def full(self) -> bool:
        """Whether lines were left out, for there were too many bursts."""
        return self._collector.left_out > 0

    @property
    def kept(self) -> int:
        """Number of bursts."""
        return len(self._collector.bursts)

    def next_log(self) -> None:
        """Begin another log."""
        self._clock.next_file()
        self._assembler = Assembler()
        self._hung = HungTasks()

    def feed(self, text: str) -> None:
        """Add a part of a log that ends at the end of a line."""
        for line, head in relevant_lines(text):
            moment = self._clock.read(head)
            node = host_of(head)
            if len(head) == message_start(line) and self._collector.counts_again(
                line, len(head), moment, node
            ):
                self.lines += 1
                continue
            record = self._hung.feed(line, moment) or self._assembler.feed(line)
            self.lines += "NVRM" in line or "SXid" in line or record is not None
            if record is not None:
                self._collector.add(record, line, len(head), moment, node)

    def incidents(self) -> list[Finding]:
        """Return the incidents so far, the worst first."""
        bursts = self._collector.bursts
        if len({burst.node for burst in bursts} - {None}) < 2:
            for burst in bursts:  # some lines name the only node, others name none
                burst.node = None
        causes: dict[tuple[object, ...], list[tuple[BurstGroup, FaultVerdict]]] = {}
        for group in groups_of(bursts):
            verdict = verdict_of(group)
            gpu = next(iter(group.gpus)) if len(group.gpus) == 1 else None
            kind = "memory" if verdict.fault in MEMORY else verdict.fault
            which = verdict.burst.xid if verdict.fault in {"unknown_xid", "unlisted"} else None
            key = (group.head.node, gpu, kind, which)
            causes.setdefault(key, []).append((group, verdict))
        repeated = program_repeats(group for members in causes.values() for group, _ in members)
        return worst_first(
            [_incident(members, (key[0], key[1]) in repeated) for key, members in causes.items()]
        )


def _incident(members: list[tuple[BurstGroup, FaultVerdict]], repeated: bool) -> Finding:
    groups = [group for group, _ in members]
    fault, severity, shown = min((verdict for _, verdict in members), key=lambda one: one[1].rank)
    if fault in MEMORY and separate_memory_errors(groups) >= 2:
        fault, severity = "ecc_repeat", XidSeverity.PAGE
    if fault == "application" and repeated:
        fault, severity = "xid_app_repeat", XidSeverity.TICKET
    bursts = [burst for group in groups for burst in group.bursts]
    gpus = {gpu for group in groups for gpu in group.gpus}
    begin = min((burst.first for burst in bursts), key=lambda moment: moment.order)
    end = max((burst.last for burst in bursts), key=lambda moment: moment.order)
    if (begin.before(end) or 0.0) < 0:
        begin, end = end, begin  # a log with its newest line first
    return Finding(
        severity=severity,
        fault=fault,
        xids=sorted({burst.xid for burst in bursts if burst.xid is not None}),
        sxids=sorted({burst.sxid for burst in bursts if burst.sxid is not None}),
        gpu=next(iter(gpus)) if len(gpus) == 1 else None,
        count=_count(bursts),
        first=begin.text,
        last=end.text,
        action=action_of(fault, severity, groups),
        line=shown.line.strip()[:_MAX_SHOWN],
    )


def _count(bursts: Iterable[Burst]) -> int:
    """Count lines; a bug report has the same lines twice, with time since boot and wall time."""
    files: dict[int, dict[str, int]] = {}
    for burst in bursts:
        axes = files.setdefault(burst.first.file, {})
        axes[burst.first.axis] = axes.get(burst.first.axis, 0) + burst.count
    return sum(max(axes.values()) for axes in files.values())
