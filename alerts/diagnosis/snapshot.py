"""Diagnosis of one document of nvidia-smi.

One moment shows states, not rates: lifetime counters, one sample of a clock limit reason and a link
that is slow at idle are no faults. Only states that the GPU itself reports as broken or pending are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from alerts.diagnosis.finding import Finding, FindingGpu, of_gpus, with_rule, worst_first
from alerts.rules.expression import parse
from alerts.rules.levels import Formula
from alerts.rules.row_memory import Floats
from alerts.rules.rule import conditions_of, load
from alerts.xid.catalogue import XidSeverity


@dataclass(frozen=True, slots=True)
class GpuSnapshot:
    """A GPU of a document of nvidia-smi, as plain values."""

    pci: str | None
    name: str
    readings: Mapping[str, float]
    """Values by catalogue name, without gaps."""
    lost: str = ""
    """Message of nvidia-smi in place of values, "" for a GPU that answers."""
    links: Sequence[bool] = field(default=())
    """Whether each NVLink is active, in the order of their numbers; empty when unknown."""
    index: int | None = None
    uuid: str | None = None
    serial: str | None = None
    slot: str | None = None
    unread: Sequence[str] = field(default=())
    """Values in whose place an error stands, with its words: `recovery action: Unknown Error`."""
    denied: Collection[str] = field(default=())
    """Catalogue names of the values that the user who saved the document may not read."""
    license: str = ""
    """Status of the licence of a vGPU in nvidia-smi's words; "" where there is none."""

    @property
    def identity(self) -> FindingGpu:
        """The GPU as a finding names it."""
        return FindingGpu(
            pci=self.pci, index=self.index, uuid=self.uuid, serial=self.serial, slot=self.slot, name=self.name or None
        )


@dataclass(frozen=True, slots=True)
class _Sign:
    """A state that is a fault by itself."""

    fault: str
    severity: XidSeverity
    bad: Callable[[GpuSnapshot], bool]
    text: str
    action: str


def _at_least(name: str, level: float = 1.0) -> Callable[[GpuSnapshot], bool]:
    def bad(gpu: GpuSnapshot) -> bool:
        value = gpu.readings.get(name)
        return value is not None and value >= level

    return bad


def _is(name: str, *values: float) -> Callable[[GpuSnapshot], bool]:
    return lambda gpu: gpu.readings.get(name) in values


def _too_hot(gpu: GpuSnapshot) -> bool:
    """Return whether the GPU is at the temperature, or the margin, at which it slows itself down."""
    now = gpu.readings.get("gpu_temperature_celsius")
    limit = gpu.readings.get("gpu_temperature_slowdown_celsius")
    if now is not None and limit is not None and limit > 0:
        return now >= limit
    margin = gpu.readings.get("gpu_thermal_margin_celsius")
    offset = gpu.readings.get("gpu_thermal_margin_slowdown_celsius")
    if margin is None or offset is None or (now is not None and now < 60):
        return False  # some boards report a margin of 0 while they are cold
    return offset < 0 and margin <= offset


def _by_rule(name: str) -> Callable[[GpuSnapshot], bool]:
    """Return whether the level of a shipped rule is reached, as a running cluster evaluates it."""

    def bad(gpu: GpuSnapshot) -> bool:
        def read(metric: str) -> Floats:
            return np.array([gpu.readings.get(metric, np.nan)])

        return any(parse(expr).truth(read, 1)[0] == 1 for expr in _levels()[name])

    return bad


@cache
def _levels() -> Mapping[str, Sequence[str]]:
    """Return the expressions of each shipped rule."""
    return {rule.name: [one.expr for one in conditions_of(rule.when) if isinstance(one, Formula)] for rule in load()}


