"""Diagnosis of one document of nvidia-smi.

One moment shows states, not rates: lifetime counters, one sample of a clock limit reason and a link
that is slow at idle are no faults. Only states that the GPU itself reports as broken or pending are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from alerts.diagnosis.finding import Finding
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


_RESET_WHEN_IDLE = "Reset the GPU when it is next idle; work may go on until then."
_REPLACE = "Drain the GPU and run the field diagnostics; candidate for replacement."
_SIGNS = (
    _Sign("recovery_action", XidSeverity.PAGE, _is("gpu_recovery_action", 1), "recovery action: reset the GPU", "Move its work away and reset it."),
    _Sign("recovery_action", XidSeverity.PAGE, _is("gpu_recovery_action", 2, 7), "recovery action: reboot", "Drain the node and reboot it."),
    _Sign("recovery_action", XidSeverity.PAGE, _is("gpu_recovery_action", 6), "recovery action: bus reset", "Drain the node and reset the GPU's bus, or reboot."),
    _Sign("recovery_action_p2p", XidSeverity.PAGE, _is("gpu_recovery_action", 3, 5), "recovery action: the NVLink domain is disturbed", "End all work that uses peer to peer access in the domain, then read the action again."),
    _Sign("recovery_drain", XidSeverity.TICKET, _is("gpu_recovery_action", 4), "recovery action: drain and reset", "Place no new work on it; reset it when the running job ends."),
    _Sign("ecc_uncontained", XidSeverity.PAGE, _at_least("gpu_remapped_rows_failure"), "a memory row could not be replaced", _REPLACE),
    _Sign("ecc_uncontained", XidSeverity.PAGE, _at_least("gpu_ecc_sram_threshold_exceeded"), "too many uncorrected errors in on-chip memory", _REPLACE),
    _Sign("remap_pending", XidSeverity.TICKET, _at_least("gpu_remapped_rows_pending"), "a memory row waits to be replaced", _RESET_WHEN_IDLE),
    _Sign("remap_pending", XidSeverity.TICKET, _at_least("gpu_retired_pages_pending"), "a memory page waits to be retired", _RESET_WHEN_IDLE),
    _Sign("remap_pending", XidSeverity.TICKET, _at_least("gpu_channel_repair_pending"), "a memory channel waits to be repaired", _RESET_WHEN_IDLE),
    _Sign("remap_pending", XidSeverity.TICKET, _at_least("gpu_tpc_repair_pending"), "a processing cluster waits to be repaired", _RESET_WHEN_IDLE),
    _Sign("remap_exhausted", XidSeverity.TICKET, lambda gpu: gpu.readings.get("gpu_remapped_rows_uncorrectable", 0) >= 512 or gpu.readings.get("gpu_retired_pages_single_bit", 0) + gpu.readings.get("gpu_retired_pages_double_bit", 0) >= 60, "the spare memory is nearly used up", "Plan for the replacement of the board."),
    _Sign("ecc_volatile", XidSeverity.TICKET, lambda gpu: any(gpu.readings.get(f"gpu_ecc_volatile_uncorrected{part}_total", 0) > 0 for part in ("", "_dram", "_sram", "_sram_parity", "_sram_secded")), "uncorrected memory errors since the driver loaded", "Look for XIDs 48, 94 and 95 in the kernel log, and reset the GPU when it is next idle."),
    _Sign("thermal_hw", XidSeverity.PAGE, _too_hot, "at the temperature at which it slows itself down", "Check fans, air flow and coolant of the node now."),
    _Sign("thermal_hw", XidSeverity.TICKET, _at_least("gpu_clocks_event_hw_thermal_slowdown"), "slowed down by heat at that moment", "Monitor it under load; check fans and air flow if it persists."),
    _Sign("power_brake", XidSeverity.TICKET, _at_least("gpu_clocks_event_hw_power_brake_slowdown"), "slowed down by the power brake at that moment", "Monitor it; check the node's power supplies and feeds if it persists."),
    _Sign("fabric", XidSeverity.TICKET, _is("gpu_fabric_health", 2), "the fabric calls itself unhealthy", "Check Fabric Manager and the NVSwitches."),
    _Sign("fabric", XidSeverity.TICKET, _is("gpu_fabric_health", 3), "the fabric runs with limited capacity", "Check the links of this GPU and Fabric Manager."),
    _Sign("fabric", XidSeverity.TICKET, _at_least("gpu_fabric_bandwidth_degraded"), "the fabric's bandwidth is degraded", "Check the links of this GPU and Fabric Manager."),
    _Sign("fabric", XidSeverity.TICKET, _at_least("gpu_fabric_route_unhealthy"), "a route through the fabric is unhealthy", "Check the links of this GPU and Fabric Manager."),
    _Sign("pcie", XidSeverity.TICKET, _at_least("gpu_pcie_fatal_errors_total"), "fatal PCI Express errors were counted", "Check slot, riser and cables; compare with its peers."),
)  # fmt: skip


def evaluate_snapshots(gpus: Sequence[GpuSnapshot]) -> list[Finding]:
    """Return the incidents of one document: for one node, one per cause."""
    found: list[Finding] = []
    for gpu in gpus:
        if gpu.lost:
            found.append(_lost(gpu))
            continue
        seen: set[str] = set()
        for sign in _SIGNS:
            if sign.fault not in seen and sign.bad(gpu):
                seen.add(sign.fault)
                found.append(
                    Finding(severity=sign.severity, fault=sign.fault, gpu=gpu.pci,
                             action=f"{sign.text[0].upper()}{sign.text[1:]}. {sign.action}",
                             line=f"{_named(gpu)}: {sign.text}")
                )  # fmt: skip
    return _facility(found + _links(gpus), len(gpus))


def _named(gpu: GpuSnapshot) -> str:
    return f"{gpu.name} {gpu.pci or 'without a PCI address'}"


def _lost(gpu: GpuSnapshot) -> Finding:
    if "reset" in gpu.lost.lower():
        action = "It requires a reset before it answers. Move its work away and reset it."
        fault = "recovery_action"
    else:
        action = "The driver no longer reaches this GPU. Drain the node and reboot it; if it is lost again, reseat or replace it."
        fault = "gpu_lost"
    return Finding(severity=XidSeverity.PAGE, fault=fault, gpu=gpu.pci, action=action,
                    line=f"{_named(gpu)}: {gpu.lost}")  # fmt: skip


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
        found.append(
            Finding(severity=XidSeverity.PAGE if none_left else XidSeverity.TICKET,
                     fault="nvlink_down", gpu=gpu.pci, count=len(down),
                     action="Links are down that its peers have up. Look for a reset or a restart of "
                     "Fabric Manager at that time; else drain and reset the GPU.",
                     line=f"{_named(gpu)}: {which} inactive")
        )  # fmt: skip
    return found


def _facility(found: list[Finding], gpus: int) -> list[Finding]:
    """Merge a power brake on every GPU of a node: it is one event, of the node's power."""
    limited = [incident for incident in found if incident.fault == "power_brake"]
    if gpus < 2 or len(limited) < gpus:
        return found
    whole = Finding(
        severity=XidSeverity.PAGE, fault="power_brake", count=len(limited),
        action="The power brake limits all GPUs of the node: check its power supplies, the feed and "
        "the PDU, and other nodes on them; the GPUs are well.",
        line=f"{limited[0].line} (and {len(limited) - 1} more)",
    )  # fmt: skip
    return [incident for incident in found if incident.fault != "power_brake"] + [whole]


