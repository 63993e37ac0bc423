"""Processes with a context on one GPU, as the driver lists them: compute, graphics and MPS clients, with
memory and use.

https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html: the lists hold PIDs of the driver's
PID namespace, which is that of the host unless the driver converts them.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from ctypes import byref, c_uint, c_ulonglong, sizeof
from functools import partial
from typing import Any

from collector.nvml.binding import GONE, UNSUPPORTED, Code, Handle, array_of, function
from collector.probe.driver import Turn
from collector.probe.protocol import ProbeProcess, ProbeProcesses
from telemetry.errors import DriverError

ROOM = 64
"""Processes that fit at first; doubled when the driver has more."""
MOST = 4096
"""Processes at most: more are a driver that answers nonsense."""
GRAPHICS_SECONDS = 60.0
"""Seconds between two readings of the graphics list: clusters have none, and desktops pay most for it."""
_NONE = 0xFFFF_FFFF
_NO_MEMORY = 0xFFFF_FFFF_FFFF_FFFF
_ENTRY = struct.Struct("=I4xQII")  # pid, used memory, GPU instance, compute instance
_SAMPLE = struct.Struct("=I4xQII8x")  # pid, time in us, use of the multiprocessors, of memory


class ProcessList:
    """List of processes that the driver keeps, in its newest form that the library has."""

    def __init__(self, handle: Handle, kind: str, name: str) -> None:
        self.kind = kind
        self.rows: list[tuple[int, int, int, int]] = []
        """PID, bytes, GPU instance, compute instance of the last reading."""
        self.supported = True
        self._functions = [function(f"{name}_v{version}") for version in (3, 2)]
        self._handle = handle
        self._count = c_uint()
        self._grow(ROOM)

    def read(self) -> int:
        """Read the list; return NVML's code."""
        code = self._ask()
        while code == Code.FUNCTION_NOT_FOUND and len(self._functions) > 1:
            del self._functions[0]
            code = self._ask()
        while code == Code.INSUFFICIENT_SIZE and self._room < MOST:
            self._grow(min(MOST, max(2 * self._room, self._count.value + 8)))
            code = self._ask()
        if code == Code.SUCCESS:
            count = min(self._count.value, self._room)
            self.rows = list(_ENTRY.iter_unpack(self._bytes[: count * _ENTRY.size]))
        elif code in UNSUPPORTED:
            self.supported, self.rows = False, []
        return code

    def _ask(self) -> int:
        self._count.value = self._room
        return self._functions[0](self._handle, byref(self._count), self._array)

    def _grow(self, room: int) -> None:
        self._room = room
        self._array = array_of("c_nvmlProcessInfo_v3_t", room)
        if sizeof(self._array) != room * _ENTRY.size:
            raise DriverError("nvmlProcessInfo_t of this nvidia-ml-py has another layout")
        self._bytes = memoryview(self._array).cast("B")


class ProcessReader:
    """Processes of one GPU."""

    def __init__(self, handle: Handle) -> None:
        names = {
            "compute": "nvmlDeviceGetComputeRunningProcesses",
            "mps": "nvmlDeviceGetMPSComputeRunningProcesses",
            "graphics": "nvmlDeviceGetGraphicsRunningProcesses",
        }
        self._lists = [ProcessList(handle, kind, name) for kind, name in names.items()]
        self._graphics_at = 0.0
        self._use = _Utilization(handle)

    def read(self, turn: Turn) -> ProbeProcesses:
        """Return all processes; without any and with the reason where the driver does not list them. Raises
        `DriverError` when the driver as a whole is gone."""
        now = time.monotonic()
        for each in self._lists:
            if turn.abandoned:
                break
            graphics = each.kind == "graphics"
            if not each.supported or (graphics and now < self._graphics_at):
                continue
            code = each.read()
            if code in GONE:
                raise DriverError(f"NVML answers {code} for processes", code)
            if graphics:
                self._graphics_at = now + GRAPHICS_SECONDS
            if code != Code.SUCCESS and each.kind == "compute":
                each.supported = True  # another user, or another driver, may get an answer
                return ProbeProcesses(_problem(code))
        found: dict[tuple[int, int], ProbeProcess] = {}
        for each in self._lists:
            for pid, memory, gpu_instance, _ in each.rows:
                instance = None if gpu_instance == _NONE else gpu_instance
                bytes_used = None if memory == _NO_MEMORY else memory
                row = ProbeProcess(pid, each.kind, bytes_used, instance)
                found.setdefault((pid, gpu_instance), row)
        if not found or turn.abandoned:
            return ProbeProcesses()
        shares = None if any(row.instance is not None for row in found.values()) else self._use.read()
        if shares is None:
            return ProbeProcesses("", list(found.values()))
        rows = [
            ProbeProcess(row.pid, row.type, row.memory_bytes, None, shares.get(row.pid, 0.0)) for row in found.values()
        ]
        return ProbeProcesses("", rows)


def _problem(code: int) -> str:
    """Return why the driver lists no processes."""
    if code == Code.NO_PERMISSION:
        return "no permission"
    return "not supported" if code in UNSUPPORTED else f"NVML error {code}"


class _Utilization:
    """Use of the multiprocessors by each process, since the reading before."""

    def __init__(self, handle: Handle) -> None:
        self._function: Callable[..., int] = partial(function("nvmlDeviceGetProcessUtilization"), handle)
        self._array: Any = array_of("c_nvmlProcessUtilizationSample_t", ROOM)
        self._room = ROOM
        self._since = time.time_ns() // 1000 - 5_000_000
        self._supported = True

    def read(self) -> dict[int, float] | None:
        """Return the mean share of each process that worked, 0 to 1, by PID; None where the GPU reports none.
        A process that is missing did not work."""
        if not self._supported:
            return None
        count = c_uint(self._room)
        code = self._function(self._array, byref(count), c_ulonglong(self._since))
        if code == Code.INSUFFICIENT_SIZE and self._room < count.value <= MOST:
            self._room = count.value + ROOM
            self._array = array_of("c_nvmlProcessUtilizationSample_t", self._room)
            count = c_uint(self._room)
            code = self._function(self._array, byref(count), c_ulonglong(self._since))
        if code == Code.NOT_FOUND:
            return {}
        if code != Code.SUCCESS:
            self._supported = code not in UNSUPPORTED
            return None
        content = memoryview(self._array).cast("B")[: min(count.value, self._room) * _SAMPLE.size]
        shares: dict[int, list[int]] = {}
        for pid, at, busy, _ in _SAMPLE.iter_unpack(content):
            self._since = max(self._since, at)
            if pid and busy <= 100:
                shares.setdefault(pid, []).append(busy)
        return {pid: sum(each) / len(each) / 100 for pid, each in shares.items()}
