"""Gather what is sent: a copy of the readings, in the event loop; its bytes, in any thread."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from aggregator.register.node_status import status_of
from aggregator.remote.left_out import LeftOut
from aggregator.remote.otlp.names import UP, Exported, OtlpShape
from aggregator.remote.otlp.wire import metric, point_attributes, points, record, requests, resource
from aggregator.view import AggregatorView
from api.fleet import NodeStatus
from present.device.gpu import event_row
from present.row import Tone
from telemetry.devices import Event
from telemetry.fleet import Fleet, Matrix, Node
from telemetry.metric import Table
from telemetry.runtime.release import release
from telemetry.text.decimals import plain
from telemetry.wire.inventory import Inventory
from telemetry.wire.tables import KINDS, TableKind

NODES_AT_ONCE = 200
"""Nodes whose readings are copied before others on the loop have their turn: about 5 ms."""
MOST_BYTES = 3 * 1024 * 1024
"""Of a request: OpenTelemetry's collector takes 4 MiB by gRPC as it is installed."""
_SEVERITIES = {Tone.CRIT: 17, Tone.WARN: 13}
"""ERROR and WARN; all others are INFO."""
_INFO = 9
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SentColumns:
    """Columns of one of the fleet's matrices that are sent."""

    number: int
    """Of the matrix in the fleet."""
    gauges: list[int]
    counters: list[int]
    rows: tuple[Exported, ...]
    """Metrics of the columns, gauges first."""
    whole: list[int]
    """Numbers of the gauges that are whole numbers."""
    table: Table
    extras: list[bytes]
    """Attributes that each row adds to those of a device."""


@dataclass(frozen=True, slots=True)
class NodeReadings:
    """A copy of what one node reads."""

    inventory: Inventory
    up: bool
    at: int
    """When it was sampled, or that its silence was seen, ns since 1970."""
    values: list[tuple[SentColumns, Floats]]
    """Shape (columns, devices); absent and stale values are NaN."""


@dataclass(slots=True)
class _NodeState:
    """State of a node between two pushes."""

    inventory: Inventory
    devices: dict[Table, list[bytes]]
    """Attributes of each device, in the order of its rows."""
    start: int
    """Time from which its counters count, for who receives them: none says when it began."""
    counters: list[Floats] = field(default_factory=list)


