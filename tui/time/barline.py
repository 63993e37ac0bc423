"""The time bar as a line: what began when, and where the screen is. Pure."""

from __future__ import annotations

from tui.kit.text import clean, fit
from tui.state.dashboard_state import DashboardState
from tui.theme import Line, Piece
from tui.time.timebar import TimeControls, time_of

HINT = " [ ] step  { } jump  < > alert  ␣ play  T to  + - span  L live "
WIDE = 120
"""Columns from which on the keys stand beside it."""


def bar_line(clock: TimeControls, newest: DashboardState, width: int, *, utc: bool) -> Line:
    """Draw it."""
    if clock.fault:
        said = f"{time_of(clock.at or 0, newest.at, utc=utc)} can't be loaded: {clean(clock.fault)}"
        return [(fit(said, width), "stale")]
    first, last = clock.ends(newest)
    if last <= first and not len(clock.trail):
        return [("time bar: nothing is kept yet", "dim")]
    hint = HINT if width >= WIDE else ""
    left = f"◀ {time_of(first, newest.at, utc=utc)} "
    right = f" {time_of(last, newest.at, utc=utc)} ▶"
    if clock.played is not None:
        right = f" {clock.speed}x{right}"
    room = max(1, width - len(left) - len(right) - len(hint))
    signs: list[Piece] = [("─", "faint")] * room
    for at, severity in clock.marks(newest):
        signs[place(at, first, last, room)] = ("▲", "crit") if severity == "page" else ("!", "warn")
    here = last if clock.at is None else clock.at
    tone = "stale" if clock.loading else "strong" if clock.replaying else "good"
    signs[place(here, first, last, room)] = ("○" if clock.loading else "●", tone)
    pieces: list[Piece] = [(left, "dim")]
    for sign, tone in signs:
        if pieces[-1][1] == tone:
            pieces[-1] = (pieces[-1][0] + sign, tone)
        else:
            pieces.append((sign, tone))
    return [*pieces, (right, "dim"), (hint, "key")]


def place(at: int, first: int, last: int, room: int) -> int:
    """Where an instant lies on a bar of `room` signs."""
    share = (at - first) / max(1, last - first)
    return max(0, min(room - 1, round((room - 1) * share)))
