"""`/api/v1/circuits` and its like: what hangs on which breaker, what is left, and what it was."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import numpy as np
from aiohttp import web

from aggregator.electrical.service import SAVE_SECONDS
from aggregator.electrical.snapshot_log import LoggedSnapshot
from aggregator.http.errors import RequestError, bad, unknown
from aggregator.http.reply import JSON, VIEW, json_bytes, query, send, send_json
from aggregator.http.times import moment
from aggregator.mqtt.power_topics import firing, spoken
from aggregator.view import AggregatorView
from api.alerts import Subject
from api.power import SnapshotKind
from power.live import PowerSnapshots
from power.site.layout import SiteLayout
from power.snapshot.documents import (
    Alerts,
    CircuitState,
    RowState,
    circuit_states,
    only,
    row_states,
)
from power.snapshot.quantities import QUANTITIES
from power.snapshot.snapshot import PowerSnapshot

# `/api/v1/circuits?columns=`: every circuit by columns, as `/api/v1/fleet` has the GPUs.
#
# 700 circuits are 130 kB, where the whole objects with all their words are 1.4 MB and take 100 ms to
# make: who looks at all of them once a second takes the columns, and the object of the one circuit
# whose page is open.

ALL = "*"
NAMES = tuple(
    quantity.name for quantity in QUANTITIES if quantity.snapshot_kind is SnapshotKind.CIRCUIT
)
DIGITS = 4


class CircuitRows(msgspec.Struct, frozen=True):
    """Who the rows are: parallel arrays, parents before what they feed."""

    id: list[str]
    kind: list[str]
    """`circuit` or `panel`."""
    parent: list[str | None]
    """What feeds it."""
    nodes: list[list[str]]
    """Nodes with a cord in it."""


def chosen(text: str) -> tuple[str, ...]:
    """Return the quantities that were asked for. Raises a 400 with the nearest word."""
    if text == ALL:
        return NAMES
    names = tuple(text.split(","))
    for name in names:
        if name not in NAMES:
            raise unknown("columns", name, NAMES, status=400)
    if len(set(names)) < len(names):
        raise bad("columns", "a column is asked for twice", "Name each once.")
    return names


def rows(layout: SiteLayout, snapshot: PowerSnapshot) -> CircuitRows:
    """Return who is on the circuit snapshot."""
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


TAPE_WITHIN = round(3 * SAVE_SECONDS * 1e9)
"""ns that a power snapshot on the tape may be older than the time that is asked for."""


class CircuitsReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """All circuits and panels, parents before what they feed: as objects, or by columns."""

    cluster: str
    at: int
    """ns since 1970, of the tick that they are computed from; 0 before the first."""
    version: int
    """Another number when the configuration is another."""
    circuits: list[CircuitState]
    """Empty where columns were asked for."""
    rows: CircuitRows | None = None
    """Who the rows are, where columns were asked for."""
    columns: dict[str, list[float | None]] | None = None
    """Those quantities. Null is not known, and for seconds never."""


class CircuitReply(msgspec.Struct, frozen=True):
    """One circuit, and the nodes that have a cord below it."""

    cluster: str
    at: int
    circuit: CircuitState
    children: list[str]
    """What it feeds directly."""
    supplies: list[RowState]
    """The nodes: what each draws at the wall, and how its supplies are loaded."""


class RowsReply(msgspec.Struct, frozen=True):
    """All budgets, or all UPS."""

    cluster: str
    at: int
    rows: list[RowState]


async def circuits(request: web.Request) -> web.Response:
    """All circuits, now or as they were: objects, or columns."""
    asked = query(request, "columns", "at")
    names = chosen(asked["columns"]) if "columns" in asked else None
    view = request.app[VIEW]
    layout, snapshots = _state(view)
    about = (view.cluster, view.electrical.latest_at, _version(view))
    alerts = _firing(view, Subject.CIRCUIT)
    snapshot = None if snapshots is None else snapshots.circuit
    if asked.get("at", "now") != "now":
        taped = await _taped(view, asked["at"])
        snapshot = None if taped is None else taped.snapshots.get(SnapshotKind.CIRCUIT)
        about, alerts = (view.cluster, 0 if taped is None else taped.at, about[2]), {}
    if layout is None or snapshot is None:
        return await send_json(request, CircuitsReply(*about, []))
    if asked.get("at", "now") != "now":  # what the configuration knows no more is left out
        snapshot = only(snapshot, [name for name in snapshot.names if name in layout.circuits])

    def make() -> bytes:
        if names is None:
            return json_bytes(CircuitsReply(*about, circuit_states(layout, snapshot, alerts)))
        return json_bytes(
            CircuitsReply(*about, [], rows(layout, snapshot), columns(snapshot, names))
        )

    cells = _cells(snapshot) if names is None else len(snapshot.names) * len(names)
    return await send(request, make, JSON, work=cells)


async def _taped(view: AggregatorView, text: str) -> LoggedSnapshot | None:
    """What was computed shortly before a time."""
    at = moment("at", text, view.wall())
    if at > view.wall():
        raise bad("at", f"{text} is to come", "Leave it out for now.")
    return await asyncio.to_thread(view.electrical.tape.find, at, TAPE_WITHIN)


async def circuit(request: web.Request) -> web.Response:
    """One circuit and what hangs on it, now or as it was."""
    asked = query(request, "at")
    view, name = request.app[VIEW], request.match_info["circuit"]
    layout, snapshots = _state(view)
    if layout is None or snapshots is None or name not in layout.circuits:
        raise unknown("circuit", name, () if layout is None else layout.circuits)
    if asked.get("at", "now") != "now":
        return await _circuit_then(request, layout, name, asked["at"])
    below = layout.below(name)
    nodes = {cord.machine for cord in layout.cords if cord.circuit in below}
    body = CircuitReply(
        view.cluster,
        view.electrical.latest_at,
        circuit_states(layout, only(snapshots.circuit, [name]), _firing(view, Subject.CIRCUIT))[0],
        [circuit.id for circuit in layout.circuits.values() if circuit.parent == name],
        row_states(only(snapshots.supply, nodes), _firing(view, Subject.SUPPLY)),
    )
    return await send_json(request, body, values=_cells(snapshots.supply))


async def _circuit_then(
    request: web.Request, layout: SiteLayout, name: str, text: str
) -> web.Response:
    """The same of a past time; what its nodes' supplies did is not kept."""
    view = request.app[VIEW]
    taped = await _taped(view, text)
    snapshot = None if taped is None else taped.snapshots.get(SnapshotKind.CIRCUIT)
    if taped is None or snapshot is None or name not in snapshot.names:
        raise RequestError(404, "at", f"nothing of {name} is kept of that time")
    state = circuit_states(layout, only(snapshot, [name]), {})[0]
    children = [circuit.id for circuit in layout.circuits.values() if circuit.parent == name]
    return await send_json(request, CircuitReply(view.cluster, taped.at, state, children, []))


