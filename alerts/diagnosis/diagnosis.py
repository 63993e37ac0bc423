"""Lines in, incidents out: one per cause, worst first."""

from __future__ import annotations

from collections.abc import Iterable

from alerts.diagnosis.burst import Burst, Collector
from alerts.diagnosis.cluster import Cluster, clusters_of
from alerts.diagnosis.hung import HungTasks
from alerts.diagnosis.incident import Incident, worst_first
from alerts.diagnosis.judging import MEMORY, Verdict, action_of, judge
from alerts.diagnosis.lines import host_of, relevant_lines
from alerts.diagnosis.moment import Clock
from alerts.diagnosis.repeats import program_repeats, separate_memory_errors
from alerts.xid.catalogue import Severity
from telemetry.kernel_log import Assembler

_MAX_SHOWN = 500


class Diagnosis:
    """Takes the texts of one or several logs, gives incidents."""

    def __init__(self) -> None:
        self._collector = Collector()
        self._clock = Clock()
        self._assembler = Assembler()
        self._hung = HungTasks()
        self.lines = 0
        """How many lines so far came from the driver."""

    def next_log(self) -> None:
        """What comes is another log."""
        self._clock.next_file()
        self._assembler = Assembler()
        self._hung = HungTasks()

    def feed(self, text: str) -> None:
        """Take a part of a log that ends at the end of a line."""
        for line, head in relevant_lines(text):
            moment = self._clock.read(head)
            node = host_of(head)
            if self._collector.counts_again(line, len(head), moment, node):
                self.lines += 1
                continue
            record = self._hung.feed(line, moment) or self._assembler.feed(line)
            self.lines += "NVRM" in line or "SXid" in line or record is not None
            if record is not None:
                self._collector.add(record, line, len(head), moment, node)

    def incidents(self) -> list[Incident]:
        """Return what was found so far, worst first."""
        bursts = self._collector.bursts
        if len({burst.node for burst in bursts} - {None}) < 2:
            for burst in bursts:  # some lines name the one node there is, others name none
                burst.node = None
        groups: dict[tuple[object, ...], list[tuple[Cluster, Verdict]]] = {}
        for cluster in clusters_of(bursts):
            verdict = judge(cluster)
            gpu = next(iter(cluster.gpus)) if len(cluster.gpus) == 1 else None
            kind = "memory" if verdict.fault in MEMORY else verdict.fault
            which = verdict.burst.xid if verdict.fault in {"unknown_xid", "unlisted"} else None
            key = (cluster.head.node, gpu, kind, which)
            groups.setdefault(key, []).append((cluster, verdict))
        repeated = program_repeats(cluster for group in groups.values() for cluster, _ in group)
        return worst_first(
            [_incident(group, (key[0], key[1]) in repeated) for key, group in groups.items()]
        )


def _incident(group: list[tuple[Cluster, Verdict]], repeated: bool) -> Incident:
    clusters = [cluster for cluster, _ in group]
    fault, severity, shown = min((verdict for _, verdict in group), key=lambda one: one[1].rank)
    if fault in MEMORY and separate_memory_errors(clusters) >= 2:
        fault, severity = "ecc_repeat", Severity.PAGE
    if fault == "application" and repeated:
        fault, severity = "xid_app_repeat", Severity.TICKET
    bursts = [burst for cluster in clusters for burst in cluster.bursts]
    gpus = {gpu for cluster in clusters for gpu in cluster.gpus}
    begin = min((burst.first for burst in bursts), key=lambda moment: moment.order)
    end = max((burst.last for burst in bursts), key=lambda moment: moment.order)
    if (begin.before(end) or 0.0) < 0:
        begin, end = end, begin  # a log with its newest line first
    return Incident(
        severity=severity,
        fault=fault,
        xids=sorted({burst.xid for burst in bursts if burst.xid is not None}),
        sxids=sorted({burst.sxid for burst in bursts if burst.sxid is not None}),
        gpu=next(iter(gpus)) if len(gpus) == 1 else None,
        count=_count(bursts),
        first=begin.text,
        last=end.text,
        action=action_of(fault, severity, clusters),
        line=shown.line.strip()[:_MAX_SHOWN],
    )


def _count(bursts: Iterable[Burst]) -> int:
    """Count lines; a bug report tells the same lines twice, with time since boot and wall time."""
    files: dict[int, dict[str, int]] = {}
    for burst in bursts:
        axes = files.setdefault(burst.first.file, {})
        axes[burst.first.axis] = axes.get(burst.first.axis, 0) + burst.count
    return sum(max(axes.values()) for axes in files.values())
