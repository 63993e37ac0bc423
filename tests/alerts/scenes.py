"""A cluster under the shipped rules, its circuits and the incident manager, in a time that tests set.

The readings are those of a source, taken and completed as a collector does; what happened goes
through the collector's own merging of XIDs. Nothing is sent: what people would be told is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from aggregator.alerting.pipeline import AlertPipeline
from aggregator.electrical.service import ElectricalService
from alerts.engine.restore import AlertRecord
from alerts.incidents.state import IncidentChanges
from alerts.notice import Notice
from alerts.rules.rule import load
from api.alerts import Action, Severity
from collector.host.kernel_log import event_of
from collector.sampling.rows import overlaid
from collector.sampling.self_metrics import node_metrics
from collector.sampling.xid_events import XidEvents
from collector.simulated import Scenario, SimulatedSource
from collector.simulated.scenario import EPOCH
from collector.source import DeviceEvent, Rows, Source
from kilowatch.stack.demo_site import site_of
from telemetry.devices import Event
from telemetry.fleet import Fleet
from telemetry.metric import Lane
from telemetry.notations.kernel_log import parse_line
from telemetry.wire.inventory import Inventory
from telemetry.wire.schema import SCHEMA

START = EPOCH * 1_000_000_000
SLOW = 15
"""Seconds between two readings of the slow lane."""
RULES = load()


class Player:
    """One node: its source, and what a collector keeps between two ticks."""

    def __init__(self, name: str, source: Source) -> None:
        self.name = name
        self.source = source
        self.placed: Inventory | None = None
        self.merged = XidEvents()
        self.number = 0

    def events(self, happenings: Sequence[DeviceEvent], wall: int) -> list[Event]:
        """Merge and number what happened."""
        known = {gpu.pci: gpu.uuid for gpu in self.source.inventory.gpus if gpu.pci is not None}
        out = []
        for one in self.merged.merge(happenings, wall, known):
            self.number += 1
            out.append(
                Event(
                    id=f"1-{self.number}",
                    node=self.name,
                    at=one.at,
                    kind=one.kind,
                    gpu=one.gpu,
                    pci=one.pci,
                    message=one.message,
                    data=one.data,
                )
            )
        return out


class Scene:
    """A fleet, the rules, and an incident manager whose notices are kept."""

    def __init__(self, sources: Mapping[str, Source], site: Mapping[str, Any], folder: Path) -> None:
        self.players = [Player(name, source) for name, source in sources.items()]
        self.second = 0
        self.notices: list[Notice] = []
        self.fleet = Fleet()
        self.electrical = ElectricalService(site, folder, clock=lambda: self.wall)
        self.pipeline = AlertPipeline(RULES, self._keep, now=self.now, wall=self.wall)
        self._told: dict[str, list[DeviceEvent]] = {}

    @classmethod
    def of(cls, scenario: Scenario, folder: Path) -> Scene:
        """Return a simulated cluster on the circuits that its demonstration hangs on."""
        sources = {name: SimulatedSource(scenario, name) for name in scenario.nodes}
        return cls(sources, site_of(scenario), folder)

    @property
    def now(self) -> float:
        """Monotonic seconds."""
        return 5000.0 + self.second

    @property
    def wall(self) -> int:
        """ns since 1970."""
        return START + self.second * 1_000_000_000

    def _keep(self, step: IncidentChanges, _: Sequence[AlertRecord] | None) -> None:
        self.notices += step.notices

    # -- Time ------------------------------------------------------------------------------------

    async def play(self, seconds: int, every: int = 1) -> None:
        """Let time pass; the rules run every so many seconds."""
        for _ in range(seconds // every):
            self.second += every
            events = [event for player in self.players for event in await self._tick(player, every)]
            snapshots = self.electrical.snapshots(self.fleet, self.now, self.wall)
            self.pipeline.evaluate(
                self.fleet,
                self.now,
                self.wall,
                events,
                listening=True,
                snapshots=() if snapshots is None else snapshots.all(),
            )
            self._turn(every)

    def _turn(self, every: int) -> None:
        """Let the manager do what is due before the next tick."""
        for _ in range(100):
            due = self.pipeline.manager.next_due()
            if due is None or due >= self.now + every:
                return
            at = max(due, self.now)
            self.pipeline.advance(at, self.wall + round((at - self.now) * 1e9))
        raise AssertionError("the manager is never done")

    async def _tick(self, player: Player, every: int) -> list[Event]:
        source, tick = player.source, EPOCH + self.second
        if isinstance(source, SimulatedSource) and source.silent(tick):
            return []
        slow = self.second % SLOW < every or player.placed is None
        lanes = frozenset(Lane) if slow else frozenset({Lane.FAST})
        rows = await source.read(lanes, tick, self.wall, 1.0)
        if source.inventory is not player.placed:
            player.placed = source.inventory
            self.fleet.place(msgspec.structs.replace(source.inventory, node=player.name))
        rows |= overlaid(rows, node_metrics(source.inventory, rows, len(source.inventory.gpus)))
        self._store(player, rows)
        news = [*source.drain_events(), *self._told.pop(player.name, [])]
        return player.events(news, self.wall)

    def _store(self, player: Player, rows: Rows) -> None:
        node = self.fleet.nodes[player.name]
        node.seen, node.sampled_at = self.now, self.wall
        for number, table in rows.items():
            block = SCHEMA.blocks[number]
            values = np.array(table).reshape(len(table), len(block.names))
            split = len(block.gauges)
            with np.errstate(invalid="ignore"):
                gauges = values[:, :split].astype(np.float32)
            self.fleet.store(number, node.rows[block.table], gauges, values[:, split:], self.now)

    def say(self, node: str, *lines: str, pci: str | None = None) -> None:
        """Let the kernel of a node log lines at the next tick; `pci`: of a GPU, for `{pci}`."""
        for line in lines:
            text = line.replace("{pci}", (pci or "").rpartition(".")[0])
            record = parse_line(text)
            assert record is not None, f"no line of the driver's: {text}"
            at = self.wall + 1_000_000_000
            self._told.setdefault(node, []).append(event_of(record, text, at))

    def pci(self, node: str, gpu: int) -> str:
        """Return the address of a GPU."""
        [player] = [player for player in self.players if player.name == node]
        return player.source.inventory.gpus[gpu].pci or ""

    # -- Notifications -----------------------------------------------------------------------------

    def told(self, severity: Severity, action: Action = Action.TRIGGER) -> list[Notice]:
        """Return the incidents that were notified with a severity, each once."""
        found: dict[str, Notice] = {}
        for notice in self.notices:
            if notice.action is action and notice.incident.severity is severity:
                found.setdefault(notice.incident.key, notice)
        return list(found.values())

    def pages(self) -> list[str]:
        """Return the titles of the pages."""
        return [notice.incident.title for notice in self.told(Severity.PAGE)]

    def tickets(self) -> list[str]:
        """Return the titles of the tickets."""
        return [notice.incident.title for notice in self.told(Severity.TICKET)]

    def delay(self, notice: Notice) -> float:
        """Return the seconds from the start of the scene to a notice."""
        return (notice.at - START) / 1e9
