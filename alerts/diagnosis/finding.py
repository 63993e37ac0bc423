"""A finding: one cause, with any number of lines."""

from __future__ import annotations

import msgspec

from alerts.xid.catalogue import XidSeverity


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A cause as `kilowatch diagnose --json` prints it."""

    severity: XidSeverity
    fault: str
    """Name of the fault in the rules: `gpu_lost`, `ecc_contained`, `application`."""
    xids: list[int] = []
    sxids: list[int] = []
    gpu: str | None = None
    """PCI address; None when it is not about one GPU."""
    count: int = 1
    """Lines of the log, or findings in a document of nvidia-smi."""
    first: str | None = None
    """Time of its first line, as the log has it; None where the log has no times."""
    last: str | None = None
    action: str = ""
    """Its meaning, and what to do."""
    line: str = ""
    """The most telling line, as it was read."""


def worst_first(incidents: list[Finding]) -> list[Finding]:
    """Return incidents by severity; those of one severity stay in the order of the log."""
    return sorted(incidents, key=lambda incident: incident.severity.rank)
