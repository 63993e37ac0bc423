"""The power snapshots as JSON: one object a circuit, budget, UPS and node, for API, bus and commands.

A power snapshot says NaN for not known and inf for never; JSON has neither. Both are null here: where the
breaker is known (`trip_known`), a null time to trip is *never*; elsewhere null is *not known*.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from power.network.wiring import POLES
from power.site.layout import Circuit, SiteLayout
from power.snapshot.quantities import SOURCES
from power.snapshot.snapshot import PowerSnapshot

_SOURCES = dict(SOURCES)
Alerts = Mapping[str, Sequence[str]]
"""Ids of the rules that fire, by the name of the row."""


class TripSeconds(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds until the breaker trips if the load stays: a band, and an estimate. Null is never,
    or not known."""

    earliest: float | None
    """It may trip from here on."""
    nominal: float | None
    latest: float | None
    """It must have tripped by then."""


class CircuitState(msgspec.Struct, frozen=True, kw_only=True):
    """A circuit, or a panel with its main breaker, now."""

    id: str
    kind: str
    """`circuit` or `panel`."""
    parent: str | None
    """What feeds it."""
    wiring: str
    volts: float
    """Between poles where it has several, else to neutral."""
    watts: float | None
    """At the wall."""
    sigma_watts: float | None
    """One standard deviation of `watts`."""
    source: str | None
    """Where `watts` comes from: the worst source that it is made of."""
    amps: dict[str, float | None]
    """By pole; the highest one decides."""
    neutral_amps: float | None
    rated_amps: float | None
    """Null for a panel whose main breaker is not known."""
    effective_amps: float | None
    """What heat and grouping leave of the rating."""
    continuous_amps: float | None
    """What it may carry for three hours and more."""
    headroom_amps: float | None
    """What is left below the continuous limit; negative above it."""
    load_ratio: float | None
    """Amps of the highest pole over the rating."""
    lasting_ratio: float | None = None
    """The same of the load that times to trip are worked out with: the mean of the last 10 s, or what
    has lasted 3 s where that is more."""
    continuous_ratio: float | None
    """Mean of the last 60 s over the continuous limit."""
    above_continuous_seconds: float | None
    heat_ratio: float | None
    """Heat of the breaker over what trips it, earliest edge; an estimate."""
    trip_known: bool
    """Whether the breaker's curve is known, so that null times below are never."""
    trip_seconds: TripSeconds
    assumed_watts: float | None = None
    """What of `watts` nobody tells now: of silent nodes, and of GPUs that were not read."""
    committed_watts: float | None
    """What the limits in force allow it to draw in the next second."""
    committed_continuous_ratio: float | None
    group: str | None
    """The redundant group that it belongs to."""
    survivor_continuous_ratio: float | None
    """After the worst loss of another feed of its group, over the continuous limit."""
    forecast_continuous_seconds: float | None
    """Until the trend reaches the continuous limit; null is not in sight."""
    forecast_rated_seconds: float | None
    energy_kwh: float | None
    """Since kilowatch first saw it."""
    nodes: list[str]
    """Nodes with a cord in it."""
    alerts: list[str]
    """Rules that fire on it and speak, by id."""
    facts: dict[str, str]
    """What a person should read beside it."""
    more: dict[str, float | None]
    """Every other quantity of `circuit_*`, without the prefix."""


class RowState(msgspec.Struct, frozen=True, kw_only=True):
    """A budget, a UPS, or the supplies of a node, now."""

    id: str
    quantities: dict[str, float | None]
    """Without the prefix; null is not known, and for seconds never."""
    alerts: list[str]
    facts: dict[str, str]


_SHOWN = frozenset(CircuitState.__struct_fields__) | {
    "l1_amps",
    "l2_amps",
    "l3_amps",
    "trip_earliest_seconds",
    "trip_nominal_seconds",
    "trip_latest_seconds",
    "energy_joules",
}
"""Quantities that have a field of their own."""


