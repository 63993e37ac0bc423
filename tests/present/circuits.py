"""Circuits of which everything that can be said is said, each for one reason."""

from __future__ import annotations

from msgspec.structs import replace

from api.power import CircuitState, LoadState, TripSeconds

COOL = CircuitState(
    "office",
    watts=800.0,
    sigma_watts=16.0,
    amps={"L1": 6.7},
    rated_amps=20.0,
    continuous_amps=16.0,
    effective_amps=20.0,
    headroom_amps=9.3,
    load_ratio=0.335,
    sustained_ratio=0.335,
    continuous_ratio=0.4,
    heat_ratio=0.12,
    trip_known=True,
    source="bmc",
    load_state=LoadState.MEASURED,
    load_state_seconds=4000.0,
    nodes=["rig"],
    facts={"remedy": "cap each GPU at 540 W (nvidia-smi -pl 540)"},
)
FALLEN = replace(
    COOL,
    watts=1656.0,
    amps={"L1": 13.8},
    headroom_amps=2.2,
    load_ratio=0.69,
    sustained_ratio=1.21,
    continuous_ratio=1.43,
    above_continuous_seconds=130.0,
    heat_ratio=0.93,
    trip_seconds=TripSeconds(11.0, 40.0, 200.0),
)
"""A circuit whose load has just fallen: now it carries little, and the countdown is of before."""
AFTER = replace(
    FALLEN, sustained_ratio=0.69, above_continuous_seconds=None, continuous_ratio=1.2, trip_seconds=TripSeconds()
)
"""Ten seconds later; the mean of the minute has not followed yet."""
ASSUMED = CircuitState(
    "office",
    watts=2900.0,
    amps={"L1": 24.2},
    rated_amps=20.0,
    continuous_amps=16.0,
    effective_amps=20.0,
    headroom_amps=-8.2,
    load_ratio=1.21,
    sustained_ratio=1.21,
    assumed_watts=2900.0,
    source="committed",
    load_state=LoadState.ASSUMED,
    load_state_seconds=300.0,
    committed_watts=2900.0,
    committed_continuous_ratio=1.51,
    facts={
        "assumed": "all of it is assumed: rig: silent, counted with all that may be drawn",
        "band": "not known, as part of its load is assumed",
        "unknown_nodes": "rig2",
    },
)
"""Its only node is silent: all of its load is assumed."""
OVER = replace(
    COOL,
    watts=2150.0,
    amps={"L1": 18.0},
    headroom_amps=-2.0,
    load_ratio=0.9,
    sustained_ratio=0.9,
    continuous_ratio=1.125,
    above_continuous_seconds=130.0,
)
CIRCUITS = {
    "cool": COOL,
    "may trip": FALLEN,
    "may trip now": replace(FALLEN, trip_seconds=TripSeconds(0.0)),
    "may trip, a typical breaker holds": replace(FALLEN, trip_seconds=TripSeconds(4000.0)),
    "fell below its limit": AFTER,
    "over its continuous limit": OVER,
    "over, and its breaker is not known": replace(
        OVER, trip_known=False, heat_ratio=None, facts={"band": "not known: the breaker's own rating is not configured"}
    ),
    "continuous limit ahead, which is the rating": replace(
        COOL, continuous_amps=20.0, forecast_continuous_seconds=600.0
    ),
    "rating ahead": replace(COOL, forecast_rated_seconds=1260.0, forecast_continuous_seconds=600.0),
    "assumed": ASSUMED,
    "assumed, within its limits": replace(ASSUMED, load_ratio=0.5, sustained_ratio=0.5, continuous_ratio=0.6),
    "unknown by now": replace(ASSUMED, load_state=LoadState.UNKNOWN, trip_seconds=TripSeconds(41.0)),
    "never reported": CircuitState("office", rated_amps=20.0, continuous_amps=16.0, load_state=LoadState.UNKNOWN),
    "a panel in the heat, of a group": CircuitState(
        "RPP-1", kind="panel", watts=151_000.0, sigma_watts=3000.0, amps={"L1": 210.0, "L2": 208.1, "L3": None},
        neutral_amps=4.25, rated_amps=400.0, effective_amps=361.25, continuous_amps=320.0, headroom_amps=110.0,
        load_ratio=0.525, continuous_ratio=0.656, trip_known=True, source="meter", more={"meter_stale": 1.0},
        load_state=LoadState.LAST_KNOWN, load_state_seconds=130.0, committed_watts=250_000.0,
        committed_continuous_ratio=1.09, survivor_continuous_ratio=1.31, group="hall", energy_kwh=1234.5,
        facts={"contributors": "dgx-01 9800 W", "meter": "its meter is silent"},
    ),
    "a panel whose breaker is not known": CircuitState("RPP-2", kind="panel", watts=900.0, amps={"L1": 4.0}, load_ratio=None),
}  # fmt: skip
"""Circuits by what they show."""
