"""The whole cluster: `/api/v1/status`, `/api/v1/catalogue`, `/api/v1/nodes`, `/api/v1/events`, health and
service discovery."""

from __future__ import annotations

import msgspec

from api.decoding import OpenEnum
from api.fitness import FleetFitness
from api.stats import Stats
from telemetry.devices import Event
from telemetry.metric import Kind, Lane, Table, Unit


class HealthStatus(OpenEnum):
    """The state of the aggregator as a whole."""

    OK = "ok"
    IMPAIRED = "impaired"
    """Something is not known or not done now: `impairments` lists it."""
    FAILING = "failing"
    """A restart may help, or it is not ready: `reasons` has the sentences."""


class ImpairmentRow(msgspec.Struct, frozen=True):
    """A part of the aggregator that does not work."""

    rule: str
    """Name of its alert rule."""
    part: str
    """The part that does not work: `node/dgx07`, `rule/hot_gpu`, `circuit/rack-3`, `task/store`."""
    reason: str
    since: int
    """ns since 1970."""
    whole: bool
    """Whether all of the cluster is blind in this respect, rather than one node, rule or circuit."""


class ForgetRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The removal of a node that is gone for good."""

    who: str = ""
    """A name beside that of the token."""
    why: str = ""


class ForgetReply(msgspec.Struct, frozen=True):
    """The answer to the removal of a node."""

    at: int
    """ns since 1970."""
    node: str
    known: bool
    """Whether the aggregator knew it; what the broker retained of it is cleared in any case."""


class HealthReply(msgspec.Struct, frozen=True):
    """The answer of `/healthz` and `/readyz`."""

    ok: bool
    reasons: list[str]
    """Problems, in sentences; empty when there are none."""
    uptime_seconds: float
    newest_frame_age_seconds: float | None
    """Null before the first frame."""
    last_flush_age_seconds: float
    nodes_expected: int
    nodes_online: int
    bus_connected: bool
    store_ok: bool
    warnings: list[str] = []
    """Problems that an operator must fix and a restart does not: `ok` does not depend on them."""
    status: HealthStatus = HealthStatus.OK
    impairments: list[ImpairmentRow] = []
    progress: dict[str, float] = {}
    """Seconds since each part last made progress: `flush`, `rules`, `commit`, `checkpoint`."""
    version: str = ""
    """Release of the aggregator, with the commit that it was built from."""


class ScrapeTarget(msgspec.Struct, frozen=True):
    """A group of targets in the form of Prometheus' http_sd."""

    targets: list[str]
    labels: dict[str, str]


class MetricReply(msgspec.Struct, frozen=True):
    """A row of the catalogue."""

    name: str
    unit: Unit
    kind: Kind
    table: Table
    lane: Lane
    help: str
    span: tuple[float, float] | None
    """Lowest and highest value of charts: the same scale for the whole fleet."""
    states: dict[str, str]
    """Word by number, for a state."""


class CatalogueReply(msgspec.Struct, frozen=True):
    """Every metric."""

    metrics: list[MetricReply]


class ModelSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs of one model."""

    model: str = ""
    gpus: dict[str, int] = {}
    """How many there are in each of the states `reporting`, `silent`, `lost`."""
    power_watts: float | None = None
    """Sum over those that report it; null when none does."""
    power_known: int = 0
    """How many report it."""


class FleetSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster at one instant. A sum is over the devices that report; null when none does."""

    nodes: dict[str, int] = {}
    """How many there are in each of the states `online`, `stale`, `offline`, `unheard`."""
    roles: dict[str, int] = {}
    """How many nodes have each role; "" is not known."""
    releases: dict[str, int] = {}
    """How many nodes have each release of kilowatch; "" is not known."""
    models: list[ModelSummary] = []
    gpu_power_watts: float | None = None
    gpu_power_limit_watts: float | None = None
    """The sum of the GPUs' power limits."""
    limited_power_watts: float | None = None
    limited_power_limit_watts: float | None = None
    """Power and limits of the GPUs that report both: a share of the limit is only of these."""
    wall_power_watts: float | None = None
    wall_power_known: int = 0
    """Nodes that report their wall power."""
    temperature_max_celsius: float | None = None
    memory_temperature_max_celsius: float | None = None
    utilization_mean_ratio: float | None = None
    memory_used_bytes: float | None = None
    memory_total_bytes: float | None = None


class TrendGap(OpenEnum):
    """Reasons why the change of a figure is not known."""

    SHORT = "short"
    """The figure is kept for less than two minutes."""
    PARTIAL = "partial"
    """A part of the figure is not known now, or assumed."""
    OTHERS = "others"
    """Of other nodes or circuits than until two minutes ago at the longest."""
    UNKNOWN = "unknown"
    """The figure is not known now."""