def circuit_states(
    layout: SiteLayout, snapshot: PowerSnapshot, alerts: Alerts
) -> list[CircuitState]:
    """Return every row of the circuit snapshot, parents before what they feed."""
    nodes: dict[str, list[str]] = {}
    for cord in layout.cords:
        nodes.setdefault(cord.circuit, []).append(cord.machine)
    columns = {
        name.removeprefix("circuit_"): values.tolist() for name, values in snapshot.columns.items()
    }
    facts = snapshot.facts or ({},) * len(snapshot.names)
    return [
        _circuit(
            layout.circuits[name],
            {column: values[row] for column, values in columns.items()},
            list(dict.fromkeys(nodes.get(name, ()))),
            list(alerts.get(name, ())),
            dict(facts[row]),
        )
        for row, name in enumerate(snapshot.names)
    ]


def row_states(snapshot: PowerSnapshot, alerts: Alerts) -> list[RowState]:
    """Return every row of another power snapshot."""
    prefix = f"{snapshot.kind}_"
    columns = {
        name.removeprefix(prefix): values.tolist() for name, values in snapshot.columns.items()
    }
    facts = snapshot.facts or ({},) * len(snapshot.names)
    return [
        RowState(
            id=name,
            quantities={column: plain(values[row]) for column, values in columns.items()},
            alerts=list(alerts.get(name, ())),
            facts=dict(facts[row]),
        )
        for row, name in enumerate(snapshot.names)
    ]


def only(snapshot: PowerSnapshot, names: Sequence[str] | set[str]) -> PowerSnapshot:
    """Return some rows of a power snapshot, in its order."""
    wanted = set(names)
    rows = [row for row, name in enumerate(snapshot.names) if name in wanted]
    return PowerSnapshot(
        snapshot.kind,
        snapshot.version,
        tuple(snapshot.names[row] for row in rows),
        {name: values[rows] for name, values in snapshot.columns.items()},
        tuple(snapshot.facts[row] for row in rows) if snapshot.facts else (),
    )


def plain(value: float, digits: int = 4) -> float | None:
    """Return a number that JSON can hold; None for NaN and for inf."""
    return round(value, digits) if math.isfinite(value) else None


def _circuit(
    circuit: Circuit,
    row: Mapping[str, float],
    nodes: list[str],
    alerts: list[str],
    facts: dict[str, str],
) -> CircuitState:
    def get(name: str) -> float | None:
        return plain(row.get(name, math.nan))

    source = row.get("source", math.nan)
    trip = [row.get(f"trip_{edge}_seconds", math.nan) for edge in ("earliest", "nominal", "latest")]
    joules = row.get("energy_joules", math.nan)
    return CircuitState(
        id=circuit.id,
        kind="panel" if circuit.is_panel else "circuit",
        parent=circuit.parent,
        wiring=circuit.wiring.value,
        volts=round(circuit.volts / circuit.sag * (circuit.outlet_ratio if len(circuit.poles) > 1 else 1), 1),
        watts=get("watts"),
        sigma_watts=get("sigma_watts"),
        source=_SOURCES.get(int(source)) if math.isfinite(source) else None,
        amps={POLES[pole]: get(f"{POLES[pole].lower()}_amps") for pole in circuit.poles},
        neutral_amps=get("neutral_amps"),
        rated_amps=get("rated_amps"),
        effective_amps=get("effective_amps"),
        continuous_amps=get("continuous_amps"),
        headroom_amps=get("headroom_amps"),
        load_ratio=get("load_ratio"),
        lasting_ratio=get("lasting_ratio"),
        continuous_ratio=get("continuous_ratio"),
        above_continuous_seconds=get("above_continuous_seconds"),
        heat_ratio=get("heat_ratio"),
        trip_known=not any(math.isnan(seconds) for seconds in trip),
        trip_seconds=TripSeconds(
            earliest=plain(trip[0], 1), nominal=plain(trip[1], 1), latest=plain(trip[2], 1)
        ),
        assumed_watts=get("assumed_watts"),
        committed_watts=get("committed_watts"),
        committed_continuous_ratio=get("committed_continuous_ratio"),
        group=circuit.group,
        survivor_continuous_ratio=get("survivor_continuous_ratio"),
        forecast_continuous_seconds=get("forecast_continuous_seconds"),
        forecast_rated_seconds=get("forecast_rated_seconds"),
        energy_kwh=plain(joules / 3.6e6),
        nodes=nodes,
        alerts=alerts,
        facts=facts,
        more={name: plain(value) for name, value in row.items() if name not in _SHOWN},
    )  # fmt: skip