_RESET_WHEN_IDLE = "Reset the GPU when it is next idle; work may go on until then."
_REPLACE = "Drain the GPU and run the field diagnostics; candidate for replacement."
_FABRIC_MANAGER = (
    "CUDA does not start without it. In the first minutes after a boot wait; else check Fabric Manager and its "
    "version against the driver's, the NVSwitches and the NVLink domain."
)
_UNCORRECTED = tuple(
    f"gpu_ecc_volatile_uncorrected{part}_total" for part in ("", "_dram", "_sram", "_sram_parity", "_sram_secded")
)
_SIGNS = (
    _Sign("recovery_action", XidSeverity.PAGE, _is("gpu_recovery_action", 1), "recovery action: reset the GPU", "Move its work away and reset it."),
    _Sign("recovery_action", XidSeverity.PAGE, _is("gpu_recovery_action", 2, 7), "recovery action: reboot", "Drain the node and reboot it."),
    _Sign("recovery_action", XidSeverity.PAGE, _is("gpu_recovery_action", 6), "recovery action: bus reset", "Drain the node and reset the GPU's bus, or reboot."),
    _Sign("recovery_action_p2p", XidSeverity.PAGE, _is("gpu_recovery_action", 3, 5), "recovery action: the NVLink domain is disturbed", "End all work that uses peer to peer access in the domain, then read the action again."),
    _Sign("recovery_drain", XidSeverity.TICKET, _is("gpu_recovery_action", 4), "recovery action: drain and reset", "Place no new work on it; reset it when the running job ends."),
    _Sign("ecc_uncontained", XidSeverity.PAGE, _at_least("gpu_remapped_rows_failure"), "a memory row could not be replaced", _REPLACE),
    _Sign("ecc_uncontained", XidSeverity.PAGE, _at_least("gpu_ecc_sram_threshold_exceeded"), "too many uncorrected errors in on-chip memory", _REPLACE),
    _Sign("remap_exhausted", XidSeverity.TICKET, lambda gpu: gpu.readings.get("gpu_remapped_rows_uncorrectable", 0) >= 512 or gpu.readings.get("gpu_retired_pages_single_bit", 0) + gpu.readings.get("gpu_retired_pages_double_bit", 0) >= 60, "the spare memory is nearly used up", "Plan for the replacement of the board."),
    _Sign("remap_pending", XidSeverity.TICKET, _at_least("gpu_remapped_rows_pending"), "a memory row waits to be replaced", _RESET_WHEN_IDLE),
    _Sign("remap_pending", XidSeverity.TICKET, _at_least("gpu_retired_pages_pending"), "a memory page waits to be retired", _RESET_WHEN_IDLE),
    _Sign("remap_pending", XidSeverity.TICKET, _at_least("gpu_channel_repair_pending"), "a memory channel waits to be repaired", _RESET_WHEN_IDLE),
    _Sign("remap_pending", XidSeverity.TICKET, _at_least("gpu_tpc_repair_pending"), "a processing cluster waits to be repaired", _RESET_WHEN_IDLE),
    _Sign("ecc_volatile", XidSeverity.TICKET, lambda gpu: any(gpu.readings.get(name, 0) > 0 for name in _UNCORRECTED), "uncorrected memory errors since the driver loaded", "Look for XIDs 48, 94 and 95 in the kernel log, and reset the GPU when it is next idle."),
    _Sign("thermal_hw", XidSeverity.PAGE, _too_hot, "at the temperature at which it slows itself down", "Check fans, air flow and coolant of the node now."),
    _Sign("thermal_hw", XidSeverity.TICKET, _at_least("gpu_clocks_event_hw_thermal_slowdown"), "slowed down by heat at that moment", "Monitor it under load; check fans and air flow if it persists."),
    _Sign("power_brake", XidSeverity.TICKET, _at_least("gpu_clocks_event_hw_power_brake_slowdown"), "slowed down by the power brake at that moment", "Monitor it; check the node's power supplies and feeds if it persists."),
    _Sign("fabric", XidSeverity.TICKET, _is("gpu_fabric_health", 2), "the fabric calls itself unhealthy", "Check Fabric Manager and the NVSwitches."),
    _Sign("fabric", XidSeverity.TICKET, _is("gpu_fabric_health", 3), "the fabric runs with limited capacity", "Check the links of this GPU and Fabric Manager."),
    _Sign("fabric", XidSeverity.TICKET, _at_least("gpu_fabric_bandwidth_degraded"), "the fabric's bandwidth is degraded", "Check the links of this GPU and Fabric Manager."),
    _Sign("fabric", XidSeverity.TICKET, _at_least("gpu_fabric_route_unhealthy"), "a route through the fabric is unhealthy", "Check the links of this GPU and Fabric Manager."),
    _Sign("fabric_never", XidSeverity.TICKET, _is("gpu_fabric_state", 1), "its registration with the NVLink fabric has not started", _FABRIC_MANAGER),
    _Sign("fabric_never", XidSeverity.TICKET, _is("gpu_fabric_state", 2), "its registration with the NVLink fabric is not completed", _FABRIC_MANAGER),
    _Sign("fabric_setup", XidSeverity.TICKET, lambda gpu: gpu.readings.get("gpu_fabric_state") == 3 and gpu.readings.get("gpu_fabric_status", 0) > 0, "its registration with the NVLink fabric failed", _FABRIC_MANAGER),
    _Sign("fabric_setup", XidSeverity.TICKET, _at_least("gpu_fabric_configuration", 2), "the NVLink fabric finds its configuration wrong", _FABRIC_MANAGER),
    _Sign("vgpu_unlicensed", XidSeverity.TICKET, lambda gpu: bool(gpu.license) and not gpu.license.lower().startswith("licensed"), "the vGPU has no licence", "Check nvidia-gridd and the licence server: without one CUDA is refused or slowed down."),
    _Sign("pcie_slow", XidSeverity.TICKET, _by_rule("pcie_slow"), "its slot runs at a lower generation than both ends can, under load", "Reseat the board; check riser, slot and the setting of the firmware; compare with its peers."),
    _Sign("pcie", XidSeverity.TICKET, _at_least("gpu_pcie_fatal_errors_total"), "fatal PCI Express errors were counted", "Check slot, riser and cables; compare with its peers."),
)  # fmt: skip


