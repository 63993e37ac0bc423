"""Circuits, budgets and UPSs, and the answer to a what-if: `/api/v1/circuits`, `/budgets`, `/power`.

JSON has neither NaN (not known) nor infinity (never). Both are null: where the breaker is known
(`trip_known`), a null time to trip is *never*; elsewhere null is *not known*.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec
from msgspec import UNSET, UnsetType

from api.columns import Numbers
from telemetry.metric import Unit


class SnapshotKind(StrEnum):
    """The kind of the rows of a power snapshot."""

    CIRCUIT = "circuit"
    """A breaker: a circuit or a panel's main."""
    BUDGET = "budget"
    """A ceiling on watts or energy that an operator has set."""
    UPS = "ups"
    SUPPLY = "supply"
    """The power supplies of one node."""
    MONITOR = "monitor"
    """A part of kilowatch itself that can fail; only its alerts are computed from it."""


class TripSeconds(msgspec.Struct, frozen=True):
    """Seconds until the breaker trips if the load stays, an estimate. Null is never, or not known."""

    earliest: float | None = None
    """Until it may trip."""
    nominal: float | None = None
    latest: float | None = None
    """Until it must have tripped."""


class CircuitState(msgspec.Struct, frozen=True):
    """A circuit, or a panel with its main breaker, at one instant."""

    id: str
    kind: str = "circuit"
    """`circuit` or `panel`."""
    parent: str | None = None
    """The panel that feeds it."""
    wiring: str = ""
    volts: float | None = None
    """Between poles where it has several, else to neutral."""
    watts: float | None = None
    """At the wall."""
    sigma_watts: float | None = None
    """The standard deviation of `watts`."""
    source: str | None = None
    """Where `watts` comes from: the worst source that it is made of."""
    amps: dict[str, float | None] = {}
    """By pole; the highest one decides."""
    neutral_amps: float | None = None
    rated_amps: float | None = None
    """Null for a panel whose main breaker is not known."""
    effective_amps: float | None = None
    """The rating less what heat and grouping cost."""
    continuous_amps: float | None = None
    """The continuous limit: what it may carry for three hours and more."""
    headroom_amps: float | None = None
    """Amps left below the continuous limit; negative above it."""
    load_ratio: float | None = None
    """Amps of the highest pole over the rating."""
    sustained_ratio: float | None = None
    """The same of the load that times to trip are computed with: the mean of the last 10 s, or what
    has lasted 3 s where that is more."""
    continuous_ratio: float | None = None
    """Mean of the last 60 s over the continuous limit."""
    above_continuous_seconds: float | None = None
    heat_ratio: float | None = None
    """Heat of the breaker over what trips it, earliest edge; an estimate."""
    trip_known: bool = False
    """Whether the breaker's curve is known, so that null times below are never."""
    trip_seconds: TripSeconds = TripSeconds()
    assumed_watts: float | None = None
    """The part of `watts` that is assumed power: of silent nodes, and of GPUs that were not read."""
    committed_watts: float | None = None
    """The power commitment: what the limits in force allow it to draw in the next second."""
    committed_continuous_ratio: float | None = None
    group: str | None = None
    """The redundant group that it belongs to."""
    survivor_continuous_ratio: float | None = None
    """After the worst loss of another feed of its group, over the continuous limit."""
    forecast_continuous_seconds: float | None = None
    """Until the trend reaches the continuous limit; null is not within the forecast."""
    forecast_rated_seconds: float | None = None
    energy_kwh: float | None = None
    """Since kilowatch first saw it."""
    nodes: list[str] = []
    """Nodes with a cord in it."""
    alerts: list[str] = []
    """Rules that fire on it and are not suppressed, by id."""
    facts: dict[str, str] = {}
    """Remarks that a person should read beside it."""
    more: dict[str, float | None] = {}
    """Every other quantity of `circuit_*`, without the prefix."""


class RowState(msgspec.Struct, frozen=True):
    """A budget, a UPS, or the supplies of a node, at one instant."""

    id: str
    quantities: dict[str, float | None] = {}
    """Without the prefix; null is not known, and for seconds never."""
    alerts: list[str] = []
    """Rules that fire on it and are not suppressed, by id."""
    facts: dict[str, str] = {}
    """Remarks that a person should read beside it."""


class CircuitRows(msgspec.Struct, frozen=True):
    """The circuits of the columns: parallel arrays, parents before what they feed."""

    id: list[str]
    kind: list[str]
    """`circuit` or `panel`."""
    parent: list[str | None]
    """The panel that feeds it."""
    nodes: list[list[str]]
    """Nodes with a cord in it."""


class CircuitsReply(msgspec.Struct, frozen=True, kw_only=True):
    """Every circuit and panel, parents before what they feed: as objects, or by columns."""

    cluster: str = ""
    at: int
    """ns since 1970, of the tick that they are computed from; 0 before the first."""
    version: int = 0
    """Changes with the configuration."""
    circuits: list[CircuitState] = []
    """Empty where columns were requested."""
    rows: CircuitRows | UnsetType = UNSET
    """The circuits of the columns, where columns were requested."""
    columns: dict[str, Numbers] | UnsetType = UNSET
    """The quantities that were requested. Null is not known, and for seconds never."""


class CircuitReply(msgspec.Struct, frozen=True, kw_only=True):
    """A circuit, and the nodes that have a cord below it."""

    cluster: str = ""
    at: int
    """ns since 1970."""
    circuit: CircuitState
    children: list[str] = []
    """Circuits that it feeds directly."""
    supplies: list[RowState] = []
    """The nodes: what each draws at the wall, and how its supplies are loaded."""


