"""The steps of a recovery, in order, from the alerts that are open at a place.

Pure. What to do is the `remediation` of an alert's rule (`api.alerts.Remediation`): no table here says which rule
needs a reset. Two statements of the driver may ask for more than the rule does: its recovery action
(NVML field 230), and an XID for which NVIDIA's catalogue says RESTART_BM.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from alerts.xid.catalogue import meaning_of
from api.alerts import AlertRow, AlertState, NotificationState, Remediation, Severity
from api.device import GpuReply, NodePageReply
from kilowatch.recovery.config import StepKind
from telemetry.devices import Event, Gpu

REMEDIATIONS = (
    Remediation.MONITOR, Remediation.APPLICATION, Remediation.FACILITY, Remediation.RESET, Remediation.REBOOT, Remediation.COLD_START,
    Remediation.REPLACE,
)  # fmt: skip
"""Remedies, the one that takes least of the node first."""
BY_PEOPLE = frozenset(
    {StepKind.COLD_START, StepKind.REPLACE, StepKind.FACILITY, StepKind.APPLICATION, StepKind.MONITOR}
)
"""Steps that end when a person says so: a run stops there, and goes on with `--from check`."""
REMEDIES = BY_PEOPLE | {StepKind.RESET, StepKind.REBOOT}
_WHOLE_NODE = frozenset({StepKind.REBOOT, StepKind.COLD_START, StepKind.REPLACE})
_RESETS = frozenset({1, 4, 6})
_REBOOTS = frozenset({2, 7})
"""Values of the driver's recovery action (NVML field 230) that ask for a reset and a reboot."""
_SLACK_NS = 60_000_000_000
"""How long before an alert an XID may have come that is its reason."""
_TOGETHER = frozenset({"pascal", "volta"})
"""Architectures before Ampere: GPUs that NVLinks connect can only be reset together (nvidia-smi's manual)."""


@dataclass(frozen=True, slots=True)
class Place:
    """The node to recover, and which of its GPUs."""

    node: str
    gpu: Gpu | None = None
    """None is the whole node."""
    page: NodePageReply | None = None
    """The node as the aggregator knows it; None where it was not asked."""

    @property
    def name(self) -> str:
        """The place as people write it: `dgx-01`, `dgx-01/3`."""
        return self.node if self.gpu is None else f"{self.node}/{self.gpu.index}"

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """GPUs of the whole node, by index."""
        found = () if self.page is None else (each.gpu for each in self.page.gpus)
        return tuple(sorted(found, key=lambda gpu: (gpu.index, gpu.uuid)))


@dataclass(frozen=True, slots=True)
class PlanStep:
    """A step, with the commands that a person would type."""

    kind: StepKind
    text: str
    commands: tuple[str, ...] = ()
    healthy: tuple[str, ...] = ()
    """GPUs without a fault of their own that this step takes along."""
    healthy_known: bool = True
    """False where nobody knows which other GPUs the node has."""

    @property
    def asks(self) -> bool:
        """Whether it needs a confirmation: it ends work on GPUs that have no fault."""
        return bool(self.healthy) or not self.healthy_known


@dataclass(frozen=True, slots=True)
class Plan:
    """A recovery."""

    place: Place
    remediation: Remediation
    reasons: tuple[str, ...]
    """Open alerts in words, the ones that decide first."""
    rules: tuple[str, ...]
    gpus: tuple[Gpu, ...]
    """The GPUs that it is about; those that a reset takes. None where the node's GPUs are not known."""
    every: bool
    """Whether these are all GPUs of the node."""
    steps: tuple[PlanStep, ...]
    notes: tuple[str, ...] = ()

    def after(self, first: StepKind | None) -> tuple[PlanStep, ...]:
        """Return the steps from one on; all for None."""
        kinds = [step.kind for step in self.steps]
        return self.steps if first is None else self.steps[kinds.index(first) :]


def plan_of(place: Place, alerts: Sequence[AlertRow], events: Iterable[Event] = ()) -> Plan | None:
    """Return the recovery of a place from its open alerts; None where none of them asks for one.

    `events`: the XIDs since the first of the alerts began.
    """
    here = [one for one in alerts if _concerns(place, one)]
    leading = _leading(here)
    if not leading:
        return None
    remediation = max((_remediation(one) for one in leading), key=REMEDIATIONS.index)
    notes = []
    for word, least in _driver_asks(place, leading, events):
        if REMEDIATIONS.index(least) > REMEDIATIONS.index(remediation) and remediation is not Remediation.FACILITY:
            remediation = least
            notes.append(word)
    named = [f"{one.severity}: {one.summary or one.key} ({_word(_remediation(one))})" for one in here]
    shown = tuple(dict.fromkeys(named))
    rules = tuple(dict.fromkeys(one.rule for one in leading))
    with_fault = {one.gpu for one in here if one.gpu}
    whole = any(one.gpu is None for one in leading)
    return _plan(place, remediation, shown, rules, with_fault, whole=whole, notes=tuple(notes))


