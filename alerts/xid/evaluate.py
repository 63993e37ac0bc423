"""Fault and severity of one line of the driver: an XID, an SXID of an NVSwitch, or a statement.

XID 74 is an error of an NVLink of a GPU before Blackwell. Its line carries seven registers. Bits 0,
23 and 30 of the first may be ignored (NVIDIA's workflow for NVLink errors); any other bit is an error
that needs a person now.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from alerts.xid.catalogue import XidSeverity, meaning_of
from alerts.xid.nvlink5 import XIDS as NVLINK5
from alerts.xid.nvlink5 import SubCode
from alerts.xid.sxids import Fatality, fatality_of
from telemetry.notations.kernel_log import SXid, Xid
from telemetry.statements.catalogue import statements

FaultAlone = tuple[str, XidSeverity]
"""A fault and its severity, of one line alone."""

SITE = re.compile(r"GPC (\d{1,3}), TPC (\d{1,3})")
"""The unit of a GPU that a line names."""

LINK_FAULT = 20034
"""A link's training state machine gave up: nearly always because the GPU behind it is gone."""

_HARMLESS_BITS = 1 << 0 | 1 << 23 | 1 << 30
_CAUSE = re.compile(r"caused by previous Xid (\d{1,6})")


def evaluate_xid(record: Xid, code: SubCode | None) -> FaultAlone:
    """Return fault and severity of one line with an XID."""
    meaning = meaning_of(record.xid)
    severity = meaning.severity
    if record.xid in NVLINK5:
        return _evaluate_nvlink5(record, code)
    if record.xid == 74:
        return evaluate_registers(record.registers, record.detail)
    if record.xid == 94 and record.reset:
        severity = XidSeverity.PAGE
    if record.xid == 45 and (before := _CAUSE.search(record.detail)) is not None:
        # The log may have lost the error itself; the lines that follow it still name it.
        cause = meaning_of(int(before[1]))
        if cause.severity.rank <= XidSeverity.TICKET.rank:
            return cause.fault, XidSeverity.TICKET
    if record.xid == 154:
        return _evaluate_action(None if record.action is None else record.action[1])
    return meaning.fault, severity


def evaluate_registers(registers: Sequence[int], detail: str) -> FaultAlone:
    """Return fault and severity of XID 74; the text decides where registers are missing (cut off, or
    old drivers)."""
    if not any(registers):
        fatal = "fatal" in detail.lower().replace("non-fatal", "").replace("nonfatal", "")
        return "nvlink_errors", XidSeverity.PAGE if fatal else XidSeverity.TICKET
    if registers[0] & ~_HARMLESS_BITS or any(registers[1:]):
        return "nvlink_errors", XidSeverity.PAGE
    return "nvlink_noise", XidSeverity.IGNORE


def evaluate_switch(record: SXid) -> FaultAlone:
    """Return fault and severity of one line of an NVSwitch, which names itself fatal or not; the
    catalogue decides where the line is cut off before that."""
    known = Fatality.UNKNOWN if record.fatal is not None else fatality_of(record.sxid)
    if record.fatal or (not record.continuation and known in {Fatality.FABRIC, Fatality.PORT}):
        if record.sxid == LINK_FAULT:
            return "nvswitch_link", XidSeverity.TICKET
        return "nvswitch_fatal", XidSeverity.PAGE
    if record.continuation or record.fatal is False or known is Fatality.NONE:
        return "nvswitch_noise", XidSeverity.IGNORE
    return "nvswitch_unknown", XidSeverity.TICKET


def evaluate_statement(name: str) -> FaultAlone:
    """Return fault and severity of a statement of the driver by its name; ("", IGNORE) for a name that
    is in no catalogue, as are the states of the reader itself."""
    known = statements().get(name)
    return ("", XidSeverity.IGNORE) if known is None else (known.fault, XidSeverity(known.severity))


def _evaluate_nvlink5(record: Xid, code: SubCode | None) -> FaultAlone:
    if code is None:
        harmless = record.xid in {147, 148} or (record.fatal is False and record.registers)
        return ("nvlink_noise", XidSeverity.IGNORE) if harmless else ("nvlink_errors", XidSeverity.TICKET)
    if code.action == "IGNORE":
        return "nvlink_noise", XidSeverity.IGNORE
    if code.action == "RESET_GPU" and record.xid in {144, 146, 150}:
        return "nvlink_errors", XidSeverity.PAGE
    return "nvlink_errors", XidSeverity.TICKET


def _evaluate_action(action: int | None) -> FaultAlone:
    match action:
        case 0:
            return "recovery_action", XidSeverity.INFO
        case 1 | 2 | 6 | 7:
            return "recovery_action", XidSeverity.PAGE
        case 3 | 5:
            return "recovery_action_p2p", XidSeverity.PAGE
        case 4:
            return "recovery_drain", XidSeverity.TICKET
        case _:
            return "recovery_action", XidSeverity.TICKET
