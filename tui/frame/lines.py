"""The lines around views: warning band, time bar, and messages in place of a view. Pure."""

from __future__ import annotations

from telemetry.text import counted, short_duration, time_of_day, timer
from tui.feed.connection import Connection, ConnectionState
from tui.frame.header import connection_word, live
from tui.frame.start_line import OwnAggregator
from tui.kit.surface import WIDE
from tui.kit.text import DASH, clean, fit, time_of
from tui.kit.theme import Line, Piece
from tui.state.circuits import worst_line
from tui.state.dashboard_state import DashboardState
from tui.state.incidents import alert_lines, counts
from tui.time.screen_time import ScreenTime, countdown_now
from tui.time.timebar import TimeControls


def band(
    connection: Connection, now: float, state: DashboardState, *, utc: bool, recorded: bool = False
) -> list[Piece]:
    """Draw a warning while the screen is not current; nothing while it is. A recording stays valid
    while its server reads."""
    if connection.state is ConnectionState.LIVE or (connection.state is ConnectionState.CONNECTING and not state.ready):
        return []
    if recorded and connection.slow:
        return [(f" READING {timer(now - connection.since)} ", "chip"), (" the recording", "dim")]
    last = f", last data {time_of_day(state.at, utc=utc)}" if state.at else ""
    retry = ""
    if connection.retry_at is not None and connection.retry_at > now:
        retry = f", trying again in {short_duration(connection.retry_at - now)}, R now"
    return [
        (f" {connection_word(connection)} {timer(now - connection.since)}{last}{retry} ", "band"),
        (f" {clean(connection.reason)}", "dim"),
    ]


def tiny(
    state: DashboardState, connection: Connection, moment: ScreenTime, width: int, height: int
) -> list[list[Piece]]:
    """Draw counts and alerts for a terminal that is too small for views."""
    when = live(state, connection, moment)
    name = clean(state.status.cluster) if state.status else ""
    if height < 3:
        return [[*when, *counts(state)]]
    words: list[list[Piece]] = [
        [*when, (name, "strong")],
        counts(state),
        [(counted(state.status.gpus, "GPU") if state.status else f"GPUs {DASH}", "")],
        *alert_lines(state, width, max(1, height - 5)),
        worst_line(state, countdown_now(state, connection, moment), 1),
        [("too small: 60x16 at least", "dim")],
    ]
    return words[:height]


def nothing_yet(
    state: DashboardState,
    connection: Connection,
    url: str,
    now: float,
    *,
    recorded: bool = False,
    past: bool = False,
    own: OwnAggregator | None = None,
) -> list[list[Piece]] | None:
    """Draw a message while there are no rows; None when there are some. `past`: whether a past time is
    shown; `own`: the aggregator that our own command has started."""
    if own is not None and own.waits and not (state.ready and state.nodes):
        return [[(clean(own.waits), "strong")], [("web pages ", "dim"), (own.address, "strong")]]
    if recorded and not state.ready and (connection.slow or connection.state is ConnectionState.CONNECTING):
        return [[(f"reading the recording ({short_duration(now - connection.since)}) …", "strong")]]
    if connection.state is ConnectionState.REFUSED and not state.ready:
        return [
            [("The aggregator can't be used", "crit")],
            [(clean(url), "strong")],
            [(clean(connection.reason), "")],
            [("With a token: ", "dim"), ("kilowatch top --token-file FILE URL", "strong")],
        ]
    if not state.ready:
        lost = connection.state is ConnectionState.LOST
        words: list[list[Piece]] = [
            [
                (
                    f"{'no answer from' if lost else 'connecting to'} {clean(url)} "
                    f"({short_duration(now - connection.since)}) …",
                    "strong",
                )
            ]
        ]
        if lost:
            words.append([(clean(connection.reason), "dim")])
            words.append([("Is it running? ", "dim"), ("kilowatch aggregate", "strong")])
        return words
    if not state.nodes and past:
        return [
            [("no node was known at that time", "strong")],
            [("[L] goes to the end" if recorded else "[L] goes back to now", "dim")],
        ]
    if not state.nodes:
        return [
            [("no node yet", "strong")],
            [("On a node with GPUs: ", "dim"), ("kilowatch collect", "strong")],
            [("Without one: ", "dim"), ("kilowatch demo", "strong")],
        ]
    return None


HINT = " [ ] step  { } jump  < > alert  ␣ play  T to  + - span  L live "


def bar_line(clock: TimeControls, newest: DashboardState, width: int, *, utc: bool) -> Line:
    """Draw the time bar: its ends, marks of alerts, and the shown time."""
    if clock.fault:
        words = f"{time_of(clock.at or 0, newest.at, utc=utc)} can't be loaded: {clean(clock.fault)}"
        return [(fit(words, width), "stale")]
    first, last = clock.ends(newest)
    if last <= first and not len(clock.recent):
        return [("time bar: no recent frames yet", "dim")]
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
    """Return the column of an instant on a bar of `room` columns."""
    share = (at - first) / max(1, last - first)
    return max(0, min(room - 1, round((room - 1) * share)))
