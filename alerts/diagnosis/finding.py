"""An incident: one cause, however many lines it left."""

from __future__ import annotations

import msgspec

from alerts.xid.catalogue import XidSeverity


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One cause, as `kilowatch diagnose --json` prints it."""

    severity: XidSeverity
    fault: str
    """`gpu_lost`, `ecc_contained`, `application` ...: what is broken, as the rules call it."""
    xids: list[int] = []
    sxids: list[int] = []
    gpu: str | None = None
    """PCI address; None when it is not about one GPU."""
    count: int = 1
    """Lines of the log, or findings in a document of nvidia-smi."""
    first: str | None = None
    """When it began, as the log says it; None when it does not."""
    last: str | None = None
    action: str = ""
    """What it means and what to do."""
    line: str = ""
    """The line that shows it best, as it was read."""


def worst_first(incidents: list[Finding]) -> list[Finding]:
    """Return incidents by severity; those of one severity stay in the order of the log."""
    return sorted(incidents, key=lambda incident: incident.severity.rank)
