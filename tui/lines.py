"""The lines around the tables: header, band, alerts, footer. Pure: a board in, pieces out."""

from __future__ import annotations

from collections.abc import Sequence

from tui.board import Board
from tui.client import Line, LineState
from tui.columns import Piece
from tui.messages import Alert
from tui.text import DASH, celsius, clean, clock, number, percent, span, watts, watts_of

_SEVERITIES = (("page", "▲", "crit", "PAGE"), ("ticket", "!", "warn", "TICKET"))


def header(board: Board, line: Line, now: float, paused: float | None) -> list[list[Piece]]:
    """Two lines: who and how fresh; then the cluster in numbers.

    `paused`: since when, monotonic seconds, or None.
    """
    status = board.status
    if status is None:
        return [[("○ ", "dim"), (line.state.value.upper(), "dim")], []]
    summary = status.summary
    fresh = board.age(now)
    live: list[Piece] = [("● LIVE ", "good")]
    if paused is not None:
        live = [(f" PAUSED {clock(now - paused)} ", "chip"), (" ", "")]
    elif line.state is not LineState.LIVE:
        live = [("○ LOST ", "crit")]
    online, total = summary.nodes.get("online", 0), status.nodes
    reporting = sum(model.gpus.get("reporting", 0) for model in summary.models)
    first = [
        *live,
        (f"{clean(status.cluster)}  ", "strong"),
        *(
            [("no data yet  ", "dim")]
            if fresh is None
            else [("data ", "dim"), (f"{span(fresh)} old  ", "" if fresh < 5 else "stale")]
        ),
        ("nodes ", "dim"),
        (f"{number(online)}/{number(total)}  ", "strong" if online == total else "stale"),
        ("GPUs ", "dim"),
        (f"{number(reporting)}/{number(status.gpus)}",
         "strong" if reporting == status.gpus else "stale"),
        (" reporting  ", "dim"),
        *([(f" {board.badge} ", "chip")] if board.badge else []),
    ]  # fmt: skip
    wall = watts(summary.wall_power_watts)
    if 0 < summary.wall_power_known < total:
        wall += f" ({summary.wall_power_known}/{total} nodes)"
    second = [
        ("power ", "dim"),
        (watts_of(summary.gpu_power_watts, summary.gpu_power_limit_watts), "strong"),
        ("  wall ", "dim"),
        (wall, "strong"),
        ("  hottest ", "dim"),
        (celsius(summary.temperature_max_celsius), "strong"),
        ("  util ", "dim"),
        (percent(summary.utilization_mean_ratio), "strong"),
        ("  ", ""),
        *counts(board.alerts),
    ]
    return [first, second]


def counts(alerts: Sequence[Alert]) -> list[Piece]:
    """How many fire, by severity."""
    firing = [alert.severity for alert in alerts if alert.state == "firing"]
    pieces: list[Piece] = []
    for severity, glyph, tone, _ in _SEVERITIES:
        count = firing.count(severity)
        if count:
            pieces += [(f"{glyph}{number(count)}", tone), (" ", "")]
    return pieces or [("no alerts", "dim")]


def band(line: Line, now: float, age: float | None) -> list[Piece]:
    """One line in red when what stands on the screen is not what is; nothing when it is."""
    if line.state is LineState.LIVE:
        return []
    if line.state is LineState.CONNECTING and age is None:
        return []
    last = "" if age is None else f", last data {span(age)} ago"
    retry = ""
    if line.retry_at is not None and line.retry_at > now:
        retry = f"; trying again in {span(line.retry_at - now)}"
    word = "REFUSED" if line.state is LineState.REFUSED else "DISCONNECTED"
    return [(f" {word} {clock(now - line.since)}{last}{retry} ", "band"),
            (f" {clean(line.reason)}", "dim")]  # fmt: skip


def alert_lines(board: Board, most: int) -> list[list[Piece]]:
    """The worst alerts, one a line; the last says how many more there are."""
    shown = [alert for alert in board.alerts if alert.state in {"firing", "pending"}]
    lines: list[list[Piece]] = []
    if not shown:
        resolved = next((a for a in board.alerts if a.state == "resolved"), None)
        if resolved is None:
            return [[("no alerts", "dim")]]
        ago = span((board.at - resolved.changed) / 1e9)
        return [[(f"no alerts; {ago} ago resolved: {clean(resolved.summary)}", "dim")]]
    room = most if len(shown) <= most else most - 1
    for alert in shown[:room]:
        pending = alert.state == "pending"
        _, glyph, tone, word = next(
            (each for each in _SEVERITIES if each[0] == alert.severity), ("", "·", "dim", "INFO")
        )
        if pending:
            glyph, tone, word = "~", "dim", "pending"
        since = span((board.at - alert.since) / 1e9)
        lines.append(
            [(f"{glyph} {word:<8}", tone), (f"{since:>5}  ", "dim"),
             (clean(alert.summary), "dim" if pending else "strong")]
        )  # fmt: skip
    if room < len(shown):
        lines.append([(f"  and {number(len(shown) - room)} more", "dim")])
    return lines


def tiny(board: Board, line: Line, now: float, height: int) -> list[list[Piece]]:
    """What a terminal that is too small for tables can still show."""
    said: list[list[Piece]] = [
        [(line.state.value.upper(), "good" if line.state is LineState.LIVE else "crit")],
        counts(board.alerts),
        [(f"{number(board.status.gpus) if board.status else DASH} GPUs", "")],
        *alert_lines(board, max(1, height - 4)),
        [("too small for the tables: 60x16 at least", "dim")],
    ]
    if height < 3:
        return [[*said[0], (" ", ""), *said[1]]]
    return said[:height]


def footer(keys: Sequence[tuple[str, str]], right: str, width: int) -> list[Piece]:
    """The keys that do something now, and where the cursor is."""
    pieces: list[Piece] = []
    used = 0
    for key, word in keys:
        cost = len(key) + len(word) + 3
        if used + cost + len(right) > width:
            break
        pieces += [(f" {key}", "key"), (f" {word} ", "dim")]
        used += cost
    pieces += [(" " * max(0, width - used - len(right)), ""), (right, "dim")]
    return pieces


def nothing_yet(board: Board, line: Line, url: str, now: float) -> list[list[Piece]] | None:
    """What to say in place of the tables while there are no rows; None when there are some."""
    if line.state is LineState.REFUSED and not board.ready:
        return [
            [("The aggregator can't be used", "crit")],
            [(clean(url), "strong")],
            [(clean(line.reason), "")],
            [("With a token: ", "dim"), ("kilowatch top --token-file FILE URL", "strong")],
        ]
    if not board.ready:
        lost = line.state is LineState.LOST
        said: list[list[Piece]] = [
            [(f"{'no answer from' if lost else 'connecting to'} {clean(url)} "
              f"({span(now - line.since)}) …", "strong")],
        ]  # fmt: skip
        if lost:
            said.append([(clean(line.reason), "dim")])
            said.append([("Is it running? ", "dim"), ("kilowatch aggregate", "strong")])
        return said
    if not board.nodes:
        return [
            [("no node yet", "strong")],
            [("On a node with GPUs: ", "dim"), ("kilowatch collect", "strong")],
            [("Without one: ", "dim"), ("kilowatch demo", "strong")],
        ]
    return None
