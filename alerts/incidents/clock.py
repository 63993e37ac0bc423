"""The incident manager's own clock: seconds that it has run.

Within a process it follows the monotonic clock, so a step of the wall clock moves no timer. Over a
restart it advances by the wall clock's difference, and never goes back.
"""

from __future__ import annotations

from alerts.incidents.state import IncidentMemory, ManagerClock

STORE_EVERY = 30.0
"""Seconds: how often the clock is stored when nothing else changes."""
_BUCKET = 600_000_000_000


def clock_of(memory: IncidentMemory, wall_ns: int) -> ManagerClock | None:
    """Return the clock to go on with: the stored one or, where only that was lost, one that is
    behind no stored record."""
    if memory.clock is not None or not (memory.alerts or memory.incidents or memory.windows):
        return memory.clock
    times = [max(one.since, *one.flips, 0.0) for one in memory.alerts]
    times += [max(one.joined, one.notified_at, one.closed or 0.0) for one in memory.incidents]
    orders = [one.order for one in memory.alerts]
    orders += [one.order for one in memory.incidents]
    orders += [one.order for one in memory.windows]
    time, order = max(times, default=0.0), max(orders)
    return ManagerClock(time=time, wall=wall_ns, latest=wall_ns, order=order)


class SteadyClock:
    """Time of the incident manager, and the number of the next record."""

    def __init__(self, stored: ManagerClock | None, now: float, wall_ns: int) -> None:
        self.state = stored or ManagerClock(time=0.0, wall=wall_ns, latest=wall_ns)
        self._base = self.state.time + max(0, wall_ns - self.state.wall) / 1e9
        self._now = now
        self._stored_at = -STORE_EVERY if stored is None else self.state.time
        self.advance(now, wall_ns)

    @property
    def time(self) -> float:
        """Seconds, at the last call of `advance`."""
        return self.state.time

    @property
    def wall(self) -> int:
        """ns since 1970, at the last call of `advance`."""
        return self.state.wall

    @property
    def bucket(self) -> int:
        """A number that is the same for ten minutes, and never smaller than it was."""
        return self.state.latest // _BUCKET

    def advance(self, now: float, wall_ns: int) -> float:
        """Set the time from both clocks, and return it in seconds of this clock."""
        state = self.state
        # Whole milliseconds: what is due at one moment is so after a restart too.
        time = max(state.time, round(self._base + now - self._now, 3))
        state.latest = max(wall_ns, state.latest + round((time - state.time) * 1e9))
        state.time, state.wall = time, wall_ns
        return self.state.time

    def monotonic(self, time: float) -> float:
        """Return when, on the monotonic clock, a time of this clock is surely reached."""
        return time - self._base + self._now + 0.001

    def at(self, wall_ns: int) -> float:
        """Return when the wall clock, if it is not stepped, will show a time."""
        return self.state.time + (wall_ns - self.state.wall) / 1e9

    def order(self) -> int:
        """Return the number of the next record."""
        self.state.order += 1
        return self.state.order

    def is_due(self, changed: bool) -> bool:
        """Whether the clock must be stored with this step; it counts as stored from then on."""
        if not changed and self.state.time - self._stored_at < STORE_EVERY:
            return False
        self._stored_at = self.state.time
        return True
