"""The facts of a circuit as rows. A page lists them all; lists, the terminal and the command take some."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from api.power import CircuitState, LoadState
from present.circuit.figures import assumed, headroom_amps, known, load, share, watts_per_amp
from present.circuit.outlook import CONTINUOUS, pressed
from present.row import FactRow, Tone
from present.units import amperes, amperes_change, kilowatt_hours, number, percent, roughly, watts, watts_change
from telemetry.text import ABSENT, duration

OR = "; or "
"""Words between ways to lower a load, the gentlest first."""
OF_LIMIT = f"of the {CONTINUOUS}"
_SOURCES = {"committed": "power commitment"}
"""Words of sources whose name says little."""
_COMMAND = re.compile(r"\(((?:nvidia|amd)-smi [^)]*)\)")
"""Matches a command; one that ends in an option lacks its argument."""


def about(circuit: CircuitState, words: str) -> str:
    """Return a figure of its load, with `~` where a part of it is assumed or not known."""
    whole = not assumed(circuit) and circuit.load_state is not LoadState.UNKNOWN
    return roughly(words, partial=not whole)


def load_row(circuit: CircuitState) -> FactRow:
    """Return the load of about the last ten seconds, with which countdowns are computed."""
    label = "load" if circuit.sustained_ratio is None else "last 10 s"
    its = load(circuit)
    if its is not None:
        return FactRow(label, about(circuit, watts(its)), Tone.STALE if assumed(circuit) else Tone.STRONG)
    if circuit.load_state is LoadState.UNKNOWN and circuit.assumed_watts:  # it reported once
        return FactRow(label, "unknown", since=circuit.load_state_seconds, short=ABSENT)
    return FactRow(label, "no reading yet", short=ABSENT)


def share_row(circuit: CircuitState) -> FactRow:
    """Return the load over the breaker's rating."""
    its = about(circuit, percent(share(circuit)))
    of = "" if its == ABSENT or circuit.rated_amps is None else f" of {amperes(circuit.rated_amps)}"
    return FactRow("breaker load", f"{its}{of}", short=its)


def headroom_row(circuit: CircuitState) -> FactRow:
    """Return what is left below the continuous limit: signed watts, or amps where watts are not known."""
    amps, per_amp = headroom_amps(circuit), watts_per_amp(circuit)
    if amps is None:
        return FactRow("headroom", ABSENT)
    signed = amperes_change(amps)
    if per_amp is None:
        return FactRow("headroom", about(circuit, signed))
    return FactRow("headroom", about(circuit, watts_change(amps * per_amp)), note=signed)


def state_row(circuit: CircuitState) -> FactRow:
    """Return how the load is known and since when."""
    state = circuit.load_state
    if state is None:
        return FactRow("state of the load", ABSENT, Tone.DIM)
    tone = Tone.DIM if state in {LoadState.MEASURED, LoadState.MODELLED} else Tone.STALE
    return FactRow("state of the load", state.value, tone, since=circuit.load_state_seconds)


def now_row(circuit: CircuitState) -> FactRow:
    """Return the load of this second, its uncertainty, and its source."""
    if not known(circuit) or circuit.watts is None:
        return FactRow("now", "")
    sigma = f" ± {watts(circuit.sigma_watts)}" if circuit.sigma_watts else ""
    source = _SOURCES.get(circuit.source or "", circuit.source or "no source")
    stale = "a meter is silent" if circuit.more.get("meter_stale") else ""
    return FactRow("now", f"{about(circuit, watts(circuit.watts))}{sigma} by {source}", note=stale)


def amps_row(circuit: CircuitState) -> FactRow:
    """Return the amps of each pole now."""
    if not known(circuit) or not any(amps is not None for amps in circuit.amps.values()):
        return FactRow("amps now", "")
    return FactRow("amps now", pole_amps(circuit.amps, circuit.neutral_amps))


def pole_amps(amps: Mapping[str, float | None], neutral: float | None = None) -> str:
    """Return the current of each pole, and of the neutral where it is known: `L1 21.3 L2 21.3 N 0.2 A`."""
    known = dict(amps) if neutral is None else {**amps, "N": neutral}
    return f"{' '.join(f'{pole} {number(value, 1)}' for pole, value in known.items())} A"


def limits_row(circuit: CircuitState) -> FactRow:
    """Return both limits, and what heat leaves of the rating."""
    text = limits(circuit.rated_amps, circuit.continuous_amps)
    if is_hot(circuit):
        text += f" ({amperes(circuit.effective_amps)} in this heat)"
    return FactRow("limits", text)


def limit_marks(circuit: CircuitState) -> list[tuple[str, float]]:
    """Return the limits in amps that are drawn over a chart of the load, lowest first."""
    found = [(CONTINUOUS, circuit.continuous_amps), ("breaker", circuit.rated_amps)]
    if is_hot(circuit):
        found.append(("breaker in this heat", circuit.effective_amps))
    return sorted(((name, amps) for name, amps in found if amps), key=lambda mark: mark[1])


