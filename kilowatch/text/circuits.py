"""Circuits as a tree of text: load, amps per pole, both limits, headroom, time to trip."""

from __future__ import annotations

from collections.abc import Sequence

from alerts.message.text import clean, cut
from api.power import CircuitState, LoadState, RowState
from kilowatch.text.table import WIDTH
from present.circuit.figures import (
    about,
    assumed,
    headroom_amps,
    headroom_text,
    load,
    share,
    watts_per_amp,
)
from present.units import percent, watts
from telemetry.text import duration, estimated_duration

BAR = 24
_LIKE = 0.02
"""Loads that differ by less than this share of the rating count as equal."""
WORDS = {
    "E01": "near its continuous limit",
    "E02": "above its continuous limit, which holds for 3 hours and more",
    "E03": "above what the breaker is rated for",
    "E04": "the breaker may trip soon, or is hot",
    "E05": "a peak can trip the breaker at once",
    "E06": "by its trend it reaches a limit",
    "E07": "the GPUs' limits in force allow more than the continuous limit",
    "E08": "above its limit when another element is lost",
    "E09": "this feed is lost: its partners carry its load",
    "E10": "two cords of a node share unevenly",
    "E11": "its poles are uneven",
    "E12": "the neutral is near its rating",
    "E13": "the voltage is too low or too high",
    "E14": "a UPS, transformer or source is near its rating, or on battery",
    "E15": "the load on the remaining supplies is near their rating",
    "E16": "near the limit of the smart plug",
    "E17": "its breaker has probably tripped",
    "E18": "its meter and its nodes do not agree",
    "E19": "a meter is silent, or wrong and not used",
    "E20": "GPUs may draw more than their cap",
    "E21": "its load swings",
    "E22": "near or above its budget",
    "E24": "the configuration is probably not as intended",
    "E25": "more than a fifth of its load is not heard, for want of members",
}
"""Meaning of each rule, in a few words."""
ESTIMATE = "Times are estimates; a breaker may trip earlier or later."


def circuit_lines(circuits: Sequence[CircuitState], width: int = WIDTH) -> list[str]:
    """Return the tree; a parent is above the circuits that it feeds."""
    children: dict[str | None, list[CircuitState]] = {}
    known = {circuit.id for circuit in circuits}
    for circuit in circuits:
        parent = circuit.parent if circuit.parent in known else None
        children.setdefault(parent, []).append(circuit)
    lines: list[str] = []
    for top in children.get(None, []):
        lines += _branch(top, children, "", "")
    return [cut(line, width).rstrip() for line in lines]


def _branch(
    circuit: CircuitState, children: dict[str | None, list[CircuitState]], first: str, rest: str
) -> list[str]:
    below = children.get(circuit.id, [])
    lines = [f"{first}{clean(circuit.id)}  {load_text(circuit)}"]
    inner = rest + ("│   " if below else "    ")
    lines += [f"{inner}{text}" for text in details(circuit)]
    for number, child in enumerate(below):
        last = number == len(below) - 1
        lines += _branch(
            child, children, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  ")
        )
    return lines


def load_text(circuit: CircuitState) -> str:
    """Return the bar, the load of about the last ten seconds, and the amps of each pole now."""
    ratio, now = share(circuit), circuit.load_ratio
    if ratio is None or now is None:
        words = _unknown_text(circuit) if circuit.watts is None else watts(circuit.watts)
        return f"{words}{_amps(circuit)}"
    changed = "" if abs(now - ratio) < _LIKE else f"  now {percent(now)}"
    return f"{bar(circuit)}{about(circuit, percent(ratio)):>5}{changed}{_amps(circuit)}"


def _unknown_text(circuit: CircuitState) -> str:
    """Return why there is no load: never reported, or unknown by now."""
    since = circuit.load_state_seconds
    if circuit.load_state is not LoadState.UNKNOWN or since is None or not circuit.assumed_watts:
        return "no reading yet"
    return f"load unknown for {duration(since)}"


def bar(circuit: CircuitState) -> str:
    """Return the load as a bar up to the rating, with a mark at the continuous limit."""
    ratio = share(circuit) or 0.0
    full = min(BAR, max(0, round(ratio * BAR)))
    cells = ["█" if cell < full else "·" for cell in range(BAR)]
    if circuit.continuous_amps and circuit.rated_amps:
        mark = min(BAR - 1, round(circuit.continuous_amps / circuit.rated_amps * BAR))
        cells[mark] = "┃" if ratio * BAR > mark else "│"
    return "".join(cells) + (">" if ratio > 1 else " ")


def _amps(circuit: CircuitState) -> str:
    poles = [f"{pole} {amps:.1f}" for pole, amps in circuit.amps.items() if amps is not None]
    if not poles:
        return ""
    neutral = "" if circuit.neutral_amps is None else f" N {circuit.neutral_amps:.1f}"
    return f"  {' '.join(poles)}{neutral} A"


