"""Marks that the kernel bears until the next boot: machine checks, oopses, lockups, warnings (its taint), and how many
machine checks the CPUs took.

One number answers all four. The count is in a file with a column for each CPU, so it is read only once the kernel bears
the mark of a machine check.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from collector.host.open_file import read_small

COUNT_SECONDS = 60.0
"""Seconds between two counts: with 256 CPUs the kernel writes a megabyte."""
MACHINE_CHECK, OOPS, WARNING, LOCKUP = 1 << 4, 1 << 7, 1 << 9, 1 << 14
"""Bits of /proc/sys/kernel/tainted: M, D, W, L (Documentation/admin-guide/tainted-kernels.rst)."""
_ROW = "MCE:"


class KernelHealth:
    """Reader of the marks. Raises `FileNotFoundError` for what the kernel does not have."""

    def __init__(self, root: Path, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._proc = root / "proc"
        self._monotonic = monotonic
        self._count: float | None = None
        self._at = 0.0
        self._marked = False

    def taints(self) -> tuple[float, float, float, float]:
        """Return whether there was a machine check, an oops, a warning, a lockup since boot."""
        mask = int(read_small(f"{self._proc}/sys/kernel/tainted"))
        self._marked = bool(mask & MACHINE_CHECK)
        return tuple(float(bool(mask & bit)) for bit in (MACHINE_CHECK, OOPS, WARNING, LOCKUP))  # type: ignore[return-value]  # four

    def machine_checks(self) -> tuple[float]:
        """Return the machine check exceptions of all CPUs since boot. One that all CPUs took counts for each."""
        now = self._monotonic()
        if self._count is None or (self._marked and now - self._at >= COUNT_SECONDS):
            self._count, self._at = self._read(), now
        return (self._count,)

    def _read(self) -> float:
        with (self._proc / "interrupts").open(encoding="ascii", errors="replace") as file:
            for line in file:
                if line.lstrip().startswith(_ROW):
                    words = line.split()[1:]
                    return float(sum(int(word) for word in words if word.isdigit()))
        raise FileNotFoundError("no count of machine checks: no CPU of x86")
