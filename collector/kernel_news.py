"""From a record of the kernel log to a happening on the bus."""

from __future__ import annotations

from collector.source import Happening
from telemetry.kernel_log import DriverNote, GpuLost, Record, SXid, Xid

MAX_LINE = 1024
"""Characters of the raw line that go along."""

_NOTES = {
    "init_failed": "the driver could not start a GPU",
    "nvlink_failed": "the driver could not bring up NVLinks",
    "mismatch": "the driver's library and its kernel module are of different releases",
    "task_hung": "a process hangs in the driver",
}


def happening_of(record: Record, line: str, at: int) -> Happening:
    """Return the happening of a record; `at` is ns since 1970, `line` its (last) raw line."""
    match record:
        case Xid():
            data = {
                "xid": record.xid,
                "pid": record.pid,
                "process": record.process,
                "gpu_instance": record.gpu_instance,
                "compute_instance": record.compute_instance,
                "action_from": record.action[0] if record.action else None,
                "action_to": record.action[1] if record.action else None,
                "fatal": record.fatal,
                "link": record.link,
                "registers": list(record.registers) or None,
                "reset": record.reset,
                "drain_and_reset": record.drain_and_reset,
            }
            kind, message = "xid", f"XID {record.xid}: {record.detail[:200]}".rstrip(": ")
        case SXid():
            data = {
                "sxid": record.sxid,
                "switch": record.switch,
                "fatal": record.fatal,
                "link": record.link,
                "continuation": record.continuation or None,
            }
            kind, message = "sxid", f"SXID {record.sxid}: {record.detail[:200]}".rstrip(": ")
        case GpuLost():
            data, kind, message = {}, "gpu_lost", "GPU has fallen off the bus"
        case DriverNote():
            data, kind, message = {"what": record.what}, "driver_log", _NOTES[record.what]
    raw = record.detail if isinstance(record, GpuLost) else line
    said: dict[str, object] = {name: value for name, value in data.items() if value is not None}
    said |= {"line": raw.strip()[:MAX_LINE], "source": "kernel"}
    return Happening(kind, at, pci=record.pci, message=message, data=said)
