"""Events of the driver: fault and severity, evaluated as a line of a saved kernel log."""

from __future__ import annotations

import re
from typing import Any

from alerts.xid.catalogue import XidSeverity, meaning_of
from alerts.xid.evaluate import SITE, FaultAlone, evaluate_statement, evaluate_switch, evaluate_xid
from alerts.xid.nvlink5 import SubCode, decode
from alerts.xid.sxids import sxids
from telemetry.devices import Event
from telemetry.notations.kernel_log import DriverNote, GpuLost, KernelRecord, StatedFault, SXid, Xid
from telemetry.statements.catalogue import statements
from telemetry.statements.node import node_statements


def fault_of(event: Event) -> FaultAlone:
    """Return the fault of an event in the XID catalogue, and its severity alone; ("", IGNORE) for an
    event that is no error of the driver."""
    data = event.data
    match event.kind:
        case "xid":
            number = _whole(data.get("xid"))
            if number is None:
                return "unknown_xid", XidSeverity.TICKET
            if number not in _DETAILED:
                known = meaning_of(number)
                return known.fault, known.severity
            record = _xid(number, event)
            return evaluate_xid(record, code_of(event))
        case "sxid":
            return evaluate_switch(_sxid(event))
        case "driver_log":
            return evaluate_statement(str(data.get("what")))
        case "node_log" if (stated := node_statements().get(str(data.get("what")))) is not None:
            # a reading tells of the others
            return (stated.fault, XidSeverity(stated.severity)) if stated.heard else ("", XidSeverity.IGNORE)
        case "gpu_lost":
            return "gpu_lost", XidSeverity.PAGE
        case _:
            return "", XidSeverity.IGNORE


def explain(event: Event) -> tuple[str, str]:
    """Return the meaning of an event of the driver and its remedy; "" and "" where no catalogue has it."""
    data = event.data
    match event.kind:
        case "xid" if (number := _whole(data.get("xid"))) is not None:
            known = meaning_of(number)
            return known.meaning, known.remedy
        case "sxid" if (error := sxids().get(_whole(data.get("sxid")) or 0)) is not None:
            return f"The switch names it {error.name}.", error.remedy
        case "driver_log" if (statement := statements().get(str(data.get("what")))) is not None:
            return statement.meaning, statement.remedy
        case "node_log" if (stated := node_statements().get(str(data.get("what")))) is not None:
            return stated.meaning, stated.remedy
        case "gpu_lost":
            lost = meaning_of(79)
            return lost.meaning, lost.remedy
        case _:
            return "", ""


def unit_labels(event: Event) -> dict[str, str]:
    """Return the labels of the unit that an event names: `unit`, and `server` of a mount; none where it names none.
    Of a line about a PCI device that is no GPU of the node it is the address, of an NVSwitch with its port."""
    unit = str(event.data.get("unit") or "")
    if not unit and event.gpu is None and event.kind in {"sxid", "driver_log"} and event.pci:
        port = event.data.get("link")
        unit = event.pci + (f" port {port}" if isinstance(port, int) and port >= 0 else "")
    server = str(event.data.get("server") or "")
    return {"unit": unit, **({"server": server} if server else {})} if unit else {}


def rule_of_reading(event: Event) -> str:
    """Return the rule whose reading shows what a line of the kernel says, and does not name the unit; "" without
    one."""
    stated = node_statements().get(str(event.data.get("what"))) if event.kind == "node_log" else None
    return (stated.rule or "") if stated is not None and stated.names_unit else ""


def code_of(event: Event) -> SubCode | None:
    """Return the sub-code of an NVLink error; None where there is none."""
    number = _whole(event.data.get("xid"))
    return None if number is None else decode(number, _words(event.data.get("registers")))


def numbered_gpu(event: Event) -> str:
    """Return the GPU of a line as the driver numbers it, `GPU7`, or "": the number is in the order in
    which the driver found the GPUs, and no index."""
    found = _NUMBERED.search(str(event.data.get("line", "")))
    return "" if found is None else found[1]


def site_of(event: Event) -> str:
    """Return the unit of the GPU that an event names, `GPC 2, TPC 1`, or ""."""
    found = SITE.search(str(event.data.get("line", ""))) or SITE.search(event.message)
    return "" if found is None else found[0]


_NUMBERED = re.compile(r"NVRM: (GPU[0-9]{1,3})\b")
_DETAILED = frozenset({45, 74, 94, 154, *range(144, 151)})
"""XIDs whose verdict depends on the rest of the line."""


def _xid(number: int, event: Event) -> Xid:
    data = event.data
    before, after = _whole(data.get("action_from")), _whole(data.get("action_to"))
    return Xid(
        xid=number,
        pci=event.pci,
        bdf=event.pci or "",
        detail=str(data.get("line") or event.message),
        action=None if after is None else (before or 0, after),
        fatal=_truth(data.get("fatal")),
        link=_whole(data.get("link")),
        registers=_words(data.get("registers")),
        reset=_truth(data.get("reset")),
    )


def _sxid(event: Event) -> SXid:
    data = event.data
    return SXid(
        sxid=_whole(data.get("sxid")) or 0,
        pci=event.pci,
        bdf=event.pci or "",
        detail=event.message,
        fatal=_truth(data.get("fatal")),
        continuation=bool(data.get("continuation")),
    )


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _truth(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _words(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list | tuple):
        return ()
    return tuple(word for word in value if isinstance(word, int))


def event_data(record: KernelRecord | StatedFault, line: str) -> tuple[str, dict[str, Any]]:
    """Return kind and data of the event that a collector makes of a line of the kernel's log."""
    match record:
        case Xid():
            data: dict[str, Any] = {
                "xid": record.xid,
                "pid": record.pid,
                "process": record.process,
                "action_to": None if record.action is None else record.action[1],
                "fatal": record.fatal,
                "link": record.link,
                "registers": list(record.registers) or None,
                "reset": record.reset,
            }
            kind = "xid"
        case SXid():
            data = {"sxid": record.sxid, "fatal": record.fatal, "link": record.link}
            kind = "sxid"
        case GpuLost():
            data, kind = {}, "gpu_lost"
        case DriverNote():
            data, kind = {"what": record.what}, "driver_log"
        case StatedFault():
            data, kind = {"what": record.what, "unit": record.unit}, "node_log"
    known = {name: value for name, value in data.items() if value is not None}
    return kind, known | {"line": line.strip()}
