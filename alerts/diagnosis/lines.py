"""Find the few lines of a large text that may tell of a GPU, and know who wrote each.

A log of a million lines holds a handful that count: they are found with `str.find`, which passes
over 100 MB in a fraction of a second, and only they are parsed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

MARKS = ("NVRM", "SXid", "INFO: task ", "[nvidia")
"""`[nvidia` stands behind each frame of a stack that lies in the driver."""

MAX_LINE = 4096
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WRITER = re.compile(
    r"(?:(?:^|\s)([A-Za-z][\w.@/-]{0,60})\[\d{1,10}\]|\s([A-Za-z][\w.@/-]{0,60})): "
)
"""`gpud[77]: ` anywhere, `gpud: ` behind a stamp: at the beginning it is a node (`pdsh`, `clush`)."""
_HOST = re.compile(r"(?:^|\s)([\w.-]{1,120}) kernel: ")
_FRONT = re.compile(r"([A-Za-z][\w.-]{0,120}): ")
_KERNEL = ("kern", "nvidia", "NVRM", "klogd")
"""`kern: warning: [2026-...]: ` is how Talos prints the kernel's facility and level."""


def relevant_lines(text: str) -> Iterator[tuple[str, str]]:
    """Return the lines of `text` that hold a mark, each with what stands before its mark."""
    starts: dict[int, int] = {}
    for mark in MARKS:
        at = text.find(mark)
        while at >= 0:
            starts.setdefault(text.rfind("\n", 0, at) + 1, at)
            end = text.find("\n", at)
            at = -1 if end < 0 else text.find(mark, end)
    for start in sorted(starts):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        line = text[start : min(end, start + MAX_LINE)].rstrip("\r")
        if line.startswith("{") and '"MESSAGE"' in line:
            line = _of_json(line)
            yield from relevant_lines(line) if not line.startswith("{") else ()
            continue
        head = line[: starts[start] - start]
        if ": " not in head or not written_by_a_program(head):
            yield line, head


def written_by_a_program(head: str) -> bool:
    """Whether a line is of a monitor or the like that repeats what it read in the kernel log."""
    writer = _WRITER.search(head)
    return writer is not None and not (writer[1] or writer[2]).startswith(_KERNEL)


def _of_json(line: str) -> str:
    """Return an entry of `journalctl -o json` as a line; "" for one that is not the kernel's."""
    try:
        entry = json.loads(line)
    except ValueError:
        return ""
    message = entry.get("MESSAGE") if isinstance(entry, dict) else None
    if not isinstance(message, str):
        return ""
    writer = entry.get("_TRANSPORT") or entry.get("SYSLOG_IDENTIFIER") or "kernel"
    if writer != "kernel":
        return ""
    since = str(entry.get("__REALTIME_TIMESTAMP") or "")
    host = str(entry.get("_HOSTNAME") or "")
    stamp = ""
    if since.isascii() and since.isdigit() and len(since) < 18:
        stamp = (_EPOCH + timedelta(microseconds=int(since))).isoformat()
    return f"{stamp} {host} kernel: {message}".lstrip()


def host_of(head: str) -> str | None:
    """Return the node that a line names: as syslog and the journal do, or in front of all else, as
    tools do that run a command on many nodes; None where it names none."""
    if "kernel: " in head and (match := _HOST.search(head)) is not None:
        return match[1]
    front = _FRONT.match(head) if ": " in head else None
    return None if front is None or front[1].startswith(_KERNEL) else front[1]