def plan_of_rule(place: Place, rule: str, remediation: Remediation) -> Plan:
    """Return the recovery that a rule's remedy asks for, whether the rule fires there or not."""
    fault = {place.gpu.uuid} if place.gpu else set()
    reason = f"rule {rule} ({_word(remediation)}), as named: whether it fires there was not asked"
    return _plan(place, remediation, (reason,), (rule,), fault, whole=place.gpu is None)


def _concerns(place: Place, alert: AlertRow) -> bool:
    """Whether an open alert is about this place: the GPU, or its node as a whole."""
    if alert.node != place.node or alert.state is not AlertState.FIRING:
        return False
    if alert.severity is Severity.INFO:
        return False
    return place.gpu is None or alert.gpu in {None, place.gpu.uuid}


def _leading(alerts: Sequence[AlertRow]) -> list[AlertRow]:
    """Return the alerts that decide: no consequence of another alert, and pages before tickets."""
    causes = [one for one in alerts if one.notification is not NotificationState.INHIBITED]
    found = causes or list(alerts)
    pages = [one for one in found if one.severity is Severity.PAGE]
    return pages or found


def _remediation(alert: AlertRow) -> Remediation:
    """Return the remedy of an alert; one of a release that this one does not know is a person's."""
    return alert.remediation if alert.remediation in REMEDIATIONS else Remediation.MONITOR


def _driver_asks(
    place: Place, alerts: Sequence[AlertRow], events: Iterable[Event]
) -> Iterable[tuple[str, Remediation]]:
    """Yield what the driver itself asks for, and the remedy that it needs at least."""
    theirs = {one.gpu for one in alerts}
    for each in () if place.page is None else place.page.gpus:
        action = each.readings.get("gpu_recovery_action")
        if action is None or (each.gpu.uuid not in theirs and place.gpu != each.gpu):
            continue
        if int(action) in _REBOOTS:
            yield (f"the driver asks for a reboot because of GPU {each.gpu.index}", Remediation.REBOOT)
        elif int(action) in _RESETS:
            yield f"the driver asks for a reset of GPU {each.gpu.index}", Remediation.RESET
    began = min((one.since for one in alerts), default=0)
    for event in events:
        xid = event.data.get("xid")
        if event.kind != "xid" or not isinstance(xid, int):
            continue
        fits = event.at >= began - _SLACK_NS and event.gpu in theirs
        if fits and meaning_of(xid).nvidia_action == "RESTART_BM":
            yield f"NVIDIA's action for XID {xid} is to restart the machine", Remediation.REBOOT


def _plan(
    place: Place,
    remediation: Remediation,
    reasons: tuple[str, ...],
    rules: tuple[str, ...],
    with_fault: Collection[str],
    *,
    whole: bool,
    notes: tuple[str, ...] = (),
) -> Plan:
    remedy = StepKind(remediation.value)
    known = place.page is not None
    gpus = place.gpus if whole else _reset_together(place, with_fault)
    taken = gpus if remedy is StepKind.RESET else place.gpus if remedy in _WHOLE_NODE else ()
    healthy = tuple(_described(gpu, place.page) for gpu in taken if gpu.present and gpu.uuid not in with_fault)
    disturbs = remedy is StepKind.RESET or remedy in _WHOLE_NODE
    every = whole or (known and len(gpus) == len(place.gpus))
    steps = tuple(
        PlanStep(
            kind,
            _TEXTS[kind],
            _commands(kind, place.node, gpus, every=every),
            healthy if kind is remedy else (),
            healthy_known=known or kind is not remedy or not disturbs,
        )
        for kind in _kinds(remedy)
    )
    return Plan(place, remediation, reasons, rules, gpus, every, steps, notes)


def _kinds(remedy: StepKind) -> tuple[StepKind, ...]:
    """Return the steps of a remedy, in order."""
    match remedy:
        case StepKind.FACILITY | StepKind.APPLICATION | StepKind.MONITOR:
            return remedy, StepKind.CHECK
        case StepKind.RESET:
            return StepKind.DRAIN, StepKind.STOP, remedy, StepKind.CHECK, StepKind.UNCORDON
        case _:
            return StepKind.DRAIN, remedy, StepKind.CHECK, StepKind.UNCORDON


