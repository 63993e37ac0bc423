"""The wall clock of a node without steps that do not last: somebody sets it, or a server of time is wrong for a while, and
jobs would begin or end hours away from where they did. A step is believed once it has lasted for a minute."""

from __future__ import annotations

import time
from collections.abc import Callable

BELIEVED_SECONDS = 60.0
"""Seconds after which a step of the clock is no mistake; also for how long one that was taken back is remembered."""
_STEP = 1_000_000_000
"""ns that are a step: two clocks are read one after the other, and one of them is slewed."""


class StepFreeClock:
    """Wall clock that goes on as the monotonic one does when it is set, and follows once that has lasted."""

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        boot_ns: Callable[[], int] = lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME),
    ) -> None:
        """`wall_ns`: ns since 1970; `boot_ns`: ns since the machine's start, its sleep included."""
        self._wall_ns, self._boot_ns = wall_ns, boot_ns
        boot = boot_ns()
        self._offset = wall_ns() - boot
        """From the machine's start to the wall clock that is believed."""
        self._step = 0
        """By how much the newest step set the clock forward, ns."""
        self._lasts = False
        self._began = self._seen = 0
        """When that step was seen first and last, ns since the machine's start."""

    def __call__(self) -> int:
        """Return the time, ns since 1970."""
        boot = self._boot_ns()
        step = self._wall_ns() - boot - self._offset
        if abs(step) <= _STEP:
            self._lasts = False
        else:
            if not self._lasts or abs(step - self._step) > _STEP:
                self._lasts, self._step, self._began = True, step, boot
            self._seen = boot
            if boot - self._began < BELIEVED_SECONDS * 1e9:
                return boot + self._offset
            self._lasts, self._step = False, 0
        self._offset += step
        return boot + self._offset

    @property
    def step(self) -> int:
        """By how much the wall clock is ahead of this one, or was within the last minute, ns."""
        boot = self._boot_ns()
        return self._step if boot - self._seen <= BELIEVED_SECONDS * 1e9 else 0


def without_step(at: int, now: int, step: int) -> int:
    """Return a time that the wall clock showed a moment before `now`, by the clock that is believed. `step`: by how much the
    wall clock is ahead of that one, or was lately; ns."""
    return min(at, at - step, key=lambda each: abs(now - each))
