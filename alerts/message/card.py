"""The card of one subject of an incident, made of what was collected. Pure, and bounded in every part.

Names and lines come from every machine of a fleet: all texts are printable and cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from alerts.message.commands import acknowledge_of, gpu_condition, past_of, recover_of, show_of, silence_of
from alerts.message.page import Links
from alerts.message.text import clean
from api.alerts import Alert, AlertState, Incident, Remediation, Severity
from api.evidence import (
    AffectedJob,
    Evidence,
    EvidenceCommand,
    EvidenceLine,
    EvidenceReadings,
    FaultHistory,
    NearbyEvent,
    Remedy,
)
from present.device.gpu import event_name, event_row, gpu_name
from telemetry.devices import Event

AROUND_NS = 300_000_000_000
"""Five minutes: how far around the moment readings and events count."""
MOST_CARDS = 8
"""Cards of one incident."""
LINES, NEARBY = 20, 40
MOST_JOBS, MOST_INDICES = 8, 16
"""Jobs of a card, and GPUs that are named of each."""
_LABELS = 32
_PLACED = frozenset({"gpu", "link", "model", "uuid", "serial", "pci", "slot", "rack", "job", "process"})
"""Labels that have a field of their own on a card."""
_LINE, _FIELD, _TEXT = 500, 128, 2000
"""Characters of a line, of a name or number, of a text."""
_SPOKEN = frozenset({"xid", "sxid", "driver_log", "node_log", "xid_repeated", "sxid_repeated"})
"""Kinds of events that are lines of the kernel's log."""
_UNTIL = {Severity.PAGE: "now", Severity.TICKET: "in working hours", Severity.INFO: "never: no action is needed"}

GPU_METRICS = (
    "gpu_temperature_celsius",
    "gpu_memory_temperature_celsius",
    "gpu_power_watts",
    "gpu_power_limit_watts",
    "gpu_sm_clock_hertz",
    "gpu_utilization_ratio",
    "gpu_memory_used_bytes",
    "gpu_clocks_event_sw_power_cap",
    "gpu_clocks_event_hw_slowdown",
    "gpu_clocks_event_sw_thermal_slowdown",
    "gpu_clocks_event_hw_thermal_slowdown",
    "gpu_clocks_event_hw_power_brake_slowdown",
    "gpu_ecc_volatile_corrected_total",
    "gpu_ecc_volatile_uncorrected_total",
    "gpu_remapped_rows_uncorrectable",
    "gpu_remapped_rows_pending",
    "gpu_pcie_replays_total",
    "gpu_pcie_link_generation",
    "gpu_pcie_link_width",
    "gpu_recovery_action",
)
"""Readings of a GPU on its card."""
NODE_METRICS = (
    "node_gpus_answering",
    "node_wall_power_watts",
    "node_cpu_utilization_ratio",
    "node_memory_available_bytes",
)
"""Readings of a node on its card."""


class RuleSteps(Protocol):
    """The texts of a rule that its alerts lack; implemented by `alerts.rules.rule.Rule`."""

    @property
    def steps(self) -> tuple[str, ...]:
        """Steps of the remedy, in order."""

    @property
    def replace(self) -> str:
        """When to have the part replaced."""


def subject_of(alert: Alert) -> tuple[str, str]:
    """Return what identifies the subject of an alert among the cards of an incident."""
    device = alert.gpu or alert.labels.get("uuid", "") or alert.name
    return clean(alert.node, _FIELD), clean(device, _FIELD)


def subjects_of(incident: Incident) -> Iterator[Alert]:
    """Yield an alert for each subject that fires, the worst first: its GPU, its node, or its circuit."""
    known: set[tuple[str, str]] = set()
    for alert in incident.alerts:
        if alert.state is AlertState.FIRING and subject_of(alert) not in known:
            known.add(subject_of(alert))
            yield alert


def card_of(
    alert: Alert,
    incident: Incident,
    rule: RuleSteps | None,
    links: Links,
    *,
    events: Iterable[Event],
    alerts: Iterable[Alert],
    readings: EvidenceReadings,
    history: FaultHistory | None,
    missing: dict[str, str],
    now: int,
    jobs: Sequence[AffectedJob] | None = None,
) -> Evidence:
    """Return the card of an alert. `events` and `alerts`: those of its node, of any time; `jobs`: those that
    held it at the moment, None where that is not known."""
    labels = {name: clean(value, _FIELD) for name, value in alert.labels.items()}
    affected = sorted(map(_printable, jobs or ()), key=lambda one: (-len(one.gpus), one.job))
    alone = affected[0] if len(affected) == 1 and not labels.get("job") else None
    around = sorted(
        {one.id: one for one in events if abs(one.at - alert.since) <= AROUND_NS}.values(), key=lambda one: -one.at
    )
    lines = [one for one in around if one.kind in _SPOKEN and _concerns(one, alert)]
    its = set(map(id, lines[:LINES]))
    nearby = [_nearby_event(one) for one in around if id(one) not in its]
    nearby += [
        _nearby_alert(one)
        for one in alerts
        if one.key != alert.key and one.state is not AlertState.PENDING and abs(one.since - alert.since) <= AROUND_NS
    ]
    nearby.sort(key=lambda one: (abs(one.at - alert.since), one.kind))
    return Evidence(
        alert=clean(alert.key, _TEXT),
        rule=alert.rule,
        severity=alert.severity,
        subject=alert.subject,
        summary=clean(alert.summary, _TEXT),
        moment=alert.since,
        collected=now,
        node=clean(alert.node, _FIELD),
        name=clean(alert.name, _FIELD),
        index=labels.get("gpu", ""),
        link=labels.get("link", ""),
        model=labels.get("model", ""),
        uuid=clean(alert.gpu or alert.labels.get("uuid", ""), _FIELD),
        serial=labels.get("serial", ""),
        pci=labels.get("pci", ""),
        slot=labels.get("slot", ""),
        rack=labels.get("rack", ""),
        owner=clean(alert.owner or "", _FIELD),
        job=alone.job if alone else labels.get("job", ""),
        user=alone.user if alone else labels.get("user", ""),
        account=alone.account if alone else labels.get("account", ""),
        process=labels.get("process", ""),
        jobs=tuple(affected[:MOST_JOBS]),
        jobs_total=None if jobs is None else len(affected),
        labels=dict([(clean(name, _FIELD), value) for name, value in labels.items() if name not in _PLACED][:_LABELS]),
        lines=tuple(_line(one) for one in lines[:LINES]),
        readings=readings,
        nearby=tuple(sorted(nearby[:NEARBY], key=lambda one: one.at)),
        nearby_total=len(nearby),
        history=history,
        remedy=_remedy(alert, rule, links),
        commands=tuple(commands_of(incident, alert)),
        missing=missing,
    )


