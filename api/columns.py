"""Readings by columns: `/api/v1/fleet`, `/api/v1/fleet/frames` and `/api/v1/history`.

An answer has `rows` (parallel arrays that identify the devices) and `columns` (one array a metric, in
the same order). A null is a gap, and `gaps` gives the reason: `{"gpu_fan_speed_ratio": {"*":
"not_supported", "17": "device_lost"}}` reads: row 17 was lost, every other null is unsupported. `*`
is the commonest reason of a column, so that a column without any value costs 20 bytes, not 200 kB.
"""

from __future__ import annotations

import msgspec

from telemetry.metric import Kind, Table, Unit

Numbers = list[float | None]
Gaps = dict[str, dict[str, str]]
"""By metric, by row number (or `*` for the commonest): the reason why a null is one."""


class ColumnRows(msgspec.Struct, frozen=True, omit_defaults=True):
    """The devices of the rows: parallel arrays. A table has those that make sense for it."""

    node: list[str]
    gpu: list[int] | None = None
    """Index of the GPU, for people."""
    uuid: list[str] | None = None
    """UUID of the GPU, or of the GPU that a link belongs to."""
    name: list[str] | None = None
    present: list[bool] | None = None
    link: list[int] | None = None
    peer: list[str | None] | None = None
    """UUID, PCI address or kind of what a link leads to."""
    port: list[str] | None = None
    """Identity of the port; `name` has its adapter and number."""
    instance: list[str] | None = None
    """UUID of the MIG instance; `name` has its numbers and profile, `uuid` is that of its GPU."""
    key: list[str] | None = None
    """Key of a device of any other table."""


class FleetReply(msgspec.Struct, frozen=True, kw_only=True):
    """Readings by columns."""

    cluster: str = ""
    table: Table = Table.GPU
    version: int = 0
    """Changes whenever a row gets another meaning; 0 for a past time."""
    at: int = 0
    """ns since 1970."""
    of: int = 0
    """How many rows there are."""
    reporting: int = 0
    """How many of them have at least one of the columns."""
    rows: ColumnRows
    columns: dict[str, Numbers]
    gaps: Gaps = {}
    incomplete: list[tuple[int, int]] = []
    """As of `FramesReply`, for a past time."""
    missing: list[str] = []
    """Aggregators of the cluster that do not answer: the readings of their nodes are not known now, or lack the
    newest of a past time."""


class FrameReply(msgspec.Struct, frozen=True):
    """The readings of every row at one instant."""

    at: int
    """ns since 1970."""
    reporting: int
    """How many rows have at least one of the columns."""
    columns: dict[str, Numbers]
    gaps: Gaps


class FramesReply(msgspec.Struct, frozen=True):
    """The fleet at several instants, oldest first."""

    cluster: str
    table: Table
    step: float
    """Seconds between two of them."""
    of: int
    """How many rows there are."""
    rows: ColumnRows
    """The same for all frames: every device that was there in one of them."""
    frames: list[FrameReply]
    begins: int | None = None
    """ns since 1970: about when the oldest reading that is stored was taken; null is not known."""
    incomplete: list[tuple[int, int]] = []
    """Windows (ns since 1970) whose stored files were removed or damaged: what is shown there is
    coarser than what was stored, or absent."""
    missing: list[str] = []
    """As of `FleetReply`."""


class PackedFrame(msgspec.Struct, frozen=True):
    """`FrameReply` in MessagePack."""

    at: int
    reporting: int
    columns: dict[str, bytes]
    """Little-endian IEEE 754, one value a row: float32 where a column has four bytes a row, float64
    where it has eight. A NaN is a gap, and `gaps` gives its reason."""
    gaps: Gaps = {}


class PackedFramesReply(msgspec.Struct, frozen=True):
    """`FramesReply` in MessagePack, for a request with `packed`."""

    cluster: str
    table: Table
    step: float
    of: int
    rows: ColumnRows
    frames: list[PackedFrame]
    begins: int | None = None
    incomplete: list[tuple[int, int]] = []
    missing: list[str] = []


class HistoryReply(msgspec.Struct, frozen=True):
    """A metric of a device over time, in buckets."""

    device: str
    """GPU UUID, `<uuid>/<link>` or node."""
    metric: str
    unit: Unit
    kind: Kind
    step: float
    """Seconds; 0: every reading. More than was requested where nothing finer is stored."""
    start: int
    """ns since 1970."""
    end: int
    at: list[int]
    """Start of each bucket, ns since 1970, the node's clock."""
    mean: Numbers
    """Gauges: mean; counters: last value. null where there was no reading."""
    low: Numbers
    high: Numbers
    incomplete: list[tuple[int, int]] = []
    """As of `FramesReply`."""
    provisional: list[tuple[int, int]] = []
    """Windows in which means of ten seconds stand for readings that were shed under load, and that the
    nodes send again, ns since 1970."""
    missing: list[str] = []
    """The aggregator that holds the device, where it does not answer: the newest minute may be missing."""