def evaluate_snapshots(gpus: Sequence[GpuSnapshot]) -> list[Finding]:
    """Return the findings of one document, worst first: one per fault and GPU, except for what is of
    the node."""
    found: list[Finding] = []
    for gpu in gpus:
        if gpu.lost:
            continue
        faults: dict[str, list[_Sign]] = {}
        for sign in _SIGNS:
            if sign.bad(gpu):
                faults.setdefault(sign.fault, []).append(sign)
        found += [_of_signs(gpu, signs) for signs in faults.values()]
    found += [_unread(gpu) for gpu in gpus if gpu.unread and not gpu.lost]
    found = _facility(_lost(gpus) + found + _links(gpus), len(gpus))
    return worst_first([with_rule(one) for one in found])


def _named(gpu: GpuSnapshot) -> str:
    return f"{gpu.name} {gpu.pci or gpu.uuid or 'without a PCI address'}"


def _of_signs(gpu: GpuSnapshot, signs: Sequence[_Sign]) -> Finding:
    """Return the finding of the signs of one fault, the worst of which is the first."""
    texts = "; ".join(sign.text for sign in signs)
    actions = " ".join(dict.fromkeys(sign.action for sign in signs))
    lines = [f"{_named(gpu)}: {sign.text}{_measured(gpu, sign.fault)}" for sign in signs]
    if gpu.license and signs[0].fault == "vgpu_unlicensed":
        lines = [f"{_named(gpu)}: licence status: {gpu.license}"]
    found = Finding(
        severity=min((sign.severity for sign in signs), key=lambda one: one.rank),
        fault=signs[0].fault,
        action=f"{texts[0].upper()}{texts[1:]}. {actions}",
        line=lines[0],
        lines=lines,
    )
    return of_gpus(found, [gpu.identity])


