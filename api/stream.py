"""The stream at `/api/v1/stream`: what a viewer asks for, and the messages that it gets.

Messages are tagged by `type`: `rows` identifies the rows, `data` has their values, then `alerts`,
`events` and `error`.
"""

from __future__ import annotations

import msgspec

from api.alerts import Alert
from api.columns import ColumnRows, Gaps, Numbers
from api.errors import ErrorDetail
from telemetry.devices import Event
from telemetry.metric import Table


class RowFilter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A selection of rows."""

    nodes: tuple[str, ...]
    """Names; those that are not there appear when they come."""


class StreamRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The rows and columns that a viewer gets from now on."""

    table: Table = Table.GPU
    columns: tuple[str, ...] = ()
    """Metrics of the table; none: the usual ones. `["*"]`: all."""
    rows: RowFilter | None = None
    """Null: all."""
    every: float = 1.0
    """Seconds between two messages, at least 0.2."""
    changes: bool = False
    """Only the rows that changed since the message before; no message when none did."""
    alerts: bool = False
    """Send `StreamAlerts` too."""
    events: bool = False
    """Send `StreamEvents` too."""
    packed: bool = False
    """Data as `StreamPacked` instead of `StreamData`."""


class StreamRows(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="rows"):
    """The rows of all further `data`; sent again when the fleet's version changes."""

    version: int
    at: int = 0
    """ns since 1970."""
    cluster: str = ""
    table: Table = Table.GPU
    columns: tuple[str, ...] = ()
    rows: ColumnRows


class StreamWall(msgspec.Struct, frozen=True, kw_only=True):
    """The power of the whole cluster at the wall, as `/api/v1/status` has it."""

    watts: float
    nodes: int
    """Nodes whose power is known."""
    partial_nodes: int = 0
    """How many of them are known in part, so that `watts` is the least."""
    age_seconds: float = 0.0
    """By how much a part of `watts` is older than the GPUs' readings."""


class StreamData(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="data"):
    """Readings by columns."""

    version: int
    """That of the `rows` which it belongs to."""
    tick: int = 0
    """Number of the flush; a viewer that is slow misses some."""
    at: int
    """ns since 1970."""
    of: int = 0
    """How many rows there are."""
    reporting: int = 0
    """How many of them have at least one of the columns."""
    only: list[int] | None = None
    """Positions in `rows` of the values that follow; null: all rows, in order."""
    columns: dict[str, Numbers]
    gaps: Gaps = {}
    """The reason for each null, by position in this message's columns; `*` is the commonest reason."""
    wall: StreamWall | None = None
    """The cluster at the wall at the same instant; null where nothing is known of it."""


class StreamPacked(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="data"):
    """`StreamData` for a request with `packed`: a binary message, MessagePack. Twelve columns of
    10,000 GPUs are 480 kB in place of 760, and take 0.1 ms to write and to read in place of 18."""

    version: int
    tick: int = 0
    at: int
    of: int = 0
    reporting: int = 0
    only: list[int] | None = None
    columns: dict[str, bytes]
    """Little-endian IEEE 754, one value a row: float32 where a column has four bytes a row, float64
    where it has eight. A NaN is a gap, and `gaps` gives its reason."""
    gaps: Gaps = {}
    wall: StreamWall | None = None


class StreamAlerts(msgspec.Struct, frozen=True, tag_field="type", tag="alerts"):
    """Every alert, worst first; sent when they change."""

    at: int
    """ns since 1970."""
    alerts: list[Alert]


class StreamEvents(msgspec.Struct, frozen=True, tag_field="type", tag="events"):
    """Events since the message before, newest first; at first the last hundred."""

    at: int
    """ns since 1970."""
    events: list[Event]


class StreamError(msgspec.Struct, frozen=True, tag_field="type", tag="error"):
    """A request that can't be met; the one before it stays in force."""

    error: ErrorDetail


StreamMessage = StreamRows | StreamData | StreamAlerts | StreamEvents | StreamError
"""Every message that is a text."""
