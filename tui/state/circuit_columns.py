"""Circuits by columns: the short form in which the dashboard fetches all of them.

The whole object, with its texts and poles, is fetched for the circuit whose page is open.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from msgspec import UNSET

from api.columns import Numbers
from api.power import CircuitsReply, CircuitState, LoadState, TripSeconds

FIELDS = (
    "watts", "assumed_watts", "rated_amps", "effective_amps", "continuous_amps", "headroom_amps", "load_ratio",
    "sustained_ratio", "continuous_ratio", "above_continuous_seconds", "heat_ratio",
    "forecast_continuous_seconds", "forecast_rated_seconds", "load_state_seconds",
)  # fmt: skip
"""Fields of `Circuit` that lists, maps and the header show."""
_AMPS, _TRIP, _STATE = "circuit_amps", "circuit_trip_earliest_seconds", "circuit_load_state"
_STATES = dict(enumerate(LoadState))
"""States by the number that stands for each in a column."""
QUERY = "columns=" + ",".join([*(f"circuit_{field}" for field in FIELDS), _AMPS, _TRIP, _STATE])


def page_of(name: str) -> str:
    """Return the path of a circuit's page."""
    return f"api/v1/circuits/{quote(name, safe='')}"


def whole(found: CircuitsReply) -> CircuitsReply:
    """Return circuits made of columns, with the fields that these have."""
    rows, columns = found.rows, found.columns
    if rows is UNSET or columns is UNSET:
        return found
    count = len(rows.id)

    def column(name: str) -> Numbers:
        return columns.get(name) or [None] * count

    values = zip(*(column(f"circuit_{field}") for field in FIELDS), strict=True)
    who = zip(rows.id, rows.kind, rows.parent, rows.nodes, strict=True)
    return CircuitsReply(
        at=found.at,
        failure=found.failure,
        set_aside=found.set_aside,
        circuits=[
            _circuit(*each, row, amps, trip, state)
            for each, row, amps, trip, state in zip(
                who, values, column(_AMPS), column(_TRIP), column(_STATE), strict=True
            )
        ],
    )


def _circuit(
    name: str,
    kind: str,
    parent: str | None,
    nodes: list[str],
    values: Sequence[float | None],
    amps: float | None,
    trip: float | None,
    state: float | None,
) -> CircuitState:
    numbers: dict[str, Any] = dict(zip(FIELDS, values, strict=True))
    return CircuitState(
        id=name,
        kind=kind,
        parent=parent,
        nodes=nodes,
        trip_seconds=TripSeconds(earliest=trip),
        amps={} if amps is None else {"": amps},
        load_state=None if state is None else _STATES.get(int(state)),
        **numbers,
    )