class RowsReply(msgspec.Struct, frozen=True, kw_only=True):
    """Every budget, or every UPS."""

    cluster: str = ""
    at: int = 0
    """ns since 1970."""
    rows: list[RowState]


class CircuitHistoryReply(msgspec.Struct, frozen=True, kw_only=True):
    """A quantity of a circuit over time, in buckets; a null is not known, and of seconds never."""

    circuit: str = ""
    quantity: str = ""
    unit: Unit = Unit.WATTS
    start: int = 0
    """ns since 1970."""
    end: int = 0
    step: float = 0.0
    """Seconds; 0: every instant that is stored, one in about ten seconds."""
    at: list[int] = []
    """Start of each bucket, ns since 1970, the aggregator's clock."""
    values: Numbers = []
    """Mean of what is known; of states and seconds the last."""
    low: Numbers = []
    high: Numbers = []
    """Of what is known: null where a time to trip is never in all of a bucket."""


class MeterReply(msgspec.Struct, frozen=True, kw_only=True):
    """A configured meter."""

    name: str
    type: str = ""
    where: str = ""
    """Broker and topic, or address."""
    targets: tuple[str, ...] = ()
    """The circuits, nodes or UPS that it measures."""
    ok: bool = True
    """Whether it reports, and is understood."""
    error: str | None = None
    """The problem, and what to do."""
    age_seconds: float | None = None
    """Since its last reading; null before the first."""
    period_seconds: float = 0.0
    online: bool | None = None
    """Whether the device reports itself online; null where it does not report that."""
    readings: int = 0
    malformed: int = 0
    errors: int = 0


class SiteConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """Which configuration is in force, and what is wrong with a newer one that was refused."""

    version: int = 0
    """Counts up with every configuration that was accepted."""
    loaded_at: int = 0
    """ns since 1970."""
    error: str | None = None
    """Why the newest was refused: place, problem and cure. Null when it is in force."""
    refused_at: int | None = None
    """When it was refused, ns since 1970."""


class PowerReply(msgspec.Struct, frozen=True, kw_only=True):
    """The electrical side as a whole."""

    cluster: str = ""
    at: int = 0
    """ns since 1970."""
    configured: bool = False
    """Whether there are circuits."""
    configuration: SiteConfiguration = SiteConfiguration()
    failure: str | None = None
    """Why nothing is known of circuits though some are configured: a fault of kilowatch's own."""
    wall_watts: float | None = None
    """The sum of the nodes that report their wall power, mapped to circuits or not; without the
    assumed power of silent ones."""
    wall_nodes: int | None = None
    """How many nodes those are."""
    circuits: int = 0
    nodes_mapped: int = 0
    nodes_unmapped: list[str] = []
    """Nodes that hang on no circuit of the configuration; a hundred at most."""
    notices: list[str] = []
    """Settings that are allowed and probably wrong (E24)."""
    meters: list[MeterReply] = []
    tick_seconds: float = 0.0
    """Duration of the last computation."""


class PlanRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The supposed changes; all else is as it is now."""

    watts: dict[str, float] = {}
    """At the wall, by node."""
    add: tuple[tuple[str, str], ...] = ()
    """`["rtx-5090:2", "office"]`: GPUs or systems, and the circuit that they go on."""
    cap: float | None = None
    """Power limit of each GPU, watts."""
    lose: tuple[str, ...] = ()
    """Circuits, panels or sources that go off."""
    move: dict[str, str] = {}
    """Circuit by node."""


class ReloadRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An empty object."""


class Cap(msgspec.Struct, frozen=True, kw_only=True):
    """The limit per GPU that brings a circuit back under its continuous limit."""

    watts_per_gpu: int
    floor_watts: float | None
    """The lowest limit that all cards here accept; null when not known."""
    reachable: bool
    instead: tuple[str, ...] = ()
    """Other remedies, when it is below the floor."""


class CircuitPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A circuit under the supposed load."""

    id: str
    watts: float
    amps: dict[str, float]
    neutral_amps: float | None = None
    rated_amps: float | None
    """Null for a panel whose main breaker is not known."""
    continuous_amps: float | None
    load_ratio: float
    """Amps of the highest pole over the rating."""
    trip_seconds: dict[str, float | None]
    """An estimate from a cold breaker, unless a preload was given; null is never, or not known."""
    committed_watts: float
    """The power commitment."""
    survivor_amps: float | None = None
    """Amps after the worst loss of another feed of its group."""
    alerts: list[str]
    cap: Cap | None = None
    lost: bool = False
    """Whether it is off, as supposed."""


class NodePlan(msgspec.Struct, frozen=True, kw_only=True):
    """A node under the supposed load."""

    id: str
    watts: float
    committed_watts: float
    """The power commitment."""
    supply_load: float | None = None
    """Load of the supplies that must carry all, over their rating."""
    alerts: list[str]
    dark: bool = False
    """Whether none of its cords has power."""


class BudgetPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A budget under the supposed load."""

    id: str
    kw: float
    limit_kw: float | None
    alerts: list[str]


class PlanResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a what-if, also of `kilowatch plan --json`."""

    circuits: list[CircuitPlan]
    panels: list[CircuitPlan]
    nodes: list[NodePlan]
    budgets: list[BudgetPlan]
    notices: list[str]
    """Settings that are allowed and probably wrong (E24)."""
