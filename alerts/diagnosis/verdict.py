"""Verdict on a group of errors: its fault, its severity, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from alerts.diagnosis.burst import Burst
from alerts.diagnosis.burst_group import BurstGroup
from alerts.xid.catalogue import XidSeverity, meaning_of
from alerts.xid.nvlink5 import XIDS as NVLINK5
from alerts.xid.nvlink5 import SubCode
from telemetry.statements.catalogue import statements

QUICK_SECONDS = 60.0
"""A recovery action that is withdrawn within this time does not count (the rule's `hold`)."""

MEMORY = frozenset({
    "ecc_uncontained", "ecc_dbe", "ecc_contained", "ecc_detail", "ecc_repeat", "remap_pending",
    "remap_failure", "sbe_rate",
})  # fmt: skip
"""Faults of one GPU's memory that are one incident."""

_ROOTS = (
    "gpu_lost", "gsp_dead", "driver_hung", "c2c", "pcie", "ecc_uncontained", "ecc_dbe",
    "memory_subsystem", "ecc_contained", "pmu_halt", "gpu_timeout", "security_fault",
    "gpu_init_failed", "nvswitch_fatal", "nvlink_errors", "remap_failure", "ecc_detail",
    "remap_pending", "nvswitch_link", "sbe_rate",
)  # fmt: skip
"""Faults by which is the cause of others at the same time; the first is."""
_RESULTS = ("recovery_action", "recovery_action_p2p", "recovery_drain", "driver_hung")

_RECOVERIES = {
    1: "reset the GPU",
    2: "reboot the node",
    3: "end all work that uses peer to peer access, then check again",
    4: "drain the GPU, then reset it",
    5: "recover the IMEX domain",
    6: "reset the GPU's bus",
    7: "reboot the whole system",
}


def recovery_of(group: BurstGroup) -> int | None:
    """Return the recovery action that was last requested; 0 when it was withdrawn quickly, or is the
    only one; None without any."""
    asked: Burst | None = None
    withdrawn = False
    for burst in group.bursts:
        if burst.recovery is None:
            continue
        if burst.recovery != 0:
            asked, withdrawn = burst, False
        elif asked is not None and burst.gpu == asked.gpu:
            after = asked.first.before(burst.first)
            withdrawn = after is not None and after < QUICK_SECONDS and asked.first.axis != ""
    if asked is not None:
        return 0 if withdrawn else asked.recovery
    return 0 if 154 in group.xids else None


def severities(group: BurstGroup) -> list[XidSeverity]:
    """Return the severity of each burst among the others of its group, in their order."""
    recovery = recovery_of(group) if 154 in group.xids else None
    return [_severity(burst, group.xids, recovery) for burst in group.bursts]


def _severity(burst: Burst, xids: set[int], recovery: int | None) -> XidSeverity:
    if burst.xid == 48 and 94 in xids:
        return XidSeverity.TICKET  # contained: only the program that used it fails
    if burst.xid == 157 and 48 in xids:
        return XidSeverity.PAGE
    if burst.xid == 154 and recovery == 0:
        return XidSeverity.INFO
    if burst.xid == 154 and recovery == 4 and (xids & {95, 149} or (48 in xids and 94 not in xids)):
        return XidSeverity.PAGE  # beside a contained error (94), the GPU works until it is idle
    return burst.severity


class FaultVerdict(NamedTuple):
    """Fault, severity and most telling burst of a group."""

    fault: str
    severity: XidSeverity
    burst: Burst
    """The most telling burst."""


def verdict_of(group: BurstGroup) -> FaultVerdict:
    """Return the fault that is the cause, and the severity of the group."""
    weighed = list(zip(group.bursts, severities(group), strict=True))
    severity = min((own for _, own in weighed), key=lambda own: own.rank)
    causes = sorted(
        (
            (own.rank, burst.first.order, burst)
            for burst, own in weighed
            if own.rank <= XidSeverity.TICKET.rank and burst.fault not in _RESULTS
        ),
        key=lambda one: one[:2],
    )
    numbered = [cause for cause in causes if cause[2].statement is None]
    if numbered and numbered[0][0] == causes[0][0]:
        causes = numbered  # what has a number says more than the words around it
    for root in _ROOTS:
        for _, _, burst in causes:
            if burst.fault == root:
                contained = root == "ecc_dbe" and 94 in group.xids
                return FaultVerdict("ecc_contained" if contained else root, severity, burst)
    shown = causes[0][2] if causes else next(burst for burst, own in weighed if own is severity)
    return FaultVerdict(shown.fault, severity, shown)


def action_of(fault: str, severity: XidSeverity, groups: Sequence[BurstGroup]) -> str:
    """Return the meaning of the incident and what to do, in a few sentences."""
    bursts = [burst for group in groups for burst in group.bursts]
    decoded = [_of_sub_code(code) for code in _codes(bursts)] if fault == "nvlink_errors" else []
    parts: list[str] = decoded[:3]
    shown = {
        burst.xid
        for burst in bursts
        if burst.xid is not None
        and burst.fault == fault
        and burst.xid != 154
        and not (decoded and burst.code is not None)
    }
    named_only = fault != "application" and shown == {45}
    shown -= {45} if named_only else set()
    for xid in sorted(shown)[:2]:
        if xid in NVLINK5 and decoded:
            continue
        known = meaning_of(xid)
        parts.append(f"{known.meaning} {known.remedy}")
    if len(parts) == 2 and parts[0] == parts[1]:
        parts.pop()
    if named_only:
        parts.append(
            "The driver ended a program's channels because of an error that the line names; where "
            "it is not in this log, it has been lost."
        )
    elif not parts:
        parts.append(_SENTENCES.get(fault) or _stated(fault, bursts))
    if fault == "ecc_contained" and severity is XidSeverity.PAGE:
        parts = [_RESET_NOW]
    if fault == "gpu_lost" and len({burst.gpu for burst in bursts if burst.xid == 79}) > 1:
        parts.append(_TOGETHER)
    recoveries = [recovery for group in groups if (recovery := recovery_of(group)) is not None]
    if recoveries and severity.rank <= XidSeverity.TICKET.rank and recoveries[-1] in _RECOVERIES:
        parts.append(f"The driver requests to {_RECOVERIES[recoveries[-1]]}.")
    elif recoveries and recoveries[-1] == 0 and fault.startswith("recovery"):
        parts.append("The driver has since withdrawn this: nothing is left to do.")
    gpus = sorted({burst.gpu for burst in bursts if burst.gpu and burst.sxid is None})
    if len(gpus) > 1:
        parts.append(f"GPUs: {', '.join(gpus[:16])}{' ...' if len(gpus) > 16 else ''}.")
    return " ".join(parts)


def _codes(bursts: Sequence[Burst]) -> list[SubCode]:
    """Return the sub-codes of NVLink errors, each once, those that ask for a reset first."""
    codes = dict.fromkeys(burst.code for burst in bursts if burst.code is not None)
    return sorted(codes, key=lambda code: code.action != "RESET_GPU")


def _of_sub_code(code: SubCode) -> str:
    """Return the meaning of a decoded sub-code, and what to do."""
    parts = [f"{code.unit} ({code.severity}): {_CODE_ACTIONS.get(code.action, code.action)}"]
    place = _CODE_PLACES.get(code.investigate)
    return " ".join(parts + ([place] if place else []))


_CODE_ACTIONS = {
    "IGNORE": "nothing is to be done.",
    "RESET_GPU": "drain and reset the GPU.",
    "XID_154_EVAL": "take the recovery action that the driver requests (XID 154, or `nvidia-smi -q`).",
}
_CODE_PLACES = {
    "CHECK_NVLINK_FAILURE_FLOW": "Look for another GPU of the domain that was lost or reset then.",
    "CONTACT_SUPPORT": "If it comes again, report it to the maker.",
    "INVESTIGATE_HOST": "Look for the cause on the host.",
    "INVESTIGATE_LINK_SI": "Check the signal of the link: its error counters and the seating.",
    "INVESTIGATE_LINK_SI_AND_CABLES": "Check the signal of the link and its cables.",
    "INVESTIGATE_PEER_DEVICE": "The cause may lie at the other end of the link: check the peer first.",
    "INVESTIGATE_SW_USER": "The cause may be the program.",
    "INVESTIGATE_SW_USER_LINK_SI": "The cause may be the program, or the signal of the link.",
    "REPORT_ISSUE": "Report it to the maker.",
    "SYMPATHETIC_REPORT_SOLO": "It follows an error elsewhere; alone, report it to the maker.",
}
"""Places of the cause that NVIDIA's catalogue names, in words."""

_RESET_NOW = (
    "A contained memory error with which the driver asks for a reset at once (RST: Yes). Stop the work"
    " on this GPU and reset it."
)
_TOGETHER = "Several GPUs at once point to what they share: a PCIe switch, a riser, the power supply."


def _stated(fault: str, bursts: Sequence[Burst]) -> str:
    """Return the meaning and remedy of the worst statement of a fault."""
    stated = [burst for burst in bursts if burst.statement is not None and burst.fault == fault]
    if not stated:
        return "See the line."
    worst = min(stated, key=lambda burst: burst.severity.rank)
    known = statements()[str(worst.statement)]
    return f"{known.meaning} {known.remedy}"


_SENTENCES = {
    "gpu_lost": meaning_of(79).meaning + " " + meaning_of(79).remedy,
    "driver_hung": "A process hangs in the driver and can't be killed. Drain the node and reboot "
    "it; do not kill what waits.",
    "gpu_init_failed": "The driver could not bring this GPU up. Reboot the node; if it fails "
    "again, check the driver's version and the board.",
    "driver_mismatch": "The driver's library and kernel module are of two versions. Reboot the "
    "node, or unload and load the modules.",
    "nvlink_errors": "An NVLink could not be brought up. Check the fabric and the state of the "
    "links; restart Fabric Manager or reset the GPUs if it stays.",
    "nvswitch_links": "An NVSwitch lost several links. Check whether a GPU of the node is lost; if none is, drain the node "
    "and reset all its GPUs and switches together.",
    "nvswitch_link": "An NVSwitch lost a link; mostly the GPU behind it went away. Check the GPUs' "
    "links; reset GPUs and switches if one stays down.",
    "nvswitch_fatal": "An NVSwitch reported a fatal error: work over NVLink fails. Drain the node "
    "and reset all its GPUs and switches together.",
    "nvswitch_unknown": "An NVSwitch reported an error of unknown severity. Look it up in the Fabric Manager guide.",
    "nvswitch_noise": "An NVSwitch corrected an error. Nothing.",
    "recovery_action": "The driver requests an action on this GPU; until then it is unreliable.",
    "recovery_action_p2p": "The NVLink domain of this GPU is disturbed.",
    "recovery_drain": "Place no new work on this GPU.",
    "ecc_repeat": "Uncorrectable memory errors came again within a day, or after a reset. Drain "
    "the GPU and run the field diagnostics; candidate for replacement.",
    "xid_app_repeat": "The same error came on the same unit of this GPU from three programs or "
    "more, and on no other GPU. Run the diagnostics (`dcgmi diag`, EUD) when it is idle.",
    "nvlink_noise": "An NVLink reported an error that needs no action at once.",
}
