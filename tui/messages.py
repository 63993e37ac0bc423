"""What the aggregator's HTTP API says, as far as the dashboard looks at it.

Tolerant: unknown fields are ignored, so that a dashboard and an aggregator of different releases
understand each other. The full form is in `/api/v1/openapi.json`.
"""

from __future__ import annotations

import msgspec

Numbers = list[float | None]
Gaps = dict[str, dict[str, str]]
"""By metric, by position (or `*` for the commonest): why a null is one."""


class Model(msgspec.Struct, frozen=True):
    """All GPUs of one model."""

    gpus: dict[str, int] = {}
    """How many are `reporting`, `silent`, `lost`."""
    power_known: int = 0


class Summary(msgspec.Struct, frozen=True):
    """The cluster in numbers. A sum is over the devices that tell; None when none does."""

    nodes: dict[str, int] = {}
    """How many are `online`, `stale`, `offline`."""
    models: list[Model] = []
    gpu_power_watts: float | None = None
    gpu_power_limit_watts: float | None = None
    wall_power_watts: float | None = None
    wall_power_known: int = 0
    temperature_max_celsius: float | None = None
    utilization_mean_ratio: float | None = None
    memory_total_bytes: float | None = None


class Status(msgspec.Struct, frozen=True):
    """`/api/v1/status`."""

    version: str
    cluster: str
    at: int
    """ns since 1970."""
    nodes: int
    gpus: int
    newest_frame_age_seconds: float | None = None
    summary: Summary = Summary()


class NodeLine(msgspec.Struct, frozen=True):
    """One node of `/api/v1/nodes`."""

    node: str
    state: str
    """`online`, `stale` or `offline`."""
    age_seconds: float | None = None
    gpus: int = 0
    gpus_present: int = 0
    source: str = ""
    driver_state: str = ""
    driver_version: str | None = None
    rack: str = ""
    """Empty where nobody has said it."""
    job: str = ""


class Nodes(msgspec.Struct, frozen=True):
    """`/api/v1/nodes`."""

    at: int
    nodes: list[NodeLine]


class NodeReadings(msgspec.Struct, frozen=True):
    """`/api/v1/fleet?table=node`."""

    class Rows(msgspec.Struct, frozen=True):
        """Who the rows are."""

        node: list[str]

    rows: Rows
    columns: dict[str, Numbers]


class Alert(msgspec.Struct, frozen=True):
    """One alert."""

    key: str
    rule: str
    state: str
    severity: str
    node: str
    gpu: str | None = None
    subject: str = "gpu"
    name: str = ""
    """Of a circuit, budget or UPS."""
    since: int = 0
    changed: int = 0
    summary: str = ""
    description: str = ""
    runbook: str = ""
    value_text: str = ""
    limit_text: str = ""
    labels: dict[str, str] = {}


class Alerts(msgspec.Struct, frozen=True):
    """`/api/v1/alerts`."""

    at: int
    alerts: list[Alert]


class Note(msgspec.Struct, frozen=True):
    """Who has taken care of an incident."""

    who: str
    why: str = ""
    at: int = 0
    until: int | None = None


class Incident(msgspec.Struct, frozen=True):
    """All alerts of one cause."""

    key: str
    severity: str
    title: str
    began: int
    changed: int = 0
    ended: int | None = None
    group: dict[str, str] = {}
    alerts: list[Alert] = []
    firing: int = 0
    total: int = 0
    acknowledged: Note | None = None
    hidden: int = 0
    """Consequences of it, told to nobody."""


class Incidents(msgspec.Struct, frozen=True):
    """`/api/v1/incidents`."""

    at: int
    incidents: list[Incident]


class Matcher(msgspec.Struct, frozen=True):
    """One condition of a silence."""

    label: str
    value: str
    is_regex: bool = False
    is_equal: bool = True

    def __str__(self) -> str:
        """As people write it."""
        sign = ("=" if self.is_equal else "!") + (
            "~" if self.is_regex else "" if self.is_equal else "="
        )
        return f"{self.label}{sign}{self.value}"


class Silence(msgspec.Struct, frozen=True):
    """Alerts that nobody is to be told of for a while."""

    id: str
    matchers: list[Matcher]
    who: str
    why: str
    starts: int
    ends: int
    maintenance: bool = False


class Silences(msgspec.Struct, frozen=True):
    """`/api/v1/silences`."""

    silences: list[Silence]


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
    continuous_amps: float | None = None
    headroom_amps: float | None = None
    load_ratio: float | None = None
    continuous_ratio: float | None = None
    above_continuous_seconds: float | None = None
    heat_ratio: float | None = None
    trip_known: bool = False
    trip_seconds: Trip = Trip()
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
    nodes_unmapped: list[str] = []
    notices: list[str] = []


