"""A finding: one cause, with any number of lines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from alerts.diagnosis.log_time import FindingTime
from alerts.xid.catalogue import XidSeverity
from alerts.xid.nvlink5 import SubCode
from api.evidence import EvidenceCommand, Remedy


class FindingGpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU as far as the files name it; None is what no file says."""

    pci: str | None = None
    index: int | None = None
    """Number of `nvidia-smi`."""
    uuid: str | None = None
    serial: str | None = None
    slot: str | None = None
    """Slot, tray or module, where the platform reports it."""
    name: str | None = None
    """Model."""


class FindingSubCode(msgspec.Struct, frozen=True, kw_only=True):
    """Sub-code of an NVLink error of Blackwell, decoded."""

    xid: int
    unit: str
    action: str
    """NVIDIA's word: `IGNORE`, `RESET_GPU` or `XID_154_EVAL`."""
    severity: str
    investigate: str
    """NVIDIA's word for the place of the cause: `INVESTIGATE_PEER_DEVICE`."""

    @classmethod
    def of(cls, xid: int, code: SubCode) -> FindingSubCode:
        """Return a sub-code as it is printed."""
        return cls(xid=xid, unit=code.unit, action=code.action, severity=code.severity, investigate=code.investigate)


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """Equal lines of a log, or a state in a document, about a node."""

    what: str
    """`XID 79`, `SXid 10003`, or the name of the fault."""
    fault: str
    severity: XidSeverity
    kind: Literal["lines", "state"] = "lines"
    node: str | None = None
    gpus: list[FindingGpu] = []
    at: FindingTime | None = None
    """Null where the file has no times."""
    count: int = 1
    """Lines."""
    line: str = ""
    file: str = ""


class FindingReadings(msgspec.Struct, frozen=True, kw_only=True):
    """Readings of one GPU around the moment, in base units: a row an instant, a column a metric."""

    gpu: FindingGpu | None = None
    at: list[FindingTime] = []
    columns: dict[str, list[float | None]] = {}
    """By metric; null is a gap."""


class FindingEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """The card of a finding: what the files tell around it. Its identity and lines are the finding's."""

    readings: FindingReadings = FindingReadings()
    nearby: list[Observation] = []
    """Observations of the node within five minutes beside its own, in order of time; 40 at most."""
    nearby_total: int = 0
    history: list[Observation] = []
    """Pages and tickets of the same board beside it in the files, wherever it was; 20 at most."""
    history_total: int = 0
    remedy: Remedy = Remedy()
    commands: list[EvidenceCommand] = []
    missing: dict[str, str] = {}
    """By part (`readings`, `nearby`, `history`, `node`), why it is missing or incomplete."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A cause as `kilowatch diagnose --json` prints it."""

    severity: XidSeverity
    fault: str
    """Name of the fault: `gpu_lost`, `ecc_contained`, `application`."""
    rule: str | None = None
    """Rule that reports this in a running cluster, and heading of its runbook; None without one."""
    node: str | None = None
    """Name of the node; None where no file names one."""
    xids: list[int] = []
    sxids: list[int] = []
    sub_codes: list[FindingSubCode] = []
    links: list[int] = []
    """Numbers of the NVLinks that it names."""
    unit: str | None = None
    """Part of the node that it is about, where it is no GPU: a drive, mount, DIMM, adapter, CPU or task."""
    gpu: str | None = None
    """PCI address; None when it is not about one GPU."""
    index: int | None = None
    uuid: str | None = None
    serial: str | None = None
    slot: str | None = None
    gpus: list[FindingGpu] = []
    """GPUs that it is about."""
    count: int = 1
    """Lines of the log, or findings in a document of nvidia-smi."""
    first: str | None = None
    """Time of its first line, as the log has it; None where the log has no times."""
    last: str | None = None
    moment: FindingTime | None = None
    """Time of its most telling line, or of the document; None where the file has no times."""
    action: str = ""
    """Its meaning, and what to do."""
    line: str = ""
    """The most telling line, as it was read."""
    lines: list[str] = []
    """The first lines, as they were read: `MOST_LINES` at most."""
    files: list[str] = []
    evidence: FindingEvidence | None = None


MOST_LINES = 12


def worst_first(incidents: Iterable[Finding]) -> list[Finding]:
    """Return incidents by severity; those of one severity stay in the order of the log."""
    return sorted(incidents, key=lambda incident: incident.severity.rank)


def of_gpus(finding: Finding, gpus: Iterable[FindingGpu]) -> Finding:
    """Return a finding about these GPUs; about one GPU, its identity is the finding's too."""
    known = list(gpus)
    one = known[0] if len(known) == 1 else FindingGpu()
    return msgspec.structs.replace(
        finding, gpus=known, gpu=one.pci, index=one.index, uuid=one.uuid, serial=one.serial, slot=one.slot
    )


def with_rule(finding: Finding) -> Finding:
    """Return a finding with the name of its rule."""
    return msgspec.structs.replace(finding, rule=rule_of(finding))


def rule_of(finding: Finding) -> str | None:
    """Return the rule that reports such a fault in a running cluster; None without one."""
    exact = RULES.get((finding.fault, finding.severity)) or RULES.get((finding.fault, None))
    if exact is not None:
        return exact
    if not finding.xids or finding.severity.rank > XidSeverity.TICKET.rank:
        return None
    return "gpu_fault" if finding.severity is XidSeverity.PAGE else "gpu_oddity"


_PAGE, _TICKET = XidSeverity.PAGE, XidSeverity.TICKET
RULES: dict[tuple[str, XidSeverity | None], str] = {
    **{(name, None): name for name in (
        "gpu_lost", "gsp_dead", "driver_hung", "driver_down", "driver_mismatch", "gpu_init_failed",
        "ecc_dbe", "ecc_uncontained", "ecc_repeat", "remap_pending", "remap_failure", "sbe_rate",
        "thermal_hw", "power_brake", "nvlink_down", "recovery_drain", "xid_app_repeat", "fabric_never", "fabric_setup", "pcie_slow",
    )},
    ("ecc_contained", _PAGE): "ecc_uncontained",
    ("ecc_contained", _TICKET): "ecc_contained",
    ("ecc_volatile", None): "ecc_uncorrected",
    ("recovery_action", _PAGE): "recovery_action",
    ("recovery_action_p2p", _PAGE): "recovery_p2p",
    ("nvlink_errors", _PAGE): "nvlink_fatal",
    ("nvlink_errors", _TICKET): "nvlink_fault",
    ("nvlink_noise", _TICKET): "nvlink_noise",
    ("nvswitch_fatal", None): "nvswitch_fault",
    ("nvswitch_links", None): "nvswitch_links",
    ("nvswitch_link", _TICKET): "nvswitch_oddity",
    ("nvswitch_unknown", _TICKET): "nvswitch_oddity",
    ("fabric", _TICKET): "fabric_degraded",
    ("fabric", _PAGE): "fabric",
    ("pcie", _TICKET): "pcie_fatal",
    ("gpu_missing", None): "gpus_unread",
}  # fmt: skip