def details(circuit: CircuitState) -> list[str]:
    """Return the lines below a circuit, most important first."""
    lines = [limits_text(circuit)]
    if circuit.watts is not None:
        lines.append(carries_text(circuit))
        lines += [f"{watts_text(circuit)}; {heat_text(circuit)}"]
    if circuit.assumed_watts:
        lines.append(clean(circuit.facts.get("assumed", "a part of it is assumed")))
    if circuit.trip_seconds.earliest is not None:
        lines.append(band_text(circuit))
    could = []
    if circuit.committed_watts is not None:
        share = circuit.committed_continuous_ratio
        over = "" if share is None else f", {share:.0%} of the continuous limit"
        could.append(f"limits in force allow {circuit.committed_watts:,.0f} W{over}")
    if circuit.survivor_continuous_ratio is not None:
        could.append(
            f"after the loss of a feed {circuit.survivor_continuous_ratio:.0%} of the continuous limit"
        )
    if circuit.forecast_continuous_seconds:
        could.append(
            f"by its trend above the continuous limit in {estimated_duration(circuit.forecast_continuous_seconds)}"
        )
    if could:
        lines.append("; ".join(could))
    if fault := circuit.facts.get("meter"):
        lines.append(clean(fault))
    if circuit.alerts:
        lines += [rule_text(rule) for rule in circuit.alerts]
    if unknown := circuit.facts.get("unknown_nodes"):
        lines.append(f"power not known, counted as 0 W: {clean(unknown)}")
    if circuit.nodes:
        lines.append(f"nodes {', '.join(map(clean, circuit.nodes))}")
    return lines  # fmt: skip


def rule_text(rule: str) -> str:
    """Return a firing rule by its number in docs/power.md, and its meaning."""
    return f"! {clean(rule)} {WORDS.get(rule, '')}".rstrip()


def limits_text(circuit: CircuitState) -> str:
    """Return both limits."""
    if circuit.rated_amps is None or circuit.continuous_amps is None:
        return "its main breaker is not known"
    text = f"continuous limit {circuit.continuous_amps:g} A, breaker {circuit.rated_amps:g} A"
    if circuit.effective_amps is not None and circuit.effective_amps < circuit.rated_amps - 0.05:
        text += f" ({circuit.effective_amps:.1f} A in this heat)"
    return text


def carries_text(circuit: CircuitState) -> str:
    """Return the load of about the last ten seconds, and what it leaves below the continuous limit."""
    left = headroom_amps(circuit)
    text = f"last 10 s {about(circuit, watts(load(circuit)))}"
    if left is None:
        return text
    amps = "" if watts_per_amp(circuit) is None else f" ({left:+.1f} A)"
    text += f", headroom {about(circuit, headroom_text(circuit))}{amps}"
    if left >= 0:
        minute = circuit.continuous_ratio or 0.0
        return text + (f", {minute:.0%} last minute" if minute > 1 else "")
    if assumed(circuit) and circuit.continuous_ratio is None:
        return f"{text} by the assumed power"
    since = circuit.above_continuous_seconds
    return text + (f" for {duration(since)}" if since else "")


def watts_text(circuit: CircuitState) -> str:
    """Return the watts of now, their uncertainty, and their source."""
    sigma = "" if circuit.sigma_watts is None else f" ± {circuit.sigma_watts:,.0f}"
    text = f"now {circuit.watts or 0.0:,.0f}{sigma} W by {circuit.source or 'no source'}"
    if circuit.load_state is not None:
        since = circuit.load_state_seconds
        text = f"{text}, {circuit.load_state.value}" + ("" if since is None else f" for {duration(since)}")  # fmt: skip
    return f"{text}, a meter is silent" if circuit.more.get("meter_stale") else text


def heat_text(circuit: CircuitState) -> str:
    """Return the breaker's heat, or why it is not known."""
    if not circuit.trip_known:
        known = clean(circuit.facts.get("band", "the breaker's own rating is not known"))
        known = known.removeprefix("not known: ")
        return f"no trip time: {'part of its load is assumed' if circuit.assumed_watts else known}"
    heat = "" if circuit.heat_ratio is None else f"breaker heat {circuit.heat_ratio:.0%}"
    if circuit.trip_seconds.earliest is not None:
        return heat
    return f"{heat}, {band_text(circuit)}" if heat else band_text(circuit)


def band_text(circuit: CircuitState) -> str:
    """Return the time to trip at the load that is shown."""
    trip = circuit.trip_seconds
    return trip_text(trip.earliest, trip.latest, " at this load")


def trip_text(earliest: float | None, latest: float | None, basis: str = "") -> str:
    """Return `may trip in 22 s .. 75 s (estimate)`, earliest to latest."""
    if earliest is None:
        return "no trip expected at this load"
    end = "never" if latest is None else estimated_duration(latest)
    return f"may trip in {estimated_duration(earliest)} .. {end}{basis} (estimate)"


def row_lines(what: str, rows: Sequence[RowState]) -> list[str]:
    """Return budgets or UPS, a line each."""
    lines = []
    for row in rows:
        parts = [
            f"{name.replace('_', ' ')} {_number(name, value)}"
            for name, value in row.quantities.items()
            if value is not None
        ]
        lines.append(f"{what} {clean(row.id)}  {', '.join(parts) or 'no reading yet'}")
        lines += [f"    {rule_text(rule)}" for rule in row.alerts]
    return lines


def _number(name: str, value: float) -> str:
    if name.endswith("_ratio"):
        return f"{value:.0%}"
    if name.endswith("_watts") or name == "watts":
        return f"{value:,.0f}"
    return duration(value) if name.endswith("_seconds") else f"{value:g}"
