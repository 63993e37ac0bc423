"""The catalogue of statements, compiled once to one expression a speaker.

A speaker is a driver, a part of the kernel or a daemon; each begins its lines in a way of its own. A
line is compared with the statements of its speaker alone, at the place where its prefix ends: the rest of
a line may hold names that any user of the node chose.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

ADDRESS = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
_OWN_LOG = r"\[\w{3} \d{1,2} \d{4} [\d:]{8}\] \[\w{1,10}\] (?:\[tid \d{1,10}\] )?"
"""Begin of a line of a log that Fabric Manager or IMEX writes by itself."""

SPEAKERS: dict[str, str] = {
    "nvrm": rf"NVRM: (?:GPU\d{{1,3}} )?(?:GPU {ADDRESS}: )?(?:\w{{1,80}}: )?",
    "uvm": r"nvidia-uvm: (?:[\w.]{1,60}:\d{1,6} \w{1,80}\[pid:\d{1,10}\] ?)?",
    "modeset": r"nvidia-modeset: ",
    "drm": r"\[drm:nv_drm_\w{1,60} \[nvidia_drm\]\] \*ERROR\* \[nvidia-drm\] \[GPU ID 0x[0-9a-f]{8}\] ",
    "device": rf"nvidia(?: {ADDRESS})?: ",
    "amdgpu": (
        rf"(?:amdgpu {ADDRESS}: (?:amdgpu: |\[drm\] )?|(?:kfd kfd: )?amdgpu: "
        r"|\[drm:\w{1,60} \[amdgpu\]\] \*ERROR\* )"
    ),
    "port": rf"(?:pcieport|pci) {ADDRESS}: ",
    "task": r"INFO: task ",
    "fabric_manager": rf"(?:(?:nv-fabricmanager|nvidia-fabricmanager-start\.sh)(?:\[\d{{1,10}}\])?: |{_OWN_LOG})",
    "imex": rf"(?:nvidia-imex(?:\[\d{{1,10}}\])?: |{_OWN_LOG})",
    "persistenced": r"nvidia-persistenced(?:\[\d{1,10}\])?: ",
    "systemd": r"systemd(?:\[1\])?: ",
}
"""Expression of what begins each line of a speaker."""

OF_GPUS = frozenset({"nvrm", "device", "drm", "persistenced", "amdgpu"})
"""Speakers whose lines name GPUs by address; ports, and the switches of Fabric Manager, are none."""

_STARTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("NVRM: ", ("nvrm",)),
    ("nvidia-uvm: ", ("uvm",)),
    ("nvidia-modeset: ", ("modeset",)),
    ("[drm:nv_drm_", ("drm",)),
    ("amdgpu", ("amdgpu",)),
    ("kfd kfd: ", ("amdgpu",)),
    ("[drm:amdgpu_", ("amdgpu",)),
    ("nvidia ", ("device",)),
    ("nvidia: ", ("device",)),
    ("pcieport ", ("port",)),
    ("pci ", ("port",)),
    ("INFO: task ", ("task",)),
    ("nv-fabricmanager", ("fabric_manager",)),
    ("nvidia-fabricmanager", ("fabric_manager",)),
    ("nvidia-imex", ("imex",)),
    ("nvidia-persistenced", ("persistenced",)),
    ("systemd", ("systemd",)),
    ("[", ("fabric_manager", "imex")),
)
"""The first characters of a speaker's lines: a cheap test before any expression."""

DAEMONS = r"nvidia-gridd|nv-fabricmanager|nvidia-fabricmanager-start\.sh|nvidia-imex|nvidia-persistenced|systemd"
"""Expression of the names under which daemons write to syslog."""
OWN_LOG = re.compile(_OWN_LOG)

_STATUS = re.compile(r"(?:Assertion|Check) failed: .{0,160}?\[(NV_ERR_\w{1,60})\]")
_OF_STATUS = re.compile(r"\\\[(NV_ERR_\w+)\\\]$")
_FIRST_PCI = re.compile(r"\b[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]\b")
_SENDER = re.compile(rf"received(?: from|:) ({ADDRESS})")
_GPU_ID = re.compile(r"\[GPU ID 0x([0-9a-f]{4})([0-9a-f]{2})([0-9a-f]{2})\]")


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement that a driver or daemon may make."""

    name: str
    speaker: str
    """Key of `SPEAKERS`."""
    pattern: str
    """Regular expression of its words, from the end of the speaker's prefix on."""
    example: str
    """A line built by the published format with values of our own."""
    fault: str
    """Name of the fault in the rules: `gsp_dead`, `reset_required`."""
    severity: str
    """`page`, `ticket` or `info`, of one line alone."""
    meaning: str
    remedy: str
    source: str
    """Where the format is published."""
    date: str
    """When it was looked up there, `2026-11-22`."""


@cache
def statements() -> dict[str, Statement]:
    """Return every statement by name."""
    text = files("telemetry.statements").joinpath("catalogue.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text)
    return {
        name: Statement(
            name=name,
            speaker=group["speaker"],
            pattern=pattern.replace("{pci}", ADDRESS),
            example=example,
            fault=group["fault"],
            severity=group["severity"],
            meaning=group["meaning"],
            remedy=group["remedy"],
            source=table["sources"][source]["url"],
            date=table["sources"][source]["date"],
        )
        for group in table["group"]
        for name, pattern, example, source in group["rows"]
    }


def find_statement(message: str) -> Statement | None:
    """Return the statement of a message, which begins with the prefix of its speaker; None for any other."""
    for start, speakers in _STARTS:
        if message.startswith(start):
            for speaker in speakers:
                if (found := _matcher(speaker).find(message)) is not None:
                    return found
            return None
    return None


def place_of(message: str) -> str | None:
    """Return the PCI address that a statement is about: of the device that sent an error where a port
    reports it, else the first in the message; None where it names none."""
    if (sender := _SENDER.search(message)) is not None:
        return sender[1]
    if (gpu := _GPU_ID.search(message)) is not None:
        return f"{gpu[1]}:{gpu[2]}:{gpu[3]}.0"
    first = _FIRST_PCI.search(message)
    return None if first is None else first[0]


class _Matcher:
    """The statements of one speaker, as one expression.

    The many that differ in nothing but the status that they quote are found by it: a driver in trouble
    may print thousands of failed assertions a second.
    """

    def __init__(self, speaker: str) -> None:
        prefix = SPEAKERS[speaker]
        rows = [one for one in statements().values() if one.speaker == speaker]
        self._by_status = {status[1]: one for one in rows if (status := _OF_STATUS.search(one.pattern)) is not None}
        others = [one for one in rows if one not in self._by_status.values()]
        self._prefix = re.compile(prefix)
        self._whole = re.compile(f"{prefix}(?:{'|'.join(f'(?P<{one.name}>{one.pattern})' for one in others)})")

    def find(self, message: str) -> Statement | None:
        """Return the statement of a message of this speaker."""
        if "[NV_ERR_" in message and self._by_status:
            begin = self._prefix.match(message)
            status = None if begin is None else _STATUS.match(message, begin.end())
            if status is not None:
                return self._by_status.get(status[1])
        found = self._whole.match(message)
        return None if found is None else statements()[str(found.lastgroup)]


@cache
def _matcher(speaker: str) -> _Matcher:
    return _Matcher(speaker)
