"""Judge the registers of XID 74: an error of an NVLink of a GPU before Blackwell.

The line carries seven registers. Bits 0, 23 and 30 of the first may be passed over (NVIDIA's
workflow for NVLink errors); any other bit is an error that someone must look at now.
"""

from __future__ import annotations

from collections.abc import Sequence

from alerts.xid.catalogue import XidSeverity

_HARMLESS = 1 << 0 | 1 << 23 | 1 << 30


def judge_registers(registers: Sequence[int], detail: str) -> tuple[str, XidSeverity]:
    """Return fault and severity; without registers (cut off, or old drivers) the words count."""
    if not any(registers):
        fatal = "fatal" in detail.lower().replace("non-fatal", "").replace("nonfatal", "")
        return "nvlink_errors", XidSeverity.PAGE if fatal else XidSeverity.TICKET
    if registers[0] & ~_HARMLESS or any(registers[1:]):
        return "nvlink_errors", XidSeverity.PAGE
    return "nvlink_noise", XidSeverity.IGNORE
