"""The header: cluster and age of data, GPUs and power, most urgent circuits and alerts. Pure."""

from __future__ import annotations

from rich.cells import cell_len

from api.fleet import FleetSummary
from present.fleet.wall import wall_row
from present.units import celsius, kilowatt_hours, money, number, percent, roughly, watts_of
from telemetry.text import short_duration, time_of_day, timer
from tui.feed.connection import Connection, ConnectionState
from tui.kit.surface import WIDE
from tui.kit.text import CROSS, DASH, bar, clean, fit
from tui.kit.theme import Piece
from tui.state.circuits import worst_line
from tui.state.dashboard_state import DashboardState
from tui.state.incidents import counts
from tui.time.screen_time import ScreenTime, countdown_now, outdated


def header(state: DashboardState, connection: Connection, moment: ScreenTime, width: int) -> list[list[Piece]]:
    """Draw two lines, or three from `WIDE` columns: cluster and age of data; GPUs and power; circuits,
    energy and alerts."""
    if state.status is None:
        return [[("○ ", "dim"), (connection_word(connection), "dim")], []]
    since = countdown_now(state, connection, moment)
    if width < WIDE:
        first = [
            *live(state, connection, moment),
            *_who(state, moment, short=True),
            *_gpus(state, short=True),
            *_power(state, short=True),
        ]
        alerts = counts(state)
        room = width - sum(cell_len(text) for text, _ in alerts)
        return [[*_squeezed(first, room), *alerts], _squeezed([*worst_line(state, since, 2), *energy(state)], width)]
    first = [*live(state, connection, moment), *_who(state, moment, short=False), *_nodes(state)]
    return [
        first,
        [*_gpus(state, short=False), *_power(state, short=False)],
        [*worst_line(state, since, 2), *energy(state), ("  Alerts ", "dim"), *counts(state, words=True)],
    ]


def live(state: DashboardState, connection: Connection, moment: ScreenTime) -> list[Piece]:
    """Return the label of the time that is shown: LIVE only where it is now."""
    if moment.replay:
        word = "LOADING" if moment.loading else "REPLAY"
        return [(f" {word} {moment.replay} ", "chip" if moment.loading else "band"), (" ", "")]
    if moment.paused is not None:
        return [(f" PAUSED {timer(moment.now - moment.paused)} ", "chip"), (" ", "")]
    if connection.state is not ConnectionState.LIVE:
        tone = "dim" if connection.state is ConnectionState.CONNECTING else "crit"
        return [(f"○ {connection_word(connection)} ", tone)]
    if outdated(state, moment):
        return [("▒ STALE ", "stale")]
    if state.status is not None and state.status.missing:
        return [("▒ PARTIAL ", "stale")]
    return [("● LIVE ", "good")]


def connection_word(connection: Connection) -> str:
    """Return the state of the connection in a word."""
    return "DISCONNECTED" if connection.state is ConnectionState.LOST else connection.state.value.upper()


def _who(state: DashboardState, moment: ScreenTime, *, short: bool) -> list[Piece]:
    assert state.status is not None  # noqa: S101 - checked by the caller
    fresh = state.age(moment.now)
    name = fit(clean(state.status.cluster), 16 if short else 40).rstrip()
    badge: list[Piece] = []
    if state.badge:
        badge = [(f" {state.badge[:3] if short else state.badge} ", "chip"), (" ", "")]
    late = "stale" if fresh is None or outdated(state, moment) else ""
    if moment.replay:  # the age of data does not matter in the past
        return [(f"{name}  ", "strong"), *badge]
    if short:
        age = "no data" if fresh is None else short_duration(fresh)
        return [(f"{name} ", "strong"), *badge, (f"{age} ", late or "dim")]
    words: list[Piece] = [("no data yet  ", "stale")]
    if fresh is not None:
        words = [("data ", "dim"), (f"{short_duration(fresh)} old  ", late)]
    return [(f"{name}  ", "strong"), *badge, (f"{time_of_day(state.at, utc=moment.utc)}  ", "dim"), *words]


def _nodes(state: DashboardState) -> list[Piece]:
    assert state.status is not None  # noqa: S101 - checked by the caller
    online, total = state.status.summary.nodes.get("online", 0), state.status.nodes
    tone = "strong" if online == total else "stale"
    return [
        (f"{number(online)}/{number(total)}", tone),
        (" nodes reporting", "dim"),
        *_missing(state),
        *_members(state),
    ]


