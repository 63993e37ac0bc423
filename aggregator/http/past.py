"""The fleet as it was: `/api/v1/fleet?at=<time>`, and `/api/v1/fleet/frames` for several instants.

Rows are the present ones that existed then, and the removed ones that did. What was older
than three of its intervals then is the gap `stale`; where a frame had no reading, the store has no
reason for it: `unknown`, except for what the device does not support. A device that came only after is
`not_read` before it came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import numpy.typing as npt
from aiohttp import web

from aggregator.access.tokens import AccessScope
from aggregator.http import columns as by_columns
from aggregator.http.columns import COLUMNS, NODES, TABLE, ColumnChoice, ColumnLayout, FleetColumns
from aggregator.http.errors import bad, unknown
from aggregator.http.operation import Operation, Parameter
from aggregator.http.parameters import WHEN, between, duration, one_of, past_moment, query
from aggregator.http.reply import JSON, VIEW, json_bytes, send
from aggregator.http.stream_hub import HUB
from aggregator.store.protocol import FleetPast, PastInstants, StoredDevice
from api.columns import ColumnRows, FrameReply, FramesReply, Gaps, PackedFrame, PackedFramesReply
from telemetry.catalogue import BY_NAME
from telemetry.fleet import STALE_INTERVALS, Fleet, Floats, gaps_of
from telemetry.gap import GAP, Gap
from telemetry.metric import Lane, Table
from telemetry.wire.tables import KINDS, StoredName

SECOND = 1_000_000_000
MSGPACK = "application/msgpack"
MOST_CELLS = 3_000_000
"""Readings in one answer: about 25 MB before it is packed."""
MOST_FRAMES = 1000
PAST_SECONDS = 30.0
"""How long an answer waits for the store."""
USUAL = {Lane.FAST: 1.0, Lane.SLOW: 15.0}
"""Intervals of a device that is unknown today."""
FURTHEST = 3600.0
"""Seconds: older readings are not requested, however seldom a node reads."""
_PERMANENT = (int(Gap.NOT_SUPPORTED), int(Gap.NO_PERMISSION))
"""Reasons that held then if they hold today."""


@dataclass(frozen=True, slots=True)
class _Today:
    """A copy of what the present fleet implies for a past time."""

    choice: ColumnChoice
    layout: ColumnLayout
    keys: list[tuple[str, str]]
    ages: dict[Lane, npt.NDArray[np.float64]]
    """By lane: seconds after which each row is stale."""
    permanent: dict[str, npt.NDArray[np.uint8]]
    """By column: reasons for gaps that hold at any time, 255 where there is none."""


@dataclass(frozen=True, slots=True)
class PastColumns:
    """Rows, and their readings at each instant."""

    rows: ColumnRows
    count: int
    frames: list[FleetColumns]
    past: FleetPast


async def then(request: web.Request, choice: ColumnChoice, asked: Mapping[str, str]) -> tuple[int, PastColumns]:
    """Return the instant that `at` names, and the fleet then. Raises a 400 for a wrong time."""
    at = past_moment(asked, "at", request.app[VIEW].wall())
    return at, await read(request, choice, PastInstants(at, SECOND, 1))


async def frames(request: web.Request) -> web.Response:
    """Answer with the fleet at several instants of the past."""
    asked = query(request, "table", "columns", "node", "from", "to", "step", "packed")
    view = request.app[VIEW]
    is_packed = one_of(asked, "packed", ("false", "true")) == "true"
    choice = by_columns.chosen(asked)
    start, end = between(asked.get("from"), asked.get("to"), view.wall(), "-1m")
    if start > view.wall():
        raise bad("from", f"{asked.get('from')} is in the future", "Name a time that is over.")
    step = duration("step", asked.get("step", "5s"))
    if step <= 0:
        raise bad("step", "it must be more than 0 seconds", "Write 5s, or leave it out.")
    width = max(1, round(min(step * SECOND, float(end - start))))  # longer is one frame all the same
    count = min(-(-(end - start) // width), MOST_FRAMES + 1)
    if count > MOST_FRAMES:
        raise bad("step", f"more than {MOST_FRAMES} frames", "Use a longer step, or a shorter time.")
    was = await read(request, choice, PastInstants(start, width, count))
    moments = PastInstants(start, width, count).all().tolist()

    about = (view.cluster, choice.table, step, was.count, was.rows)
    rest = (was.past.begins, was.past.incomplete, was.past.missing)

    def make() -> bytes:
        both = list(zip(moments, was.frames, strict=True))
        if is_packed:
            packed = [PackedFrame(at, *_packed(each, was.count)) for at, each in both]
            return msgspec.msgpack.encode(PackedFramesReply(*about, packed, *rest))
        plain = [FrameReply(at, *_plain(each, was.count)) for at, each in both]
        return json_bytes(FramesReply(*about, plain, *rest))

    kind = MSGPACK if is_packed else JSON
    cells = sum(each.cells for each in was.frames)
    return await send(request, make, kind, work=cells, readings=True)


def _plain(readings: FleetColumns, count: int) -> tuple[int, dict[str, list[float | None]], Gaps]:
    numbers = by_columns.numbers(readings)
    return by_columns.reporting(readings, count), numbers, by_columns.gaps(readings)


def _packed(readings: FleetColumns, count: int) -> tuple[int, dict[str, bytes], Gaps]:
    columns = by_columns.packed(readings)
    return by_columns.reporting(readings, count), columns, by_columns.gaps(readings)


async def read(request: web.Request, choice: ColumnChoice, when: PastInstants) -> PastColumns:
    """Read from the store. Raises a 400 for too much, a 404 for an unknown node."""
    view = request.app[VIEW]
    layout = request.app[HUB].layout(choice)
    cells = when.count * len(choice.columns) * len(layout.index)
    if cells > MOST_CELLS:
        raise bad(
            "columns", f"{cells:,} readings are more than {MOST_CELLS:,}", "Request fewer columns, nodes or frames."
        )
    today = _today(view.fleet, layout, choice, view.now())
    reach = {lane: _reach(today, lane) for lane in Lane}
    then = view.register.names_then(when.first, view.fleet)
    names = None if choice.nodes is None else [then.get(name, name) for name in choice.nodes]
    async with asyncio.timeout(PAST_SECONDS):
        found = await view.store.past(choice.table, choice.columns, when, reach, names)
    if then:
        _rename(found, {old: new for new, old in then.items()})
    for node in choice.nodes or ():
        if node not in view.fleet.nodes and all(each.node != node for each in found.devices):
            raise unknown("node", node, view.fleet.nodes)
    return await asyncio.to_thread(_joined, today, found, when)


def _rename(found: FleetPast, present: Mapping[str, str]) -> None:
    """Give devices of nodes that were renamed since the present name of their node. A machine that had that
    name before is told apart."""
    taken = set(present.values()) - set(present)

    def named(node: str, key: str) -> tuple[str, str]:
        new = f"{node} (another machine)" if node in taken else present.get(node, node)
        return new, new if key == node else key

    for place, each in enumerate(found.devices):
        node, key = named(each.node, each.key)
        found.devices[place] = replace(each, node=node, key=key)
    found.later = {named(*each) for each in found.later}


def _today(fleet: Fleet, layout: ColumnLayout, choice: ColumnChoice, now: float) -> _Today:
    table = choice.table
    ages = {
        matrix.block.lane: matrix.max_age[layout.index].copy()
        for matrix in fleet.matrices
        if matrix.block.table is table
    }
    permanent = {}
    for name, values in by_columns.read(fleet, layout, choice.columns, now).columns.items():
        reasons = gaps_of(values)
        permanent[name] = np.where(np.isin(reasons, _PERMANENT), reasons, 255).astype(np.uint8)
    return _Today(choice, layout, keys_of(layout.rows, table), ages, permanent)


def keys_of(rows: ColumnRows, table: Table) -> list[tuple[str, str]]:
    """Return node and key of each row, as the store has them."""
    keys, *more = [getattr(rows, name) or () for name in KINDS[table].identity]
    for part in more:
        keys = [f"{key}/{its}" for key, its in zip(keys, part, strict=True)]
    return list(zip(rows.node, keys, strict=True))


def _reach(today: _Today, lane: Lane) -> int:
    ages = today.ages.get(lane, np.empty(0))
    seconds = max(float(ages.max(initial=0.0)), STALE_INTERVALS * USUAL[lane])
    return round(min(seconds, FURTHEST) * SECOND)


def _joined(today: _Today, past: FleetPast, when: PastInstants) -> PastColumns:
    """Join the present rows with the stored ones."""
    place = {(each.node, each.key): number for number, each in enumerate(past.devices)}
    known = set(today.keys)
    kept = [row for row, key in enumerate(today.keys) if key in place or key not in past.later]
    gone = [each for each in past.devices if (each.node, each.key) not in known]
    gone.sort(key=lambda each: (each.node, -1 if each.index is None else each.index, each.key))
    keys = [*(today.keys[row] for row in kept), *((each.node, each.key) for each in gone)]
    column = np.array([place.get(key, -1) for key in keys], np.intp)
    came_late = np.array([key in past.later for key in keys], np.bool_)
    frames: list[dict[str, Floats]] = [{} for _ in range(when.count)]
    reported = np.zeros(len(keys), np.bool_)
    for name, values in past.columns.items():
        lane = BY_NAME[name].lane
        ages = np.full(len(keys), STALE_INTERVALS * USUAL[lane])
        ages[: len(kept)] = today.ages[lane][kept]
        permanent = np.full(len(keys), 255, np.uint8)
        permanent[: len(kept)] = today.permanent[name][kept]
        for number, at in enumerate(when.all().tolist()):
            seen = np.append(past.seen[lane][number], 0)[column]
            shown = np.append(values[number], values.dtype.type(np.nan))[column]
            stale = at - seen > ages * SECOND + past.slack.get(lane, 0)
            shown[np.isnan(shown)] = GAP[Gap.UNKNOWN]
            for reason in _PERMANENT:
                shown[np.isnan(shown) & (permanent == reason)] = GAP[Gap(reason)]
            shown[stale] = GAP[Gap.STALE]
            shown[came_late & (seen == 0)] = GAP[Gap.NOT_READ]
            reported |= ~np.isnan(shown)
            frames[number][name] = shown
    rows = _rows(today, kept, gone, reported)
    return PastColumns(rows, len(keys), [FleetColumns(columns) for columns in frames], past)


def _rows(
    today: _Today, kept: Sequence[int], gone: Sequence[StoredDevice], reported: npt.NDArray[np.bool_]
) -> ColumnRows:
    rows, kind = today.layout.rows, KINDS[today.choice.table]
    its = [kind.stored(each.key, StoredName(each.index, each.name)) for each in gone]
    columns = {
        name: [*((getattr(rows, name) or [])[row] for row in kept), *(each[name] for each in its)]
        for name in kind.columns
    }
    if "present" in columns:
        there = columns["present"]
        columns["present"] = [bool(reported[n]) or was for n, was in enumerate(there)]
    if kind.owner is not None:
        indices = [(rows.gpu or [])[row] for row in kept]
        index_of = dict(zip(columns["uuid"], indices, strict=False))
        columns["gpu"] = [*indices, *(index_of.get(each["uuid"], -1) for each in its)]
    nodes = [*(rows.node[row] for row in kept), *(each.node for each in gone)]
    return ColumnRows(nodes, **columns)


OPERATIONS = (
    Operation(
        "/api/v1/fleet/frames",
        frames,
        "fleetFrames",
        "The fleet at several past times, from the store. The rows are the devices of "
        "any of these times; `stale`, `unknown` and `not_read` are the reasons for absent readings.",
        FramesReply,
        (
            TABLE,
            COLUMNS,
            NODES,
            Parameter("from", f"Time of the first frame; a minute ago if absent. {WHEN}", "-10m"),
            Parameter("to", f"End of the time, exclusive. {WHEN}", "-9m"),
            Parameter(
                "step",
                "Time between two frames; 5s if absent. One that a roll-up divides (10s, 1m) is "
                f"answered from it. {MOST_FRAMES} frames and {MOST_CELLS} readings at most.",
                "10s",
            ),
            Parameter(
                "packed",
                "'true': MessagePack of the same fields, with each column as the bytes of "
                "little-endian float32 (float64 where there are eight a row): much less work.",
                "false",
                ("true", "false"),
            ),
        ),
        (404, 503),
        scope=AccessScope.READ,
    ),
)
