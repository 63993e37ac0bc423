"""The log of the node's management controller (the SEL of IPMI): critical entries that are new.

The log is older than the collector, and outlives restarts of both: what was seen is kept in a file, so that an entry
is told once, and one that came while the node was without power is told after its boot.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from collector.source import DeviceEvent
from telemetry.files import private_file, state_file
from telemetry.files.state_file import json_of
from telemetry.wire.border import clean

log = logging.getLogger(__name__)

METRIC = "node_bmc_log_critical"
FILE = "bmc_log.json"
"""Name of the file in the state folder."""
RECENT = 86_400.0
"""Seconds for which a critical entry counts."""
MOST = 4096
"""Entries of a log that are known."""
MOST_EVENTS = 20
"""Events of one reading at most."""
LAST = 128
"""Entries that ipmitool is asked for."""
_CRITICAL = re.compile(
    r"(?<!non-)\bcritical\b|non-?recoverable|uncorrect\w* |uncorrect\w*$|\bac lost|input lost|failure detected|"
    r"predictive failure|\bIERR\b|CATERR|\bfatal\b|thermal trip|\bSERR\b|\bPERR\b|drive fault|redundancy lost|"
    r"machine check|panic|power off/down.*fault|power (?:supply )?fail",
    re.IGNORECASE,
)
"""Events of the SEL that are critical: IPMI's records have no severity."""
_NAMED = re.compile(r"\(([A-Z][\w-]{2,30})\)$")
"""A part at the end of an event: `Uncorrectable ECC (DIMMD7)`."""
_USED = re.compile(r"^Percent Used\s*:\s*(\d+)\s*%", re.MULTILINE)


class BmcLogEntry(NamedTuple):
    """An entry of the log."""

    id: str
    """Number and time: a number alone is given again once the log was cleared."""
    at: str
    """Time by the controller's clock, in its own words."""
    text: str
    critical: bool
    unit: str = ""
    """Part that it is about; "" where the controller names none."""


class _Kept(msgspec.Struct):
    """Content of the file."""

    seen: list[str] = []
    critical: list[float] = []
    """When the critical entries were read, seconds since 1970."""


def elist(text: str) -> list[BmcLogEntry]:
    """Read `ipmitool sel elist`: number, date, time, sensor, event, `Asserted` or `Deasserted`."""
    found = []
    for line in text.splitlines():
        words = [word.strip() for word in line.split("|")]
        if len(words) < 4:
            continue
        number, at = words[0], " ".join(words[1:3])
        what = ": ".join(word for word in words[3:5] if word)
        ended = words[-1] == "Deasserted"
        critical = not ended and _CRITICAL.search(words[4] if len(words) > 4 else what) is not None
        named = _NAMED.search(words[4]) if len(words) > 4 else None
        unit = words[3] if named is None else named[1]
        found.append(BmcLogEntry(f"{number} {at}", at, what, critical, unit))
    return found


def used(text: str) -> float | None:
    """Read `ipmitool sel info`: the used share of the log; None where it is not told."""
    match = _USED.search(text)
    return None if match is None else int(match[1]) / 100


class BmcLog:
    """Entries that were seen. `receive` is called in the thread that reads them, the events are taken in another."""

    def __init__(self, file: Path | None, wall_ns: Callable[[], int] = time.time_ns) -> None:
        """`file` keeps what was seen; without one all of the first reading counts as seen."""
        self._file = file
        self._wall_ns = wall_ns
        self._kept: _Kept | None = None
        self._events: deque[DeviceEvent] = deque(maxlen=10 * MOST_EVENTS)

    def receive(self, entries: Sequence[BmcLogEntry]) -> float:
        """Note all entries of the log; return how many critical ones came within a day. Those of the very first
        reading are old."""
        at_ns, first = self._wall_ns(), False
        now = at_ns / 1e9
        if self._kept is None:
            self._kept = self._load()
            first = self._kept is None
        kept = self._kept or _Kept()
        seen = set(kept.seen)
        new = [] if first else [each for each in entries if each.critical and each.id not in seen]
        for entry in new[-MOST_EVENTS:]:
            text = clean(f"{entry.text} ({entry.at} by its clock)")
            log.warning("the BMC's log: %s", text)
            data: dict[str, object] = {"what": clean(entry.text)}
            if entry.unit:  # no later entry says that it is well: `count` lets it age
                data |= {"metric": METRIC, "unit": clean(entry.unit), "count": 1}
            self._events.append(DeviceEvent("bmc_log", at_ns, message=text, data=data))
        critical = [at for at in kept.critical if 0 <= now - at < RECENT] + [now] * len(new)
        ids = [each.id for each in entries[-MOST:]]
        if first or ids != kept.seen or critical != kept.critical:
            self._kept = _Kept(ids, critical[-MOST:])
            self._save(self._kept)
        return float(len(critical))

    def drain_events(self) -> list[DeviceEvent]:
        """Return the critical entries that came since the last call."""
        found = []
        while self._events:
            found.append(self._events.popleft())
        return found

    def _load(self) -> _Kept | None:
        if self._file is None:
            return None
        return state_file.read(self._file, json_of(_Kept), "The BMC's log counts as seen.")

    def _save(self, kept: _Kept) -> None:
        if self._file is None:
            return
        try:
            private_file.make_folder(self._file.parent)
            os.close(private_file.write(self._file, msgspec.json.encode(kept).decode()))
        except OSError as error:
            log.warning("%s can't be written: %s", self._file, error.strerror)
