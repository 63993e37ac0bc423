"""The lines around the screens: header, band, alerts. Pure: a board in, pieces out."""

from __future__ import annotations

from telemetry.text import counted, short_duration, time_of_day, timer
from tui.feed.line import Connection, ConnectionState
from tui.frame.header import line_word, live
from tui.kit.bars import Bar
from tui.kit.text import DASH, clean, fit, percent
from tui.state.circuits import Now, about, bar_tone, countdown, headroom, share, tone_of, worst_line
from tui.state.dashboard_state import DashboardState
from tui.state.incidents import alert_lines, counts
from tui.state.row_status import RowStatus
from tui.theme import Piece
from tui.time.screen_time import ScreenTime, countdown_now


def band(
    line: Connection, now: float, board: DashboardState, *, utc: bool, recorded: bool = False
) -> list[Piece]:
    """One line in red when what stands on the screen is not what is; nothing when it is. Of a recording
    all stays true while the process behind us reads."""
    if line.state is ConnectionState.LIVE or (
        line.state is ConnectionState.CONNECTING and not board.ready
    ):
        return []
    if recorded and line.slow:
        return [(f" READING {timer(now - line.since)} ", "chip"), (" the recording", "dim")]
    last = f", last data {time_of_day(board.at, utc=utc)}" if board.at else ""
    retry = ""
    if line.retry_at is not None and line.retry_at > now:
        retry = f", trying again in {short_duration(line.retry_at - now)}, R now"
    return [(f" {line_word(line)} {timer(now - line.since)}{last}{retry} ", "band"),
            (f" {clean(line.reason)}", "dim")]  # fmt: skip


def circuit_bars(board: DashboardState, since: Now, most: int) -> list[Bar]:
    """The circuits that need somebody first."""
    found: list[Bar] = []
    for circuit in board.urgent[:most]:
        standing = board.circuit_standing.get(circuit.id, RowStatus.OK)
        text, tone = countdown(circuit, standing, since, short=True)
        found.append(
            Bar(
                circuit.id, share(circuit), bar_tone(standing),
                [(f"{about(circuit, percent(share(circuit))):>5} ", tone_of(standing, "")),
                 (fit(text, 16), tone), (fit(headroom(circuit), 9, right=True), "dim")],
            )
        )  # fmt: skip
    return found


def tiny(
    board: DashboardState, line: Connection, moment: ScreenTime, width: int, height: int
) -> list[list[Piece]]:
    """What a terminal that is too small for pictures can still show."""
    when = live(board, line, moment)
    name = clean(board.status.cluster) if board.status else ""
    if height < 3:
        return [[*when, *counts(board)]]
    said: list[list[Piece]] = [
        [*when, (name, "strong")],
        counts(board),
        [(counted(board.status.gpus, "GPU") if board.status else f"GPUs {DASH}", "")],
        *alert_lines(board, width, max(1, height - 5)),
        worst_line(board, countdown_now(board, line, moment), 1),
        [("too small: 60x16 at least", "dim")],
    ]
    return said[:height]


def nothing_yet(
    board: DashboardState,
    line: Connection,
    url: str,
    now: float,
    *,
    recorded: bool = False,
    past: bool = False,
) -> list[list[Piece]] | None:
    """What to say in place of the tables while there are no rows; None when there are some. `past`: it
    is not now that is shown."""
    if recorded and not board.ready and (line.slow or line.state is ConnectionState.CONNECTING):
        return [[(f"reading the recording ({short_duration(now - line.since)}) …", "strong")]]
    if line.state is ConnectionState.REFUSED and not board.ready:
        return [
            [("The aggregator can't be used", "crit")],
            [(clean(url), "strong")],
            [(clean(line.reason), "")],
            [("With a token: ", "dim"), ("kilowatch top --token-file FILE URL", "strong")],
        ]
    if not board.ready:
        lost = line.state is ConnectionState.LOST
        said: list[list[Piece]] = [
            [(f"{'no answer from' if lost else 'connecting to'} {clean(url)} "
              f"({short_duration(now - line.since)}) …", "strong")],
        ]  # fmt: skip
        if lost:
            said.append([(clean(line.reason), "dim")])
            said.append([("Is it running? ", "dim"), ("kilowatch aggregate", "strong")])
        return said
    if not board.nodes and past:
        return [
            [("no node had been heard of at that time", "strong")],
            [("[L] goes to the end" if recorded else "[L] goes back to now", "dim")],
        ]
    if not board.nodes:
        return [
            [("no node yet", "strong")],
            [("On a node with GPUs: ", "dim"), ("kilowatch collect", "strong")],
            [("Without one: ", "dim"), ("kilowatch demo", "strong")],
        ]
    return None
