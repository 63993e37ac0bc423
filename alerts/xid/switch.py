"""Judge errors of NVSwitches (SXid), which say themselves whether they are fatal."""

from __future__ import annotations

from alerts.xid.catalogue import XidSeverity
from telemetry.kernel_log import SXid

LINK_FAULT = 20034
"""A link's training state machine gave up: nearly always because the GPU behind it went away."""

HARMLESS = frozenset({
    11012, 11021, 11022, 11023, 12021, 12023, 15008, 15011, 19049, 19055, 19057, 19059, 19062,
    19065, 19068, 19071, 22013, 24001, 24002, 24003,
})  # fmt: skip
"""Seen on healthy switches of large fleets; so are all that call themselves non-fatal."""


def judge_switch(record: SXid) -> tuple[str, XidSeverity]:
    """Return fault and severity of one line alone."""
    if record.fatal:
        if record.sxid == LINK_FAULT:
            return "nvswitch_link", XidSeverity.TICKET
        return "nvswitch_fatal", XidSeverity.PAGE
    if record.continuation or record.fatal is False or record.sxid in HARMLESS:
        return "nvswitch_noise", XidSeverity.IGNORE
    return "nvswitch_unknown", XidSeverity.TICKET
