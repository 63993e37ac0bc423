"""The stream: who the rows are, then their readings and alerts; and refusals."""

from __future__ import annotations

import msgspec

from api.alerts import Alert
from api.columns import Gaps, Numbers


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
    """Readings of all rows, by columns, from an aggregator that can't pack them."""

    version: int
    at: int
    columns: dict[str, Numbers]
    gaps: Gaps = {}


class PackedMessage(msgspec.Struct, frozen=True, tag_field="type", tag="data"):
    """The same in a binary message."""

    version: int
    at: int
    columns: dict[str, bytes]
    """Little-endian float32, or float64 where a column has eight bytes a row; a gap is a NaN."""
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
