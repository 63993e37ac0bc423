"""Results of `kilowatch check --full` on this node: facts that the fleet compares, and an event for its history."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from collector.source import DeviceEvent
from telemetry.files import state_file
from telemetry.files.state_file import json_of
from telemetry.wire.inventory import MEASURED_FACT

log = logging.getLogger(__name__)

FILE = "check.json"
"""Name of the file in the state folder."""
MOST_MEASURED = 16


class KeptCheck(msgspec.Struct, frozen=True, kw_only=True):
    """Content of the file."""

    at: int
    """ns since 1970."""
    verdict: str = ""
    reason: str = ""
    measured: dict[str, float] = {}
    """By name, in base units a second."""


class CheckResults:
    """Reader of the file."""

    def __init__(self, folder: Path) -> None:
        """`folder`: the state folder."""
        self._path = folder / FILE
        self._at: int | None = None
        """Of the results that were reported; None before the first look."""
        self._events: list[DeviceEvent] = []

    def facts(self) -> dict[str, str]:
        """Return the newest results as facts; none where there are none."""
        cost = "The results of the last check are not reported."
        found = state_file.read(self._path, json_of(KeptCheck), cost)
        if found is None:
            self._at = self._at or 0
            return {}
        measured = dict(list(found.measured.items())[:MOST_MEASURED])
        if self._at is not None and found.at != self._at:  # those of before the start are stored
            text = f"{found.verdict}: {found.reason}" if found.reason else found.verdict
            self._events.append(
                DeviceEvent("check", found.at, message=text, data={"verdict": found.verdict, "measured": measured})
            )
        self._at = found.at
        return {f"{MEASURED_FACT}{name}": f"{value:.6g}" for name, value in measured.items()}

    def drain_events(self) -> list[DeviceEvent]:
        """Return an event for each check since the last call."""
        events, self._events = self._events, []
        return events