def _printable(job: AffectedJob) -> AffectedJob:
    """Return a job with printable texts that are cut."""
    return AffectedJob(
        scheduler=clean(job.scheduler, _FIELD),
        job=clean(job.job, _FIELD),
        job_name=clean(job.job_name, _FIELD),
        user=clean(job.user, _FIELD),
        account=clean(job.account, _FIELD),
        begin=job.begin,
        end=job.end,
        gpus=tuple(clean(index, _FIELD) for index in job.gpus[:MOST_INDICES]),
    )


def commands_of(incident: Incident, alert: Alert) -> Iterator[EvidenceCommand]:
    """Yield the commands for one alert: acknowledge, silence this device alone, read on."""
    yield EvidenceCommand(name="Acknowledge", command=acknowledge_of(incident.key))
    place = f"node={alert.node}" if alert.node else f"name={alert.name}"
    conditions = [f"rule={alert.rule}", place, *gpu_condition([alert])]
    yield EvidenceCommand(name="Silence", command=silence_of(conditions))
    if recover := recover_of(alert):
        yield EvidenceCommand(name="Recover", command=recover)
    yield EvidenceCommand(name="Evidence", command=show_of(incident.key))
    if alert.node:
        yield EvidenceCommand(name="Past", command=past_of(alert.node))


def _remedy(alert: Alert, rule: RuleSteps | None, links: Links) -> Remedy:
    return remedy_of(
        rule,
        alert.severity,
        alert.remediation,
        alert.advice,
        links.runbook_of(alert.rule, alert.runbook) or runbook_file(alert.runbook),
        {**alert.labels, "node": alert.node},
    )


def remedy_of(
    rule: RuleSteps | None,
    severity: Severity,
    remediation: Remediation | None,
    what: str,
    runbook: str,
    place: Mapping[str, str],
) -> Remedy:
    """Return a remedy whose steps name the place: `node`, `gpu` (the index), `uuid`, `pci`, `serial`,
    `slot` and `rack`, as far as they are known."""
    steps: Sequence[str] = () if rule is None else rule.steps
    return Remedy(
        remediation=remediation,
        what=clean(what, _TEXT),
        steps=tuple(clean(_filled(step, place), _TEXT) for step in steps),
        until=_UNTIL.get(severity, ""),
        replace="" if rule is None else clean(_filled(rule.replace, place), _TEXT),
        runbook=runbook,
    )


def runbook_file(anchor: str) -> str:
    """Return where a runbook is in the documentation."""
    return f"docs/runbook.md#{anchor}"


def _filled(text: str, place: Mapping[str, str]) -> str:
    """Return a text of the runbook with the node and the GPU in place of `{node}` and `{gpu}`."""
    known = {"gpu": gpu_name("", place.get("gpu", "?"))} | {
        name: place.get(name, "") for name in ("node", "uuid", "pci", "serial", "slot", "rack")
    }
    for name, value in known.items():
        text = text.replace(f"{{{name}}}", value or f"the {name}")
    return text


def _concerns(event: Event, alert: Alert) -> bool:
    """Whether a line is about the alert's GPU, or about its node where it names no other GPU."""
    if alert.gpu is None or event.gpu == alert.gpu:
        return True
    return event.gpu is None and event.pci in {None, alert.labels.get("pci")}


def _wording(event: Event) -> str:
    return clean(event_row(event).value, _LINE)


def _line(event: Event) -> EvidenceLine:
    return EvidenceLine(at=event.at, kind=clean(event.kind, _FIELD), line=_wording(event))


def _nearby_event(event: Event) -> NearbyEvent:
    process = event.data.get("process")
    return NearbyEvent(
        at=event.at,
        kind="event",
        what=clean(event_name(event), _FIELD),
        gpu=clean(event.gpu or "", _FIELD),
        line=_wording(event),
        process="" if process is None else clean(str(process), _FIELD),
    )


def _nearby_alert(alert: Alert) -> NearbyEvent:
    return NearbyEvent(
        at=alert.since,
        kind="alert",
        what=alert.rule,
        gpu=clean(alert.gpu or "", _FIELD),
        index=clean(alert.labels.get("gpu", ""), _FIELD),
        text=clean(alert.summary, _LINE),
        process=clean(alert.labels.get("process", ""), _FIELD),
        job=clean(alert.labels.get("job", ""), _FIELD),
    )
