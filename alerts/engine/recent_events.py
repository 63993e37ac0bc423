"""Events: the rows that they belong to, whether they were evaluated, and what they disturb."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from alerts.rules.row_memory import Floats, Index, RowMemory, RowMove, of_holders
from api.alerts import Subject
from telemetry.devices import Event
from telemetry.fleet import Fleet, Node
from telemetry.metric import Table
from telemetry.wire.inventory import Inventory

REMEMBERED = 200_000
"""Number of event ids that are remembered; the oldest are dropped."""
DISTURBS = frozenset(
    {"driver_reloaded", "driver_up", "gpu_back", "gpu_replaced", "gpu_answers", "mig_changed", "collector_started"}
)
"""Events after which counters, links and clocks need a while before they mean anything."""


class EvaluatedEvents:
    """Ids of the events that were evaluated: each is evaluated once, however often it comes."""

    def __init__(self) -> None:
        self._ids: OrderedDict[tuple[str, str], None] = OrderedDict()

    def filter_new(self, events: Iterable[Event]) -> list[Event]:
        """Return the events that were not seen before, and remember them."""
        fresh = []
        for event in events:
            key = event.node, event.id
            if key not in self._ids:
                self._ids[key] = None
                fresh.append(event)
        while len(self._ids) > REMEMBERED:
            self._ids.popitem(last=False)
        return fresh


class DisturbanceTracker:
    """Moments at which each row's readings were last disturbed: a reset, a reload, a new device."""

    def __init__(self) -> None:
        self._rows = {table: RowMemory() for table in Table}

    @property
    def at(self) -> Mapping[Table, Floats]:
        """Monotonic seconds for each row; -inf for a row that was never disturbed."""
        return {table: self._array(table) for table in Table}

    @property
    def bytes(self) -> int:
        """Bytes in memory."""
        return sum(rows.bytes for rows in self._rows.values())

    def _array(self, table: Table) -> Floats:
        array: Floats = self._rows[table].array("since", np.float64, -np.inf)
        return array

    def move(self, changes: Mapping[Subject, RowMove], now: float) -> None:
        """Move the entries of the devices to their new rows; a new device is disturbed."""
        for table, rows in self._rows.items() if changes else ():
            change = changes.get(Subject(table))
            if change is None:
                continue
            rows.move(change)
            array = self._array(table)
            new = np.setdiff1d(change.touched[change.touched < change.size], change.new)
            array[new] = now

    def resize(self, sizes: Mapping[Table, int]) -> None:
        """Begin anew with so many rows, none of which was ever disturbed."""
        self._rows = {table: RowMemory(sizes[table]) for table in Table}

    def watch(self, energy: Floats, gpu_of_link: Index, now: float) -> None:
        """Record the GPUs whose energy counter went back: they were reset, with or without an event."""
        last = self._rows[Table.GPU].array("energy", np.float64, np.nan)
        back = energy < last
        if np.count_nonzero(back):
            self._array(Table.GPU)[back] = now
            self._array(Table.LINK)[of_holders(back, gpu_of_link, False)] = now
        np.copyto(last, energy, where=~np.isnan(energy))

    def disturb(self, fleet: Fleet, event: Event, now: float) -> None:
        """Record the devices that an event disturbs."""
        if event.kind in DISTURBS:
            for other, rows in fleet.nodes[event.node].rows.items():
                self._array(other)[rows] = now


Placed = dict[Table, list[tuple[int, Event]]]
"""Row and event, by table."""


@dataclass(slots=True)
class PlacedEvents:
    """Events with the rows that they belong to."""

    placed: Placed = field(default_factory=lambda: {table: [] for table in Table})
    unplaced: int = 0
    """Number of events of nodes that are not in the fleet."""
    faults: list[tuple[Event, Exception]] = field(default_factory=list)
    """Events that can't be placed, by a fault of our own."""


def place_events(
    fleet: Fleet, events: Sequence[Event], oldest: int, before: Callable[[Event], None] = lambda _: None
) -> PlacedEvents:
    """Return the rows that events belong to. `before` is called with each event that has a row.

    A GPU is found by its UUID, else by its PCI address; an event of no known GPU is its node's.
    Events before `oldest` (ns since 1970) are left out; those of nodes that are not in the fleet have
    no row.
    """
    found = PlacedEvents()
    for event in events:
        try:
            node = fleet.nodes.get(event.node)
            if node is None:
                found.unplaced += 1
            elif event.at >= oldest:
                row = _gpu_row(node, event)
                before(event)
                if row is None:
                    first = node.row
                    found.placed[Table.NODE].append((first, with_adapter(node.inventory, event)))
                else:
                    found.placed[Table.GPU].append((row, event))
        except Exception as error:  # noqa: BLE001 - kept with the event
            found.faults.append((event, error))
    return found


def with_adapter(inventory: Inventory, event: Event) -> Event:
    """Return an event of a node with one name for a network adapter, which lines of the kernel name by its PCI
    address, its interface or itself."""
    unit = event.data.get("unit")
    if event.kind != "node_log" or not unit:
        return event
    for port in inventory.ports:
        if unit in {port.pci, port.interface, port.adapter}:
            name = f"{port.adapter} ({port.pci})" if port.pci else port.adapter
            return msgspec.structs.replace(event, data={**event.data, "unit": name})
    return event


def _gpu_row(node: Node, event: Event) -> int | None:
    first: int = node.rows[Table.GPU].start
    for offset, gpu in enumerate(node.inventory.gpus):
        if event.gpu == gpu.uuid:
            return first + offset
    address = _slot(event.pci)
    if event.gpu is None and address is not None:
        for offset, gpu in enumerate(node.inventory.gpus):
            if _slot(gpu.pci) == address:
                return first + offset
    return None


def _slot(pci: str | None) -> str | None:
    """Return domain, bus and device without the function, which log lines leave out."""
    return None if pci is None else pci.lower().partition(".")[0]
