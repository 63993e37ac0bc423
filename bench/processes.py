"""CPU time and memory of other processes, from their clocks and /proc/PID/smaps_rollup."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

MIB = 1024 * 1024
CGROUPS = Path("/sys/fs/cgroup")
CAP_PERIOD = 20_000
"""Microseconds of a period of the kernel's quota."""
CAP_STEP = 0.004
"""Seconds between two looks at the CPU time of a capped process."""
CAP_BURST = 0.02
"""CPU seconds that a process may save up, where it is capped by stopping it."""


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
    return {"rss_mib": rollup["Rss"] / 1024, "pss_mib": rollup["Pss"] / 1024, "peak_rss_mib": status["VmHWM"] / 1024}


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


@contextlib.contextmanager
def own_cores(pid: int, cores: int, others: Sequence[int]) -> Iterator[None]:
    """Give a process some cores and `others` the rest while the context is open. A quota instead would halt a
    thread that holds the interpreter, for up to its period at a time. `cores`: fewer than this process has."""
    allowed = sorted(os.sched_getaffinity(0))
    own, rest = allowed[:cores], allowed[cores:]
    _set_affinity(pid, own)
    for other in others:
        _set_affinity(other, rest)
    try:
        yield
    finally:
        for each in (pid, *others):
            with contextlib.suppress(OSError):  # it has ended
                _set_affinity(each, allowed)


def _set_affinity(pid: int, cores: Sequence[int]) -> None:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # this thread has ended
            os.sched_setaffinity(int(thread.name), cores)


class CpuCap:
    """Holds a process to a share of one core while the context is open: by the kernel's own quota where
    control groups are ours to write, else by stopping it when its share is used up, which a busy machine
    does late and for longer."""

    def __init__(self, pid: int, cores: float) -> None:
        """`cores`: CPU seconds a second."""
        self._pid = pid
        self._cores = cores
        self._group: Path | None = None
        self._home: Path | None = None
        """Control group of the process before."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._hold, daemon=True)
        self.stopped_seconds = 0.0
        """How long the process was stopped in all; by the kernel's quota, each core's time counts."""

    def __enter__(self) -> CpuCap:
        with contextlib.suppress(OSError):  # not ours to write, or not there
            self._enter_group()
        if self._group is None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._group is None:
            self._thread.join()
            return
        statistics = dict(line.split() for line in (self._group / "cpu.stat").read_text().splitlines())
        for name, unit in (("throttled_time", 1e-9), ("throttled_usec", 1e-6)):
            self.stopped_seconds += int(statistics.get(name, 0)) * unit
        self._leave_group()

    def _enter_group(self) -> None:
        """Move the process into a control group with a quota, which alone is to limit it: a group shares a
        core as one process does, however many threads it has. Raises `OSError`."""
        first = CGROUPS / "cpu" if (CGROUPS / "cpu").is_dir() else CGROUPS
        (first / "cgroup.procs").stat()  # else it is a plain folder
        period, quota = CAP_PERIOD, round(self._cores * CAP_PERIOD)
        inside = Path(f"/proc/{self._pid}/cgroup").read_text().splitlines()
        wanted = "" if first == CGROUPS else "cpu"
        (name,) = [
            path for _, controllers, path in (line.split(":", 2) for line in inside) if wanted in controllers.split(",")
        ] or ["/"]
        group, self._home = first / f"kilowatch-{self._pid}", first / name.lstrip("/")
        group.mkdir()
        self._group = group
        try:
            if first == CGROUPS:
                (group / "cpu.max").write_text(f"{quota} {period}")
                (group / "cpu.weight").write_text("1000")
            else:
                (group / "cpu.shares").write_text("10240")
                (group / "cpu.cfs_period_us").write_text(str(period))
                (group / "cpu.cfs_quota_us").write_text(str(quota))
            (group / "cgroup.procs").write_text(str(self._pid))
        except OSError:
            self._leave_group()
            raise

    def _leave_group(self) -> None:
        assert self._group is not None
        assert self._home is not None
        with contextlib.suppress(OSError):  # the process has ended, or was never in it
            (self._home / "cgroup.procs").write_text(str(self._pid))
        with contextlib.suppress(OSError):
            self._group.rmdir()
        self._group = None

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

    def lowest(self) -> list[float]:
        """Return the lowest MiB of each quarter: what is held beside what an open period of the store has."""
        size = max(1, len(self.points) // 4)
        parts = [self.points[begin : begin + size] for begin in range(0, 4 * size, size)]
        return [min((mib for _, mib in part), default=0.0) for part in parts]

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
