"""Rows of power snapshots as JSON objects, for API, bus and commands.

In a power snapshot NaN is not known and inf is never; both are null in JSON. Where the breaker is
known (`trip_known`), a null trip time is *never*; elsewhere null is *not known*.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from api.power import CircuitState, LoadState, RowState, TripSeconds
from power.site.layout import Circuit, SiteLayout
from power.snapshot.quantities import SOURCES
from power.snapshot.snapshot import PowerSnapshot
from power.wiring import POLES
from telemetry.runtime.isolation import Parts, each

_SOURCES = dict(SOURCES)
_STATES = dict(enumerate(LoadState))
Alerts = Mapping[str, Sequence[str]]
"""Ids of the rules that fire, by the name of the row."""


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
    layout: SiteLayout, snapshot: PowerSnapshot, alerts: Alerts, parts: Parts | None = None
) -> list[CircuitState]:
    """Return every row of the circuit snapshot, parents before what they feed. `parts`: leaves out rows that
    can't be made; without it one such row raises."""
    nodes = _nodes(layout)
    columns = {name.removeprefix("circuit_"): values.tolist() for name, values in snapshot.columns.items()}
    facts = snapshot.facts or ({},) * len(snapshot.names)

    def make(row: int) -> CircuitState:
        name = snapshot.names[row]
        return _circuit(
            layout.circuits[name],
            {column: values[row] for column, values in columns.items()},
            nodes.get(name, []),
            list(alerts.get(name, ())),
            dict(facts[row]),
        )

    return each(parts, snapshot.kind, snapshot.names, make)


def uncomputed_states(layout: SiteLayout) -> list[CircuitState]:
    """Return the circuits of a layout before the first snapshot, parents before what they feed: with their limits, and without a
    load."""
    nodes = _nodes(layout)
    return [
        _circuit(
            one,
            {
                "rated_amps": one.rated_amps,
                "effective_amps": one.effective_amps,
                "continuous_amps": one.continuous_amps,
            },
            nodes.get(one.id, []),
            [],
            {},
        )
        for one in layout.circuits.values()
    ]


def _nodes(layout: SiteLayout) -> dict[str, list[str]]:
    """Return the nodes with a cord in each circuit that has any."""
    found: dict[str, dict[str, None]] = {}
    for cord in layout.cords:
        found.setdefault(cord.circuit, {})[cord.machine] = None
    return {name: list(its) for name, its in found.items()}


def row_states(snapshot: PowerSnapshot, alerts: Alerts, parts: Parts | None = None) -> list[RowState]:
    """Return every row of a budget, UPS or supply snapshot. `parts`: as of `circuit_states`."""
    unknown = [math.nan] * len(snapshot.names)
    prefix = f"{snapshot.kind}_"
    columns = {name.removeprefix(prefix): values.tolist() for name, values in snapshot.columns.items()}
    facts = snapshot.facts or ({},) * len(snapshot.names)

    def make(row: int) -> RowState:
        return RowState(
            id=snapshot.names[row],
            load_state=_state(columns.get("load_state", unknown)[row]),
            load_state_seconds=plain(columns.get("load_state_seconds", unknown)[row]),
            quantities={
                column: plain(values[row]) for column, values in columns.items() if not column.startswith("load_state")
            },
            alerts=list(alerts.get(snapshot.names[row], ())),
            facts=dict(facts[row]),
        )

    return each(parts, snapshot.kind, snapshot.names, make)


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


def _state(number: float) -> LoadState | None:
    return _STATES.get(int(number)) if math.isfinite(number) else None


def _circuit(
    circuit: Circuit, row: Mapping[str, float], nodes: list[str], alerts: list[str], facts: dict[str, str]
) -> CircuitState:
    def get(name: str) -> float | None:
        return plain(row.get(name, math.nan))

    source, state = row.get("source", math.nan), row.get("load_state", math.nan)
    trip = [row.get(f"trip_{edge}_seconds", math.nan) for edge in ("earliest", "nominal", "latest")]
    joules = row.get("energy_joules", math.nan)
    return CircuitState(
        id=circuit.id,
        kind="panel" if circuit.is_panel else "circuit",
        parent=circuit.parent,
        wiring=circuit.wiring.value,
        volts=round(circuit.nominal_volts, 1),
        watts=get("watts"),
        sigma_watts=get("sigma_watts"),
        load_state=_state(state),
        load_state_seconds=get("load_state_seconds"),
        source=_SOURCES.get(int(source)) if math.isfinite(source) else None,
        amps={POLES[pole]: get(f"{POLES[pole].lower()}_amps") for pole in circuit.poles},
        neutral_amps=get("neutral_amps"),
        rated_amps=get("rated_amps"),
        effective_amps=get("effective_amps"),
        continuous_amps=get("continuous_amps"),
        headroom_amps=get("headroom_amps"),
        load_ratio=get("load_ratio"),
        sustained_ratio=get("sustained_ratio"),
        continuous_ratio=get("continuous_ratio"),
        above_continuous_seconds=get("above_continuous_seconds"),
        heat_ratio=get("heat_ratio"),
        trip_known=not any(math.isnan(seconds) for seconds in trip),
        trip_seconds=TripSeconds(earliest=plain(trip[0], 1), nominal=plain(trip[1], 1), latest=plain(trip[2], 1)),
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
    )