class Trend(msgspec.Struct, frozen=True, kw_only=True):
    """How a figure has changed within an hour, as means of up to five minutes at both ends, over the same nodes or circuits."""

    now: float | None = None
    before: float | None = None
    seconds: float | None = None
    """Between the two: at most 3600."""
    gap: TrendGap | None = None
    """Why the three are null; null where they are not."""


class ClusterTrends(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the cluster draws more than before, and comes nearer to a breaker."""

    wall_watts: Trend = Trend(gap=TrendGap.SHORT)
    gpu_power_watts: Trend = Trend(gap=TrendGap.SHORT)
    nearest_ratio: Trend = Trend(gap=TrendGap.SHORT)
    """Highest load of a circuit over its rating, whichever it is."""


class AggregatorRow(msgspec.Struct, frozen=True, kw_only=True):
    """An aggregator of a cluster of several, as the one that answers knows it."""

    name: str
    groups: int = 0
    """Shard groups that it has, of 256."""
    nodes: int = 0
    """Nodes of these groups, when it was last heard."""
    silent_seconds: float | None = None
    """How long nothing was heard of it; null while it is heard."""
    leads: bool = False
    """Whether it judges circuits and sends pages, for all."""
    load: float | None = None
    """CPU seconds of its process in a second; null where not known."""
    version: str = ""


class StatusReply(msgspec.Struct, frozen=True, kw_only=True):
    """The aggregator and its cluster at one instant: the header of a dashboard."""

    version: str
    cluster: str
    at: int
    """ns since 1970."""
    started_at: int = 0
    fleet_version: int = 0
    newest_frame_age_seconds: float | None = None
    nodes: int
    gpus: int
    alerts: dict[str, int] = {}
    """How many are pending, firing and resolved."""
    summary: FleetSummary = FleetSummary()
    wall_watts: float | None = None
    """At the wall, of the nodes whose power is known, each by its best source; null when none is."""
    wall_nodes: int | None = None
    """How many these are; null from aggregators that don't say."""
    wall_partial_nodes: int = 0
    """How many of them are known in part: GPUs of theirs are not read, so that `wall_watts` is the least."""
    wall_age_seconds: float = 0.0
    """By how much a part of `wall_watts` is older than the GPUs of the summary: a meter beside the node read it."""
    trends: ClusterTrends | None = None
    """Null from aggregators that don't say."""
    fitness: FleetFitness | None = None
    """Whether the fleet is good; null before it is known. `/api/v1/fitness` has the nodes."""
    stats: Stats = msgspec.field(default_factory=Stats)
    missing: list[str] = []
    """Aggregators of the cluster that do not answer, with the number of their shard groups: their nodes are
    `unheard`, and no sum has them."""
    members: list[AggregatorRow] = []
    """Aggregators of the cluster, by name; empty for a single one."""


class NodeStatus(OpenEnum):
    """The state of a node, in an operator's words."""

    ONLINE = "online"
    """Its collector runs, and its newest frame is younger than 3 intervals."""
    STALE = "stale"
    """Its collector runs, but its frames do not arrive."""
    OFFLINE = "offline"
    """Its collector has signed off, or the broker reports it gone."""
    UNHEARD = "unheard"
    """The aggregator that has it does not answer: nothing is known of it now."""


class NodeReply(msgspec.Struct, frozen=True):
    """A node in a list."""

    node: str
    state: NodeStatus
    age_seconds: float | None = None
    """Age of its newest frame; null when there was none."""
    sampled_at: int | None = None
    """Its own clock in that frame, ns since 1970."""
    interval_seconds: float = 1.0
    slow_interval_seconds: float = 15.0
    session: int = 0
    seq: int = -1
    """Number of its newest frame in this session; -1 before the first."""
    gpus: int = 0
    gpus_present: int = 0
    source: str = ""
    driver_state: str = ""
    driver_message: str = ""
    driver_version: str | None = None
    release: str = ""
    rack: str = ""
    """As configured on the node; empty where it is not."""
    job: str = ""
    """The job that runs on it, as the node reports it; empty where it does not."""
    role: str = ""
    """`gpu`, `head`, `login`, `compute`, `storage` or `switch`; empty where it is not known."""


class NodesReply(msgspec.Struct, frozen=True):
    """Every node, by name."""

    at: int
    """ns since 1970."""
    nodes: list[NodeReply]
    missing: list[str] = []
    """As of `StatusReply`."""


class StoredEvent(msgspec.Struct, frozen=True):
    """An event as the store has it."""

    event: Event
    received_at: int
    """ns since 1970, the aggregator's clock."""


class EventsReply(msgspec.Struct, frozen=True):
    """Events, newest first."""

    start: int
    """ns since 1970."""
    end: int
    limit: int
    more: bool
    """True when there are as many as the limit: there may be more."""
    events: list[StoredEvent]
    missing: list[str] = []
    """As of `StatusReply`."""
