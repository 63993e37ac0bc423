"""The last minutes, held in memory for the time bar. Bounded by bytes.

Frames are packed (readings by `tui.past.frame_cache`, the rest as MessagePack, deflated): one of 10,000 GPUs
takes some 130 kB. What is no longer here the aggregator still has. The same frame read again is the
same state.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from api.alerts import Alert, IncidentsReply
from api.columns import Gaps
from api.decoding import decode
from api.errors import ErrorDetail
from api.fleet import NodeReply, StatusReply
from api.power import CircuitsReply, PowerReply, RowsReply
from api.report import Report
from tui.past.frame_cache import pack_table, unpack_table
from tui.state.dashboard_state import DashboardState
from tui.state.documents import BUDGETS, CIRCUITS, INCIDENTS, POWER_PAGE, TODAY, Doc
from tui.state.gpus import Gpus

MOST_BYTES = 6 * 1024 * 1024
MOST_FRAMES = 3600
_KINDS: dict[str, type[msgspec.Struct]] = {
    CIRCUITS: CircuitsReply,
    INCIDENTS: IncidentsReply,
    POWER_PAGE: PowerReply,
    BUDGETS: RowsReply,
    TODAY: Report,
}
_BEFORE = {
    CIRCUITS: ErrorDetail("circuits", "nothing was known of circuits yet", "L goes back to now."),
    INCIDENTS: ErrorDetail("incidents", "nothing was known of alerts yet", "L goes back to now."),
}


class _Rest(msgspec.Struct):
    status: StatusReply | None
    nodes: list[NodeReply]
    wall: dict[str, float]
    alerts: list[Alert]
    gaps: Gaps
    docs: dict[str, msgspec.Raw]


@dataclass(frozen=True, slots=True)
class Packed:
    """A state at one instant, compressed."""

    at: int
    """ns since 1970, the aggregator's clock."""
    gpus: Gpus
    """Identity of the rows, without readings."""
    names: tuple[str, ...]
    columns: bytes
    rest: bytes

    @property
    def size(self) -> int:
        """Bytes of its compressed parts."""
        return len(self.columns) + len(self.rest)


def spacing(gpus: int) -> float:
    """Return the seconds between two frames: more GPUs, fewer frames."""
    return 1.0 if gpus <= 64 else 2.0 if gpus <= 2000 else 5.0


class RecentFrames:
    """Frames, oldest first."""

    def __init__(self) -> None:
        self.frames: list[Packed] = []
        self._bytes = 0
        self._read: tuple[int, DashboardState] | None = None
        self._gpus: Gpus | None = None

    def add(self, state: DashboardState) -> None:
        """Add a state, if the last one is old enough."""
        if not state.ready or not len(state.gpus) or state.gpus is self._gpus:
            return  # nothing new, or a view wants only a part of the GPUs
        if self.frames and state.at - self.frames[-1].at < spacing(len(state.gpus)) * 0.9e9:
            return
        self._gpus = state.gpus
        packed = pack(state)
        self.frames.append(packed)
        self._bytes += packed.size
        while self._bytes > MOST_BYTES or len(self.frames) > MOST_FRAMES:
            self._bytes -= self.frames.pop(0).size

    def __len__(self) -> int:
        """Return the number of frames."""
        return len(self.frames)

    def nearest(self, at: int) -> int:
        """Return the index of the newest frame that is not after `at`; 0 if all are."""
        times = [frame.at for frame in self.frames]
        return max(0, int(np.searchsorted(times, at, side="right")) - 1)

    def state(self, number: int) -> DashboardState:
        """Return a frame as a state."""
        frame = self.frames[number]
        if self._read is None or self._read[0] != frame.at:
            self._read = (frame.at, unpack(frame))
        return self._read[1]


def pack(state: DashboardState) -> Packed:
    """Compress a state."""
    gpus = state.gpus
    names = tuple(gpus.columns)
    table = np.stack([gpus.columns[name] for name in names]) if names else np.empty((0, len(gpus)))
    docs = {
        path: msgspec.Raw(msgspec.msgpack.encode(doc.value))
        for path, doc in state.docs.items()
        if isinstance(doc.value, _KINDS.get(path, ()))
    }
    rest = _Rest(state.status, list(state.nodes), dict(state.wall), list(state.alerts), gpus.gaps, docs)
    return Packed(
        state.at,
        replace(gpus, columns={}, gaps={}),
        names,
        pack_table(table),
        zlib.compress(msgspec.msgpack.encode(rest), 1),
    )


def unpack(frame: Packed) -> DashboardState:
    """Decompress a frame."""
    rest = decode(zlib.decompress(frame.rest), _Rest, packed=True)
    rows = unpack_table(frame.columns, len(frame.names))
    docs: dict[str, Any] = {path: Doc(decode(raw, _KINDS[path], packed=True), 0.0) for path, raw in rest.docs.items()}
    for path, fault in _BEFORE.items():
        docs.setdefault(path, Doc(fault, 0.0))
    gpus = replace(frame.gpus, columns=dict(zip(frame.names, rows, strict=True)), gaps=rest.gaps)
    return DashboardState(
        status=rest.status,
        nodes=tuple(rest.nodes),
        wall=rest.wall,
        gpus=gpus,
        docs=docs,
        alerts=tuple(rest.alerts),
        at=frame.at,
        ready=True,
    )