_MEASURED = {
    "remap_exhausted": {
        "gpu_remapped_rows_uncorrectable": "rows replaced",
        "gpu_retired_pages_single_bit": "pages retired for single bit errors",
        "gpu_retired_pages_double_bit": "for double bit errors",
    },
    "ecc_volatile": dict.fromkeys(_UNCORRECTED, "uncorrected errors"),
    "thermal_hw": {"gpu_temperature_celsius": "°C", "gpu_thermal_margin_celsius": "°C of margin"},
}
"""Readings that a line names with its fault, and their words."""


def _measured(gpu: GpuSnapshot, fault: str) -> str:
    """Return the readings behind a fault, in parentheses; "" where there are none."""
    found = [
        f"{gpu.readings[name]:g} {words}" for name, words in _MEASURED.get(fault, {}).items() if gpu.readings.get(name)
    ]
    return f" ({', '.join(found)})" if found else ""


def _lost(gpus: Sequence[GpuSnapshot]) -> list[Finding]:
    """Return one finding for all lost GPUs of a document, and one for all that need a reset."""
    kinds: dict[str, list[GpuSnapshot]] = {}
    for gpu in gpus:
        if gpu.lost:
            reset = "reset" in gpu.lost.lower()
            kinds.setdefault("recovery_action" if reset else "gpu_lost", []).append(gpu)
    found = []
    for fault, lost in kinds.items():
        lines = [f"{_named(gpu)}: {gpu.lost}" for gpu in lost]
        action = _LOST_ACTIONS[fault] + (_TOGETHER if fault == "gpu_lost" and len(lost) > 1 else "")
        one = Finding(
            severity=XidSeverity.PAGE, fault=fault, count=len(lost), action=action, line=lines[0], lines=lines
        )
        found.append(of_gpus(one, [gpu.identity for gpu in lost]))
    return found


_LOST_ACTIONS = {
    "recovery_action": "It requires a reset before it answers. Move its work away and reset it.",
    "gpu_lost": "The driver no longer reaches this GPU. Drain the node and reboot it; if it is lost again, reseat or replace it.",
}
_TOGETHER = " Several GPUs at once point to what they share: a PCIe switch, a riser, the power supply."


_MOST_LINES = 16
UNREAD_ACTION = (
    "The driver can't read values of this GPU, which mostly follows a fault of its firmware or bus. Look for XIDs in "
    "the kernel log; drain the GPU and reset it, or reboot the node."
)


def _unread(gpu: GpuSnapshot) -> Finding:
    """Return the finding of a GPU of which errors stand in place of values."""
    lines = [f"{_named(gpu)}: {each}" for each in gpu.unread[:_MOST_LINES]]
    one = Finding(
        severity=XidSeverity.TICKET,
        fault="gpu_unread",
        count=len(gpu.unread),
        line=lines[0],
        lines=lines,
        action=UNREAD_ACTION,
    )
    return of_gpus(one, [gpu.identity])


def _links(gpus: Sequence[GpuSnapshot]) -> list[Finding]:
    """Compare links with the peers: one that is down here and up on another GPU of the model."""
    up: dict[str, set[int]] = {}
    for gpu in gpus:
        up.setdefault(gpu.name, set()).update(n for n, active in enumerate(gpu.links) if active)
    found = []
    for gpu in gpus:
        if gpu.readings.get("gpu_mig_mode") == 1.0 or gpu.lost:
            continue  # a partitioned GPU reports its links as down
        down = [n for n, active in enumerate(gpu.links) if not active and n in up[gpu.name]]
        if not down:
            continue
        none_left = not any(gpu.links)
        which = "all NVLinks" if none_left else "NVLinks " + ", ".join(str(n) for n in down)
        line = f"{_named(gpu)}: {which} inactive"
        one = Finding(
            severity=XidSeverity.PAGE if none_left else XidSeverity.TICKET,
            fault="nvlink_down",
            count=len(down),
            links=down,
            line=line,
            lines=[line],
            action="Links are down that its peers have up. Look for a reset or a restart of "
            "Fabric Manager at that time; else drain and reset the GPU.",
        )
        found.append(of_gpus(one, [gpu.identity]))
    return found