class OtlpGatherer:
    """Makes requests of a view's readings and events."""

    def __init__(self, view: AggregatorView, rows: Sequence[Exported]) -> None:
        self._view = view
        self._release = release()
        self._blocks: list[SentColumns] = [
            found for number, matrix in enumerate(view.fleet.matrices) if (found := _block(number, matrix, rows)).rows
        ]
        self._nodes: dict[str, _NodeState] = {}
        self._last: Event | None = None
        self._left_out = LeftOut(view)

    async def readings(self) -> list[NodeReadings]:
        """Copy what all nodes read; in the event loop, a piece at a time."""
        view, found = self._view, list[NodeReadings]()
        nodes = list(view.fleet.nodes.values())
        for start in range(0, len(nodes), NODES_AT_ONCE):
            if start:
                await asyncio.sleep(0)
            there = [
                node
                for node in nodes[start : start + NODES_AT_ONCE]
                if view.fleet.nodes.get(node.inventory.node) is node
            ]
            found += self._copy(view.fleet, there)
        return found

    def _copy(self, fleet: Fleet, nodes: Sequence[Node]) -> list[NodeReadings]:
        now, wall = self._view.now(), self._view.wall()
        up = [status_of(node, now) is NodeStatus.ONLINE for node in nodes]
        values: list[list[tuple[SentColumns, Floats]]] = [[] for _ in nodes]
        for block in self._blocks:
            matrix = fleet.matrices[block.number]
            spans = [node.rows[matrix.block.table] for node in nodes]
            which = np.concatenate([np.arange(span.start, span.stop) for span in spans] or [np.empty(0, np.intp)])
            gauges = np.empty((len(block.gauges), len(which)), np.float32)
            for number, place in enumerate(block.gauges):
                gauges[number] = matrix.gauges[which, place]
            short = plain(gauges)
            short[block.whole] = gauges[block.whole]  # bytes in full
            counters = [matrix.counters[which, place] for place in block.counters]
            found = np.concatenate([short, np.reshape(counters, (len(counters), len(which)))])
            found[:, now - matrix.seen[which] > matrix.max_age[which]] = np.nan
            begin = 0
            for its, span in zip(values, spans, strict=True):
                end = begin + span.stop - span.start
                if end > begin:
                    its.append((block, found[:, begin:end]))
                begin = end
        return [
            NodeReadings(
                node.inventory, here, node.sampled_at if here and node.sampled_at else wall, its if here else []
            )
            for node, here, its in zip(nodes, up, values, strict=True)
        ]

    def metrics(self, readings: Iterable[NodeReadings]) -> list[tuple[bytes, int]]:
        """Return requests with their numbers of points; in a thread, one call at a time."""
        found, failed = list[tuple[bytes, int]](), dict[str, Exception]()
        for its in readings:
            try:
                found.append(self._resource(its))
            except Exception as error:  # noqa: BLE001 - reported by its name
                failed[f"node/{its.inventory.node}/otlp"] = error
        self._left_out.report(failed)
        known = self._view.fleet.nodes.keys()
        if len(self._nodes) > 2 * len(known) + 64:
            for node in self._nodes.keys() - known:
                del self._nodes[node]
        return requests(found, MOST_BYTES)

    def _resource(self, its: NodeReadings) -> tuple[bytes, int]:
        state = self._state(its)
        groups: dict[str, tuple[Exported, list[bytes]]] = {
            UP.name: (UP, [points([(b"", float(its.up))], b"", None, its.at, UP)[0]])
        }
        total = 1
        for block, values in its.values:
            devices = state.devices[block.table]
            nothing = [b""] * len(devices)
            for row, extra, column in zip(block.rows, block.extras, values.tolist(), strict=True):
                known = nothing if row.is_part else devices
                start = state.start if row.shape is OtlpShape.COUNTER else None
                found, count = points(zip(known, column, strict=True), extra, start, its.at, row)
                if count:
                    groups.setdefault(row.name, (row, []))[1].append(found)
                    total += count
        content = b"".join(metric(row, b"".join(parts)) for row, parts in groups.values())
        return resource(_host(self._view.cluster, its.inventory.node), self._release, content), total

    def _state(self, its: NodeReadings) -> _NodeState:
        """Return the state of a node, whose counters begin anew where one has fallen, or is of another device."""
        node = its.inventory.node
        state = self._nodes.get(node)
        if state is None or state.inventory is not its.inventory:
            before = state
            state = self._nodes[node] = _NodeState(its.inventory, _devices(its.inventory), its.at)
            if before is not None:
                state.start, state.counters = before.start, before.counters
        counters = [values[len(block.gauges) :] for block, values in its.values]
        if [each.shape for each in counters] == [each.shape for each in state.counters]:
            pairs = list(zip(counters, state.counters, strict=True))
            if any((now < then).any() for now, then in pairs):
                state.start = its.at
            # A driver that is loaded anew is not read for a moment: what was before the gap counts.
            state.counters = [np.where(np.isnan(now), then, now) for now, then in pairs]
        elif counters:
            state.start, state.counters = its.at, counters
        return state

    def events(self) -> list[Event]:
        """Return the events that came since the last call, oldest first: of the newest thousand."""
        found = list[Event]()
        for event in self._view.recent_events():
            if event is self._last:
                break
            found.append(event)
        if found:
            self._last = found[0]
        return found[::-1]

    def records(self, events: Iterable[Event], at: int) -> list[tuple[bytes, int]]:
        """Return requests with their numbers of records, without those that can't be written. `at`: ns since 1970."""
        by_node: dict[str, list[bytes]] = {}
        for event in events:
            try:
                written = _record(event, at)
            except Exception as error:  # noqa: BLE001 - reported by its name
                part = f"node/{event.node}/otlp events"
                self._view.pages_aside.fail(part, error, self._view.now())
            else:
                by_node.setdefault(event.node, []).append(written)
        return requests(
            (
                (resource(_host(self._view.cluster, node), self._release, b"".join(some)), len(some))
                for node, some in by_node.items()
            ),
            MOST_BYTES,
        )


def _record(event: Event, at: int) -> bytes:
    """Return an event as a record, in the words of the dashboard."""
    row = event_row(event)
    words = f"{row.label}: {row.value}" if row.value else row.label
    return record(event, words, _SEVERITIES.get(row.tone, _INFO), at)


def _block(number: int, matrix: Matrix, rows: Sequence[Exported]) -> SentColumns:
    """Return the columns of a matrix that are sent; perhaps none."""
    block = matrix.block
    by_metric: dict[str, Exported] = {row.metric: row for row in rows}
    gauges = [place for place, name in enumerate(block.gauges) if name in by_metric]
    counters = [place for place, name in enumerate(block.counters) if name in by_metric]
    names = [*(block.gauges[place] for place in gauges), *(block.counters[place] for place in counters)]
    chosen = tuple(by_metric[name] for name in names)
    extras = [point_attributes(dict(row.attributes)) for row in chosen]
    whole = [place for place, row in enumerate(chosen[: len(gauges)]) if row.whole]
    return SentColumns(number, gauges, counters, chosen, whole, block.table, extras)


def _host(cluster: str, node: str) -> dict[str, str | int | None]:
    """Return the attributes of the resource that a node is."""
    return {"service.name": "kilowatch", "host.name": node, "kilowatch.cluster": cluster}


def _devices(inventory: Inventory) -> dict[Table, list[bytes]]:
    """Return the attributes of a node's devices, in the order of their rows."""
    return {
        table: [point_attributes(_attributes(kind, inventory, one)) for one in kind.devices(inventory)]
        for table, kind in KINDS.items()
    }


def _attributes(kind: TableKind, inventory: Inventory, one: Any) -> dict[str, str | None]:
    """Return the attributes of a device of a kind."""
    its = {"hw.id": kind.key(one), **kind.hardware(inventory, one)}
    return its if kind.owner is None else its | {"hw.parent": kind.owner(one)}