async def budgets(request: web.Request) -> web.Response:
    """All budgets, now or as they were."""
    return await _rows(request, lambda snapshots: snapshots.budget, SnapshotKind.BUDGET)


async def ups(request: web.Request) -> web.Response:
    """All UPS, now or as they were."""
    return await _rows(request, lambda snapshots: snapshots.ups, SnapshotKind.UPS)


async def _rows(
    request: web.Request, choose: Callable[[PowerSnapshots], PowerSnapshot], kind: SnapshotKind
) -> web.Response:
    asked = query(request, "at")
    view = request.app[VIEW]
    if asked.get("at", "now") != "now":
        taped = await _taped(view, asked["at"])
        snapshot = None if taped is None else taped.snapshots.get(kind)
        if taped is None or snapshot is None:
            return await send_json(request, RowsReply(view.cluster, 0, []))
        return await send_json(request, RowsReply(view.cluster, taped.at, row_states(snapshot, {})))
    snapshots, subject = view.electrical.latest, Subject(kind.value)
    rows = [] if snapshots is None else row_states(choose(snapshots), _firing(view, subject))
    return await send_json(request, RowsReply(view.cluster, view.electrical.latest_at, rows))


def _firing(view: AggregatorView, subject: Subject) -> Alerts:
    return firing(spoken(view.alerts(), view.alarms.held), subject)


def _state(view: AggregatorView) -> tuple[SiteLayout | None, PowerSnapshots | None]:
    return view.electrical.plant.layout, view.electrical.latest


def _version(view: AggregatorView) -> int:
    return view.electrical.configuration.version


def _cells(snapshot: PowerSnapshot) -> int:
    return len(snapshot.names) * len(snapshot.columns)
