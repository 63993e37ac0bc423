"""Messages of the stream, made once for all viewers of the same columns.

The types are in `api.stream`. This module has no I/O.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import numpy as np
from aiohttp import web

from aggregator.http import columns as by_columns
from aggregator.http.columns import ColumnChoice, ColumnLayout, FleetColumns
from aggregator.http.reply import MUCH, json_bytes
from aggregator.view import AggregatorView
from api.stream import StreamData, StreamPacked, StreamRows, StreamWall
from present.fleet.wall import WallSum
from telemetry.metric import Table

SHARED_FOR = 0.5
"""Seconds for which viewers may share a message when no flush comes between: values grow stale."""


@dataclass(slots=True)
class StreamSnapshot:
    """The columns of one choice at one flush."""

    layout: ColumnLayout
    readings: FleetColumns
    tick: int
    taken: float
    """Monotonic seconds of the fleet."""
    at: int
    wall: StreamWall | None
    made: dict[tuple[int, bool], asyncio.Task[bytes | None]] = field(default_factory=dict)
    """Messages by the `id` of the snapshot that they are the difference to (0: whole), and by whether
    they are packed."""


class Hub:
    """A maker of messages that are shared among viewers."""

    def __init__(self, view: AggregatorView, slow_viewer_seconds: float) -> None:
        self.slow_viewer_seconds = slow_viewer_seconds
        self.viewers = 0
        self.dropped = 0
        """Viewers that were cut off because they did not read."""
        self._view = view
        self._layouts: dict[tuple[Table, tuple[str, ...] | None], ColumnLayout] = {}
        self._snapshots: dict[ColumnChoice, StreamSnapshot] = {}

    def snapshot(self, choice: ColumnChoice) -> StreamSnapshot:
        """Return the present columns, copied at most once per flush."""
        view = self._view
        now, tick = view.now(), view.stats.flush.count
        where = self.layout(choice)
        snapshot = self._snapshots.get(choice)
        if (
            snapshot is None
            or snapshot.layout is not where
            or snapshot.tick != tick
            or now - snapshot.taken > SHARED_FOR
        ):
            if len(self._snapshots) > 2 * self.viewers + 16:
                self._snapshots.clear()
            readings = by_columns.read(view.fleet, where, choice.columns, now)
            wall = view.electrical.wall_sum(view.fleet, now)
            snapshot = self._snapshots[choice] = StreamSnapshot(
                where, readings, tick, now, view.wall(), _stream_wall(wall)
            )
        return snapshot

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

    def rows(self, choice: ColumnChoice, snapshot: StreamSnapshot) -> bytes:
        """Return the message that identifies the rows."""
        return json_bytes(
            StreamRows(
                version=snapshot.layout.version,
                at=snapshot.at,
                cluster=self._view.cluster,
                table=choice.table,
                columns=choice.columns,
                rows=snapshot.layout.rows,
            )
        )

    async def data(
        self, snapshot: StreamSnapshot, before: StreamSnapshot | None, *, packed: bool = False
    ) -> bytes | None:
        """Return the message with the values: all, or those of rows that differ from `before`.
        None when none does."""
        key = (0 if before is None else id(before), packed)
        task = snapshot.made.get(key)
        if task is None:
            make = _maker(snapshot, before, packed=packed)
            task = snapshot.made[key] = asyncio.create_task(_run(make, snapshot.readings.cells, before))
        return await asyncio.shield(task)


HUB = web.AppKey("hub", Hub)


def _stream_wall(wall: WallSum) -> StreamWall | None:
    if wall.watts is None:
        return None
    return StreamWall(watts=wall.watts, nodes=wall.nodes or 0, partial_nodes=wall.partial, age_seconds=wall.age)


async def _run(make: Callable[[], bytes | None], cells: int, keep: StreamSnapshot | None) -> bytes | None:
    """Make a message, in a thread if it is long. `keep` lives until then: its `id` is a key."""
    made = await asyncio.to_thread(make) if cells > MUCH else make()
    del keep
    return made


def _maker(snapshot: StreamSnapshot, before: StreamSnapshot | None, *, packed: bool) -> Callable[[], bytes | None]:
    def make() -> bytes | None:
        count = len(snapshot.layout.index)
        only = None if before is None else _changed(snapshot, before)
        if only is not None and not only.size:
            return None
        part = (
            snapshot.readings
            if only is None
            else FleetColumns({name: v[only] for name, v in snapshot.readings.columns.items()})
        )
        kind = StreamPacked if packed else StreamData
        message = kind(
            version=snapshot.layout.version,
            tick=snapshot.tick,
            at=snapshot.at,
            of=count,
            reporting=by_columns.reporting(snapshot.readings, count),
            only=None if only is None else only.tolist(),
            columns=by_columns.packed(part) if packed else by_columns.numbers(part),  # type: ignore[arg-type]  # as kind has them
            gaps=by_columns.gaps(part),
            wall=snapshot.wall,
        )
        return msgspec.msgpack.encode(message) if packed else json_bytes(message)

    return make


def _changed(snapshot: StreamSnapshot, before: StreamSnapshot) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Return the rows in which any value differs. Bits are compared, for a gap is not equal to
    itself, and to differ in its reason is to differ."""
    differs = np.zeros(len(snapshot.layout.index), bool)
    for name, values in snapshot.readings.columns.items():
        bits = np.uint32 if values.dtype == np.float32 else np.uint64
        differs |= values.view(bits) != before.readings.columns[name].view(bits)
    return np.flatnonzero(differs)
