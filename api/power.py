"""Circuits, budgets and UPSs, and the answer to a what-if: `/api/v1/circuits`, `/budgets`, `/power`.

JSON has neither NaN (not known) nor infinity (never). Both are null: where the breaker is known
(`trip_known`), a null time to trip is *never*; elsewhere null is *not known*.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

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


class LoadState(StrEnum):
    """How a load is known: the worst of its parts, best first."""

    MEASURED = "measured"
    MODELLED = "modelled"
    """From the driver's watts and a model of the rest."""
    LAST_KNOWN = "last known"
    """A meter or node is silent: its last load, with an uncertainty that grows."""
    ASSUMED = "assumed"
    """The most that a silent node or an unread GPU may draw."""
    UNKNOWN = "unknown"


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
    load_state: LoadState | None = None
    """How `watts` are known; null from an aggregator of an earlier release."""
    load_state_seconds: float | None = None
    """Since when, in seconds; a last known load counts from its meter's last reading."""
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
    has lasted 3 s where it has risen to that after 10 s of rest."""
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
    """After the worst loss of another element, or of a side of its group, over the continuous limit."""
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
    load_state: LoadState | None = None
    """How its load is known; null from an aggregator of an earlier release."""
    load_state_seconds: float | None = None
    """Since when, in seconds; of a node that is silent, since its last report."""


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
    failure: str | None = None
    """Why no circuit is known now though some are configured: a fault of kilowatch's own."""
    set_aside: dict[str, str] = {}
    """Parts that alone can't be computed now, with the reason: `meter/NAME`, `node/NAME`, `circuit/NAME`, or a step of all circuits."""
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
    set_aside: dict[str, str] = {}
    """Parts that alone can't be computed now, with the reason, as `/api/v1/circuits` has it."""
    wall_watts: float | None = None
    """The sum of the nodes that report their wall power, mapped to circuits or not; without the
    assumed power of silent ones."""
    wall_nodes: int | None = None
    """How many nodes those are."""
    wall_partial_nodes: int = 0
    """How many of them are known in part, so that `wall_watts` is the least."""
    circuits: int = 0
    nodes_mapped: int = 0
    nodes_unmapped: list[str] = []
    """Nodes that hang on no circuit of the configuration; a hundred at most."""
    notices: list[str] = []
    """Settings that are allowed and probably wrong (E24)."""
    meters: list[MeterReply] = []
    tick_seconds: float = 0.0
    """Duration of the last computation."""
    site_leader: str = ""
    """Of several aggregators, the one that pages about circuits, publishes them and reads the meters."""
    site_problem: str = ""
    """Why no aggregator does so now."""


class PlanRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The supposed changes; all else is as it is now."""

    watts: dict[str, float] = {}
    """At the wall, by node."""
    add: tuple[tuple[str, str], ...] = ()
    """`["dgx-h100:2", "R12-A+R12-B"]`: GPUs or systems, and where the cords of each go: circuits joined
    by `+`, `R12-A.L1-L2` for some poles, or a redundancy group for one cord into each feed. GPUs of several
    models in one node are joined by commas: `rtx-4090:2,rtx-a6000`."""
    cap: float | None = None
    """Power limit of each GPU, watts."""
    lose: tuple[str, ...] = ()
    """Elements that go off: circuits, panels, transformers, UPSs, transfer switches, sources."""
    move: dict[str, str] = {}
    """Where the cords of a node go, written as in `add`."""


class FitRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A machine that needs a place."""

    what: str
    """`dgx-h100`, `rtx-5090:4` or `rtx-4090:2,rtx-a6000` (GPUs with a host around them), or `3.5kW`."""
    count: int = 1
    """How many of them, all on the same feeds."""
    feeds: int | None = None
    """Circuits that each has a cord into: 1, 2 or 4. Null: as many as its supplies are made for."""
    host_watts: float | None = None
    """Everything but the GPUs at full load, inside the case."""
    top: int = 10
    """How many places to answer with, the best first."""


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
    trip_known: bool = True
    """Whether the breaker's band is known, so that null times above are never."""
    committed_watts: float
    """The power commitment."""
    survivor_amps: float | None = None
    """Amps after the worst loss of another element, or of a side of its group."""
    survivor_loss: str | None = None
    """That loss; null where no loss puts more on it."""
    alerts: list[str]
    cap: Cap | None = None
    lost: bool = False
    """Whether it is off, as supposed."""
    unknown: list[str] = []
    """Nodes below it whose draw is not known: what they draw comes on top of its watts and amps."""


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


class SurvivorPlan(msgspec.Struct, frozen=True, kw_only=True):
    """An element above a limit after a loss."""

    id: str
    watts: float
    amps: float | None
    """Of the highest pole; null for a source or a UPS beside the tree."""
    rated_amps: float | None
    continuous_amps: float | None
    limit_ratio: float | None
    """Load over its rating in watts or volt-amperes; null without one."""
    over: str
    """`continuous`, `rating` (of the breaker) or `limit` (watts or volt-amperes)."""


class LossPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The loss of an element, or of a side of a redundancy group, that is not without consequence."""

    lost: tuple[str, ...]
    kind: str
    """`element`, `side`, or `side and one`: a side and one element of another."""
    overloaded: list[SurvivorPlan]
    unfed: list[str]
    """Nodes that lose their last feed."""


class LimitPlan(msgspec.Struct, frozen=True, kw_only=True):
    """An element with a rating in watts or volt-amperes: a UPS, transformer or source."""

    id: str
    watts: float
    """Output."""
    load_ratio: float
    """Over its rating in watts or volt-amperes, whichever is nearer."""
    survivor_ratio: float | None
    """The same after the worst loss; null where none puts more on it."""
    survivor_loss: str | None
    """That loss."""
    alerts: list[str]
    battery_seconds: float | None = None
    """For how long its batteries carry this load when new; null where their energy is not set."""


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
    limits: list[LimitPlan] = []
    """UPSs, transformers and sources."""
    losses: list[LossPlan] = []
    """Consequences of the loss of every other element, and of every side, beside what is supposed lost."""
    overloads: list[str] = []
    """Cords that may carry more than their connector, and supplies more than they bear once a feed is lost, each as a
    notice says it."""
    unknown: list[str] = []
    """Nodes whose draw is not known: it counts as nothing."""
    holds: bool | None = None
    """Whether every element bears it, also after the loss of any one; null where a load is not known."""
    verdict: str = ""
    """The same in a sentence, with the worst that would happen."""


class FitRoom(msgspec.Struct, frozen=True, kw_only=True):
    """Room that is left on some feeds once the machines are there."""

    watts: float | None
    """Further watts that machines of this kind may draw there; negative where they do not fit. Null:
    nothing with a known limit is above these feeds."""
    amps: float | None = None
    """The same at the pole that binds; null where watts bind."""
    limit: str | None = None
    """Kind of what binds: `breaker`, `continuous limit`, `panel`, `UPS`, `budget`, `connector`, `neutral` or
    `supply`."""
    where: str | None = None
    """Which one of them."""
    lost: str | None = None
    """The circuit, panel or source whose loss is the worst; null in normal state."""


class FitPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Feeds that the machines may be plugged into."""

    feeds: list[str]
    fits: bool | None
    """Null: a machine there has an unknown draw."""
    takes: int | None
    """How many of these machines fit on the feeds, if no others do; null where nothing limits them."""
    normal: FitRoom
    after_loss: FitRoom
    """After the worst loss of any single circuit, panel or source."""
    lost_with: str | None = None
    """Element that feeds all of the cords, so that its loss is the machine's; null for independent feeds."""
    plug: str = ""
    """The option of `kilowatch plan` that shows the whole of it."""


class FitSpread(msgspec.Struct, frozen=True, kw_only=True):
    """Machines that go to the same feeds."""

    feeds: list[str]
    count: int


class FitResult(msgspec.Struct, frozen=True, kw_only=True):
    """Places for some machines, the best first, also of `kilowatch fit --json`."""

    what: str
    count: int
    feeds: int
    """Cords of each machine."""
    machine_watts: float | None
    """Power commitment of one at the wall; null where no place was found for it."""
    compared: int
    """How many places were compared."""
    places: list[FitPlace]
    notices: list[str]
    spread: list[FitSpread] = []
    """Where no place takes all of several machines: how many go where, placed one after the other; fewer in all than
    `count` where the site has no room for more."""


class CapRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A power that a circuit should stay below."""

    circuit: str
    """A circuit, panel or another element of the tree."""
    below_watts: float
    by: Literal["ratio", "priority", "job"] = "ratio"
    """`ratio`: all GPUs at one ratio of their default limits. `priority`: the nodes of the lowest `priority`
    first, each down to its floor before the next. `job`: the GPUs that nobody holds first, then those of one job after the
    other, of that which draws most there first."""
    margin_watts: float = 0.0
    """Watts that the caps shall leave below `below_watts`."""


class GpuCap(msgspec.Struct, frozen=True, kw_only=True):
    """A lower power limit of a GPU."""

    node: str
    index: int
    model: str
    from_watts: float
    """Limit in force."""
    to_watts: float
    floor_watts: float | None
    """Lowest limit that it accepts."""
    default_watts: float | None
    priority: int = 0
    job: str = ""
    """Jobs that hold it, as `slurm 4711 of ada`; empty where nobody does, and where that is not known or was not asked for."""
    watts_now: float | None = None
    """Draw now; null when not known."""
    throughput_loss: float | None = None
    """Part of its present throughput that the limit costs, by measured clocks; null when not known."""


class ThroughputPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Busy GPUs of a model that their power limit held, at about one power."""

    watts: float
    sm_clock_hertz: float
    """Mean SM clock."""
    hertz_per_watt: float
    """Throughput per watt: SM clock over power."""
    samples: int


class ModelThroughput(msgspec.Struct, frozen=True, kw_only=True):
    """Throughput of a model by power, measured since the aggregator's start."""

    model: str
    points: list[ThroughputPoint]
    """By rising power."""


class CapPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Caps that hold a circuit below a power, also of `kilowatch cap --json`. Nothing is applied."""

    circuit: str
    below_watts: float
    by: str
    from_watts: float
    """Power commitment of the circuit with the limits in force."""
    to_watts: float
    """The same with the caps."""
    sigma_watts: float = 0.0
    """Standard deviation of `to_watts`: what is drawn now as its meters or models know it, and the model's 12 % of
    what the limits allow beside that. Of a site that does not run, 12 % of the nodes' part."""
    margin_watts: float = 0.0
    """Watts that were asked for below `below_watts`; the caps leave them where the floors allow it."""
    met: bool | None
    """Whether the caps are enough, with the margin that was asked for; null when a node on the circuit has an unknown draw."""
    with_margin: bool | None = None
    """Whether the watts left below `below_watts` are at least `sigma_watts`; false where `met` holds within the model's error only."""
    verdict: str = ""
    """The answer as a sentence: whether it is met, and by how much."""
    over_watts: float
    """Watts that are still too much, with the margin that was asked for; 0 where the caps are enough."""
    caps: list[GpuCap]
    throughput_loss: float | None
    """Mean over all GPUs on the circuit; null when one is not known."""
    throughput: list[ModelThroughput]
    """As measured, of the models on the circuit."""
    commands: list[str]
    """Commands for a person to run, each on the node of its comment."""
    notices: list[str]