def _facility(found: list[Finding], gpus: int) -> list[Finding]:
    """Merge a power brake on every GPU of a node: it is one event, of the node's power."""
    limited = [incident for incident in found if incident.fault == "power_brake"]
    if gpus < 2 or len(limited) < gpus:
        return found
    whole = Finding(
        severity=XidSeverity.PAGE,
        fault="power_brake",
        count=len(limited),
        action="The power brake limits all GPUs of the node: check its power supplies, the feed and "
        "the PDU, and other nodes on them; the GPUs are well.",
        line=f"{limited[0].line} (and {len(limited) - 1} more)",
        lines=[incident.line for incident in limited],
        gpus=[gpu for incident in limited for gpu in incident.gpus],
    )
    return [incident for incident in found if incident.fault != "power_brake"] + [whole]


# What a document proves: a clean bill names it, and what else it does not show.

_TEMPERATURE = ("gpu_temperature_celsius", "gpu_temperature_slowdown_celsius")
_MARGIN = ("gpu_thermal_margin_celsius", "gpu_thermal_margin_slowdown_celsius")
_REPAIRS = ("gpu_remapped_rows_pending", "gpu_remapped_rows_failure", "gpu_retired_pages_pending", "gpu_channel_repair_pending")  # fmt: skip
_SLOWDOWN = ("gpu_clocks_event_hw_thermal_slowdown", "gpu_clocks_event_hw_power_brake_slowdown")
_CHECKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("the recovery action", ("gpu_recovery_action",)),
    ("repairs of the memory that wait or failed", _REPAIRS),
    ("uncorrected memory errors", _UNCORRECTED),
    ("the temperature against its limit", (*_TEMPERATURE, *_MARGIN)),
    ("slowdown by heat or the power brake", _SLOWDOWN),
    ("the fabric", ("gpu_fabric_health", "gpu_fabric_state")),
)
"""Claims that a document can prove, with the readings for each."""
CHECKED = frozenset(name for _, names in _CHECKS for name in names)
"""Readings on which a clean bill rests."""


def _known(gpu: GpuSnapshot, names: tuple[str, ...]) -> bool:
    """Return whether the readings of a check tell of a GPU: one of them, but a temperature needs its limit."""
    if _MARGIN[0] not in names:
        return any(name in gpu.readings for name in names)
    now, limit = (gpu.readings.get(name) for name in _TEMPERATURE)
    return (now is not None and (limit or 0) > 0) or gpu.readings.keys() >= set(_MARGIN)


def proved_by(gpus: Sequence[GpuSnapshot]) -> tuple[list[str], list[str]]:
    """Return what a document shows of the health of its GPUs, and what it does not show."""
    shown, lacking = [], []
    answering = [gpu for gpu in gpus if not gpu.lost]
    for words, names in _CHECKS:
        count = sum(_known(gpu, names) and not gpu.unread for gpu in answering)
        if count:
            part = "" if count == len(answering) else f" (of {count} of {len(answering)} GPUs)"
            shown.append(words + part)
        else:
            lacking.append(words)
    return shown, lacking


def denied_by(gpus: Sequence[GpuSnapshot]) -> list[str]:
    """Return the checks of which readings were refused to the user who saved the document."""
    refused = {name for gpu in gpus for name in gpu.denied}
    return [words for words, names in _CHECKS if refused.intersection(names)]


def unproved(gpus: Sequence[GpuSnapshot]) -> list[GpuSnapshot]:
    """Return the GPUs that answer, but of whose health the document shows nothing."""
    return [gpu for gpu in gpus if not (gpu.lost or gpu.unread or any(_known(gpu, names) for _, names in _CHECKS))]
