"""The catalogue of what the kernel and the daemons of a GPU node state about faults outside of the GPU drivers.

Has the form of the drivers' catalogue, and two things more: the unit that a line names (a drive, a mount, a DIMM, an
adapter), and lines that are known to be harmless although they read like an error. A line that neither catalogue
has, and that reads like an error, is `suspicious`: what it means is not known.
"""

from __future__ import annotations

import re
import tomllib
from collections import deque
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from telemetry.statements.catalogue import ADDRESS

HARMLESS = "ignore"
"""Severity of a line that explains itself, and is never shown."""
OTHER = "kernel"
"""Subsystem of a line that no speaker begins."""
GPU_DRIVER = "GPU driver"
DAEMONS = "daemons"
HEARD = {"page": "node_fault", "ticket": "node_oddity"}
"""Rules of what no reading shows: a running cluster has the line alone."""
NAMED_BY_LINE = frozenset({
    "ceph_client_failing", "kernel_lockup", "lustre_import_failing", "machine_check", "node_hung_task", "root_read_only",
})  # fmt: skip
"""Rules of readings that no part can be told apart in: the line names the CPU, task, device or target."""


@dataclass(frozen=True, slots=True)
class NodeStatement:
    """A statement that the kernel or a daemon may make about a node."""

    name: str
    speaker: str
    subsystem: str
    """Part of the node: `storage`, `network`, `host memory`."""
    pattern: str
    """Regular expression of its words, from the end of the speaker's prefix on."""
    example: str
    """A line, or the lines of a record, built by the published format with values of our own."""
    unlike: tuple[str, ...]
    """Lines that read alike and are another statement or none."""
    fault: str
    severity: str
    """`page`, `ticket`, `info` or `ignore`, of one line alone."""
    meaning: str
    remedy: str
    rule: str | None
    """Rule that reports the same in a running cluster, by readings or by the line itself; None without one."""
    ended_by: str | None
    """Fault whose line about the same unit ends this one."""
    repeats: int | None
    """Lines about one unit within `within` seconds from which on it is a ticket."""
    within: float
    caused_by: tuple[str, ...]
    """Faults of the unit's drive of which it is a consequence."""
    stack: bool
    """Whether the kernel prints a stack behind it."""
    source: str
    date: str

    @property
    def heard(self) -> bool:
        """Whether a running cluster knows of it by this line alone."""
        return self.rule in HEARD.values()

    @property
    def names_unit(self) -> bool:
        """Whether a running cluster knows the unit of what a reading shows by this line."""
        return self.rule in NAMED_BY_LINE and self.severity != HARMLESS


class NodeNote(NamedTuple):
    """A statement about a node, as a line makes it."""

    statement: NodeStatement
    unit: str | None
    """Drive, mount, DIMM, adapter, CPU or task that the line names."""


class _Speaker(NamedTuple):
    starts: tuple[str, ...]
    subsystem: str
    rows: tuple[tuple[NodeStatement, re.Pattern[str]], ...]


