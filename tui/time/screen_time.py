"""When the screen is, and from when countdowns count."""

from __future__ import annotations

from dataclasses import dataclass

from telemetry.text import time_of_day
from tui.feed.connection import Connection, ConnectionState
from tui.state.circuits import Now
from tui.state.dashboard_state import DashboardState
from tui.state.documents import CIRCUITS

FRESH = 5.0
"""Seconds up to which data is of now."""
STALE_AFTER = 15.0
"""Seconds without an answer about circuits after which their countdowns stand still."""


@dataclass(frozen=True, slots=True)
class ScreenTime:
    """When the screen is."""

    now: float
    """Monotonic seconds of this machine."""
    paused: float | None = None
    """Since when the screen stands still."""
    replay: str = ""
    """The time that is shown instead of now: `11:58:40Z (-5m 21s)`."""
    utc: bool = True
    loading: bool = False
    """Whether that time is still waited for."""
    every: float = 1.0
    """Seconds between two looks at the cluster."""


def outdated(state: DashboardState, moment: ScreenTime) -> bool:
    """Whether the newest data is not of now: the aggregator has not been heard for a while, or it hears
    nothing new of any node. Nodes that send seldom are as new as they can be while they are online."""
    if state.status is None:
        return False
    if moment.now - state.status_came > max(FRESH, 2.5 * moment.every):
        return True
    age = state.age(moment.now)
    return age is not None and age > FRESH and not state.status.summary.nodes.get("online")


def countdown_now(state: DashboardState, connection: Connection, moment: ScreenTime) -> Now:
    """From when countdowns count: they stand still while the screen or the data does."""
    came = state.came(CIRCUITS)
    live = connection.state is ConnectionState.LIVE and moment.paused is None and not moment.replay
    if live and moment.now - came <= STALE_AFTER:
        return Now(max(0.0, moment.now - came))
    return Now(0.0, time_of_day(state.circuits_at, utc=moment.utc))
