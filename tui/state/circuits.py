"""Countdowns of circuits on the screen: they tick between two answers, and stop when no replies come. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from api.power import CircuitState
from present.circuit.figures import share
from present.circuit.outlook import NextKind, next_event, next_row
from present.circuit.rows import share_row
from present.row import Tone
from telemetry.text import short_duration, timer
from tui.kit.text import DASH, clean
from tui.kit.theme import Piece
from tui.state.dashboard_state import DashboardState
from tui.state.row_status import RowStatus


@dataclass(frozen=True, slots=True)
class Now:
    """The time from which countdowns count."""

    elapsed: float
    """Seconds since the answer came; of an old answer, 0: its countdowns stop."""
    as_of: str = ""
    """The time of an answer that is old; else empty."""


def tone_of(status: RowStatus) -> Tone:
    """Return the tone of a text about a circuit."""
    return {RowStatus.CRIT: Tone.CRIT, RowStatus.WARN: Tone.WARN}.get(status, Tone.PLAIN)


def bar_tone(status: RowStatus) -> str:
    """Return the tone of its bar."""
    return {RowStatus.CRIT: "bar_crit", RowStatus.WARN: "bar_warn"}.get(status, "bar")


def countdown(circuit: CircuitState, status: RowStatus, now: Now, *, short: bool = False) -> Piece:
    """Return what happens to it next, in a few words. A trip is in capitals, and its clock runs by the second."""
    row = next_row(circuit, tone_of(status), now.elapsed)
    trips = next_event(circuit).kind is NextKind.TRIP
    words = row.column if short else row.brief
    if trips:
        words = (row.short if short else row.value).upper()
        if row.until is not None:
            words += f" {clock(row.until)}"
    if now.as_of and (trips or row.until is not None):
        words += " old" if short else f" as of {now.as_of}"
    return words, row.tone


def clock(seconds: float) -> str:
    """Return the seconds that are left as a running clock; days as such."""
    return short_duration(seconds) if seconds > 86_400 else timer(seconds)


def worst_line(state: DashboardState, now: Now, limit: int) -> list[Piece]:
    """Return the most urgent circuits as one line; without such, the most loaded one."""
    pieces: list[Piece] = []
    for circuit in state.urgent[:limit]:
        status = state.circuit_status.get(circuit.id, RowStatus.OK)
        text, tone = countdown(circuit, status, now)
        if text == DASH and (pieces or status is RowStatus.OK):
            break
        tone = tone if tone != Tone.DIM else ""
        kind = next_event(circuit).kind
        of = " of its breaker," if kind in {NextKind.OVER, NextKind.ASSUMED} else ""  # not of the continuous limit
        words = "" if text == DASH else f"{of} {text}"
        pieces += [(f"{clean(circuit.id)} {share_row(circuit).short}{words}", tone), ("  ", "")]
    if pieces:
        return pieces
    if not state.circuits:
        none = f"circuits {DASH}" if state.circuits_unknown else "no circuits configured"
        return [(none, "dim"), ("  ", "")]
    most_loaded = max(state.circuits, key=lambda each: share(each) or 0.0)
    return [("most loaded circuit ", "dim"), (clean(most_loaded.id), ""),
            (f" {share_row(most_loaded).short}", "strong"), ("  ", "")]  # fmt: skip


def members(state: DashboardState, circuit: str) -> list[str]:
    """Return every node on a circuit or below a panel."""
    below = {circuit}
    for each in state.circuits:  # parents come before what they feed
        if each.parent in below:
            below.add(each.id)
    found = [node for each in state.circuits if each.id in below for node in each.nodes]
    return list(dict.fromkeys(found))
