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
    since: int = 0
    changed: int = 0
    summary: str = ""


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
