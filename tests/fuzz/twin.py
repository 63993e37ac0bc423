"""Two aggregators that hear the same honest node, of which one is attacked: all that they show, push, fire and store of
it must be the same, by value and by type."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aiohttp.test_utils import TestClient, TestServer

from aggregator.alerting.pipeline import AlertPipeline
from aggregator.assembly.http_server import make_app
from aggregator.config import StoreConfig
from aggregator.electrical.service import ElectricalService
from aggregator.http import dcgm
from aggregator.http.columns import ColumnChoice, layout, numbers, read
from aggregator.http.exposition import ExpositionPages, joined, render
from aggregator.http.node_metrics import snapshots_of
from aggregator.http.nodes import describe, device
from aggregator.http.rule_input_metrics import RuleInputMetrics
from aggregator.http.sd import target
from aggregator.remote.push import Gatherer, _cells
from aggregator.store.executor import StoreExecutor
from aggregator.view import parts_of
from aggregator.web.past_readings import SHARED_PAST
from alerts.incidents.state import IncidentChanges
from alerts.incidents.storm import GATHER
from alerts.message.page import Links, page_of
from alerts.notifiers.channel import Message
from alerts.notifiers.webhook import Webhook
from alerts.rules.rule import load
from api.alerts import Alert, NotificationState
from power.snapshot.documents import circuit_states, only
from telemetry.devices import Event
from telemetry.metric import Table
from telemetry.wire import exposition
from telemetry.wire import inventory as messages
from telemetry.wire.inventory import CollectorStatus, NodeState
from telemetry.wire.jobs import Allocation, GpuProcess, Job, JobKey, NodeJobs
from telemetry.wire.schema import GPU_FAST, SCHEMA
from telemetry.wire.topics import Topic
from tests.aggregator.fake_view import FakeView
from tests.aggregator.feed import ARRIVAL, Feed
from tests.aggregator.node import inventory, payload
from tests.telemetry.typed import typed

HONEST, HONEST_GPUS = "honest-1", 3
CIRCUIT = "own"
"""The circuit that the honest node hangs on alone."""
SITE = f'[circuits.lab]\nbreaker = 60\nnodes = ["mallory-1"]\n[circuits.{CIRCUIT}]\nbreaker = 60\nnodes = ["{HONEST}"]'
PAGES = (f"/nodes/{HONEST}", *(f"/gpus/GPU-{HONEST}-{row}" for row in range(HONEST_GPUS)), f"/circuits/{CIRCUIT}")
"""Web pages that are compared."""
_OF_OTHERS = re.compile(
    r' <span class="n[^"]*">[\d,]+<span class="hidden"> open</span></span>|(?<=href="incidents/)[^"]+|(?<= data-live=")\w+'
)
"""Parts of a page that go by other nodes: the number of open incidents in the menu, by which of its alerts an incident is
called, and the identity of the whole page."""
LINKS, HOOK = Links(cluster="default", external="http://aggregator"), Webhook(url="http://hook/")
NOTICE_SECONDS = GATHER + 2
"""Seconds by which a notice may come later on one side: pages of one rule on several nodes wait for each other."""
EVENT_EVERY = 8
"""Ticks between two XIDs of the honest node."""
NEWEST = 4_000_000_000
"""Age of events that are compared at a tick, ns: memory has the last thousand of all nodes. The store has all."""


class Side:
    """Ingest, fleet, store, circuits, rules and views of one aggregator."""

    def __init__(self, folder: Path) -> None:
        self.core = Feed(folder, StoreConfig())
        self.electrical = ElectricalService(tomllib.loads(SITE), folder, clock=lambda: self.core.wall)
        self.pipeline = AlertPipeline(load(), self._notify, now=self.core.now, wall=self.core.wall)
        self.view = SideView(self)
        self.pages, self.inputs = ExpositionPages(), RuleInputMetrics()
        self.gatherer = Gatherer(self.view)
        self.told: dict[str, tuple[float, str]] = {}
        """Notices to a webhook of each alert about the honest node and its circuit: the time of the first notice of it, and
        the alert's key."""
        self.in_storms: set[str] = set()
        """Keys of alerts that a storm of hostile nodes has taken in: docs/security.md says that it may, where a broker has no
        access list."""
        self._client: TestClient[Any, Any] | None = None

    def begin(self) -> None:
        """Hear the honest node's status and inventory."""
        status = CollectorStatus(state=NodeState.ONLINE, session=1)
        self.core.publish(HONEST, Topic.STATUS, messages.encode(status))
        self.core.inventory(inventory(HONEST, HONEST_GPUS))
        key, gpu = JobKey("slurm", "honest", "1"), f"GPU-{HONEST}-0"
        jobs = NodeJobs(
            session=1,
            version=1,
            at=self.core.wall,
            jobs=(Job(key=key, user="ann", name='my"job'),),
            allocations=(Allocation(job=key, gpu=gpu, begin=self.core.wall - 10**9),),
            processes=(GpuProcess(gpu=gpu, pid=7, name='my"app', job=key),),
        )
        self.core.publish(HONEST, Topic.JOBS, messages.encode(jobs))

    def hear(self, seq: int) -> None:
        """Hear the honest node's next frame, and now and then an XID."""
        core = self.core
        core.publish(HONEST, Topic.FRAME, payload(HONEST, HONEST_GPUS, 1, seq, at=core.wall))
        if seq % EVENT_EVERY == 1:
            event = Event(
                id=f"1-{seq}",
                node=HONEST,
                at=core.wall,
                kind="xid",
                gpu=f"GPU-{HONEST}-0",
                data={"xid": 31 if seq % 16 == 1 else 79},
            )
            core.publish(HONEST, Topic.EVENT, messages.encode(event))

    def evaluate(self) -> None:
        """Bring what came into the fleet, and evaluate circuits and rules on it."""
        core = self.core
        core.flush()
        core.ingest.drain_commands(core.now)
        core.ingest.drain_sample_times()
        found = self.electrical.snapshots(core.fleet, core.now, core.wall)
        self.pipeline.evaluate(
            core.fleet,
            core.now,
            core.wall,
            core.ingest.drain_events(),
            listening=True,
            snapshots=() if found is None else found.all(),
        )

    def _notify(self, changes: IncidentChanges, _records: object) -> None:
        """Note what a webhook is told of the honest part: of each alert, for which of a node's alerts come first, and so
        what its incident is called, goes by how many there are of others."""
        for notice in changes.notices:
            alerts = notice.incident.alerts
            message = Message("hook", notice, page_of(notice, LINKS, notice.at), LINKS, notice.at)
            for alert, body in zip(alerts, HOOK.body(message)["alerts"], strict=True):
                if alert.node == HONEST or alert.name == CIRCUIT:
                    told = {name: body[name] for name in ("status", "startsAt", "labels")}
                    self.told.setdefault(repr(told), (self.core.now, alert.key))

    def in_a_storm(self, key: str) -> bool:
        """Return whether an alert is told with the number of a storm here."""
        status = self.pipeline.manager.status(key)
        return status is not None and status.state is NotificationState.STORM

    async def pages_served(self) -> dict[str, list[str]]:
        """Return the web pages of the honest node, its GPUs and its circuit as they are served, in pieces, but for
        `_OF_OTHERS`; both sides have one clock, so that no time differs."""
        if self._client is None:
            app = make_app(self.view)
            app[SHARED_PAST].seconds = -1.0  # of another clock
            self._client = TestClient(TestServer(app))
            await self._client.start_server()
        found = {}
        for path in PAGES:
            async with self._client.get(path, headers={"Cache-Control": "no-cache"}) as answer:
                text = _OF_OTHERS.sub("", await answer.text())
                found[f"the web page {path}"] = [str(answer.status), *text.split("<")]
        return found

    async def shown(self) -> dict[str, Any]:
        """Return all that is shown, pushed and fired of the honest node, by what it is, with types."""
        core, view = self.core, self.view
        fleet, now = core.fleet, core.now
        node = fleet.nodes[HONEST]
        choice = ColumnChoice(Table.GPU, ("gpu_power_watts", "gpu_temperature_celsius"), (HONEST,))
        snapshots = await snapshots_of(view, self.pages, self.inputs, [node], True)
        pushed = await self.gatherer.snapshots()
        electrical, states = self.electrical, []
        if electrical.latest is not None and electrical.site.layout is not None:
            part = only(electrical.latest.circuit, [CIRCUIT])
            states = circuit_states(electrical.site.layout, part, {}, parts_of(view, "twin"))
        return {
            "the page of its readings": render(joined(snapshots)),
            "the page with the names of dcgm-exporter": exposition.render(dcgm.families(view, node, "Hostname")),
            "the push": sorted(cell for one in pushed for cell in _cells(one) if f'node="{HONEST}"' in cell[1]),
            "its line in the list of nodes": typed(describe(node, now)),
            "its readings": typed(
                [
                    tuple(device(fleet, table, row, now))
                    for table in (Table.GPU, Table.NODE)
                    for row in range(node.rows[table].start, node.rows[table].stop)
                ]
            ),
            "its columns": typed(numbers(read(fleet, layout(fleet, choice.table, choice.nodes), choice.columns, now))),
            "its jobs": typed(view.jobs.lists.get(HONEST)),
            "its scrape target": typed(target(node, "a:1", "node", ("labels", "device"))),
            "its circuit": typed(states),
            "its alerts": typed([one for one in self.pipeline.alerts() if one.node == HONEST]),
            "its newest events": typed([one for one in view.recent_events() if one.node == HONEST]),
        }

    def stored(self) -> dict[str, Any]:
        """Return all that the store has of the honest node, with types."""
        store, until = self.core.store, self.core.wall + 1
        rows = {
            f"{name} of GPU {row}": typed(store.history(f"GPU-{HONEST}-{row}", name, ARRIVAL - 10**9, until, 0.0))
            for row in range(HONEST_GPUS)
            for name in SCHEMA.blocks[GPU_FAST].names
        }
        events = store.events(ARRIVAL - 10**9, until, HONEST, None, 10_000)
        return {**rows, "events": typed([one.event for one in events])}

    async def close(self) -> None:
        """Close the store and the server."""
        if self._client is not None:
            await self._client.close()
        await self.view.store.close()


