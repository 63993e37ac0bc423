"""Present state of a job: power, processes and alerts of the GPUs that it holds now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator
from functools import cached_property

import msgspec

from aggregator.jobs.hints import hints
from aggregator.jobs.scheduled import wait_words, waiting
from aggregator.jobs.stored import key_of
from aggregator.jobs.use import co2_kg
from aggregator.register.node_status import status_of
from aggregator.view import AggregatorView
from api.alerts import Alert, AlertState, Severity
from api.fleet import NodeStatus
from api.jobs import AllocationRow, GpuHolder, JobAlert, JobRow
from present.device.use import lists_processes
from telemetry.gap import reason_of
from telemetry.wire.jobs import AllocationKind, GpuProcess, Job, JobKey, NodeJobs, holders_of

_WORST = {Severity.PAGE: 0, Severity.TICKET: 1, Severity.INFO: 2}
_PERSONAL_LABELS = ("user", "job", "account", "process")
"""Labels by which an alert, and so its summary, may tell of somebody."""


def gpu_holders(
    message: NodeJobs | None, gpu: str, instances: Container[int | None] | None = None
) -> list[GpuHolder] | None:
    """Return the jobs that hold a GPU, or one of some GPU instances of it, as its page has them; None where its node
    does not say."""
    if message is None:
        return None
    facts = {job.key: job for job in message.jobs}
    held = holders_of(message, gpu, instances)
    found = [(facts.get(each.job, Job(key=each.job)), each) for each in held]
    return [
        GpuHolder(
            scheduler=job.key.scheduler,
            job=job.key.id,
            job_name=job.name,
            user=job.user,
            account=job.account,
            kind=each.kind,
            begin=each.begin,
        )
        for job, each in found
    ]


def held_gpus(view: AggregatorView) -> Iterator[tuple[str, str]]:
    """Yield the UUID of each GPU of a node that says who holds its GPUs, and the jobs that do, in words; empty where
    none does."""
    now = view.now()
    for name, message in view.jobs.lists.items():
        node = view.fleet.nodes.get(name)
        if node is None or status_of(node, now) is not NodeStatus.ONLINE:
            continue
        for gpu in node.inventory.gpus:
            held = gpu_holders(message, gpu.uuid) or ()
            yield gpu.uuid, ", ".join(sorted(map(_in_words, held)))


def _in_words(holder: GpuHolder) -> str:
    return f"{holder.scheduler} {holder.job}" + (f" of {holder.user}" if holder.user else "")


def gpus_without_process(view: AggregatorView) -> Iterator[JobKey]:
    """Yield a job for each GPU that is allocated to it and has no process now, where that is known."""
    now = view.now()
    for name, message in view.jobs.lists.items():
        node = view.fleet.nodes.get(name)
        if node is None or status_of(node, now) is not NodeStatus.ONLINE:
            continue
        if lists_processes(message):
            used = {process.gpu for process in message.processes}
            given = {
                (one.job, one.gpu)
                for one in message.allocations
                if one.kind is AllocationKind.ALLOCATED and not one.end
            }
            yield from (key for key, gpu in given if gpu not in used)


class PresentJobs:
    """The jobs of a view as they are at one instant; `own`: for a user who sees nobody else's, or ``."""

    def __init__(self, view: AggregatorView, own: str = "") -> None:
        self._view, self._own, self._now = view, own, view.now()

    @cached_property
    def _firing(self) -> dict[tuple[str, str], list[Alert]]:
        """Alerts that fire by node and UUID; those of a node under ``."""
        found: dict[tuple[str, str], list[Alert]] = {}
        for alert in self._view.alerts():
            if alert.state is AlertState.FIRING and alert.node:
                found.setdefault((alert.node, alert.gpu or ""), []).append(alert)
        return found

    @cached_property
    def _unused(self) -> Counter[JobKey]:
        """Count of the GPUs without a process, by job."""
        return Counter(gpus_without_process(self._view))

    def row(self, row: JobRow) -> JobRow:
        """Return a row with what is the case now."""
        fires = [alert.severity for alert in self._alerts(key_of(row))]
        summary = row.summary
        if summary is not None:
            place = self._view.electrical.site.config.site
            summary = msgspec.structs.replace(summary, co2_kg=co2_kg(summary.wall_joules, place))
        return msgspec.structs.replace(
            row,
            summary=summary,
            power_watts=self._watts(key_of(row)),
            severity=min(fires, key=_rank, default=None),
            hints=hints(row, self._unused[key_of(row)], self._waits_again(row)),
        )

    def _waits_again(self, row: JobRow) -> str:
        """Return that a newer run of a job that has ended waits, and why; "" where none does."""
        if row.end is None:
            return ""
        newer = waiting(self._view.jobs.word, row.id)
        is_newer = newer is not None and newer.key.scheduler == row.scheduler and newer.key.restart > row.restart
        return wait_words(newer) if newer is not None and is_newer else ""

    def alerts(self, key: JobKey) -> list[JobAlert]:
        """Return the alerts on what a job holds, the worst first."""
        found = [
            JobAlert(
                rule=alert.rule,
                severity=alert.severity,
                node=alert.node,
                gpu=alert.gpu or "",
                since=alert.since,
                summary=alert.summary if self._may_see(alert) else "",
            )
            for alert in self._alerts(key)
        ]
        return sorted(found, key=lambda one: (_rank(one.severity), one.since))

    def processes(self, key: JobKey) -> list[GpuProcess]:
        """Return the processes of a job on the GPUs that it holds."""
        nodes = dict.fromkeys(node for node, _ in self._view.jobs.held(key))
        lists = [self._view.jobs.lists[node] for node in nodes if node in self._view.jobs.lists]
        return [each for listed in lists for each in listed.processes if each.job == key]

    def indices(self, rows: Iterable[AllocationRow]) -> dict[str, int]:
        """Return the number of each GPU of some allocations on its node, by UUID."""
        fleet, found = self._view.fleet, {}
        for gpu in {row.gpu for row in rows}:
            entry = fleet.gpus[fleet.by_uuid[gpu]] if gpu in fleet.by_uuid else None
            if entry is not None:
                found[gpu] = entry[1].index
        return found

    def _alerts(self, key: JobKey) -> Iterator[Alert]:
        held = self._view.jobs.held(key)
        for place in (*held, *dict.fromkeys((node, "") for node, _ in held)):
            yield from self._firing.get(place, ())

    def _watts(self, key: JobKey) -> float | None:
        """Return the power of what a job holds; None where a part of it is not known."""
        total, held = 0.0, self._view.jobs.held(key)
        for _, gpu in held:
            row = self._view.fleet.by_uuid.get(gpu)
            if row is None:
                return None
            value = self._view.fleet.reading("gpu_power_watts", row, self._now)
            if reason_of(value) is not None:
                return None
            total += value
        return total if held else None

    def _may_see(self, alert: Alert) -> bool:
        """Whether the words of an alert are for the caller: of others he learns that it fires."""
        if not self._own:
            return True
        if alert.labels.get("user") != self._own:
            return not any(alert.labels.get(name) for name in _PERSONAL_LABELS)
        process = alert.labels.get("process")  # on a GPU of his, and perhaps not his own
        return not process or process not in alert.summary or process in self._own_programs

    @cached_property
    def _own_programs(self) -> set[str]:
        """Names of the processes of the user."""
        lists = self._view.jobs.lists.values()
        return {one.name for each in lists for one in each.processes if one.user == self._own}


def _rank(severity: Severity) -> int:
    return _WORST.get(severity, len(_WORST))
