"""When the screen is, and from when countdowns count."""

from __future__ import annotations

from dataclasses import dataclass

from tui.board import Board
from tui.circuits import Now
from tui.documents import CIRCUITS
from tui.feed.line import Line, LineState
from tui.text import clock_of

STALE_AFTER = 15.0
"""Seconds without an answer about circuits after which their countdowns stand still."""


@dataclass(frozen=True, slots=True)
class Moment:
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


def countdown_now(board: Board, line: Line, moment: Moment) -> Now:
    """From when countdowns count: they stand still while the screen or the data does."""
    came = board.came(CIRCUITS)
    live = line.state is LineState.LIVE and moment.paused is None and not moment.replay
    if live and moment.now - came <= STALE_AFTER:
        return Now(max(0.0, moment.now - came))
    return Now(0.0, clock_of(board.circuits_at, utc=moment.utc))