@cache
def _table() -> dict[str, _Speaker]:
    text = files("telemetry.statements").joinpath("node.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text)
    rows: dict[str, list[tuple[NodeStatement, re.Pattern[str]]]] = {}
    for group in table["group"]:
        speaker = table["speakers"][group["speaker"]]
        for name, pattern, example, source in group["rows"]:
            one = NodeStatement(
                name=name,
                speaker=group["speaker"],
                pattern=pattern,
                example=example,
                subsystem=group.get("subsystem", speaker["subsystem"]),
                unlike=tuple(group.get("unlike", ())),
                fault=group["fault"],
                severity=group["severity"],
                meaning=group["meaning"],
                remedy=group["remedy"],
                rule=group.get("rule", _heard(group, speaker)),
                ended_by=group.get("ended_by"),
                repeats=group.get("repeats"),
                within=float(group.get("within", 0)),
                caused_by=tuple(group.get("caused_by", ())),
                stack=group.get("stack", False),
                source=table["sources"][source]["url"],
                date=table["sources"][source]["date"],
            )
            whole = f"{speaker['begins']}(?:{pattern})".replace("{pci}", ADDRESS)
            rows.setdefault(group["speaker"], []).append((one, re.compile(whole)))
    return {
        name: _Speaker(tuple(speaker["starts"]), speaker["subsystem"], tuple(rows.get(name, ())))
        for name, speaker in table["speakers"].items()
    }


def _heard(group: dict[str, Any], speaker: dict[str, Any]) -> str | None:
    """Return the rule of what is known by the kernel's line alone; a daemon's is in no log that collectors read."""
    of_kernel = group.get("subsystem", speaker["subsystem"]) != DAEMONS
    return HEARD.get(group["severity"]) if of_kernel else None


@cache
def node_statements() -> dict[str, NodeStatement]:
    """Return every statement by name."""
    return {one.name: one for speaker in _table().values() for one, _ in speaker.rows}


@cache
def ending_faults() -> frozenset[str]:
    """Return the faults whose lines say that another has ended."""
    return frozenset(one.ended_by for one in node_statements().values() if one.ended_by is not None)


@cache
def subsystems() -> tuple[str, ...]:
    """Return the parts of a node that the catalogue speaks of, in its order."""
    return tuple(dict.fromkeys(one.subsystem for one in node_statements().values() if one.severity != HARMLESS))


def find_node_statement(message: str) -> NodeNote | None:
    """Return the statement of a message of the kernel or a daemon; None for one that is not in the catalogue."""
    for speaker in _table().values():
        if speaker.starts and not message.startswith(speaker.starts):
            continue
        for one, pattern in speaker.rows:
            if (found := pattern.match(message)) is not None:
                unit = found["unit"] if "unit" in pattern.groupindex else None
                return NodeNote(one, unit)
    return None


def subsystem_of(message: str) -> str:
    """Return the part of the node that a message is about, by its beginning."""
    if message.startswith(_OF_DRIVERS):
        return GPU_DRIVER
    if message.startswith(("pcieport ", "pci ")):
        return "PCI Express"
    for speaker in _table().values():
        if speaker.starts and message.startswith(speaker.starts):
            return speaker.subsystem
    return OTHER


_OF_DRIVERS = ("NVRM", "nvidia", "amdgpu", "kfd ", "[drm:nv", "[drm:amdgpu", "xe ")

SUSPICIOUS = re.compile(
    r"\b(?:[Ff]ail(?:ed|ure|ures|s|ing)?|FAIL(?:ED|URE)?|[Ee]rrors?|ERRORS?|[Ff]atal|FATAL|[Tt]imed out|hung|HUNG"
    r"|HANG|BUG|Oops|[Cc]orrupt(?:ed|ion)?|[Pp]anic|LOCKUP|lockup|not responding|[Uu]ncorrect(?:ed|able)"
    r"|[Uu]nrecover\w{2,6}|went wrong)\b"
)
"""Words of an error; each has one of `MARKS`."""
_DENIED = re.compile(
    r"\b(?:no|0|without|non-?zero|any) (?:\w{1,20} )?(?:errors?|failures?)\b|\berrors?[=:] ?(?:0\b|remount|continue|panic)"
    r"|\berror (?:reporting|handling|correction|recovery enabled|containment)\b",
    re.IGNORECASE,
)
ERROR_LEVEL = 3
"""The kernel's level of an error (KERN_ERR); a smaller one is worse."""


def suspicious(message: str, level: int | None) -> bool:
    """Return whether a message reads like an error: by its level, where that is known, or by its words."""
    if level is not None and level <= ERROR_LEVEL:
        return True
    return SUSPICIOUS.search(_DENIED.sub("", message)) is not None


MARKS = (
    "rror", "ERROR", "fail", "Fail", "FAIL", "atal", "FATAL", "imed out", "hung", "HUNG", "HANG", "BUG", "Oops", "orrupt", "anic", "OCKUP", "ockup",
    "ncorrect", "nrecover", "not respon", "went wrong", "EDAC ", "- VD ", "temperature", "nvme nvme", "disable device", "fault_state",
    "not enough op", "EXT4-fs (", "Aborting jo", "XFS (", "BTRFS", "nfs: server", "Lustre", "ceph: ", "CIFS: ", "mmfs: ",
    "mlx5_core ", "Link is ", "link status", "Adapter rem", "timeout dete", "transmit time", "can't recover", "power state", "not ready ",
    "DMAR: ", "AMD-Vi: ", "INFO: rcu", "INFO: task", "protection fault", "RIP: 0010:", "oom-kill", "f memory", "xe 0", "nvidia-gridd",
)  # fmt: skip
"""Texts of which each row's line has one, unless it has a word of an error: a cheap test before any expression."""


# Records of the firmware (CPER), which the kernel prints in many lines.

_RECORD = re.compile(r"(?:\{(\d{1,6})\})?\[Hardware Error\]:\s*(.*)")
_SECTION_LINES = 64
_GPU_VENDORS = ("0x10de", "0x1002")
_GPU_CLASSES = ("03", "12")


class FirmwareRecords:
    """Joiner of the lines of records: lines in, one text for each error of a record out.

    The text is `{record} fatal PCIe error of 0000:4f:00.0 (GPU)`: type, section, unit.
    """

    def __init__(self) -> None:
        self._number = ""
        self._fields: dict[str, str] = {}
        self._done: deque[str] = deque()
        self._left = 0

    def feed(self, message: str) -> tuple[bool, list[str]]:
        """Return whether the message is of a record, and the errors that are complete now."""
        found = _RECORD.match(message)
        if found is None or (found[1] is None and not self._fields and not _begins(found[2])):
            self._left -= 1
            return False, self.flush() if self._left <= 0 else []
        number, text = found[1] or "", found[2]
        done: list[str] = []
        if number != self._number or _begins(text):
            done = self.flush()
        self._number, self._left = number, _SECTION_LINES
        self._read(text)
        return True, done

    def _read(self, text: str) -> None:
        key, _, value = text.partition(": ")
        if key.startswith("Error ") and text.count("type: "):
            self._fields = {"type": text.rpartition("type: ")[2].strip()}
            return
        if key == "event severity":
            self._fields = {"type": value.strip()}
        elif key == "vendor_id":
            self._fields["vendor"] = value[:6].lower()
        elif key in {"section_type", "device_id", "class_code", "fru_text", "DIMM location", "node"}:
            self._fields.setdefault(key, value.strip())
        elif text.startswith("node:"):
            self._fields.setdefault("node", text.strip())

    def flush(self) -> list[str]:
        """Return the error that has begun, if any, and forget it."""
        fields, self._fields = self._fields, {}
        section = fields.get("section_type", "")
        if not section:
            return []
        memory = "memory" in section
        location = fields.get("DIMM location", "").partition(". ")[0]
        named = "" if location.startswith("not present") else location
        unit = (named or fields.get("fru_text") or fields.get("node", "")[:60]) if memory else ""
        unit = fields.get("device_id", "") if "PCIe" in section else unit
        of = f" of {unit}" if unit else ""
        gpu = fields.get("vendor") in _GPU_VENDORS and fields.get("class_code", "")[:2] in _GPU_CLASSES
        mark = " (GPU)" if gpu else ""
        return [f"{{record}} {fields.get('type', 'unknown')} {section}{of}{mark}"]


def _begins(text: str) -> bool:
    return text.startswith(("event severity: ", "Error ", "Hardware error from APEI"))
