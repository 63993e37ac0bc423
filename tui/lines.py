"""The lines around the screens: header, band, alerts. Pure: a board in, pieces out."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rich.cells import cell_len

from tui.board import CIRCUITS, Board, Standing
from tui.circuits import Now, bar_tone, countdown, headroom, tone_of, worst_line
from tui.client import Line, LineState
from tui.kit.bars import Bar
from tui.messages import Incident
from tui.text import (
    CROSS,
    DASH,
    bar,
    celsius,
    clean,
    clock,
    clock_of,
    fit,
    kilowatt_hours,
    money,
    number,
    percent,
    span,
    watts,
    watts_of,
)
from tui.theme import Piece

WIDE = 120
"""Columns from which on the header has three lines, and lists show the detail beside them."""
STALE_AFTER = 15.0
"""Seconds without an answer about circuits after which their countdowns stand still."""
_MORE = re.compile(r" \(and \d+ more\)$")
"""What a title says of the number of its alerts: the list has a place of its own for that."""
_SEVERITIES = (("page", "▲", "crit", "CRIT"), ("ticket", "!", "warn", "WARN"))


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


def header(board: Board, line: Line, moment: Moment, width: int) -> list[list[Piece]]:
    """Two lines, or three where there is room: who and how fresh; GPUs and power; what needs
    somebody."""
    if board.status is None:
        return [[("○ ", "dim"), (line.state.value.upper(), "dim")], []]
    since = countdown_now(board, line, moment)
    if width < WIDE:
        first = [
            *_live(line, moment, short=True), *_who(board, moment, short=True),
            *_gpus(board, short=True), *_power(board, short=True), *counts(board),
        ]  # fmt: skip
        return [
            _squeezed(first, width),
            _squeezed([*worst_line(board, since, 2), *energy(board)], width),
        ]
    first = [
        *_live(line, moment, short=False),
        *_who(board, moment, short=False),
        *_nodes(board),
    ]
    return [
        first,
        [*_gpus(board, short=False), *_power(board, short=False)],
        [*worst_line(board, since, 2), *energy(board), ("  Alerts ", "dim"),
         *counts(board, words=True)],
    ]  # fmt: skip


def countdown_now(board: Board, line: Line, moment: Moment) -> Now:
    """From when countdowns count: they stand still while the screen or the data does."""
    came = board.came(CIRCUITS)
    live = line.state is LineState.LIVE and moment.paused is None and not moment.replay
    if live and moment.now - came <= STALE_AFTER:
        return Now(max(0.0, moment.now - came))
    return Now(0.0, clock_of(board.circuits_at, utc=moment.utc))


def _live(line: Line, moment: Moment, *, short: bool) -> list[Piece]:
    if moment.replay:
        return [(f" REPLAY {moment.replay} ", "band"), (" ", "")]
    if moment.paused is not None:
        return [(f" PAUSED {clock(moment.now - moment.paused)} ", "chip"), (" ", "")]
    if line.state is not LineState.LIVE:
        return [("○ LOST ", "crit")]
    return [("● LIVE ", "good")]


def _who(board: Board, moment: Moment, *, short: bool) -> list[Piece]:
    assert board.status is not None  # noqa: S101 - the caller has looked
    fresh = board.age(moment.now)
    name = fit(clean(board.status.cluster), 16 if short else 40).rstrip()
    badge: list[Piece] = []
    if board.badge:
        badge = [(f" {board.badge[:3] if short else board.badge} ", "chip"), (" ", "")]
    late = "" if fresh is not None and fresh < 5 else "stale"
    if moment.replay:  # how old data was then is nothing that anybody waits for
        return [(f"{name}  ", "strong"), *badge]
    if short:
        age = "no data" if fresh is None else span(fresh)
        return [(f"{name} ", "strong"), *badge, (f"{age} ", late or "dim")]
    said: list[Piece] = [("no data yet  ", "stale")]
    if fresh is not None:
        said = [("data ", "dim"), (f"{span(fresh)} old  ", late)]
    return [
        (f"{name}  ", "strong"),
        *badge,
        (f"{clock_of(board.at, utc=moment.utc)}  ", "dim"),
        *said,
    ]


def _nodes(board: Board) -> list[Piece]:
    assert board.status is not None  # noqa: S101 - the caller has looked
    online, total = board.status.summary.nodes.get("online", 0), board.status.nodes
    tone = "strong" if online == total else "stale"
    return [(f"{number(online)}/{number(total)}", tone), (" nodes reporting", "dim")]


def _gpus(board: Board, *, short: bool) -> list[Piece]:
    status = board.status
    assert status is not None  # noqa: S101 - the caller has looked
    count = {state: sum(model.gpus.get(state, 0) for model in status.summary.models)
             for state in ("reporting", "silent", "lost")}  # fmt: skip
    pieces: list[Piece] = [
        ("GPU " if short else "GPUs ", "dim"), (number(count["reporting"]), "strong"),
        (f"/{number(status.gpus)} ", "dim"),
    ]  # fmt: skip
    if not short:
        pieces.append(("reporting  ", "dim"))
    if count["lost"]:
        pieces.append(
            (
                f"{CROSS}{number(count['lost'])} "
                if short
                else f"{CROSS}{number(count['lost'])} lost  ",
                "down",
            )
        )
    if count["silent"]:
        pieces.append(
            (
                f"▒{number(count['silent'])} " if short else f"▒{number(count['silent'])} silent  ",
                "stale",
            )
        )
    return pieces


def _power(board: Board, *, short: bool) -> list[Piece]:
    """Wall power of its budget where there is one; else of the GPUs' limits, and what flows in the
    wall as far as nodes tell."""
    assert board.status is not None  # noqa: S101 - the caller has looked
    summary = board.status.summary
    used, limit, ratio = of_budget(board)
    if limit is None:
        used, limit = summary.gpu_power_watts, summary.gpu_power_limit_watts
        ratio = used / limit if used is not None and limit else None
        word = "" if short else "GPU power "
    else:
        word = "" if short else "Power "
    pieces: list[Piece] = [
        (word, "dim"),
        (watts_of(used, limit), "strong"),
        (f" {percent(ratio)} ", "dim"),
    ]
    if short:
        return pieces
    pieces[2:2] = [(" ", ""), (bar(ratio, 12), "bar")]
    wall = board.power.wall_watts if board.power is not None else None
    if of_budget(board)[1] is None and wall is not None:
        pieces += [("  Wall ", "dim"), (watts(wall), "strong")]
        known = summary.wall_power_known
        pieces.append((f" ({number(known)}/{number(board.status.nodes)} nodes measured)", "dim"))
    hot = summary.temperature_max_celsius
    return [*pieces, ("  hottest ", "dim"), (celsius(hot), "strong"),
            ("  util ", "dim"), (percent(summary.utilization_mean_ratio), "strong")]  # fmt: skip


def of_budget(board: Board) -> tuple[float | None, float | None, float | None]:
    """Watts, limit and share of the budget that is fullest; Nones without one."""
    found = [row.quantities for row in board.budgets if row.quantities.get("power_ratio")]
    if not found:
        return None, None, None
    fullest = max(found, key=lambda row: row.get("power_ratio") or 0.0)
    ratio, used = fullest.get("power_ratio"), fullest.get("watts")
    return used, used / ratio if used is not None and ratio else None, ratio


def energy(board: Board) -> list[Piece]:
    """What this day took, and what it cost."""
    day = None if board.today is None else board.today.measured
    if day is None or day.kwh is None or board.today is None:
        return [(f"{DASH} kWh", "dim")]
    cost = "" if day.cost is None else f" {money(day.cost, board.today.currency)}"
    return [(kilowatt_hours(day.kwh), "strong"), (f"{cost} today", "dim")]


def _squeezed(pieces: list[Piece], width: int) -> list[Piece]:
    """Leave blanks out where the line is too long, then the last pieces."""
    while pieces and sum(cell_len(text) for text, _ in pieces) > width:
        if any("  " in text for text, _ in pieces):
            pieces = [(text.replace("  ", " "), tone) for text, tone in pieces]
        else:
            room = width - sum(cell_len(text) for text, _ in pieces[:-1])
            if room >= 8:
                return [*pieces[:-1], (fit(pieces[-1][0], room), pieces[-1][1])]
            pieces = pieces[:-1]
    return pieces


def counts(board: Board, *, words: bool = False) -> list[Piece]:
    """How many incidents are open, by severity, and how many of them somebody has taken."""
    pieces: list[Piece] = []
    said = {"page": "crit", "ticket": "warn"}
    for severity, glyph, tone, _ in _SEVERITIES:
        count = sum(each.severity == severity for each in board.incidents)
        if count:
            pieces += [
                (f"{glyph}{number(count)}{' ' + said[severity] if words else ''}", tone),
                (" ", ""),
            ]
    taken = sum(each.acknowledged is not None for each in board.incidents)
    if taken:
        pieces.append((f"✓{number(taken)}{' acked' if words else ''} ", "dim"))
    return pieces or [("no alerts", "dim")]


def band(line: Line, now: float, board: Board, *, utc: bool) -> list[Piece]:
    """One line in red when what stands on the screen is not what is; nothing when it is."""
    if line.state is LineState.LIVE or (line.state is LineState.CONNECTING and not board.ready):
        return []
    last = f", last data {clock_of(board.at, utc=utc)}" if board.at else ""
    retry = ""
    if line.retry_at is not None and line.retry_at > now:
        retry = f", trying again in {span(line.retry_at - now)}, R now"
    word = "REFUSED" if line.state is LineState.REFUSED else "DISCONNECTED"
    return [(f" {word} {clock(now - line.since)}{last}{retry} ", "band"),
            (f" {clean(line.reason)}", "dim")]  # fmt: skip


def incident_line(board: Board, incident: Incident, width: int, *, place: int = 20) -> list[Piece]:
    """One incident: how bad, how long, where, what, and who has taken it."""
    _, glyph, tone, word = next(
        (each for each in _SEVERITIES if each[0] == incident.severity), ("", "·", "dim", "info")
    )
    taken = incident.acknowledged
    mark: list[Piece] = [(f"{glyph} {word:<4} ", "dim" if taken else tone)]
    mark.append((f"{span((board.at - incident.began) / 1e9).replace(' ', ''):>4} ", "dim"))
    many = f" (+{number(incident.firing - 1)})" if incident.firing > 1 else ""
    who = f" ✓ {clean(taken.who)}" if taken else ""
    title = clean(incident.title)
    if many:
        title = _MORE.sub("", title)
    room = max(8, width - 12 - cell_len(many) - cell_len(who))
    return [
        *mark, (fit(title, room).rstrip(), "dim" if taken else "strong"),
        (many, "dim"), (who, "good"),
    ]  # fmt: skip


def alert_lines(board: Board, width: int, height: int) -> list[list[Piece]]:
    """The worst incidents, one a line; the last says how many more there are."""
    shown = board.incidents
    if not shown:
        pending = sum(alert.state == "pending" for alert in board.alerts)
        if pending:
            return [[(f"no alerts; {number(pending)} may become some", "dim")]]
        resolved = max(
            (a for a in board.alerts if a.state == "resolved"),
            key=lambda a: a.changed,
            default=None,
        )
        if resolved is None:
            return [[("no alerts", "dim")]]
        ago = span((board.at - resolved.changed) / 1e9)
        return [[(f"no alerts; {ago} ago resolved: {clean(resolved.summary)}", "dim")]]
    if len(shown) > height and 0 < height <= 3:  # no line to give away: say it behind the last
        more = f"  and {number(len(shown) - height)} more"
        last = incident_line(board, shown[height - 1], width - len(more))
        return [
            *(incident_line(board, each, width) for each in shown[: height - 1]),
            [*last, (more, "dim")],
        ]
    room = height if len(shown) <= height else height - 1
    lines = [incident_line(board, each, width) for each in shown[: max(0, room)]]
    if room < len(shown):
        lines.append([(f"  and {number(len(shown) - max(0, room))} more", "dim")])
    return lines


def circuit_bars(board: Board, since: Now, most: int) -> list[Bar]:
    """The circuits that need somebody first."""
    found: list[Bar] = []
    for circuit in board.urgent[:most]:
        standing = board.circuit_standing.get(circuit.id, Standing.OK)
        text, tone = countdown(circuit, standing, since, short=True)
        found.append(
            Bar(
                circuit.id, circuit.load_ratio, bar_tone(standing),
                [(f"{percent(circuit.load_ratio):>5} ", tone_of(standing, "")),
                 (fit(text, 16), tone), (fit(headroom(circuit), 9, right=True), "dim")],
            )
        )  # fmt: skip
    return found


def tiny(board: Board, line: Line, moment: Moment, width: int, height: int) -> list[list[Piece]]:
    """What a terminal that is too small for pictures can still show."""
    live = (line.state.value.upper(), "good" if line.state is LineState.LIVE else "crit")
    name = f" {clean(board.status.cluster)}" if board.status else ""
    if height < 3:
        return [[live, (" ", ""), *counts(board)]]
    said: list[list[Piece]] = [
        [live, (name, "strong")],
        counts(board),
        [(f"{number(board.status.gpus) if board.status else DASH} GPUs", "")],
        *alert_lines(board, width, max(1, height - 5)),
        worst_line(board, countdown_now(board, line, moment), 1),
        [("too small: 60x16 at least", "dim")],
    ]
    return said[:height]


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