def _reset_together(place: Place, with_fault: Collection[str]) -> tuple[Gpu, ...]:
    """Return the GPUs that a reset takes: the place's, and before Ampere those that NVLinks connect with
    them."""
    if place.gpu is None:
        return tuple(gpu for gpu in place.gpus if gpu.uuid in with_fault)
    joined = {place.gpu.uuid}
    if (place.gpu.architecture or "").lower() in _TOGETHER and place.page is not None:
        for pool in place.page.pools:
            if place.gpu.uuid in pool.gpus:
                joined.update(pool.gpus)
    return tuple(gpu for gpu in place.gpus if gpu.uuid in joined) or (place.gpu,)


def _described(gpu: Gpu, page: NodePageReply | None) -> str:
    """Return a GPU for people, with what runs on it: `GPU 3 (2 processes)`."""
    found: Mapping[str, GpuReply] = {} if page is None else {each.gpu.uuid: each for each in page.gpus}
    running = found[gpu.uuid].readings.get("gpu_processes") if gpu.uuid in found else None
    if running is None:
        return f"GPU {gpu.index} (not known what runs on it)"
    return f"GPU {gpu.index} ({int(running)} process{'es' * (int(running) != 1)})"


def _word(remediation: Remediation) -> str:
    return str(remediation.value).replace("_", " ")


_TEXTS = {
    StepKind.DRAIN: "Let no new work start on the node, and wait until its jobs have ended.",
    StepKind.STOP: "Stop what holds the GPU: a reset fails while anything has it open. Kill no process that "
    "hangs inside the driver; if one is left, reboot instead.",
    StepKind.RESET: "Reset the GPU, and start what was stopped.",
    StepKind.REBOOT: "Reboot the node: a reset does not help here.",
    StepKind.COLD_START: "Power the node off, not only down; at the machine, reseat the board, riser or cable; "
    "start it cold.",
    StepKind.REPLACE: "Have the part replaced: give the maker serial number, slot and the log.",
    StepKind.FACILITY: "The site must act: power, cooling or network. Nothing on the node helps.",
    StepKind.APPLICATION: "The program or its owner must act; the GPU needs nothing.",
    StepKind.MONITOR: "Kilowatch itself needs attention, not the GPU.",
    StepKind.CHECK: "Prove that it works: the node reports, its GPUs are there and answer, no rule fires there "
    "any more, and no new fault comes for a while.",
    StepKind.UNCORDON: "Let the node take work again.",
}
_SERVICES = "nvidia-persistenced nvidia-dcgm dcgm-exporter"
_FABRIC = " nvidia-fabricmanager"
"""Service of the NVSwitches: it holds them, and a reset of all GPUs resets them too; it must run for that of one."""


def _commands(kind: StepKind, node: str, gpus: Sequence[Gpu], *, every: bool) -> tuple[str, ...]:
    """Return what a person types for a step; names are safe (`telemetry.wire.topics.is_name`)."""
    services = _SERVICES + (_FABRIC if every else "")
    which = "" if every or not gpus else " -i " + ",".join(gpu.uuid or str(gpu.index) for gpu in gpus)
    match kind:
        case StepKind.DRAIN:
            return (
                f"scontrol update nodename={node} state=drain reason='kilowatch: ...'   # Slurm",
                f"kubectl cordon {node}   # Kubernetes",
            )
        case StepKind.STOP:
            return (
                f"kilowatch command {node} release",
                f"ssh {node} sudo systemctl stop {services}",
                f"ssh {node} nvidia-smi --query-compute-apps=gpu_uuid,pid,process_name --format=csv",
                f"ssh {node} 'sudo fuser -v /dev/nvidia*'",
            )
        case StepKind.RESET:
            return (
                f"ssh {node} sudo nvidia-smi --gpu-reset{which}",
                f"ssh {node} sudo systemctl start {services}",
                f"kilowatch command {node} resume",
            )
        case StepKind.REBOOT:
            return (f"ssh {node} sudo systemctl reboot",)
        case StepKind.REPLACE:
            return tuple(
                f"# GPU {gpu.index}: serial {gpu.serial or 'not known'}, PCI {gpu.pci or 'not known'}, "
                f"slot {gpu.slot or 'not known'}"
                for gpu in gpus
            )
        case StepKind.CHECK:
            return (f"kilowatch alerts --node {node}", f"ssh {node} nvidia-smi -q")
        case StepKind.UNCORDON:
            return (
                f"scontrol update nodename={node} state=resume   # Slurm",
                f"kubectl uncordon {node}   # Kubernetes",
            )
        case _:
            return ()
