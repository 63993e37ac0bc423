"""The cluster in numbers, and its nodes: `/api/v1/status`, `/api/v1/nodes`, `/api/v1/fleet`."""

from __future__ import annotations

import msgspec

from api.columns import Numbers


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
