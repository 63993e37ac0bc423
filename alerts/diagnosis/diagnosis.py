"""Diagnosis of saved logs: one incident per cause, the worst first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

from alerts.diagnosis.burst import Burst, BurstCollector
from alerts.diagnosis.burst_group import BurstGroup, groups_of
from alerts.diagnosis.finding import (
    MOST_LINES,
    Finding,
    FindingGpu,
    FindingSubCode,
    Observation,
    of_gpus,
    with_rule,
    worst_first,
)
from alerts.diagnosis.lines import host_of, relevant_lines
from alerts.diagnosis.log_time import LogClock, LogTime
from alerts.diagnosis.node_faults import NodeFault, NodeFaultLog
from alerts.diagnosis.verdict import MEMORY, FaultVerdict, action_of, verdict_of
from alerts.xid.catalogue import XidSeverity
from telemetry.notations.kernel_log import Assembler, DriverNote, kernel_message, message_start
from telemetry.statements.node import GPU_DRIVER

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
FEWEST_PORTS = 3
"""Ports of one NVSwitch that are more than the loss of what is behind one."""


_ERROR = re.compile(
    r"\b(?:fail(?:ed|ure|ures|s|ing)?|errors?|fatal|timed out|time-?out|hung|corrupt(?:ed|ion)?|bad state"
    r"|(?:needs?|requir\w{1,3}) (?:to be |a )?(?:reset|reboot)|went wrong|not responding)\b",
    re.IGNORECASE,
)


def _names_an_error(message: str) -> bool:
    """Return whether a message of the kernel module NVRM speaks of an error in plain words."""
    return message.startswith("NVRM:") and _ERROR.search(message) is not None


class Diagnosis:
    """Incidents of the texts of one or several logs."""

    def __init__(self) -> None:
        self._collector = BurstCollector()
        self._clock = LogClock()
        self._assembler = Assembler()
        self._hung = HungTasks()
        self.lines = 0
        """Number of lines that name the driver so far."""
        self.records = 0
        """Number of lines that were understood so far."""
        self._names = [""]
        """Name of each log, in the order of `LogTime.file`."""
        self._node = NodeFaultLog()
        self._verdicts: list[tuple[BurstGroup, FaultVerdict]] = []
        """The groups of `incidents`, each with its verdict."""

    @property
    def full(self) -> bool:
        """Whether lines were left out, for there were too many bursts."""
        return self._collector.left_out + self._node.left_out > 0

    @property
    def kept(self) -> int:
        """Number of bursts."""
        return len(self._collector.bursts)

    def next_log(self, name: str = "") -> None:
        """Begin another log; `name` is what its findings name as their file."""
        self._names.append(name)
        self._clock.next_file()
        self._assembler = Assembler()
        self._hung = HungTasks()
        self._node.next_log()

    def feed(self, text: str) -> None:
        """Add a part of a log that ends at the end of a line."""
        for line, head, of_driver in relevant_lines(text):
            moment = self._clock.read(head)
            node = host_of(head)
            if (
                of_driver
                and len(head) == message_start(line)
                and self._collector.counts_again(line, len(head), moment, node)
            ):
                self.lines += 1
                self.records += 1
                continue
            record = (self._hung.feed(line, moment) or self._assembler.feed(line)) if of_driver else None
            self.lines += of_driver and ("NVRM" in line or "SXid" in line or record is not None)
            if record is None:
                self._feed_node(line, moment, node)
                continue
            self.records += 1
            self._collector.add(record, line, len(head), moment, node)
            if isinstance(record, DriverNote) and (task := _BEGINS.match(record.detail)) is not None:
                self._node.withdraw("task_hung", task[1], moment, node)

    def _feed_node(self, line: str, moment: LogTime, node: str | None) -> None:
        """Add a line that no catalogue of a driver has."""
        message = kernel_message(line)
        if message is None:
            return
        if message.text.startswith("NVRM"):
            if _names_an_error(message.text):
                self._node.add_unknown(GPU_DRIVER, message.text, moment)
            return
        self._node.feed(message.text, message.level, message.from_kernel, line, moment, node)

    def count_bare_lines(self) -> None:
        """Count lines with nothing before their message that read like an error: the log so far is of the kernel,
        in a form that has only messages."""
        self._node.count_bare_lines(len(self._names) - 1)

    def unknown_errors(self, name: str) -> tuple[int, str]:
        """Return how many lines of a log are of the driver, speak of an error and are in no catalogue; and
        the first of them. What they mean is not known, so the log proves nothing well."""
        return self.unknown_lines(name).get(GPU_DRIVER, (0, ""))

    def unknown_lines(self, name: str) -> dict[str, tuple[int, str]]:
        """Return how many lines of a log read like a fault and are in no catalogue, and the first of them, by
        part of the node."""
        files = [file for file, known in enumerate(self._names) if known == name]
        found: dict[str, tuple[int, str]] = {}
        for file in files:
            for subsystem, (count, first) in self._node.unknown(file).items():
                before = found.get(subsystem, (0, first))
                found[subsystem] = before[0] + count, before[1]
        return found

    def faulty_parts(self, name: str) -> set[str]:
        """Return the parts of the node that a log shows to have a page or a ticket, after `incidents`."""
        files = [file for file, known in enumerate(self._names) if known == name]
        found = {part for file in files for part in self._node.faulty(file)}
        for _, verdict in self._verdicts:
            if verdict.burst.first.file in files and verdict.severity.rank <= XidSeverity.TICKET.rank:
                found.add(GPU_DRIVER)
        return found

    def name_node(self, node: str, name: str) -> None:
        """Name the node of the lines of a log that name none."""
        for one in self._stated():
            if one.node is None and self._names[one.first.file] == name:
                one.node = node

    def nodes(self) -> set[str]:
        """Return the names of all nodes that have a finding."""
        return {one.node for one in self._stated() if one.node is not None}

    def _stated(self) -> list[Burst | NodeFault]:
        """Return everything that lines state, of GPUs and of nodes."""
        return [*self._collector.bursts, *self._node.found.values()]

    def incidents(self, node: str | None = None) -> list[Finding]:
        """Return the incidents so far, the worst first; `node`: the only one that the files name."""
        bursts = self._collector.bursts
        names = self.nodes() | ({node} if node is not None else set())
        if len(names) == 1:
            for one in self._stated():
                one.node = next(iter(names))  # some lines name the only node, others name none
        verdicts = [(group, verdict_of(group)) for group in groups_of(bursts)]
        self._verdicts = verdicts
        failing = _failing_memories(verdicts)
        causes: dict[tuple[object, ...], list[tuple[BurstGroup, FaultVerdict]]] = {}
        for group, verdict in verdicts:
            gpu = _gpu_of(group)
            repeats = (group.head.node, gpu) in failing and _is_memory_error(group)
            kind = "ecc_repeat" if repeats else verdict.fault
            which = verdict.burst.xid if verdict.fault in {"unknown_xid", "unlisted"} else None
            key = (group.head.node, gpu, kind, which)
            causes.setdefault(key, []).append((group, verdict))
        repeated = program_repeats(group for members in causes.values() for group, _ in members)
        return worst_first(
            [_incident(members, (key[0], key[1]) in repeated, self._names) for key, members in causes.items()]
            + self._node.findings(self._names)
        )

    def observations(self) -> Iterator[Observation]:
        """Yield every burst, after `incidents`."""
        for group, _ in self._verdicts:
            for burst in group.bursts:
                yield self._observation(burst, burst.fault, burst.severity)
        yield from self._node.observations(self._names)

    def occurrences(self) -> Iterator[Observation]:
        """Yield the most telling burst of each group of errors with one cause, after `incidents`."""
        for _, verdict in self._verdicts:
            yield self._observation(verdict.burst, verdict.fault, verdict.severity)
        yield from self._node.observations(self._names)

    def _observation(self, burst: Burst, fault: str, severity: XidSeverity) -> Observation:
        numbered = [f"XID {burst.xid}"] if burst.xid is not None else []
        numbered += [f"SXid {burst.sxid}"] if burst.sxid is not None else []
        file = self._names[burst.first.file]
        gpu = burst.gpu if burst.sxid is None else None
        return Observation(
            what=(numbered or [burst.statement or burst.fault])[0],
            fault=fault,
            severity=severity,
            node=burst.node,
            file=file,
            count=burst.count,
            gpus=[] if gpu is None else [FindingGpu(pci=gpu)],
            at=burst.first.in_file(file),
            line=burst.line.strip()[:_MAX_SHOWN],
        )


def _gpu_of(group: BurstGroup) -> str | None:
    return next(iter(group.gpus)) if len(group.gpus) == 1 else None


def _failing_memories(verdicts: Iterable[tuple[BurstGroup, FaultVerdict]]) -> set[tuple[str | None, str | None]]:
    """Return the GPUs (node, address) that had separate memory errors within a day."""
    memories: dict[tuple[str | None, str | None], list[BurstGroup]] = {}
    for group, verdict in verdicts:
        if verdict.fault in MEMORY:
            memories.setdefault((group.head.node, _gpu_of(group)), []).append(group)
    return {gpu for gpu, groups in memories.items() if separate_memory_errors(groups) >= 2}


def _incident(members: list[tuple[BurstGroup, FaultVerdict]], repeated: bool, names: list[str]) -> Finding:
    groups = [group for group, _ in members]
    fault, severity, shown = min((verdict for _, verdict in members), key=lambda one: one[1].rank)
    if fault in MEMORY and separate_memory_errors(groups) >= 2:
        fault, severity = "ecc_repeat", XidSeverity.PAGE
    if fault == "application" and repeated:
        fault, severity = "xid_app_repeat", XidSeverity.TICKET
    bursts = [burst for group in groups for burst in group.bursts]
    if fault == "nvswitch_link" and _most_ports(bursts) >= FEWEST_PORTS:
        fault, severity = "nvswitch_links", XidSeverity.PAGE
    gpus = {gpu for group in groups for gpu in group.gpus}
    units = {burst.unit for burst in bursts if burst.unit is not None}
    begin = min((burst.first for burst in bursts), key=lambda moment: moment.order)
    end = max((burst.last for burst in bursts), key=lambda moment: moment.order)
    if (begin.before(end) or 0.0) < 0:
        begin, end = end, begin  # a log with its newest line first
    lines = [each.strip()[:_MAX_SHOWN] for burst in bursts for each in (burst.line, *burst.lines)]
    shown_line = shown.line.strip()[:_MAX_SHOWN]
    found = Finding(
        severity=severity,
        fault=fault,
        node=groups[0].head.node,
        sub_codes=list(
            dict.fromkeys(
                FindingSubCode.of(burst.xid, burst.code)
                for burst in bursts
                if burst.xid is not None and burst.code is not None
            )
        ),
        unit=next(iter(units)) if len(units) == 1 and not gpus else None,
        links=sorted({link for burst in bursts for link in burst.links}),
        xids=sorted({burst.xid for burst in bursts if burst.xid is not None}),
        sxids=sorted({burst.sxid for burst in bursts if burst.sxid is not None}),
        count=_count(bursts),
        first=begin.text,
        last=end.text,
        moment=shown.first.in_file(names[shown.first.file]),
        action=action_of(fault, severity, groups),
        line=shown_line,
        lines=list(dict.fromkeys([shown_line, *lines]))[:MOST_LINES],
        files=sorted({names[burst.first.file] for burst in bursts} - {""}),
    )
    return with_rule(of_gpus(found, [FindingGpu(pci=pci) for pci in sorted(gpus)]))


def _most_ports(bursts: Iterable[Burst]) -> int:
    """Return how many ports of one NVSwitch are named."""
    ports: dict[str | None, set[int]] = {}
    for burst in bursts:
        ports.setdefault(burst.unit, set()).update(burst.links)
    return max(map(len, ports.values()), default=0)


def _count(bursts: Iterable[Burst]) -> int:
    """Count lines; a bug report has the same lines twice, with time since boot and wall time."""
    files: dict[int, dict[str, int]] = {}
    for burst in bursts:
        axes = files.setdefault(burst.first.file, {})
        axes[burst.first.axis] = axes.get(burst.first.axis, 0) + burst.count
    return sum(max(axes.values()) for axes in files.values())