def merge(incidents: Sequence[Finding]) -> list[Finding]:
    """Merge the incidents of several documents and logs: one per fault and GPU.

    A GPU that is lost in the log is lost for nvidia-smi too; one that waits for a spare row logged
    an XID 63.
    """
    kept: dict[tuple[str, str | None], Finding] = {}
    for incident in sorted(incidents, key=lambda one: one.severity.rank):
        key = (_SAME.get(incident.fault, incident.fault), incident.gpu)
        known = kept.get(key)
        if known is None or not (known.gpu or known.fault in _OF_A_NODE):
            kept[key if known is None else (incident.line, incident.gpu)] = incident
        else:
            kept[key] = Finding(
                severity=known.severity,
                fault=known.fault,
                xids=sorted({*known.xids, *incident.xids}),
                sxids=sorted({*known.sxids, *incident.sxids}),
                gpu=known.gpu,
                count=known.count + incident.count,
                first=known.first or incident.first,
                last=known.last or incident.last,
                action=known.action,
                line=known.line,
            )
    return _join_recovery(list(kept.values()))


def _join_recovery(incidents: list[Finding]) -> list[Finding]:
    """Give a recovery action that nvidia-smi shows to the fault of that GPU in the log."""
    causes: dict[str | None, Finding] = {
        one.gpu: one for one in reversed(incidents) if one.xids and one.gpu and _matters(one)
    }
    kept = {id(one): one for one in incidents}
    for asked in incidents:
        cause = causes.get(asked.gpu)
        if cause is None or asked.xids or not asked.fault.startswith("recovery"):
            continue
        del kept[id(asked)]
        now = kept[id(cause)]
        kept[id(cause)] = msgspec.structs.replace(
            now,
            severity=min(now.severity, asked.severity, key=lambda one: one.rank),
            count=now.count + asked.count,
            action=f"{now.action} {asked.action}",
        )
    return list(kept.values())


def _matters(incident: Finding) -> bool:
    return incident.severity.rank <= XidSeverity.TICKET.rank


_MEMORY = ("ecc_uncontained", "ecc_dbe", "ecc_contained", "ecc_repeat", "ecc_detail",
           "ecc_volatile", "remap_pending", "remap_failure", "remap_exhausted", "sbe_rate")  # fmt: skip
_SAME = dict.fromkeys(_MEMORY, "memory")
_OF_A_NODE = frozenset({"driver_mismatch", "driver_down", "driver_hung", "power_brake"})
