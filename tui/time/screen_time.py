"""The time that the screen shows, and the time from which countdowns count."""

from __future__ import annotations

from dataclasses import dataclass

from telemetry.text import time_of_day
from tui.feed.connection import Connection, ConnectionState
from tui.state.circuits import Now
from tui.state.dashboard_state import DashboardState
from tui.state.documents import CIRCUITS

FRESH = 5.0
"""Age in seconds up to which data counts as current."""
STALE_AFTER = 15.0
"""Seconds without an answer about circuits after which their countdowns stop."""


@dataclass(frozen=True, slots=True)
class ScreenTime:
    """The time that the screen shows."""

    now: float
    """Monotonic seconds of this machine."""
    paused: float | None = None
    """When the screen was paused, monotonic seconds."""
    replay: str = ""
    """The time that is shown instead of now: `11:58:40Z (-5m 21s)`."""
    utc: bool = True
    loading: bool = False
    """Whether that time is still being loaded."""
    every: float = 1.0
    """Seconds between two updates of the dashboard."""


def outdated(state: DashboardState, moment: ScreenTime) -> bool:
    """Return whether the newest data is old: the aggregator has not answered for a while, or no node has
    sent. Nodes that send seldom are current while they are online."""
    if state.status is None:
        return False
    if moment.now - state.status_came > max(FRESH, 2.5 * moment.every):
        return True
    age = state.age(moment.now)
    return age is not None and age > FRESH and not state.status.summary.nodes.get("online")


def countdown_now(state: DashboardState, connection: Connection, moment: ScreenTime) -> Now:
    """Return the time from which countdowns count; they stop while the screen or the data does."""
    came = state.came(CIRCUITS)
    live = connection.state is ConnectionState.LIVE and moment.paused is None and not moment.replay
    if live and moment.now - came <= STALE_AFTER:
        return Now(max(0.0, moment.now - came))
    return Now(0.0, time_of_day(state.circuits_at, utc=moment.utc))