def is_hot(circuit: CircuitState) -> bool:
    """Return whether heat and grouping cost a part of the rating."""
    rated, effective = circuit.rated_amps, circuit.effective_amps
    return rated is not None and effective is not None and effective < rated - 0.05


def limits(rated: float | None, continuous: float | None) -> str:
    """Return both limits of a circuit in amps."""
    if rated is None or continuous is None:
        return "its main breaker is not known"
    return f"{CONTINUOUS} {amperes(continuous)}, breaker {amperes(rated)}"


def minute_row(circuit: CircuitState, alert: Tone = Tone.PLAIN) -> FactRow:
    """Return the mean of the last minute, to which the continuous limit applies."""
    ratio, above = circuit.continuous_ratio, circuit.above_continuous_seconds
    if ratio is None:
        return FactRow("last minute", "not known")
    note = f"over it for {duration(above)}" if above else ""
    return FactRow("last minute", f"{percent(ratio)} {OF_LIMIT}", alert if ratio > 1 else Tone.PLAIN, note=note)


def heat_row(circuit: CircuitState) -> FactRow:
    """Return the heat of the breaker, an estimate."""
    heat = circuit.heat_ratio
    if heat is None:
        return FactRow("breaker heat", "not known")
    return FactRow("breaker heat", f"{percent(heat)} of what trips it", note="an estimate", short=percent(heat))


def assumed_row(circuit: CircuitState) -> FactRow:
    """Return the part of the load that is assumed, and why."""
    if not known(circuit) or not assumed(circuit):
        return FactRow("assumed", "")
    return FactRow("assumed", circuit.facts.get("assumed") or f"{watts(circuit.assumed_watts)} of it", Tone.STALE)


def commitment_row(circuit: CircuitState) -> FactRow:
    """Return the load that the power limits in force allow."""
    if circuit.committed_watts is None:
        return FactRow("power commitment", "")
    ratio = circuit.committed_continuous_ratio
    of = "" if ratio is None else f", {percent(ratio)} {OF_LIMIT}"
    return FactRow("power commitment", f"{watts(circuit.committed_watts)}{of}")


def loss_row(circuit: CircuitState) -> FactRow:
    """Return the load after the worst loss of another element."""
    ratio = circuit.survivor_continuous_ratio
    if ratio is None:
        return FactRow("after the worst loss", "")
    return FactRow("after the worst loss", f"{percent(ratio)} {OF_LIMIT}", Tone.WARN if ratio > 1 else Tone.PLAIN)


def trend_row(circuit: CircuitState) -> FactRow:
    """Return when the trend reaches the continuous limit."""
    ahead = circuit.forecast_continuous_seconds
    return FactRow("trend", "" if ahead is None else f"{CONTINUOUS} in", until=ahead)


def relief_row(circuit: CircuitState, alert: Tone = Tone.PLAIN) -> FactRow:
    """Return what would bring it below its limit, where a limit is passed or forecast to be."""
    return FactRow("relief", circuit.facts.get("remedy", "") if alert or pressed(circuit) else "")


def gentlest(words: str) -> str:
    """Return the first way of a relief: all of them are too long for a line."""
    return words.partition(OR)[0]


def relief_command(words: str) -> str:
    """Return the command in a relief; "" where there is none that can be run as it is."""
    commands = (found[1] for found in _COMMAND.finditer(words))
    return next((each for each in commands if not each.split()[-1].startswith("-")), "")


def meter_row(circuit: CircuitState) -> FactRow:
    """Return the fault of its meter."""
    return FactRow("meter", circuit.facts.get("meter", ""))


def unknown_nodes_row(circuit: CircuitState) -> FactRow:
    """Return the nodes whose power nobody knows."""
    names = circuit.facts.get("unknown_nodes", "")
    return FactRow("power not known", f"{names}, counted as 0 W" if names else "")


def page_rows(circuit: CircuitState, alert: Tone = Tone.PLAIN) -> Iterator[FactRow]:
    """Yield every fact of a circuit's page, in the order in which it is read; those without a value are left out."""
    rows = (
        load_row(circuit), share_row(circuit), headroom_row(circuit), state_row(circuit), now_row(circuit),
        amps_row(circuit), limits_row(circuit), minute_row(circuit, alert), heat_row(circuit), assumed_row(circuit),
        commitment_row(circuit), loss_row(circuit), trend_row(circuit), FactRow("redundancy group", circuit.group or ""),
        FactRow("energy", "" if circuit.energy_kwh is None else kilowatt_hours(circuit.energy_kwh)),
        relief_row(circuit, alert), FactRow("most of it", circuit.facts.get("contributors", "")), meter_row(circuit),
        unknown_nodes_row(circuit),
    )  # fmt: skip
    return (row for row in rows if row.value)
