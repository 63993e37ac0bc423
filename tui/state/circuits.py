"""Texts about a circuit: its countdown, load, headroom and relief. Pure.

Two countdowns, never mixed: TRIP is the breaker's curve and the heat in it; `100% in` is where the
trend goes. Both tick on the screen between two answers, and stop when no replies come.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from api.power import CircuitState
from present.circuit.figures import NextKind, about, next_event, share
from present.units import percent
from telemetry.text import short_duration, timer
from tui.kit.text import DASH, clean
from tui.state.dashboard_state import DashboardState
from tui.state.row_status import RowStatus
from tui.theme import Piece


@dataclass(frozen=True, slots=True)
class Now:
    """The time from which countdowns count."""

    elapsed: float
    """Seconds since the answer came; of an old answer, 0: its countdowns stop."""
    as_of: str = ""
    """The time of an answer that is old; else empty."""


def tone_of(status: RowStatus, otherwise: str = "") -> str:
    """Return the tone of a text about a circuit."""
    return {RowStatus.CRIT: "crit", RowStatus.WARN: "warn"}.get(status, otherwise)


def bar_tone(status: RowStatus) -> str:
    """Return the tone of its bar."""
    return {RowStatus.CRIT: "bar_crit", RowStatus.WARN: "bar_warn"}.get(status, "bar")


def countdown(circuit: CircuitState, status: RowStatus, now: Now, *, short: bool = False) -> Piece:
    """Return what happens to it next, in a few words."""
    frozen = (" old" if short else f" as of {now.as_of}") if now.as_of else ""
    kind, seconds = next_event(circuit)
    left = max(0.0, (seconds or 0.0) - now.elapsed)
    match kind:
        case NextKind.TRIP:
            word = "TRIP" if short else "MAY TRIP IN"
            tone = "crit" if status is RowStatus.CRIT else tone_of(status, "strong")
            if left < 1:
                return f"{'TRIP NOW' if short else 'MAY TRIP NOW'}{frozen}", tone
            until = short_duration(left) if left > 86_400 else timer(left)
            return f"{word} {until}{frozen}", tone
        case NextKind.FULL:
            return f"100% in {short_duration(left)}{frozen}", tone_of(status, "")
        case NextKind.ASSUMED:
            return ("assumed power" if short else "assumed power of silent nodes"), "stale"
        case NextKind.OVER:
            if short:
                return "> continuous", tone_of(status, "")
            duration = f" for {short_duration(seconds)}" if seconds else ""
            return f"over continuous limit{duration}", tone_of(status, "")
        case NextKind.CONTINUOUS:
            return f"80% in {short_duration(left)}", "dim"
        case NextKind.WAS_OVER:
            return ("was over" if short else "fell below its continuous limit"), "dim"
        case NextKind.NOTHING:
            return DASH, "dim"


_COMMAND = re.compile(r"\(((?:nvidia|amd)-smi [^)]*)\)")
"""Matches a command; one that ends in an option lacks its argument."""


def relief(circuit: CircuitState) -> tuple[str, str]:
    """Return what would bring it below its limit, and the command in that text, or ``."""
    words = clean(circuit.facts.get("remedy", ""))
    commands = (found[1] for found in _COMMAND.finditer(words))
    return words, next((each for each in commands if not each.split()[-1].startswith("-")), "")


def worst_line(state: DashboardState, now: Now, limit: int) -> list[Piece]:
    """Return the most urgent circuits as one line; without such, the most loaded one."""
    pieces: list[Piece] = []
    for circuit in state.urgent[:limit]:
        status = state.circuit_status.get(circuit.id, RowStatus.OK)
        text, tone = countdown(circuit, status, now)
        if text == DASH and (pieces or status is RowStatus.OK):
            break
        tone = tone if tone != "dim" else ""
        of = " of its breaker," if text.startswith("over ") else ""  # not of the continuous limit
        words = "" if text == DASH else f"{of} {text}"
        full = about(circuit, percent(share(circuit)))
        pieces += [(f"{clean(circuit.id)} {full}{words}", tone), ("  ", "")]
    if pieces:
        return pieces
    if not state.circuits:
        none = f"circuits {DASH}" if state.circuits_unknown else "no circuits configured"
        return [(none, "dim"), ("  ", "")]
    most_loaded = max(state.circuits, key=lambda each: share(each) or 0.0)
    return [("most loaded circuit ", "dim"), (clean(most_loaded.id), ""),
            (f" {about(most_loaded, percent(share(most_loaded)))}", "strong"), ("  ", "")]  # fmt: skip


def members(state: DashboardState, circuit: str) -> list[str]:
    """Return every node on a circuit or below a panel."""
    below = {circuit}
    for each in state.circuits:  # parents come before what they feed
        if each.parent in below:
            below.add(each.id)
    found = [node for each in state.circuits if each.id in below for node in each.nodes]
    return list(dict.fromkeys(found))
