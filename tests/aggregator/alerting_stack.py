"""A hall of many nodes in a time that a test sets: fleet, rules and incident manager as in the aggregator.

What is said goes into a list instead of out; nothing waits, so an hour takes seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from aggregator.alerting.pipeline import AlertPipeline, timings_of
from alerts.config import AlertsConfig
from alerts.engine.restore import AlertRecord
from alerts.incidents.state import IncidentChanges
from alerts.notice import Notice
from alerts.rules.rule import Rule, load
from api.alerts import Action
from telemetry.devices import Event
from telemetry.fleet import Fleet
from telemetry.gap import GAP, Gap
from telemetry.wire.inventory import Inventory
from telemetry.wire.schema import GPU_FAST, SCHEMA
from tests.aggregator.fake_view import inventory

NOON = 1_790_000_000 * 10**9
_BLOCK = SCHEMA.blocks[GPU_FAST]
_TEMPERATURE = _BLOCK.names.index("gpu_temperature_celsius")


def with_own_boards(found: Inventory) -> Inventory:
    """Return an inventory whose boards no other node has."""
    gpus = tuple(msgspec.structs.replace(gpu, serial=f"{found.node}-{gpu.index}") for gpu in found.gpus)
    return msgspec.structs.replace(found, gpus=gpus)


class Hall:
    """Nodes with two GPUs each, all well unless a test says otherwise."""

    def __init__(self, nodes: int, rules: Sequence[Rule] | None = None) -> None:
        self.fleet = Fleet()
        self.names = [f"n{number}" for number in range(nodes)]
        self.placed = {name: self.fleet.place(with_own_boards(inventory(name))) for name in self.names}
        self.now, self.wall = 5000.0, NOON
        self.silent: set[str] = set()
        self.hot: set[tuple[str, int]] = set()
        self.listening = True
        self.notices: list[Notice] = []
        self.pipeline = AlertPipeline(
            load([]) if rules is None else rules,
            self._keep,
            timings=timings_of(AlertsConfig()),
            now=self.now,
            wall=self.wall,
        )
        self._events = 0

    def _keep(self, step: IncidentChanges, _: Sequence[AlertRecord] | None) -> None:
        self.notices += step.notices

    def pass_by(self, seconds: float, *events: Event, every: float = 1.0) -> list[Notice]:
        """Let time pass, with the events in its first tick; return what was said in it."""
        before = len(self.notices)
        for _ in range(round(seconds / every)):
            self.now += every
            self.wall += round(every * 1e9)
            self._read()
            self.pipeline.evaluate(self.fleet, self.now, self.wall, events, listening=self.listening, snapshots=())
            events = ()
            due = self.pipeline.manager.next_due()
            while due is not None and due < self.now + every:
                self.pipeline.advance(due, self.wall + round(max(0.0, due - self.now) * 1e9))
                later = self.pipeline.manager.next_due()
                due = None if later == due else later
        return self.notices[before:]

    def xid(self, node: str, gpu: int, number: int = 79) -> Event:
        """Return an XID that a node reports now."""
        self._events += 1
        return Event(
            id=f"1-{self._events}", node=node, at=self.wall, kind="xid", gpu=f"GPU-{node}-{gpu}", data={"xid": number}
        )

    def _read(self) -> None:
        heard = [name for name in self.names if name not in self.silent] if self.listening else []
        if not heard:
            return
        rows = np.concatenate(
            [np.arange(self.placed[n].rows[_BLOCK.table].start, self.placed[n].rows[_BLOCK.table].stop) for n in heard]
        )
        gauges = np.full((len(rows), len(_BLOCK.gauges)), GAP[Gap.NOT_SUPPORTED], np.float32)
        gauges[:, _TEMPERATURE] = [85.0 if (name, gpu) in self.hot else 50.0 for name in heard for gpu in range(2)]
        counters = np.full((len(rows), len(_BLOCK.counters)), GAP[Gap.NOT_SUPPORTED], np.float64)
        self.fleet.store(GPU_FAST, rows, gauges, counters, self.now)
        for name in heard:
            self.placed[name].seen = self.now


def calls(notices: Iterable[Notice]) -> list[str]:
    """Return the titles of notices that notify a person."""
    return [one.incident.title for one in notices if one.action is Action.TRIGGER]