def _members(state: DashboardState) -> list[Piece]:
    """Return how many of the cluster's aggregators are heard, and which leads; nothing for a single one."""
    members = () if state.status is None else state.status.members
    if not members:
        return []
    heard = sum(row.silent_seconds is None for row in members)
    leader = next((clean(row.name) for row in members if row.leads), "")
    silent = [clean(row.name) for row in members if row.silent_seconds is not None]
    pieces: list[Piece] = [
        (f"  {heard}/{len(members)}", "dim" if heard == len(members) else "stale"),
        (" aggregators, ", "dim"),
        (f"{leader} leads" if leader else "none leads", "dim" if leader else "crit"),
    ]
    return [*pieces, (f", silent: {', '.join(silent)}", "stale")] if silent else pieces


def _missing(state: DashboardState) -> list[Piece]:
    """Return which aggregators of the cluster do not answer: nothing is known of their nodes."""
    missing = () if state.status is None else state.status.missing
    return [(f"  ▒ no answer: {', '.join(map(clean, missing))}", "crit")] if missing else []


def _gpus(state: DashboardState, *, short: bool) -> list[Piece]:
    status = state.status
    assert status is not None  # noqa: S101 - checked by the caller
    count = state.gpu_counts
    pieces: list[Piece] = [
        ("GPU " if short else "GPUs ", "dim"),
        (number(count["reporting"]), "strong"),
        (f"/{number(status.gpus)} ", "dim"),
    ]
    if not short:
        pieces.append(("reporting  ", "dim"))
    if count["lost"]:
        pieces.append(
            (f"{CROSS}{number(count['lost'])} " if short else f"{CROSS}{number(count['lost'])} lost  ", "down")
        )
    if count["silent"]:
        unread = f"▒{number(count['silent'])}"
        pieces.append((f"{unread} " if short else f"{unread} no data  ", "stale"))
    return pieces


def _power(state: DashboardState, *, short: bool) -> list[Piece]:
    """Draw wall power of its budget; without one, GPU power of its limits, and wall power as far as it is
    measured."""
    assert state.status is not None  # noqa: S101 - checked by the caller
    summary = state.summary
    used, limit, ratio = state.budget_power
    partial = limit is not None and (state.fullest_budget.get("assumed_watts") or 0.0) > 0
    if limit is None:
        used, ratio = summary.gpu_power_watts, limited_ratio(summary)
        whole = used is not None and summary.limited_power_watts == used
        limit = summary.limited_power_limit_watts if whole else None
        word = "" if short else "GPU power "
    else:
        word = "" if short else "Power "
    pieces: list[Piece] = [
        (word, "dim"),
        (roughly(watts_of(used, limit), partial=partial), "strong"),
        (f" {roughly(percent(ratio), partial=partial)} ", "dim"),
    ]
    if short:
        return pieces
    pieces[2:2] = [(" ", ""), (bar(ratio, 12), "bar")]
    wall = state.at_the_wall
    if state.budget_power[1] is None and wall.watts is not None:
        its = wall_row(wall, state.status.nodes, summary.gpu_power_watts)
        pieces += [("  Wall ", "dim"), (its.value, its.tone)]
        if wall.nodes is not None:
            of = f"{number(wall.nodes)}/{number(state.status.nodes)} nodes, {number(summary.wall_power_known)} metered"
            pieces.append((f" ({', '.join(filter(None, (of, its.note)))})", "dim"))
    hot = summary.temperature_max_celsius
    return [*pieces, ("  hottest ", "dim"), (celsius(hot), "strong"),
            ("  util ", "dim"), (percent(summary.utilization_mean_ratio), "strong")]  # fmt: skip


def limited_ratio(summary: FleetSummary) -> float | None:
    """Return GPU power over its limit, of the GPUs that report both; limits are read less often, so that in
    the first seconds few are known."""
    used, limit = summary.limited_power_watts, summary.limited_power_limit_watts
    return used / limit if used is not None and limit else None


def energy(state: DashboardState) -> list[Piece]:
    """Draw the energy of today and its cost."""
    day = None if state.today is None else state.today.measured
    if day is None or state.today is None:
        return [(f"energy {DASH}", "dim")]
    cost = "" if day.cost is None else f" {money(day.cost, state.today.currency)}"
    return [(kilowatt_hours(day.kwh), "strong"), (f"{cost} today", "dim")]


def _squeezed(pieces: list[Piece], width: int) -> list[Piece]:
    """Shorten a line: first blanks, then its last pieces."""
    while pieces and sum(cell_len(text) for text, _ in pieces) > width:
        if any("  " in text for text, _ in pieces):
            pieces = [(text.replace("  ", " "), tone) for text, tone in pieces]
        else:
            room = width - sum(cell_len(text) for text, _ in pieces[:-1])
            if room >= 8:
                return [*pieces[:-1], (fit(pieces[-1][0], room), pieces[-1][1])]
            pieces = pieces[:-1]
    return pieces
