"""When a collector ticks: on a grid that differs from node to node, whatever the clock does.

Tick k of an interval falls at (k + phase) x interval seconds since 1970, the phase being a hash of
the node's name: a fleet never ticks at once, and a node always ticks at the same place.
Pure: the loop that sleeps is `collector.sampler`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

LATE = 0.5
"""Share of an interval by which a tick may be late and is still taken; later it is skipped."""
GRAIN = 1e-4
"""Share of an interval below which two times are one: a wall clock in seconds is no finer as a float."""


class Due(NamedTuple):
    """The next tick."""

    tick: int
    wait: float
    """Seconds until then; 0 when it is due now."""
    skipped: int
    """Ticks between the last one and this that came too late to be taken."""


def passed(now: float, interval: float, phase: float) -> int:
    """Return the number of the newest tick that has passed at `now` (seconds since 1970)."""
    return math.floor(now / interval - phase)


def next_tick(now: float, last: int, interval: float, phase: float) -> Due:
    """Return the tick after `last` that can still be taken, and how long to wait for it."""
    position = now / interval - phase
    newest = math.floor(position)
    if newest > last and position - newest < LATE + GRAIN:
        return Due(newest, 0.0, newest - last - 1)
    tick = max(newest, last) + 1
    return Due(tick, (tick - position) * interval, tick - last - 1)


def rebase(last: int, step: float, interval: float) -> int:
    """Return the number that the last tick has after the wall clock was set by `step` seconds.

    So a clock that is set is no skipped tick, and two ticks stay half to one and a half intervals
    apart.
    """
    return last + round(step / interval)
