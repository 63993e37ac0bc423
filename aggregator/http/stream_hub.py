"""What the stream's viewers are sent: made once for all who look at the same columns.

Messages to a viewer are tagged by `type`: `rows` says who the rows are, `data` how much, then
`alerts`, `events` and `error`. Nothing here knows sockets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import numpy as np
from aiohttp import web

from aggregator.http import columns as by_columns
from aggregator.http.columns import ColumnChoice, ColumnLayout, ColumnRows, FleetColumns, Gaps
from aggregator.http.errors import ErrorDetail
from aggregator.http.reply import MUCH, json_bytes
from aggregator.view import AggregatorView
from api.alerts import Alert
from telemetry.inventory import Event
from telemetry.metric import Table

SHARED_FOR = 0.5
"""Seconds for which viewers may share a message when no flush comes between: values grow stale."""


class StreamRows(msgspec.Struct, frozen=True, tag_field="type", tag="rows"):
    """Who the rows of all further `data` are; sent again when the fleet's version changes."""

    version: int
    at: int
    """ns since 1970."""
    cluster: str
    table: Table
    columns: tuple[str, ...]
    rows: ColumnRows


class StreamData(msgspec.Struct, frozen=True, tag_field="type", tag="data"):
    """Readings by columns."""

    version: int
    """That of the `rows` which it belongs to."""
    tick: int
    """Number of the flush; a viewer that is slow misses some."""
    at: int
    of: int
    """How many rows there are."""
    reporting: int
    """How many of them have at least one of the columns."""
    only: list[int] | None
    """Positions in `rows` of the values that follow; null: all rows, in order."""
    columns: dict[str, list[float | None]]
    gaps: Gaps
    """Why each null is one, by position in this message's columns; `*` is the commonest reason."""


class StreamPacked(msgspec.Struct, frozen=True, tag_field="type", tag="data"):
    """`StreamData` for whoever asked for `packed`: a binary message, MessagePack. Twelve columns of
    10,000 GPUs are 480 kB in place of 760, and take 0.1 ms to write and to read in place of 18."""

    version: int
    tick: int
    at: int
    of: int
    reporting: int
    only: list[int] | None
    columns: dict[str, bytes]
    """Little-endian IEEE 754, one value a row: float32 where a column has four bytes a row, float64
    where it has eight. A NaN is a gap, and `gaps` says why."""
    gaps: Gaps


class StreamAlerts(msgspec.Struct, frozen=True, tag_field="type", tag="alerts"):
    """All alerts, worst first; sent when they change."""

    at: int
    alerts: list[Alert]


class StreamEvents(msgspec.Struct, frozen=True, tag_field="type", tag="events"):
    """What happened since the message before, newest first; at first the last hundred."""

    at: int
    events: list[Event]


class StreamError(msgspec.Struct, frozen=True, tag_field="type", tag="error"):
    """A request that can't be met; what was asked before goes on."""

    error: ErrorDetail


@dataclass(slots=True)
class Shot:
    """The columns of one choice at one flush."""

    layout: ColumnLayout
    readings: FleetColumns
    tick: int
    taken: float
    """Monotonic seconds of the fleet."""
    at: int
    made: dict[tuple[int, bool], asyncio.Task[bytes | None]] = field(default_factory=dict)
    """Messages by the `id` of the shot that they are the difference to (0: whole), and by whether
    they are packed."""


class Hub:
    """Makes messages, and shares them among viewers."""

    def __init__(self, view: AggregatorView, patience: float) -> None:
        self.patience = patience
        self.viewers = 0
        self.dropped = 0
        """Viewers cut off because they did not read."""
        self._view = view
        self._layouts: dict[tuple[Table, tuple[str, ...] | None], ColumnLayout] = {}
        self._shots: dict[ColumnChoice, Shot] = {}

    def shot(self, choice: ColumnChoice) -> Shot:
        """Return the columns as they stand, copied at most once per flush."""
        view = self._view
        now, tick = view.now(), view.stats.flush.count
        where = self.layout(choice)
        shot = self._shots.get(choice)
        if (
            shot is None
            or shot.layout is not where
            or shot.tick != tick
            or now - shot.taken > SHARED_FOR
        ):
            if len(self._shots) > 2 * self.viewers + 16:
                self._shots.clear()
            readings = by_columns.read(view.fleet, where, choice.columns, now)
            shot = self._shots[choice] = Shot(where, readings, tick, now, view.wall())
        return shot

    def layout(self, choice: ColumnChoice) -> ColumnLayout:
        """Return which rows a choice has, made once per version of the fleet."""
        key = (choice.table, choice.nodes)
        where = self._layouts.get(key)
        if where is None or where.version != self._view.fleet.version:
            if len(self._layouts) > 2 * self.viewers + 16:
                self._layouts.clear()
            where = by_columns.layout(self._view.fleet, choice.table, choice.nodes)
            self._layouts[key] = where
        return where

    def rows(self, choice: ColumnChoice, shot: Shot) -> bytes:
        """Return the message that says who the rows are."""
        return json_bytes(
            StreamRows(shot.layout.version, shot.at, self._view.cluster,
                       choice.table, choice.columns, shot.layout.rows)
        )  # fmt: skip

    async def data(self, shot: Shot, before: Shot | None, *, packed: bool = False) -> bytes | None:
        """Return the message with the values: all, or those of rows that differ from `before`.
        None when none does."""
        key = (0 if before is None else id(before), packed)
        task = shot.made.get(key)
        if task is None:
            make = _maker(shot, before, packed=packed)
            task = shot.made[key] = asyncio.create_task(_run(make, shot.readings.cells, before))
        return await asyncio.shield(task)


HUB = web.AppKey("hub", Hub)


async def _run(
    make: Callable[[], bytes | None], cells: int, keep: Shot | None
) -> bytes | None:  # fmt: skip
    """Make a message, in a thread if it is long. `keep` lives until then: its `id` is a key."""
    made = await asyncio.to_thread(make) if cells > MUCH else make()
    del keep
    return made


def _maker(shot: Shot, before: Shot | None, *, packed: bool) -> Callable[[], bytes | None]:
    def make() -> bytes | None:
        count = len(shot.layout.index)
        only = None if before is None else _changed(shot, before)
        if only is not None and not only.size:
            return None
        part = (
            shot.readings
            if only is None
            else FleetColumns({name: v[only] for name, v in shot.readings.columns.items()})
        )
        about = (
            shot.layout.version, shot.tick, shot.at, count,
            by_columns.reporting(shot.readings, count), None if only is None else only.tolist(),
        )  # fmt: skip
        if packed:
            columns = by_columns.packed(part)
            return msgspec.msgpack.encode(StreamPacked(*about, columns, by_columns.gaps(part)))
        return json_bytes(StreamData(*about, by_columns.numbers(part), by_columns.gaps(part)))

    return make


def _changed(shot: Shot, before: Shot) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Return the rows in which any value differs. Bits are compared, for a gap is not equal to
    itself, and to differ in its reason is to differ."""
    differs = np.zeros(len(shot.layout.index), bool)
    for name, values in shot.readings.columns.items():
        bits = np.uint32 if values.dtype == np.float32 else np.uint64
        differs |= values.view(bits) != before.readings.columns[name].view(bits)
    return np.flatnonzero(differs)