class Energy(msgspec.Struct, frozen=True):
    """What was taken over a time, and what it cost."""

    hours: float | None = None
    kwh: float | None = None
    gpu_kwh: float | None = None
    cost: float | None = None
    co2_kg: float | None = None
    estimated_ratio: float | None = None
    unknown_hours: float | None = None


class Idle(msgspec.Struct, frozen=True):
    """What GPUs that do nothing cost."""

    gpu_hours: float | None = None
    ratio: float | None = None
    kwh: float | None = None
    cost: float | None = None


class Report(msgspec.Struct, frozen=True):
    """`/api/v1/report`, as far as it is shown."""

    currency: str | None = None
    sustained_watts: float | None = None
    peak_watts: float | None = None
    committed_watts: float | None = None
    pue: float | None = None
    verdict: str = ""
    verdict_reason: str = ""
    memory_gb: float | None = None
    measured: Energy | None = None
    month: Energy | None = None
    utilisation: float | None = None
    idle: Idle | None = None


class Event(msgspec.Struct, frozen=True):
    """Something that happened."""

    node: str
    at: int
    """ns since 1970, the node's clock."""
    kind: str
    gpu: str | None = None
    message: str = ""


class StoredEvent(msgspec.Struct, frozen=True):
    """An event of `/api/v1/events`."""

    event: Event


class Events(msgspec.Struct, frozen=True):
    """`/api/v1/events`, newest first."""

    events: list[StoredEvent]


class GpuFacts(msgspec.Struct, frozen=True):
    """One GPU, as its inventory has it."""

    uuid: str
    index: int
    name: str
    pci: str | None = None
    serial: str | None = None
    vbios: str | None = None
    slot: str | None = None
    present: bool = True


class LinkFacts(msgspec.Struct, frozen=True):
    """One NVLink of a GPU."""

    number: int
    peer_kind: str | None = None
    peer: str | None = None


class LinkPart(msgspec.Struct, frozen=True):
    """A link and its readings."""

    link: LinkFacts
    readings: dict[str, float] = {}


class GpuPart(msgspec.Struct, frozen=True):
    """A GPU of a node, and its readings."""

    gpu: GpuFacts
    readings: dict[str, float] = {}
    gaps: dict[str, str] = {}


class MemoryPool(msgspec.Struct, frozen=True):
    """GPUs that reach each other's memory."""

    gpus: list[str]
    bytes: int | None = None
    over: str = "none"


class NodePage(msgspec.Struct, frozen=True):
    """`/api/v1/nodes/<node>`."""

    at: int
    node: NodeLine
    host: dict[str, str] = {}
    pools: list[MemoryPool] = []
    readings: dict[str, float] = {}
    gpus: list[GpuPart] = []
    alerts: list[Alert] = []


class GpuPage(msgspec.Struct, frozen=True):
    """`/api/v1/gpus/<uuid>`."""

    at: int
    node: NodeLine
    gpu: GpuFacts
    readings: dict[str, float] = {}
    gaps: dict[str, str] = {}
    links: list[LinkPart] = []
    events: list[Event] = []
    alerts: list[Alert] = []


class History(msgspec.Struct, frozen=True):
    """`/api/v1/history`: one metric of one device, in buckets."""

    metric: str
    step: float
    start: int
    end: int
    at: list[int] = []
    mean: Numbers = []
    low: Numbers = []
    high: Numbers = []


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


class GpuRows(msgspec.Struct, frozen=True):
    """Who the rows of the stream are."""

    node: list[str]
    gpu: list[int]
    uuid: list[str]
    name: list[str]
    present: list[bool]


class RowsMessage(msgspec.Struct, frozen=True, tag_field="type", tag="rows"):
    """Comes before the data, and again when a row gets another meaning."""

    version: int
    rows: GpuRows


class DataMessage(msgspec.Struct, frozen=True, tag_field="type", tag="data"):
    """Readings of all rows, by columns."""

    version: int
    at: int
    columns: dict[str, Numbers]
    gaps: Gaps = {}


class AlertsMessage(msgspec.Struct, frozen=True, tag_field="type", tag="alerts"):
    """All alerts, worst first."""

    at: int
    alerts: list[Alert]


class EventsMessage(msgspec.Struct, frozen=True, tag_field="type", tag="events"):
    """What happened; this screen does not show it yet."""

    at: int


class Fault(msgspec.Struct, frozen=True):
    """What is wrong with a request."""

    where: str = ""
    what: str = ""
    cure: str = ""

    def __str__(self) -> str:
        """One line for the screen."""
        return f"{self.where}: {self.what}. {self.cure}".strip()


class ErrorMessage(msgspec.Struct, frozen=True, tag_field="type", tag="error"):
    """A request that can't be met; the body of a refusal has the same `error`."""

    error: Fault


Message = RowsMessage | DataMessage | AlertsMessage | EventsMessage | ErrorMessage


class Refusal(msgspec.Struct, frozen=True):
    """The body of an answer of 400 and above."""

    error: Fault = Fault()
