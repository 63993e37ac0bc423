"""Find the few lines of a large text that may be about a GPU or a fault of its node, and the writer of each.

A log of a million lines has a handful that matter: they are found with `str.find`, which searches
100 MB in a fraction of a second, and only they are parsed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from telemetry.notations.kernel_log import message_start
from telemetry.statements.node import MARKS as NODE_MARKS

MARKS = (
    "NVRM", "SXid", "INFO: task ", "[nvidia", "nvidia-uvm: ", "nvidia-modeset: ", "nvidia: ", "nvidia 0",
    "pcieport 0", "pci 0", "[drm:nv_drm_", "nv-fabricmanager", "nvidia-fabricmanager", "nvidia-imex",
    "nvidia-persistenced", "nvidia-dcgm", "[tid ", "amdgpu",
)  # fmt: skip
"""Marks of lines about GPUs; `[nvidia` follows each frame of a stack in the driver."""

MAX_LINE = 4096
_REACH = 16384
"""Characters around a message within which the rest of an entry of the journal is searched."""
_PRETTY = re.compile(r'\s+"MESSAGE" ?: "')
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WRITER = re.compile(r"(?:(?:^|\s)([A-Za-z][\w.@/-]{0,60})\[\d{1,10}\]|\s([A-Za-z][\w.@/-]{0,60})): ")
"""`gpud[77]: ` anywhere, `gpud: ` behind a stamp: at the beginning it is a node (`pdsh`, `clush`)."""
_HOST = re.compile(r"(?:^|\s)([\w.-]{1,120}) kernel: ")
_FRONT = re.compile(r"([A-Za-z][\w.-]{0,120}): ")
_KERNEL = ("kern", "nvidia", "NVRM", "klogd", "nv-fabricmanager", "systemd")
"""`kern: warning: [2026-...]: ` is how Talos prints the kernel's facility and level. Whether a line of a
daemon counts, and of systemd about one, is the catalogue's to say."""
_UNITS = {
    "nv-fabricmanager": "nvidia-fabricmanager.service",
    "nvidia-fabricmanager-start.sh": "nvidia-fabricmanager.service",
    "nvidia-imex": "nvidia-imex.service",
    "nvidia-gridd": "nvidia-gridd.service",
    "nvidia-persistenced": "nvidia-persistenced.service",
    "systemd": "init.scope",
}
"""Unit of each daemon: its name in the journal is the writer's choice, the unit is systemd's."""


class RelevantLine(NamedTuple):
    """A line that may be about a GPU or a fault of its node."""

    text: str
    head: str
    """Text before its first mark of a driver, else before its message."""
    of_driver: bool
    """Whether it holds a mark of a driver, and none of its front names another program as its writer."""


def relevant_lines(text: str) -> Iterator[RelevantLine]:
    """Return the lines of `text` that hold a mark, in their order."""
    drivers = _marked(text, MARKS)
    for start in sorted({**_marked(text, NODE_MARKS), **_of_level(text), **drivers}):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        line = text[start : min(end, start + MAX_LINE)].rstrip("\r")
        if "MESSAGE" in line and (entry := _of_journal(text, start, line)) is not None:
            yield from relevant_lines(entry) if not entry.startswith("{") else ()
            continue
        if start in drivers:
            head = line[: drivers[start] - start]
            yield RelevantLine(line, head, ": " not in head or not written_by_a_program(head))
        else:
            yield RelevantLine(line, line[: message_start(line)], of_driver=False)


def _marked(text: str, marks: tuple[str, ...]) -> dict[int, int]:
    """Return where the lines that hold a mark begin, each with where its mark does."""
    starts: dict[int, int] = {}
    for mark in marks:
        at = text.find(mark)
        while at >= 0:
            starts.setdefault(text.rfind("\n", 0, at) + 1, at)
            end = text.find("\n", at)
            at = -1 if end < 0 else text.find(mark, end)
    return starts


_LEVELLED = re.compile(r"^(?:<[0-3]>|[0-3],\d{1,20},|kern *: *(?:emerg|alert|crit|err) *:)", re.MULTILINE)

_LEVEL_MARKS = (",-;", "<0>", "<1>", "<2>", "<3>", ":emerg", ":alert", ":crit", ":err")


def _of_level(text: str) -> dict[int, int]:
    """Return where the lines begin that the kernel itself calls an error or worse, in forms that have its level."""
    if not any(mark in text for mark in _LEVEL_MARKS):
        return {}
    return {found.start(): found.start() for found in _LEVELLED.finditer(text)}


def written_by_a_program(head: str) -> bool:
    """Return whether a line is of a monitor or the like that repeats the kernel log."""
    writer = _WRITER.search(head)
    return writer is not None and not (writer[1] or writer[2]).startswith(_KERNEL)


def _of_journal(text: str, start: int, line: str) -> str | None:
    """Return an entry of `journalctl -o json`, `json-pretty` or `export` as a line; "" for one that
    is not the kernel's, None where the line is of no such entry."""
    plain = line.removeprefix("data: ").lstrip("\x1e")
    if plain.startswith("{") and '"MESSAGE"' in plain:
        return _of_json(plain, "")
    near = max(0, start - _REACH)
    if line.startswith("MESSAGE="):
        begin = text.rfind("\n\n", near, start)
        end = text.find("\n\n", start, start + _REACH)
        block = text[begin + 2 if begin >= 0 else near : end if end >= 0 else start + _REACH]
        if "__REALTIME_TIMESTAMP=" not in block or f"\n{block}".count("\nMESSAGE=") != 1:
            return None
        return _of_entry(dict(each.split("=", 1) for each in block.split("\n") if "=" in each))
    if _PRETTY.match(line) is not None:
        begin = text.rfind("{\n", near, start)
        end = text.find("\n}", start, start + _REACH)
        whole = text[begin : end if end >= 0 else start + _REACH] + "}"
        return _of_json(whole, None) if begin >= 0 else None
    return None


def _of_json(text: str, broken: str | None) -> str | None:
    """Return an entry as a line; `broken` where the text is no JSON."""
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        return broken
    return _of_entry(entry)


def _of_entry(entry: Any) -> str:
    message = entry.get("MESSAGE") if isinstance(entry, dict) else None
    if not isinstance(message, str):
        return ""
    writer = entry.get("_TRANSPORT") or entry.get("SYSLOG_IDENTIFIER") or "kernel"
    name = str(entry.get("SYSLOG_IDENTIFIER") or "")
    if writer != "kernel":
        if name not in _UNITS or entry.get("_SYSTEMD_UNIT") != _UNITS[name]:
            return ""
        writer = name
    since = str(entry.get("__REALTIME_TIMESTAMP") or "")
    host = str(entry.get("_HOSTNAME") or "")
    stamp = ""
    if since.isascii() and since.isdigit() and len(since) < 18:
        stamp = (_EPOCH + timedelta(microseconds=int(since))).isoformat()
    return f"{stamp} {host} {writer}: {message}".lstrip()


def host_of(head: str) -> str | None:
    """Return the node that a line names: as syslog and the journal do, or in front of all else, as
    tools do that run a command on many nodes; None where it names none."""
    if "kernel: " in head and (match := _HOST.search(head)) is not None:
        return match[1]
    front = _FRONT.match(head) if ": " in head else None
    return None if front is None or front[1].startswith(_KERNEL) else front[1]
