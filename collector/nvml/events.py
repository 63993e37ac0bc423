"""XIDs from NVML's event queue, in a thread of their own.

Only events after registration are delivered. A lost GPU can break the whole set (its state is then
undefined), so the set is freed and created again with the GPUs that still answer.
"""

from __future__ import annotations

import time

from collector.nvml.binding import XID_EVENT, Code, EventSet, address
from collector.nvml.gpu import GpuReader
from collector.probe.protocol import ProbeNotice
from telemetry.errors import DriverError
from telemetry.runtime.backoff import STEADY, Backoff

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 30.0
"""Seconds between two sets, while each fails."""
HANGS_AFTER = 1.0
"""Duration in seconds of a reading at which a GPU is not registered: the call would hang too."""
UNKNOWN_XID = 999
NO_INSTANCE = 0xFFFF_FFFF


class EventWatch:
    """Waits for events of all opened GPUs; tolerates their loss and return."""

    def __init__(self, gpus: list[GpuReader]) -> None:
        self._gpus = gpus
        self._set: EventSet | None = None
        self._registered: dict[int, int] = {}
        """Device by address of its handle."""
        self._tried: set[int] = set()
        self._backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE, STEADY)
        self._pause = 0.0

    def wait(self, seconds: float) -> list[ProbeNotice]:
        """Return the events that came within `seconds`."""
        if self._pause:
            time.sleep(min(self._pause, seconds))
        if not self._ready():
            time.sleep(seconds)
            return []
        if self._set is None:
            return []
        code = self._set.wait(int(seconds * 1000))
        if code == Code.SUCCESS:
            self._recovered()
            notice = self._notice(*self._set.event())
            return [notice] if notice is not None else []
        if code == Code.TIMEOUT:
            self._recovered()
            return []
        self.close()
        self._pause = self._backoff.next()
        return []

    def _recovered(self) -> None:
        self._backoff.reset()
        self._pause = 0.0

    def close(self) -> None:
        """Free the set."""
        if self._set is not None:
            self._set.close()
        self._set = None
        self._registered.clear()
        self._tried.clear()

    def _ready(self) -> bool:
        """Register newly opened GPUs; return whether any delivers events."""
        if self._set is None:
            try:
                self._set = EventSet()
            except DriverError:
                return False
        for device, gpu in enumerate(self._gpus):
            if gpu.handle is not None and device not in self._tried and not _hangs(gpu):
                self._tried.add(device)
                if self._set.register(gpu.handle, XID_EVENT):
                    self._registered[address(gpu.handle)] = device
        return bool(self._registered)

    def _notice(self, handle: int, kind: int, data: int, instance: int) -> ProbeNotice | None:
        device = self._registered.get(handle)
        if not kind & XID_EVENT:
            return None
        for gpm in self._gpus[device].gpm.values() if device is not None else ():
            gpm.suspect = True  # zeros may from now on come from stopped counters
        message = f"XID {data}"
        if data == UNKNOWN_XID:
            message = "an XID unknown to NVML: see the kernel log"
        facts: dict[str, int | str] = {"xid": data, "source": "nvml"}
        if instance != NO_INSTANCE:
            facts["gpu_instance"] = instance
        return ProbeNotice("xid", time.time_ns(), device, message, facts)


def _hangs(gpu: GpuReader) -> bool:
    since = gpu.asked_at
    return since is not None and time.monotonic() - since > HANGS_AFTER
