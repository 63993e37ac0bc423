"""The fleet at past times: `/api/v1/fleet/frames`, packed, and `/api/v1/circuits/<circuit>/history`."""

from __future__ import annotations

import msgspec

from api.columns import Gaps, Numbers


class PastRows(msgspec.Struct, frozen=True):
    """Who the rows of all frames are; of nodes, only their names."""

    node: list[str]
    gpu: list[int] = []
    uuid: list[str] = []
    name: list[str] = []
    present: list[bool] = []


class PackedFrame(msgspec.Struct, frozen=True):
    """One instant."""

    at: int
    """ns since 1970."""
    columns: dict[str, bytes] = {}
    """Little-endian float32, or float64 where a column has eight bytes a row; a gap is a NaN."""
    gaps: Gaps = {}


class PackedFrames(msgspec.Struct, frozen=True):
    """Several, oldest first."""

    rows: PastRows
    frames: list[PackedFrame] = []
    begins: int | None = None
    """When the oldest reading that is stored was taken; None where nobody knows."""


class LoadHistory(msgspec.Struct, frozen=True):
    """One quantity of one circuit over time."""

    at: list[int] = []
    """ns since 1970."""
    values: Numbers = []
