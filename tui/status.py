"""`kilowatch status`: the cluster on one screen of text, for pipes, logs and Nagios.

The exit code is the worst severity that nobody has acknowledged: 0 none, 1 a ticket, 2 a page, 3 not
known (no answer, no data, or old data).
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import msgspec

from present.circuit.figures import share
from present.circuit.rows import load_row, share_row
from present.units import kilowatt_hours, money, number, percent, watts
from telemetry.errors import ConfigError
from telemetry.text import counted, short_duration
from telemetry.text.connection_faults import ConnectionFault, connection_fault
from tui.feed.connection import Connection as LineOf
from tui.feed.connection import ConnectionState
from tui.feed.feed import DashboardFeed
from tui.feed.requests import ActionRefusedError, why
from tui.frame.header import header
from tui.kit.text import clean
from tui.kit.theme import Line
from tui.state.circuits import Now, countdown
from tui.state.dashboard_state import DashboardState
from tui.state.fitness import fitness_line
from tui.state.incidents import alert_lines
from tui.state.row_status import RowStatus
from tui.time.screen_time import ScreenTime

OK, WARNING, CRITICAL, UNKNOWN = range(4)
WORDS = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
_LIVE = LineOf(ConnectionState.LIVE, 0.0)
OLD = 30.0
"""Age in seconds from which on the newest frame counts as old."""


async def fetch(url: str, token: str | None) -> DashboardState:
    """Fetch the state once. Raises `ActionRefusedError`, or an error of the network."""
    async with asyncio.timeout(20.0):
        return await DashboardFeed(url, token, lambda: None, time.monotonic).fetch_once()


def severity(state: DashboardState, age: float | None) -> int:
    """Return the exit code."""
    if age is None or age > OLD or state.status is None or not state.status.nodes:
        return UNKNOWN
    if state.incidents_unknown:
        return UNKNOWN
    worst = {incident.severity for incident in state.incidents if incident.acknowledged is None}
    return CRITICAL if "page" in worst else WARNING if "ticket" in worst else OK


def summary(state: DashboardState, age: float | None) -> str:
    """Return one line in the format of Nagios plugins, with performance data behind the bar."""
    code = severity(state, age)
    status = state.status
    if status is None:
        return f"KILOWATCH {WORDS[UNKNOWN]}: nothing is known"
    counts: dict[str, int | str] = {
        kind: sum(i.severity == kind for i in state.incidents) for kind in ("page", "ticket")
    }
    reporting = sum(model.gpus.get("reporting", 0) for model in status.summary.models)
    wall = state.at_the_wall.watts
    why = "no data" if age is None else f"data {short_duration(age)} old"
    words = ", ".join(_open(state, kind) for kind in counts)
    if state.incidents_unknown:
        words = f"alerts not known ({clean(state.incidents_unknown)})"
        counts = dict.fromkeys(counts, "U")  # Nagios' sign for an unknown value
    return (
        f"KILOWATCH {WORDS[code]}: {clean(status.cluster)} {words}, {reporting}/{status.gpus} GPUs reporting, {why}"
        f" | gpus={reporting};;;0;{status.gpus} pages={counts['page']} tickets={counts['ticket']}"
        + (f" wall={wall:.0f}" if wall is not None else "")
    )


def _open(state: DashboardState, kind: str) -> str:
    """Return the number of open incidents of a severity, and how many are acknowledged: those do not count
    for the exit code."""
    its = [incident for incident in state.incidents if incident.severity == kind]
    taken = sum(incident.acknowledged is not None for incident in its)
    if not taken:
        return counted(len(its), kind)
    return f"{counted(len(its), kind)} ({'' if taken == len(its) else f'{taken:,} '}acknowledged)"


def releases(state: DashboardState) -> str:
    """Return which releases the nodes have; "" where all have the aggregator's, or none is known."""
    status = state.status
    if status is None or set(status.summary.releases) <= {status.version, ""}:
        return ""
    parts = [
        f"{counted(count, 'node')} {clean(release) or 'not known'}"
        for release, count in status.summary.releases.items()
    ]
    return f"releases: aggregator {clean(status.version)}, {', '.join(parts)}"


