"""Circuits, budgets and UPSs, and the answer to a what-if: `/api/v1/circuits`, `/budgets`, `/power`."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from api.columns import Numbers


class SnapshotKind(StrEnum):
    """What a row of a power snapshot is."""

    CIRCUIT = "circuit"
    """A breaker: a circuit or a panel's main."""
    BUDGET = "budget"
    """A ceiling on watts or energy that an operator has set."""
    UPS = "ups"
    SUPPLY = "supply"
    """The power supplies of one node."""
    MONITOR = "monitor"
    """A part of kilowatch itself that can fail; only its alerts are computed from it."""


class Trip(msgspec.Struct, frozen=True):
    """Seconds until a breaker trips if the load stays; None is never, or not known."""

    earliest: float | None = None
    nominal: float | None = None
    latest: float | None = None


class Circuit(msgspec.Struct, frozen=True):
    """A circuit or panel of `/api/v1/circuits`."""

    id: str
    kind: str = "circuit"
    parent: str | None = None
    volts: float | None = None
    watts: float | None = None
    sigma_watts: float | None = None
    source: str | None = None
    amps: dict[str, float | None] = {}
    rated_amps: float | None = None
    effective_amps: float | None = None
    continuous_amps: float | None = None
    headroom_amps: float | None = None
    load_ratio: float | None = None
    """Amps now over the rating."""
    lasting_ratio: float | None = None
    """Of the load that times to trip are worked out with: about the last ten seconds'."""
    continuous_ratio: float | None = None
    """Mean of the last minute over the continuous limit."""
    above_continuous_seconds: float | None = None
    heat_ratio: float | None = None
    trip_known: bool = False
    trip_seconds: Trip = Trip()
    assumed_watts: float | None = None
    """What of `watts` nobody tells now."""
    committed_watts: float | None = None
    committed_continuous_ratio: float | None = None
    group: str | None = None
    survivor_continuous_ratio: float | None = None
    forecast_continuous_seconds: float | None = None
    forecast_rated_seconds: float | None = None
    energy_kwh: float | None = None
    nodes: list[str] = []
    alerts: list[str] = []
    facts: dict[str, str] = {}


class Circuits(msgspec.Struct, frozen=True):
    """`/api/v1/circuits`."""

    at: int
    circuits: list[Circuit]


class CircuitRows(msgspec.Struct, frozen=True):
    """Who the rows of circuits by columns are."""

    id: list[str]
    kind: list[str]
    parent: list[str | None]
    nodes: list[list[str]]


class CircuitColumns(msgspec.Struct, frozen=True):
    """`/api/v1/circuits?columns=`: what lists and maps show of all circuits."""

    at: int
    columns: dict[str, Numbers] = {}
    rows: CircuitRows = CircuitRows([], [], [], [])


class CircuitPage(msgspec.Struct, frozen=True):
    """`/api/v1/circuits/<name>`: one with all that is known of it."""

    at: int
    circuit: Circuit


class BudgetRow(msgspec.Struct, frozen=True):
    """A budget or UPS."""

    id: str
    quantities: dict[str, float | None] = {}
    alerts: list[str] = []
    facts: dict[str, str] = {}


class BudgetRows(msgspec.Struct, frozen=True):
    """`/api/v1/budgets`, `/api/v1/ups`."""

    rows: list[BudgetRow]


class Power(msgspec.Struct, frozen=True):
    """`/api/v1/power`."""

    configured: bool = False
    wall_watts: float | None = None
    wall_nodes: int | None = None
    """Nodes whose draw is in it; None of an aggregator that does not say."""
    nodes_unmapped: list[str] = []
    notices: list[str] = []


class PlannedCircuit(msgspec.Struct, frozen=True):
    """One circuit under the supposed load."""

    id: str
    watts: float | None = None
    load_ratio: float | None = None
    trip_seconds: dict[str, float | None] = {}
    alerts: list[str] = []


class Plan(msgspec.Struct, frozen=True):
    """The answer to a what-if: all circuits as they would be."""

    circuits: list[PlannedCircuit]
    panels: list[PlannedCircuit] = []
