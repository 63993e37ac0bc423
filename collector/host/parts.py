"""Events of the parts behind a reading that is a sum: which drive, memory module or PCI device."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

from collector.source import DeviceEvent
from telemetry.devices import WELL

log = logging.getLogger(__name__)

PAUSE = 600.0
"""Seconds between two events about the errors of one part: a module can be corrected a thousand times a second."""
_NAMED_BY = ("infiniband", "nvme", "net")
"""Folders of a PCI device whose first entry is the name that people know it by."""


class PartLog:
    """Notes the parts of each metric, and tells of those that began to fail, count errors, or are well again. Any
    thread may call it."""

    def __init__(
        self, monotonic: Callable[[], float] = time.monotonic, wall_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self._monotonic = monotonic
        self._wall_ns = wall_ns
        self._failing: set[tuple[str, str]] = set()
        self._counts: dict[tuple[str, str], int] = {}
        """Errors of each part, by metric and part, that were sent or are older than the collector."""
        self._sent: dict[tuple[str, str], float] = {}
        self._events: deque[DeviceEvent] = deque()

    def states(self, metric: str, well: Mapping[str, bool], how: str) -> None:
        """Note which parts are well. `how`: what one does that is not."""
        for unit, is_well in well.items():
            key = metric, unit
            if is_well and key in self._failing:
                self._failing.discard(key)
                self._report(f"{unit} is well again", metric, unit, state=WELL)
            elif not is_well and key not in self._failing:
                self._failing.add(key)
                self._report(f"{unit} {how}", metric, unit, state=how)

    def count(self, metric: str, unit: str, errors: int, least: int = 1) -> None:
        """Note how many errors a part has had; tell of `least` more, the first reading and `PAUSE` apart."""
        key = metric, unit
        before = self._counts.get(key)
        if before is None or errors < before:
            self._counts[key] = errors
            return
        now = self._monotonic()
        if errors - before < least or now - self._sent.get(key, -PAUSE) < PAUSE:
            return
        self._counts[key], self._sent[key] = errors, now
        more = errors - before
        self._report(f"{unit} counted {more} more", metric, unit, state="counts errors", count=more)

    def drain_events(self) -> list[DeviceEvent]:
        """Return the events since the last call."""
        return [self._events.popleft() for _ in range(len(self._events))]

    def _report(self, message: str, metric: str, unit: str, **more: object) -> None:
        log.warning("%s (%s)", message, metric)
        data: dict[str, object] = {"metric": metric, "unit": unit, **more}
        self._events.append(DeviceEvent("part", self._wall_ns(), message=message, data=data))


def pci_unit(folder: str) -> str:
    """Return how people know a PCI device, by its folder below /sys: `mlx5_3 (0000:9a:00.0)`, or its address."""
    path = Path(folder)
    for kind in _NAMED_BY:
        try:
            name = min(entry.name for entry in (path / kind).iterdir())
        except (OSError, ValueError):
            continue
        return f"{name} ({path.name})"
    return path.name