def text_lines(
    state: DashboardState, age: float | None, width: int = 100, alerts: int = 10, circuits: int = 8
) -> list[str]:
    """Return the cluster as lines of text."""
    shown = replace(state, status_came=0.0)
    lines: list[Line] = [
        [piece for piece in line if "LIVE" not in piece[0]] for line in header(shown, _LIVE, ScreenTime(0.0), 200)[:2]
    ]
    day = None if state.today is None else state.today.measured
    used, limit, ratio = state.budget_power
    words = f"today {kilowatt_hours(day.kwh if day else None)}"
    if day is not None and state.today is not None and day.cost is not None:
        words += f", {money(day.cost, state.today.currency)}"
    if limit is not None:
        words += f"; budget {watts(used)} of {watts(limit)}, {percent(ratio)}"
    drifted = releases(state)
    good = fitness_line(None if state.status is None else state.status.fitness)
    lines += [
        [(words, "")],
        *([[(drifted, "")]] if drifted else []),
        *([[(good, "")]] if good else []),
        [],
        [("alerts by cause", "")],
        *alert_lines(state, width, alerts),
    ]
    if state.circuits:
        lines += [[], [("circuits by time to trip; load of the last 10 s", "")]]
        for circuit in state.urgent[:circuits]:
            word, _ = countdown(circuit, state.circuit_status.get(circuit.id, RowStatus.OK), Now(0.0))
            its = load_row(circuit)
            lines.append(
                [(f"{clean(circuit.id):<20} {share_row(circuit).short:>5}  {its.short or its.value:>9}  {word}", "")]
            )
        if len(state.circuits) > circuits:
            lines.append([(f"and {number(len(state.circuits) - circuits)} more", "")])
    text = ["".join(piece for piece, _ in line).rstrip() for line in lines]
    return [summary(state, age), *text]


def as_json(state: DashboardState, age: float | None) -> dict[str, Any]:
    """Return the cluster as JSON."""
    status = state.status
    day = None if state.today is None else state.today.measured
    return {
        "state": WORDS[severity(state, age)],
        "cluster": None if status is None else status.cluster,
        "data_age_seconds": age,
        "nodes": None if status is None else status.summary.nodes,
        "gpus": None if status is None else {
            "total": status.gpus,
            **{kind: sum(m.gpus.get(kind, 0) for m in status.summary.models) for kind in ("reporting", "silent", "lost")},
        },
        "gpu_power_watts": None if status is None else status.summary.gpu_power_watts,
        "wall_watts": state.at_the_wall.watts,
        "today_kwh": None if day is None else day.kwh,
        "today_cost": None if day is None else day.cost,
        "currency": None if state.today is None else state.today.currency,
        "incidents": [
            {"key": i.key, "severity": i.severity, "title": i.title, "began": i.began, "firing": i.firing,
             "acknowledged": None if i.acknowledged is None else i.acknowledged.who}
            for i in state.incidents
        ],
        "circuits": [
            {"id": c.id, "watts": c.watts, "assumed_watts": c.assumed_watts, "load_ratio": c.load_ratio, "sustained_ratio": share(c),
             "trip_earliest_seconds": c.trip_seconds.earliest}
            for c in state.urgent[:20]
        ],
    }  # fmt: skip


def once(url: str, token: str | None) -> tuple[DashboardState, float | None, ConnectionFault | None]:
    """Fetch the state once; returns it, the age of its data, and what went wrong."""
    try:
        state = asyncio.run(fetch(url, token))
    except TimeoutError as error:
        return DashboardState(), None, ConnectionFault(why(error))
    except OSError as error:
        return DashboardState(), None, connection_fault(error)
    except (ActionRefusedError, ConfigError, msgspec.DecodeError, ValueError) as error:
        return DashboardState(), None, ConnectionFault(clean(str(error)) or type(error).__name__)
    status = state.status
    return state, None if status is None else status.newest_frame_age_seconds, None
