"""Texts about a circuit: its countdown, load, headroom and relief. Pure.

Two countdowns, never mixed: TRIP is the breaker's curve and the heat in it; `100% in` is where the
trend goes. Both tick on the screen between two answers, and stop when no replies come.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from api.power import CircuitState
from telemetry.text import short_duration, timer
from tui.kit.text import DASH, clean, percent, watts
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


def until_trip(circuit: CircuitState, now: Now) -> float | None:
    """Return the seconds until the breaker may trip at the earliest; None for never or not known."""
    edge = circuit.trip_seconds.earliest
    return None if edge is None else max(0.0, edge - now.elapsed)


def until_full(circuit: CircuitState, now: Now) -> float | None:
    """Return the seconds until the trend reaches the rating; None without such a trend."""
    edge = circuit.forecast_rated_seconds
    return None if edge is None else max(0.0, edge - now.elapsed)


def countdown(circuit: CircuitState, status: RowStatus, now: Now, *, short: bool = False) -> Piece:
    """Return what happens to it next, in a few words."""
    frozen = (" old" if short else f" as of {now.as_of}") if now.as_of else ""
    trip = until_trip(circuit, now)
    if trip is not None:
        word = "TRIP" if short else "MAY TRIP IN"
        tone = "crit" if status is RowStatus.CRIT else tone_of(status, "strong")
        if trip < 1:
            return f"{'TRIP NOW' if short else 'MAY TRIP NOW'}{frozen}", tone
        if trip > 86_400:
            return f"{word} {short_duration(trip)}{frozen}", tone
        return f"{word} {timer(trip)}{frozen}", tone
    full = until_full(circuit, now)
    if full is not None:
        return f"100% in {short_duration(full)}{frozen}", tone_of(status, "")
    if over_continuous(circuit):
        if assumed(circuit) and circuit.continuous_ratio is None:  # not known
            return ("assumed power" if short else "assumed power of silent nodes"), "stale"
        since = circuit.above_continuous_seconds
        if short:
            return "> continuous", tone_of(status, "")
        duration = f" for {short_duration(since)}" if since else ""
        return f"over continuous limit{duration}", tone_of(status, "")
    if circuit.forecast_continuous_seconds is not None:
        return (
            f"80% in {short_duration(max(0.0, circuit.forecast_continuous_seconds - now.elapsed))}",
            "dim",
        )
    if (circuit.continuous_ratio or 0) > 1:  # of the last minute, while the load has fallen
        return ("was over" if short else "fell below its continuous limit"), "dim"
    return DASH, "dim"


def over_continuous(circuit: CircuitState) -> bool:
    """Return whether the load of about the last ten seconds is above the continuous limit."""
    ratio = share(circuit)
    if ratio is None or circuit.continuous_amps is None or circuit.rated_amps is None:
        return (circuit.continuous_ratio or 0) > 1
    return ratio * circuit.rated_amps > circuit.continuous_amps


def share(circuit: CircuitState) -> float | None:
    """Return the amps of the highest pole over the rating, of about the last ten seconds: the load that
    countdowns are computed with. An older aggregator has only that of now."""
    if circuit.load_ratio is None:
        return None
    return circuit.load_ratio if circuit.sustained_ratio is None else circuit.sustained_ratio


def assumed(circuit: CircuitState) -> bool:
    """Return whether a part of its load is assumed: of silent nodes and unread GPUs."""
    return (circuit.assumed_watts or 0.0) > 0


def about(circuit: CircuitState, text: str) -> str:
    """Return a figure of its load, with `~` where a part of it is assumed."""
    return f"~{text}" if assumed(circuit) and text != DASH else text


def measured_watts(circuit: CircuitState) -> float | None:
    """Return the watts for a chart; None for a load that is mostly assumed."""
    watts = circuit.watts
    return None if watts is None or (circuit.assumed_watts or 0.0) > watts / 2 else watts


def load(circuit: CircuitState) -> float | None:
    """Return the watts of the load of about the last ten seconds."""
    ratio, now = share(circuit), circuit.load_ratio
    if circuit.watts is None or not ratio or not now:
        return circuit.watts
    return circuit.watts * ratio / now


def headroom(circuit: CircuitState) -> str:
    """Return the headroom below the continuous limit: signed watts, or amps where watts are not known."""
    amps, per_amp = _left(circuit), _watts_per_amp(circuit)
    if amps is None:
        return DASH
    if per_amp is None:
        return f"{amps:+.1f} A"
    return f"{'+' if amps >= 0 else '-'}{watts(abs(amps * per_amp))}"


def _left(circuit: CircuitState) -> float | None:
    if circuit.load_ratio is None or circuit.sustained_ratio is None:
        return circuit.headroom_amps
    if circuit.continuous_amps is None or circuit.rated_amps is None:
        return None
    return circuit.continuous_amps - circuit.sustained_ratio * circuit.rated_amps


def most(circuit: CircuitState) -> float | None:
    """Return the continuous limit in watts at the present mix of poles."""
    per_amp = _watts_per_amp(circuit)
    if circuit.continuous_amps is None or per_amp is None:
        return None
    return circuit.continuous_amps * per_amp


def _watts_per_amp(circuit: CircuitState) -> float | None:
    """Return the watts per amp of the pole with the highest load."""
    highest = max((a for a in circuit.amps.values() if a), default=None)
    return None if circuit.watts is None or not highest else circuit.watts / highest


_COMMAND = re.compile(r"\((nvidia-smi [^)]*)\)")
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


def tree(
    circuits: Sequence[CircuitState], folded: frozenset[str]
) -> list[tuple[int, CircuitState]]:
    """Return depth and circuit, each below its feeder; folded ones without their children."""
    children: dict[str | None, list[CircuitState]] = {}
    known = {circuit.id for circuit in circuits}
    for circuit in circuits:
        parent = circuit.parent if circuit.parent in known else None
        children.setdefault(parent, []).append(circuit)
    found: list[tuple[int, CircuitState]] = []

    def walk(parent: str | None, depth: int) -> None:
        for circuit in children.get(parent, ()):
            found.append((depth, circuit))
            if circuit.id not in folded:
                walk(circuit.id, depth + 1)

    walk(None, 0)
    return found
