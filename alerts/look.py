"""One look at the fleet: what all rules of one tick judge, each column read once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from alerts.judging import Floats
from alerts.rows import Census
from telemetry.catalogue import BY_NAME
from telemetry.fleet import Fleet, Node
from telemetry.inventory import Event
from telemetry.metric import Table


@dataclass(slots=True)
class Look:
    """The fleet at one instant, and what happened since the look before."""

    fleet: Fleet
    census: Census
    now: float
    listening_since: float
    """Since when the aggregator itself could hear, monotonic seconds: nobody is called silent for
    a time in which we were deaf."""
    happened: dict[Table, list[tuple[int, Event]]]
    _columns: dict[tuple[str, Table], Floats] = field(default_factory=dict)
    _silence: tuple[Floats, Floats] | None = None

    def values(self, metric: str, table: Table) -> Floats:
        """One metric of every row of `table`; links see their GPU's, GPUs their node's."""
        found = self._columns.get((metric, table))
        if found is None:
            home = BY_NAME[metric].table
            if table is home:
                found = self.fleet.column(metric, self.now)
            else:
                # One step up the tree of what holds what; a link reaches its node in two.
                above = Table.GPU if table is Table.LINK else Table.NODE
                found = self.values(metric, above)[self.census.owner[table]]
            self._columns[metric, table] = found
        return found

    def silence(self) -> tuple[Floats, Floats]:
        """Seconds since each node was heard and the interval it promised; NaN for free rows."""
        if self._silence is None:
            size = self.fleet.size(Table.NODE)
            ages, intervals = np.full(size, np.nan), np.ones(size)
            nodes = self.fleet.nodes.values()
            rows = np.fromiter((node.rows[Table.NODE].start for node in nodes), np.intp)
            heard = np.fromiter((node.seen for node in nodes), np.float64)
            ages[rows] = self.now - np.maximum(heard, self.listening_since)
            intervals[rows] = np.fromiter((node.interval for node in nodes), np.float64)
            self._silence = ages, intervals
        return self._silence


@dataclass(slots=True)
class RuleSight:
    """A look through the eyes of one rule; fits `alerts.judging.Sight`."""

    look: Look
    table: Table
    size: int
    firing: npt.NDArray[np.bool_]

    @property
    def now(self) -> float:
        """Monotonic seconds."""
        return self.look.now

    def values(self, metric: str) -> Floats:
        """One metric of every row of the rule's table."""
        return self.look.values(metric, self.table)

    def silence(self) -> tuple[Floats, Floats]:
        """Silence and interval of each node."""
        return self.look.silence()

    def happened(self) -> list[tuple[int, Event]]:
        """Events by row of the rule's table."""
        return self.look.happened[self.table]


def place_events(
    fleet: Fleet, events: Sequence[Event], oldest: int
) -> tuple[dict[Table, list[tuple[int, Event]]], int]:
    """Return the rows that events belong to, and how many belong nowhere.

    A GPU is found by its UUID, else by its PCI address; an event of no GPU that we know is its
    node's. Events before `oldest` (ns since 1970) are history and left out; those of nodes that
    the fleet does not know can't be placed.
    """
    placed: dict[Table, list[tuple[int, Event]]] = {table: [] for table in Table}
    lost = 0
    for event in events:
        node = fleet.nodes.get(event.node)
        if node is None:
            lost += 1
        elif event.at >= oldest:
            row = _gpu_row(node, event)
            if row is None:
                placed[Table.NODE].append((node.rows[Table.NODE].start, event))
            else:
                placed[Table.GPU].append((row, event))
    return placed, lost


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
    """Domain, bus and device without the function, which log lines leave out."""
    return None if pci is None else pci.lower().partition(".")[0]
