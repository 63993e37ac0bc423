"""CPU time and memory of other processes, from their clocks and /proc/PID/smaps_rollup."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MIB = 1024 * 1024
CAP_STEP = 0.004
"""Seconds between two looks at the CPU time of a capped process."""
CAP_BURST = 0.02
"""CPU seconds that a capped process may save up: a period of the kernel's own limit is 0.1 s."""


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process so far, user and system, ended threads
    included. `/proc/PID/stat` has it in steps of 10 ms, as much as a collector uses in 3 s."""
    return time.clock_gettime(~pid << 3 | 2)  # as clock_getcpuclockid(3) makes it


def children(pid: int) -> list[int]:
    """Return the living descendants of a process."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                found += [child, *children(child)]
    return found


def memory(pid: int) -> dict[str, float]:
    """Return `rss_mib`, `pss_mib` (shared pages divided among their users) and `peak_rss_mib`."""
    rollup = _kilobytes(Path(f"/proc/{pid}/smaps_rollup"))
    status = _kilobytes(Path(f"/proc/{pid}/status"))
    return {
        "rss_mib": rollup["Rss"] / 1024,
        "pss_mib": rollup["Pss"] / 1024,
        "peak_rss_mib": status["VmHWM"] / 1024,
    }


def _kilobytes(file: Path) -> dict[str, float]:
    found = {}
    for line in file.read_text().splitlines():
        name, _, rest = line.partition(":")
        if rest.endswith(" kB"):
            found[name] = float(rest.split()[0])
    return found


@dataclass(slots=True)
class Cost:
    """CPU time and memory of a process in an interval."""

    cpu_percent: float
    """Of one core."""
    cpu_seconds: float
    rss_mib: float
    pss_mib: float
    peak_rss_mib: float
    """Since the process began."""


class CpuMeter:
    """Counts the CPU of named processes between `start` and `stop`."""

    def __init__(self, **pids: int) -> None:
        self._pids = pids
        self._before: dict[str, float] = {}
        self._began = 0.0

    def start(self) -> None:
        """Begin, or begin again."""
        self._before = {name: cpu_seconds(pid) for name, pid in self._pids.items()}
        self._began = time.monotonic()

    def stop(self) -> dict[str, Cost]:
        """Return the costs since `start`; may be called again."""
        seconds = time.monotonic() - self._began
        found = {}
        for name, pid in self._pids.items():
            took = cpu_seconds(pid) - self._before[name]
            found[name] = Cost(100 * took / seconds, took, **memory(pid))
        return found


class CpuCap:
    """Holds a process to a share of one core while the context is open, as `cpu.cfs_quota_us` does
    where cgroups are ours to write: it is stopped when its share is used up, and goes on when there is
    more. It may save up `CAP_BURST` seconds of CPU."""

    def __init__(self, pid: int, cores: float) -> None:
        """`cores`: CPU seconds a second."""
        self._pid = pid
        self._cores = cores
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._hold, daemon=True)
        self.stopped_seconds = 0.0
        """How long the process was stopped in all."""

    def __enter__(self) -> CpuCap:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _hold(self) -> None:
        left, stopped = 0.0, False
        at, used = time.monotonic(), cpu_seconds(self._pid)
        with contextlib.suppress(OSError):  # the process has ended
            while not self._over.wait(CAP_STEP):
                now, spent = time.monotonic(), cpu_seconds(self._pid)
                self.stopped_seconds += (now - at) * stopped
                left = min(left + (now - at) * self._cores, CAP_BURST) - (spent - used)
                at, used = now, spent
                if (left < 0) is not stopped:
                    stopped = left < 0
                    os.kill(self._pid, signal.SIGSTOP if stopped else signal.SIGCONT)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGCONT)


class MemoryTrend:
    """Memory of a process while the context is open, sampled every second."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.points: list[tuple[float, float]] = []
        """Seconds, MiB resident."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> MemoryTrend:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def slope(self) -> float | None:
        """Return MiB an hour over the second half, by least squares: caches fill in the first.
        None for less than a minute, which is too short for an hour's slope."""
        return slope(self.points[len(self.points) // 2 :])

    def _watch(self) -> None:
        while not self._over.wait(1.0):
            with contextlib.suppress(OSError, KeyError):
                status = _kilobytes(Path(f"/proc/{self._pid}/status"))
                self.points.append((time.monotonic(), status["VmRSS"] / 1024))


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """Return the increase in an hour, by least squares; None for less than a minute."""
    if len(points) < 2 or points[-1][0] - points[0][0] < 60:
        return None
    middle = sum(at for at, _ in points) / len(points)
    spread = sum((at - middle) ** 2 for at, _ in points)
    return 3600 * sum((at - middle) * value for at, value in points) / spread


def end(process: subprocess.Popen[bytes] | subprocess.Popen[str], seconds: float = 60.0) -> None:
    """End a process that we started: SIGTERM, and SIGKILL when it does not end."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