class SideView(FakeView):
    """What HTTP and the push see of a side."""

    def __init__(self, side: Side) -> None:
        super().__init__("default")
        self._side = side
        self.store = StoreExecutor(side.core.store, side.core.stats)
        self.fleet, self.jobs = side.core.fleet, side.core.ingest.jobs
        self.electrical, self.pipeline = side.electrical, side.pipeline

    def now(self) -> float:
        """The time that the target has."""
        return self._side.core.now

    def wall(self) -> int:
        """The same, ns since 1970."""
        return self._side.core.wall

    def alerts(self) -> Sequence[Alert]:
        """Those of its rules."""
        return self._side.pipeline.alerts()

    def recent_events(self) -> Sequence[Event]:
        """Return the events that came lately."""
        since = self.wall() - NEWEST
        return [one for one in reversed(self._side.core.ingest.recent) if one.at > since]


def told_alone(attacked: Side, alone: Side) -> list[str]:
    """Return what one webhook was told `NOTICE_SECONDS` ago and the other was not, but for what storms have taken in."""
    missing = [
        (side.core.now - at, key, told)
        for side, other in ((attacked, alone), (alone, attacked))
        for told, (at, key) in side.told.items()
        if told not in other.told
    ]
    attacked.in_storms |= {key for _, key, _ in missing if attacked.in_a_storm(key)}
    return [told for late, key, told in missing if late > NOTICE_SECONDS and key not in attacked.in_storms]


def differences(attacked: dict[str, Any], alone: dict[str, Any]) -> list[str]:
    """Return what differs, each with both ends; by their texts, in which a gap equals a gap, and 0 is not -0."""
    return [
        f"{name}: {_first_difference(attacked.get(name), alone.get(name))}"
        for name in attacked.keys() | alone.keys()
        if repr(attacked.get(name)) != repr(alone.get(name))
    ]


def _first_difference(one: Any, other: Any) -> str:
    """Return where two nested values begin to differ."""
    if isinstance(one, bytes) and isinstance(other, bytes):
        return _first_difference(one.splitlines(), other.splitlines())
    if type(one) is type(other) and isinstance(one, list | tuple):
        for mine, its in zip(one, other, strict=False):
            if repr(mine) != repr(its):
                return _first_difference(mine, its)
        return f"{len(one)} items, {len(other)} alone"
    return f"{one!r}"[:400] + f", alone {other!r}"[:400]
