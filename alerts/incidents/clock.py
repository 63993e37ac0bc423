"""The desk's own clock: seconds that it has lived.

Within a process it follows the monotonic clock, so a step of the wall clock moves no timer. Over a
restart it goes on by what the wall clock says has passed, and never back.
"""

from __future__ import annotations

from alerts.incidents.state import IncidentMemory, ManagerClock

KEEP_EVERY = 30.0
"""Seconds: how often the time is written down when nothing else is."""
_BUCKET = 600_000_000_000


def pulse_of(memory: IncidentMemory, wall_ns: int) -> ManagerClock | None:
    """Return the pulse that a desk goes on with: its last one, or, where only that was lost, one
    that is behind nothing which the desk remembers."""
    if memory.pulse is not None or not (memory.cases or memory.dossiers or memory.windows):
        return memory.pulse
    times = [max(one.since, *one.flips, 0.0) for one in memory.cases]
    times += [max(one.joined, one.told_at, one.closed or 0.0) for one in memory.dossiers]
    orders = [one.order for one in memory.cases]
    orders += [one.order for one in memory.dossiers]
    orders += [one.order for one in memory.windows]
    time, order = max(times, default=0.0), max(orders)
    return ManagerClock(time=time, wall=wall_ns, latest=wall_ns, order=order)


class SteadyClock:
    """Time as the desk counts it."""

    def __init__(self, pulse: ManagerClock | None, now: float, wall_ns: int) -> None:
        self.pulse = pulse or ManagerClock(time=0.0, wall=wall_ns, latest=wall_ns)
        self._base = self.pulse.time + max(0, wall_ns - self.pulse.wall) / 1e9
        self._now = now
        self._kept = -KEEP_EVERY if pulse is None else self.pulse.time
        self.advance(now, wall_ns)

    @property
    def time(self) -> float:
        """Seconds, at the last call of `advance`."""
        return self.pulse.time

    @property
    def wall(self) -> int:
        """ns since 1970, at the last call of `advance`."""
        return self.pulse.wall

    @property
    def bucket(self) -> int:
        """A number that is the same for ten minutes, and never smaller than it was."""
        return self.pulse.latest // _BUCKET

    def advance(self, now: float, wall_ns: int) -> float:
        """Take the time, and return it as the desk counts it."""
        pulse = self.pulse
        # Whole milliseconds: what is due at one moment is so after a restart too.
        time = max(pulse.time, round(self._base + now - self._now, 3))
        pulse.latest = max(wall_ns, pulse.latest + round((time - pulse.time) * 1e9))
        pulse.time, pulse.wall = time, wall_ns
        return self.pulse.time

    def monotonic(self, time: float) -> float:
        """Return when, on the monotonic clock, a time of the desk's is surely reached."""
        return time - self._base + self._now + 0.001

    def at(self, wall_ns: int) -> float:
        """Return when the wall clock will show a time, as it stands now."""
        return self.pulse.time + (wall_ns - self.pulse.wall) / 1e9

    def order(self) -> int:
        """Return the next number of a case or dossier."""
        self.pulse.order += 1
        return self.pulse.order

    def must_be_kept(self, changed: bool) -> bool:
        """Whether the pulse goes into this step; from then on it counts as written."""
        if not changed and self.pulse.time - self._kept < KEEP_EVERY:
            return False
        self._kept = self.pulse.time
        return True
