"""`/api/v1/circuits`, `/budgets` and `/ups`: load, limits and headroom, now and in the past."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Container, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from aiohttp import web
from msgspec.structs import replace

from aggregator.access.tokens import AccessScope
from aggregator.electrical.service import SAVE_SECONDS
from aggregator.electrical.snapshot_log import SnapshotLog
from aggregator.http.errors import RequestError, bad, unknown
from aggregator.http.history import step_of
from aggregator.http.operation import Operation, Parameter
from aggregator.http.parameters import WHEN, between, past_moment, query
from aggregator.http.reply import JSON, MUCH, VIEW, json_bytes, send, send_json
from aggregator.mqtt.power_topics import firing, spoken
from aggregator.view import AggregatorView, parts_of
from api.alerts import Subject
from api.power import (
    CircuitHistoryReply,
    CircuitReply,
    CircuitRows,
    CircuitsReply,
    CircuitState,
    RowsReply,
    RowState,
    SnapshotKind,
)
from power.site.layout import SiteLayout
from power.snapshot.documents import Alerts, circuit_states, only, plain, row_states
from power.snapshot.quantities import QUANTITIES
from power.snapshot.snapshot import PowerSnapshot, Quantity
from telemetry.metric import Unit

# `/api/v1/circuits?columns=`: every circuit by columns, as `/api/v1/fleet` has the GPUs.
#
# 700 circuits are 130 kB, where the whole objects are 1.4 MB and take 100 ms to make: a client that shows
# all of them once a second asks for columns, and for the object of the circuit whose page is open.

ALL = "*"
NAMES = tuple(quantity.name for quantity in QUANTITIES if quantity.snapshot_kind is SnapshotKind.CIRCUIT)
DIGITS = 4


def chosen(text: str) -> tuple[str, ...]:
    """Return the quantities that were requested. Raises a 400 with the nearest word."""
    if text == ALL:
        return NAMES
    names = tuple(text.split(","))
    for name in names:
        if name not in NAMES:
            raise unknown("columns", name, NAMES, status=400)
    if len(set(names)) < len(names):
        raise bad("columns", "a column is requested twice", "Name each once.")
    return names


def rows(layout: SiteLayout, snapshot: PowerSnapshot) -> CircuitRows:
    """Return the circuits of a snapshot."""
    nodes: dict[str, dict[str, None]] = {}
    for cord in layout.cords:
        nodes.setdefault(cord.circuit, {})[cord.machine] = None
    circuits = [layout.circuits[name] for name in snapshot.names]
    return CircuitRows(
        list(snapshot.names),
        ["panel" if circuit.is_panel else "circuit" for circuit in circuits],
        [circuit.parent for circuit in circuits],
        [list(nodes.get(name, ())) for name in snapshot.names],
    )


def columns(snapshot: PowerSnapshot, names: tuple[str, ...]) -> dict[str, list[float | None]]:
    """Return quantities of all circuits; null is not known, and for seconds never."""
    return {name: _plain(snapshot.column(name)) for name in names}


def _plain(values: np.ndarray[tuple[int], np.dtype[np.floating]]) -> list[float | None]:
    finite = np.where(np.isfinite(values), values, np.nan).astype(np.float64)
    found: list[float | None] = np.round(finite, DIGITS).tolist()
    return found  # a NaN becomes null when msgspec writes it


LOG_WITHIN = round(3 * SAVE_SECONDS * 1e9)
"""Largest age of a logged power snapshot at the requested time, ns."""


class _Shown(NamedTuple):
    """The rows of one kind at the time that a request names."""

    at: int
    """ns since 1970; 0 where nothing is known."""
    snapshot: PowerSnapshot | None
    alerts: Alerts
    """Present alerts; those of a past time are not stored."""


async def _shown(view: AggregatorView, kind: SnapshotKind, asked: Mapping[str, str] | None = None) -> _Shown:
    if asked is None or asked.get("at", "now") == "now":
        snapshots = view.electrical.latest
        alerts = firing(spoken(view.alerts(), view.pipeline.manager.status), Subject(kind.value))
        found = () if snapshots is None else snapshots.all()
        snapshot = next((each for each in found if each.kind is kind), None)
        return _Shown(view.electrical.latest_at, snapshot, alerts)
    at = past_moment(asked, "at", view.wall())
    logged = await asyncio.to_thread(view.electrical.snapshot_log.find, at, LOG_WITHIN)
    snapshot = None if logged is None else logged.snapshots.get(kind)
    return _Shown(0 if logged is None or snapshot is None else logged.at, snapshot, {})


async def circuits(request: web.Request) -> web.Response:
    """Answer with all circuits, now or as they were: objects, or columns."""
    asked = query(request, "columns", "at")
    names = chosen(asked["columns"]) if "columns" in asked else None
    view = request.app[VIEW]
    layout = view.electrical.site.layout
    at, snapshot, alerts = await _shown(view, SnapshotKind.CIRCUIT, asked)
    body = CircuitsReply(
        cluster=view.cluster,
        at=at,
        version=view.electrical.configuration.version,
        failure=view.electrical.failure if asked.get("at", "now") == "now" else None,
        set_aside=view.electrical.set_aside() if asked.get("at", "now") == "now" else {},
    )
    if layout is None or snapshot is None:
        return await send_json(request, body)
    if any(name not in layout.circuits for name in snapshot.names):  # of an older configuration
        snapshot = only(snapshot, [name for name in snapshot.names if name in layout.circuits])

    parts = parts_of(view, "api")

    def make() -> bytes:
        if names is None:
            found = replace(body, circuits=circuit_states(layout, snapshot, alerts, parts))
        else:
            found = replace(body, rows=rows(layout, snapshot), columns=columns(snapshot, names))
        return json_bytes(found)

    cells = len(snapshot.names) * len(snapshot.columns if names is None else names)
    return await send(request, make, JSON, work=cells)


async def circuit(request: web.Request) -> web.Response:
    """Answer with one circuit and what it feeds, now or at a past time; supplies only now."""
    asked = query(request, "at")
    body = await circuit_reply(request.app[VIEW], request.match_info["circuit"], asked)
    return await send_json(request, body, values=100 * len(body.supplies))


async def circuit_reply(view: AggregatorView, name: str, asked: Mapping[str, str] | None = None) -> CircuitReply:
    """Return one circuit and what it feeds; `asked` may have a past time as `at`. Raises a 404."""
    asked = asked or {}
    layout = view.electrical.site.layout
    if layout is None or view.electrical.latest is None or name not in layout.circuits:
        raise unknown("circuit", name, () if layout is None else layout.circuits)
    is_now = asked.get("at", "now") == "now"
    at, snapshot, alerts = await _shown(view, SnapshotKind.CIRCUIT, asked)
    if snapshot is None or name not in snapshot.names:
        raise RequestError(404, "at", f"nothing of {name} is stored of that time")
    below = layout.below(name)
    nodes = {cord.machine for cord in layout.cords if cord.circuit in below}
    supplies = await _shown(view, SnapshotKind.SUPPLY)
    fed = None if not is_now or supplies.snapshot is None else only(supplies.snapshot, nodes)
    return CircuitReply(
        cluster=view.cluster,
        at=at,
        circuit=circuit_states(layout, only(snapshot, [name]), alerts)[0],
        children=[one.id for one in layout.circuits.values() if one.parent == name],
        supplies=[] if fed is None else row_states(fed, supplies.alerts, parts_of(view, "api")),
    )


async def circuits_now(view: AggregatorView, names: Container[str] | None = None) -> list[CircuitState]:
    """Return all circuits as they are now, or some, parents before what they feed, without their facts in words,
    which take longer than all numbers and which no list shows; none before the first tick."""
    layout = view.electrical.site.layout
    _, snapshot, alerts = await _shown(view, SnapshotKind.CIRCUIT)
    if layout is None or snapshot is None:
        return []
    known = dataclasses.replace(snapshot, facts=())
    wanted = [name for name in snapshot.names if name in layout.circuits and (names is None or name in names)]
    if len(wanted) < len(snapshot.names):  # some alone, or the snapshot is of an older configuration
        known = only(known, wanted)
    return await asyncio.to_thread(circuit_states, layout, known, alerts, parts_of(view, "web"))


async def supplies_now(view: AggregatorView, nodes: Sequence[str]) -> list[RowState]:
    """Return the supplies of some nodes as they are now, in words left out; none before the first tick."""
    _, snapshot, alerts = await _shown(view, SnapshotKind.SUPPLY)
    if snapshot is None:
        return []
    known = dataclasses.replace(snapshot, facts=())
    return row_states(only(known, nodes), alerts, parts_of(view, "api"))


async def budgets(request: web.Request) -> web.Response:
    """Answer with all budgets, now or as they were."""
    return await _send_rows(request, SnapshotKind.BUDGET)


async def ups(request: web.Request) -> web.Response:
    """Answer with all UPS, now or as they were."""
    return await _send_rows(request, SnapshotKind.UPS)


async def _send_rows(request: web.Request, kind: SnapshotKind) -> web.Response:
    asked, view = query(request, "at"), request.app[VIEW]
    at, snapshot, alerts = await _shown(view, kind, asked)
    rows = [] if snapshot is None else row_states(snapshot, alerts, parts_of(view, "api"))
    return await send_json(request, RowsReply(cluster=view.cluster, at=at, rows=rows))


# `/api/v1/circuits/<circuit>/history`: one quantity of one circuit over time, from the log of snapshots.
#
# A month is 260,000 instants on disk (18 us each to read): it is read, put into buckets and written as
# text in a thread, and the answer is bounded as for readings.

QUANTITIES_OF_CIRCUITS = {
    quantity.name.removeprefix("circuit_"): quantity
    for quantity in QUANTITIES
    if quantity.snapshot_kind is SnapshotKind.CIRCUIT
}
_LAST = {Unit.STATE, Unit.SECONDS}
"""Units without a meaningful mean."""
Wide = npt.NDArray[np.float64]


async def history(request: web.Request) -> web.Response:
    """Answer with what a circuit carried, from the snapshot log."""
    asked = query(request, "quantity", "from", "to", "step")
    view, name = request.app[VIEW], request.match_info["circuit"]
    layout = view.electrical.site.layout
    if layout is None or name not in layout.circuits:
        raise unknown("circuit", name, () if layout is None else layout.circuits)
    word = asked.get("quantity", "watts")
    quantity = QUANTITIES_OF_CIRCUITS.get(word)
    if quantity is None:
        raise unknown("quantity", word, QUANTITIES_OF_CIRCUITS, status=400)
    start, end = between(asked.get("from"), asked.get("to"), view.wall(), "-1h")
    make = circuit_history(view.electrical.snapshot_log, name, word, start, end, asked.get("step"))
    return await send(request, lambda: json_bytes(make()), JSON, work=MUCH + 1)


def circuit_history(
    log: SnapshotLog, name: str, word: str, start: int, end: int, asked_step: str | None = None
) -> Callable[[], CircuitHistoryReply]:
    """Return what reads a quantity of a circuit from the snapshot log; it takes long, and may run in a
    thread. Raises a 400 for a step that is none."""
    quantity = QUANTITIES_OF_CIRCUITS[word]
    step = step_of(asked_step, (end - start) / 1e9, SAVE_SECONDS)
    if step < SAVE_SECONDS:  # most of such buckets would be empty, and look like gaps
        step = 0.0

    def make() -> CircuitHistoryReply:
        found = log.series(SnapshotKind.CIRCUIT, name, quantity.name, start, end)
        at, numbers = _bucketed(*found, round(step * 1e9), quantity)
        return CircuitHistoryReply(
            circuit=name,
            quantity=word,
            unit=quantity.unit,
            start=start,
            end=end,
            step=step,
            at=at,
            values=numbers[0],
            low=numbers[1],
            high=numbers[2],
        )

    return make


def _bucketed(
    at: npt.NDArray[np.int64], values: Wide, width: int, quantity: Quantity
) -> tuple[list[int], tuple[list[float | None], ...]]:
    """Return buckets of `width` ns, all instants for 0: their starts, and values, lowest, highest. One
    in which there is no instant is empty."""
    order = np.argsort(at, kind="stable")  # a clock that was set back
    at, values = at[order], values[order]
    if not width or not len(at):
        return at.tolist(), (numbers := _each_plain(values), numbers, numbers)
    bucket = (at - at[0] + at[0] % width) // width
    many = int(bucket[-1]) + 1
    starts = at[0] - at[0] % width + width * np.arange(many)
    known = np.isfinite(values)
    low, high = np.full(many, np.inf), np.full(many, -np.inf)
    np.minimum.at(low, bucket[known], values[known])
    np.maximum.at(high, bucket[known], values[known])
    shown = np.full(many, np.nan)
    if quantity.unit in _LAST:
        shown[bucket] = values  # of several the last one stays
    else:
        total = np.bincount(bucket[known], values[known], many)
        with np.errstate(invalid="ignore"):
            shown = total / np.bincount(bucket[known], minlength=many)
    return starts.tolist(), (_each_plain(shown), _each_plain(low), _each_plain(high))


def _each_plain(values: Wide) -> list[float | None]:
    return [plain(value) for value in values.tolist()]


_CIRCUIT_AT = Parameter(
    "at",
    "A past time: what was computed up to 30 s before it; one instant in ten seconds is stored, without "
    "facts and alerts. `at` is 0 where nothing is stored. "
    f"{WHEN}",
    "-10m",
)
_CIRCUIT = Parameter(
    "circuit", "Name of a circuit or panel; '/' is written as %2F.", "office", required=True, place="path"
)

OPERATIONS = (
    Operation(
        "/api/v1/circuits",
        circuits,
        "circuits",
        "Every circuit and panel, parents before what they feed. Times to trip are estimates; "
        "null is never if `trip_known`, else unknown. `alerts` are those that are not suppressed: "
        "inhibited ones are in `/api/v1/alerts?standing=inhibited`.",
        CircuitsReply,
        (
            Parameter(
                "columns",
                "Quantities of circuits, joined by commas, '*' for all: the answer then has `rows` and "
                "`columns` in place of `circuits`, a tenth of the bytes.",
                "circuit_watts,circuit_load_ratio",
            ),
            _CIRCUIT_AT,
        ),
        scope=AccessScope.READ,
    ),
    Operation(
        "/api/v1/circuits/{circuit}",
        circuit,
        "circuit",
        "One circuit, with the nodes that it feeds.",
        CircuitReply,
        (_CIRCUIT, _CIRCUIT_AT),
        (404,),
        scope=AccessScope.READ,
    ),
    Operation(
        "/api/v1/circuits/{circuit}/history",
        history,
        "circuitHistory",
        "One quantity of a circuit over time, in buckets: mean, lowest and highest.",
        CircuitHistoryReply,
        (
            _CIRCUIT,
            Parameter("quantity", "Any of `circuit_*`, without the prefix; watts if absent.", "heat_ratio"),
            Parameter("from", f"Start of the time; an hour ago if absent. {WHEN}", "-6h"),
            Parameter("to", f"End of the time, exclusive. {WHEN}", "now"),
            Parameter(
                "step",
                "Length of a bucket, as 10s, 5m or seconds; 0 is every instant, one in about ten "
                "seconds. If absent, about 300 buckets.",
                "1m",
            ),
        ),
        (404,),
        scope=AccessScope.READ,
    ),
    Operation(
        "/api/v1/budgets", budgets, "budgets", "Every budget.", RowsReply, (_CIRCUIT_AT,), scope=AccessScope.READ
    ),
    Operation("/api/v1/ups", ups, "ups", "Every UPS.", RowsReply, (_CIRCUIT_AT,), scope=AccessScope.READ),
)
