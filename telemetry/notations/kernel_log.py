"""The grammar of the lines of GPU drivers in the kernel log. Pure: text in, records out.

Lines come from /dev/kmsg, `dmesg` in any of its forms, the journal or syslog; drivers of ten years
write them differently. An unknown line is skipped, never an error: an Xid is known by its number
even where the rest of the line is cut off. Sources: NVIDIA's Xid catalogue, and the lines under
`captures/kernel_log`.

What drivers, their daemons and the kernel state about a GPU without a number is a `DriverNote`, what the kernel
states about the rest of the node a `StatedFault`, by the catalogues of `telemetry/statements`.

A record counts only where the driver's own prefix begins the message. The kernel prints names of
processes, files and cgroups as they are, so that whoever may start a program may put any text
into the rest of a line, and 15 characters before `[pid]` at its beginning.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from telemetry.notations.pci import normal_pci
from telemetry.statements.catalogue import DAEMONS, OWN_LOG, find_statement, place_of
from telemetry.statements.node import MARKS as NODE_MARKS
from telemetry.statements.node import find_node_statement

# What may stand before a message. The parts are those of tools, none is of the message itself.

_TIME = r"\d{2}:\d{2}:\d{2}(?:[.,]\d{1,9})?"
_STAMPS = (
    r"\[ *\d{1,12}\.\d{1,9}(?: *< *[\d.]{1,20}>)?\](?:\[ *[TC]\d{1,10}\])?",  # dmesg, printk.caller
    rf"\[(?:\w{{1,5}}\.? )?\w{{2,5}}\.? +\d{{1,2}} {_TIME} \d{{4}}(?: *< *[\d.]{{1,20}}>)?\]",  # dmesg -T
    rf"\[?\d{{4}}-\d{{2}}-\d{{2}}[T ]{_TIME}(?:Z|[+-]\d{{2}}:?\d{{2}})?\]?:?",  # --time-format iso
    rf"(?:[^\W\d_]{{3,5}}|\d{{1,2}}月)\.? +\d{{1,2}} (?:\d{{4}} )?{_TIME}",  # syslog, any language
    r"kern *:(?: *\w{3,7} *:)?",  # dmesg -x
    r"<\d{1,3}>(?:1 )?",  # the priority of syslog
)
_STAMP = rf"(?:{'|'.join(_STAMPS)})\s*"
_SENDER = r"(?:(?:[\w.:-]{1,253} )?(?:kern\.\w{3,7} )?(?:kernel|klogd)(?:\[\d{1,10}\])?(?::| - - -)\s*|MESSAGE=)"
_KMSG = re.compile(r"\d{1,4},\d{1,20},\d{1,20},[^;]{0,200};")
_FRONT = re.compile(rf"\s*(?:[\w.-]{{1,253}}: (?={_STAMP}|{_SENDER}))?(?:{_STAMP})*(?:{_SENDER}(?:{_STAMP})*)?")
"""A node may be in front of all, as `pdsh` and `clush` print it, but only before a stamp."""
_OURS = re.compile(
    r"NVRM:|nvidia-nvswitch\d{0,4}:|INFO: task |nvidia-uvm: |nvidia-modeset: |nvidia: |\[drm:nv_drm_"
    r"|(?:kfd kfd: )?amdgpu: |\[drm:amdgpu_\w{1,60} \[amdgpu\]\] "
    r"|(?:nvidia|amdgpu|pcieport|pci) [0-9a-f]{4,8}:"
)
_OF_DAEMON = re.compile(rf"(?:[\w.:-]{{1,253}} )?(?=(?:{DAEMONS})(?:\[\d{{1,10}}\])?: )")
"""Text before the name of a daemon in syslog: the node, or nothing."""
_OF_PROCESS = re.compile(r".{1,16}?(?:\[\d{1,10}\][: ]|: page allocation|invoked oom-killer)", re.DOTALL)
"""Begins with the name of a process: `NVRM: Xid (PCI:[4711]: segfault at 0 ip ...`."""


def message_start(line: str) -> int:
    """Return where the message of a line begins, behind its stamps and the names of its senders."""
    front = _KMSG.match(line) or _FRONT.match(line)
    return 0 if front is None else front.end()


_ADDRESS = r"(?:PCI:)?[0-9a-fA-F]{1,8}:[0-9a-fA-F]{1,2}:[0-9a-fA-F]{1,2}(?:\.[0-9a-fA-F])?"
_XID = re.compile(r"NVRM: (?:GPU\d+ )?Xid \(([^)\[\]]{1,80})\): (\d{1,6})(?:,\s*(.*))?", re.DOTALL)
_PLACE = re.compile(rf"({_ADDRESS})(?:[ ,]+GPU-I:([0-9a-fA-F]{{1,4}}))?(?:[ ,]+GPU-CI:([0-9a-fA-F]{{1,4}}))?")
_PID = re.compile(r"pid=(?:'([^']{0,40})'|([^,\s]{0,40}))(?:,\s*|$)")
_NAME = re.compile(r"name=(.*?)(?:, |$)", re.DOTALL)
_ACTION = re.compile(r"from (0x[0-9a-f]{1,8}|\d{1,8})\b.{0,80}? to (0x[0-9a-f]{1,8}|\d{1,8})\b")
_NVLINK5 = re.compile(r"\b(Fatal|Non-?fatal)\b", re.IGNORECASE)
_LINK = re.compile(r"\blink (-?\d{1,3})\b", re.IGNORECASE)
_REGISTERS = re.compile(r"\(((?:0x[0-9a-fA-F]{1,16}[,\s]*){1,16})\)")
_RESET = re.compile(r"\bRST: (Yes|No)(?:, D-RST: (Yes|No))?")
_SXID = re.compile(rf"nvidia-nvswitch(\d{{1,4}})?: SXid \(({_ADDRESS})\): (\d{{1,6}})(?:, (.*))?")
_LOST = re.compile(rf"NVRM: [\w ]{{0,40}}?({_ADDRESS})[\w :.,()-]{{0,80}}?\bfallen off the bus")
_LOST_BEGINS = re.compile(rf"NVRM: The NVIDIA GPU ({_ADDRESS})")
_LOST_ENDS = re.compile(r"NVRM:[\w :.,()-]{0,80}\bfallen off the bus")
_MARKS = (
    "NVRM", "nvidia", "SXid", "INFO: task nv", "pcieport ", "pci 0", "nv-fabricmanager", "[tid ",
    "[drm:nv_drm_", "amdgpu",
)  # fmt: skip
"""A line without any of these is of nobody here: a cheap test before any expression."""
_MAX_LINE = 2048


@dataclass(frozen=True, slots=True)
class Xid:
    """A numbered error of the driver."""

    xid: int
    pci: str | None
    """Normal form; None when the address is not one."""
    bdf: str
    """The address as in the line, without `PCI:`."""
    detail: str
    gpu_instance: int | None = None
    """Of a MIG device."""
    compute_instance: int | None = None
    pid: int | None = None
    process: str | None = None
    action: tuple[int, int] | None = None
    """Xid 154: the recovery action before and now, by number (the words changed with drivers)."""
    fatal: bool | None = None
    """Xids 144 to 150 (NVLink of Blackwell): whether it is fatal."""
    link: int | None = None
    registers: tuple[int, ...] = ()
    """Xids 74 and 144 to 150; empty when the line is cut off among them."""
    reset: bool | None = None
    """Xids 94 and 95: whether a reset is needed (`RST`)."""
    drain_and_reset: bool | None = None
    """Xids 94 and 95: whether drain and reset is needed (`D-RST`)."""


@dataclass(frozen=True, slots=True)
class SXid:
    """An error of an NVSwitch."""

    sxid: int
    pci: str | None
    bdf: str
    detail: str
    switch: int | None = None
    fatal: bool | None = None
    link: int | None = None
    continuation: bool = False
    """A further line (`Severity ...`, `Data {...}`) of an error that was reported by an earlier line."""


@dataclass(frozen=True, slots=True)
class GpuLost:
    """A line without a number that reports a GPU which has left the bus."""

    pci: str | None
    detail: str


@dataclass(frozen=True, slots=True)
class DriverNote:
    """Another statement of the driver, of one of its daemons, or of the kernel about a GPU."""

    what: str
    """Name of the statement in `telemetry/statements/catalogue.toml`."""
    pci: str | None
    detail: str


KernelRecord = Xid | SXid | GpuLost | DriverNote


@dataclass(frozen=True, slots=True)
class StatedFault:
    """A fault outside of the GPU drivers that a running cluster knows, or knows the unit of, by this line alone."""

    what: str
    """Name of the statement in `telemetry/statements/node.toml`."""
    unit: str | None
    """Drive, mount, DIMM, adapter or CPU that the line names."""


def parse_line(line: str) -> KernelRecord | None:
    """Return the record of one line; None for a line that is not about a GPU.

    Lines that programs wrote to /dev/kmsg (their facility is not the kernel's) are ignored.
    """
    message = message_of(line)
    return None if message is None else _parse(message)


def message_of(line: str) -> str | None:
    """Return the message of the driver or a daemon in a line, or that of the kernel on a task that hangs
    or a PCI device; None where the line holds none, or holds it anywhere but at its beginning."""
    if not any(mark in line for mark in _MARKS) or _from_a_program(line):
        return None
    line = line[:_MAX_LINE]
    if OWN_LOG.match(line) is not None:
        return line.strip()
    start = message_start(line)
    if (daemon := _OF_DAEMON.match(line, start)) is not None:
        return line[daemon.end() :].strip()
    message = line[start:]
    ours = _OURS.match(message) is not None and _OF_PROCESS.match(message) is None
    return message.strip() if ours else None


class KernelMessage(NamedTuple):
    """A message of the kernel, or of a daemon of the driver, in a line of any form."""

    text: str
    level: int | None
    """The kernel's level, 3 an error; None where the line does not have it."""
    from_kernel: bool | None
    """Whether the line itself says that the kernel wrote it: by a stamp of dmesg, or by its sender; None where
    nothing is before the message, as `dmesg -t` and `journalctl -o cat` print it."""


_PRIORITY = re.compile(r"<(\d{1,3})>|(\d{1,4}),\d{1,20},|kern *: *(\w{3,7}) *:")
_LEVELS = {"emerg": 0, "alert": 1, "crit": 2, "err": 3, "warn": 4, "notice": 5, "info": 6, "debug": 7}
_FROM_KERNEL = re.compile(r"kernel|klogd|MESSAGE=|kern *:|kern\.|\] *$|;$|,\d{6}[+-]\d\d:?\d\d *$")
_BY_PROGRAM = re.compile(r"[\w.@/-]{1,60}\[\d{1,10}\]: ")


def kernel_message(line: str) -> KernelMessage | None:
    """Return the message of the kernel or of a daemon in a line, whatever it is about; None for a line of
    another program, and for one that begins with the name of a process, which any user chooses."""
    if _from_a_program(line):
        return None
    line = line[:_MAX_LINE]
    start = message_start(line)
    if (daemon := _OF_DAEMON.match(line, start)) is not None:
        return KernelMessage(line[daemon.end() :].strip(), None, from_kernel=False)
    front, text = line[:start], line[start:].rstrip()
    priority = _PRIORITY.match(front.lstrip())
    level: int | None = None
    if priority is not None:
        number = priority[1] or priority[2]
        if number is not None and int(number) >= 8:
            return None
        level = _LEVELS.get(priority[3]) if number is None else int(number)
    if _OF_PROCESS.match(text) is not None or _BY_PROGRAM.match(text) is not None:
        return None
    from_kernel = _FROM_KERNEL.search(front) is not None if front.strip() else None
    return KernelMessage(text, level, from_kernel)


def parse_node_line(line: str) -> StatedFault | None:
    """Return what the kernel itself says of a fault of the node that no reading shows, or whose unit none names;
    None for any other line."""
    if not any(mark in line for mark in NODE_MARKS):
        return None
    message = kernel_message(line)
    if message is None or not message.from_kernel:
        return None
    note = find_node_statement(message.text)
    if note is None:
        return None
    statement, unit = note
    heard = statement.heard or (statement.names_unit and unit is not None)
    return StatedFault(statement.name, unit) if heard else None


def _parse(message: str) -> KernelRecord | None:
    if (match := _XID.match(message)) is not None:
        return _xid(match)
    if (match := _SXID.match(message)) is not None:
        return _sxid(match)
    if (match := _LOST.match(message)) is not None:
        return GpuLost(normal_pci(match[1] or ""), message)
    if "fallen off the bus" in message:
        return None  # the last of three lines: see `Assembler`
    statement = find_statement(message)
    if statement is None:
        return None
    return DriverNote(statement.name, normal_pci(place_of(message) or ""), message)


def _from_a_program(line: str) -> bool:
    head = line[:12].partition(",")[0]
    return line[:1].isdigit() and head.isascii() and head.isdigit() and int(head) >= 8


def _xid(match: re.Match[str]) -> Xid | None:
    place = _PLACE.search(match[1])
    rest = (match[3] or "").strip()
    number = int(match[2])
    pid: int | None = None
    process: str | None = None
    if (named := _PID.match(rest)) is not None:
        word = named[1] or named[2] or ""
        pid = int(word) if word.isascii() and word.isdigit() else None
        rest = rest[named.end() :]
        if (name := _NAME.match(rest)) is not None:
            process = None if name[1] in {"<unknown>", "'<unknown>'", ""} else name[1]
            rest = rest[name.end() :]
    reset = _RESET.search(rest) if number in {94, 95} else None
    nvlink = 144 <= number <= 150
    fatal = _NVLINK5.search(rest) if nvlink else None
    link = _LINK.search(rest) if nvlink or number == 74 else None
    registers = _REGISTERS.search(rest) if nvlink or number == 74 else None
    bdf = (place[1] if place else match[1]).removeprefix("PCI:")
    return Xid(
        xid=number,
        pci=normal_pci(bdf),
        bdf=bdf,
        detail=rest,
        gpu_instance=int(place[2], 16) if place and place[2] else None,
        compute_instance=int(place[3], 16) if place and place[3] else None,
        pid=pid,
        process=process,
        action=_action(rest) if number == 154 else None,
        fatal=None if fatal is None else fatal[1].lower() == "fatal",
        link=None if link is None else int(link[1]),
        registers=()
        if registers is None
        else tuple(int(word, 16) for word in re.findall(r"0x([0-9a-fA-F]+)", registers[1])),
        reset=None if reset is None else reset[1] == "Yes",
        drain_and_reset=None if reset is None or reset[2] is None else reset[2] == "Yes",
    )


def _action(rest: str) -> tuple[int, int] | None:
    match = _ACTION.search(rest)
    return None if match is None else (_whole(match[1]), _whole(match[2]))


def _whole(text: str) -> int:
    return int(text, 16) if text.startswith("0x") else int(text)


def _sxid(match: re.Match[str]) -> SXid:
    rest = (match[4] or "").strip()
    link = _LINK.search(rest)
    bdf = match[2].removeprefix("PCI:")
    fatal = rest.startswith("Fatal")
    return SXid(
        sxid=int(match[3]),
        pci=normal_pci(bdf),
        bdf=bdf,
        detail=rest,
        switch=None if match[1] is None else int(match[1]),
        fatal=fatal if fatal or rest.lower().startswith("non-fatal") else None,
        link=None if link is None else int(link[1]),
        continuation=rest.startswith(("Severity ", "Data ")),
    )


class Assembler:
    """Lines in, records out: joins the three lines in which the driver may report a lost GPU.

    Other lines may be between them; after `MOST_BETWEEN` of the driver's own the first is
    forgotten.
    """

    MOST_BETWEEN = 8

    def __init__(self) -> None:
        self._begun: tuple[str | None, str] | None = None
        self._left = 0

    def feed(self, line: str) -> KernelRecord | None:
        """Return the record that this line completes, if any."""
        message = message_of(line)
        record = None if message is None else _parse(message)
        if record is not None or message is None or not message.startswith("NVRM"):
            return record
        if (match := _LOST_BEGINS.match(message)) is not None:
            self._begun = normal_pci(match[1]), message
            self._left = self.MOST_BETWEEN
        elif _LOST_ENDS.match(message) is not None:
            pci, detail = self._begun or (None, "")
            self._begun = None
            return GpuLost(pci, f"{detail} {message}".strip())
        elif self._begun is not None:
            self._left -= 1
            self._begun = self._begun if self._left > 0 else None
        return None
