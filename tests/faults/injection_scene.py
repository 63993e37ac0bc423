"""An aggregator in virtual time: everything from the border to the receiver of pages, but the socket of
the bus. A second takes milliseconds, and nothing waits for a real clock."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest

from aggregator import service
from aggregator.config import AggregatorConfig, StoreConfig
from aggregator.meters import MeterHub
from aggregator.mqtt.client import FanInClient
from aggregator.service import Aggregator
from alerts.config import AlertsConfig
from alerts.rules.rule import Rule, conditions_of, load
from power.meters.sample import MeterSample
from telemetry.devices import Event, Gpu, Link
from telemetry.gap import NOT_SUPPORTED
from telemetry.wire import frame as frames
from telemetry.wire import inventory as messages
from telemetry.wire.inventory import CollectorStatus, Inventory, NodeState
from telemetry.wire.jobs import Allocation, GpuProcess, Job, JobKey, JobSourceState, NodeJobs
from telemetry.wire.schema import GPU_FAST, GPU_SLOW, LINK_FAST, NODE_FAST, SCHEMA
from telemetry.wire.topics import Topic, topic
from tests.alerts.pager import Pager
from tests.brokers import free_port

VICTIM, HONEST = "victim-node", "honest-node"
RULE, CIRCUIT, CHANNEL, METER = "victim_rule", "victim-circuit", "victim-channel", "victim-meter"
WRONG = "victim-meter-in-kilowatts"
PROBE = f"{HONEST}-probe"
"""A node whose pages come after an injection, so that channels have something to recover with."""
NODES = 8
RULES = f"""
[[rule]]
name = "{RULE}"
when = {{ type = "above", metric = "gpu_temperature_celsius", level = 80 }}
severity = "ticket"
remediation = "reset"
summary = "{{where}} is at {{value}}"
description = "Let it cool."
runbook = "hot"

[[rule]]
name = "honest_rule"
when = {{ type = "event", kinds = ["xid"], xids = [12] }}
keep = 1
severity = "page"
remediation = "reset"
summary = "honest page of {{where}}"
description = "Look at {{node}}."
runbook = "honest"
"""
SITE = {
    "circuits": {
        CIRCUIT: {"breaker": 20, "volts": 230, "nodes": [VICTIM]},
        "honest-circuit": {"breaker": 200, "volts": 230, "poles": 3, "nodes": [f"{HONEST}-{n}" for n in range(NODES)]},
    },
    "budgets": {"victim-budget": {"kw": 5, "circuits": [CIRCUIT]}, "honest-budget": {"kw": 500, "circuits": ["honest-circuit"]}},
    "ups": {"victim-ups": {"watts": 3000, "circuits": [CIRCUIT]}},
    "meters": {
        METER: {"type": "tasmota", "topic": "victim", "on": CIRCUIT},
        WRONG: {"type": "tasmota", "topic": "wrong", "on": VICTIM},
    },
}  # fmt: skip
START = 1_790_000_000 * 10**9
RATE = {"per_minute": 6000, "burst": 1000}
"""Limits of the channels. A fault is followed by a dozen messages within seconds: at the usual 108 a minute a
page would wait for those before it, after some dozen faults in one scene, and not for the fault."""
NOW_AND_THEN = (
    "aggregator.alerting.journal_writer.IDLE_SECONDS",
    "aggregator.alerting.rule_memory.PERIOD",
    "aggregator.alerting.service.FEED_SECONDS",
    "aggregator.assembly.jobs_loop.STEP_SECONDS",
    "aggregator.assembly.jobs_loop.USE_SECONDS",
    "aggregator.electrical.service.SAVE_SECONDS",
    "aggregator.electrical.site_months.STEP",
    "aggregator.ingest.router.SWEEP_EVERY",
    "aggregator.jobs.service.KEPT_SECONDS",
    "aggregator.jobs.write_times.WRITE_SECONDS",
    "aggregator.mqtt.power_topics.AGAIN_SECONDS",
    "aggregator.service.UPKEEP_SECONDS",
    "alerts.incidents.clock.STORE_EVERY",
)
"""Periods of what happens every few seconds or minutes: here every two seconds, so that it happens while a
fault is injected into it."""


@dataclass
class Clock:
    """The only clock of the process while it is in force."""

    seconds: float = 1000.0
    ahead: float = 0.0
    """Seconds by which the time of day was stepped."""

    def passed(self) -> float:
        """Return how far the time of day is past `START`, seconds."""
        return self.seconds - 1000.0 + self.ahead

    @contextlib.contextmanager
    def in_force(self) -> Iterator[None]:
        """Set every clock to this one, in the block."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time, "monotonic", lambda: self.seconds)
            patch.setattr(time, "time_ns", lambda: START + round(self.passed() * 1e9))
            patch.setattr(time, "time", lambda: START / 1e9 + self.passed())
            yield


class SilentBus(FanInClient):
    """The client of the bus without its socket: the scene brings the messages."""

    last: SilentBus

    async def run(self) -> None:
        """Be connected."""
        SilentBus.last = self
        self._stats.bus_connected, self._stats.bus_connects = True, 1
        await asyncio.Event().wait()

    def publish(self, *_: Any, **__: Any) -> bool:
        """Accept a message."""
        return True

    def command(self, *_: Any) -> bool:
        """Accept a command; no frame that is requested ever comes."""
        return True

    def bring(self, name: str, payload: bytes) -> None:
        """Receive a message."""
        self._receive(name, payload)


@dataclass
class Scene:
    """The aggregator, its nodes, and what they have sent."""

    folder: Path
    clock: Clock = field(default_factory=Clock)
    pager: Pager = field(default_factory=Pager)
    seq: int = -1
    events: int = 0
    hot: bool = False
    """Whether the victim's GPUs are hot."""
    site: dict[str, Any] = field(default_factory=lambda: SITE)
    """The [power] section."""
    store: StoreConfig = field(default_factory=lambda: StoreConfig(write_seconds=1.0))
    gpu_watts: dict[str, float] = field(default_factory=dict)
    """Watts of each GPU of a node. [300]"""
    names: list[str] = field(default_factory=lambda: [VICTIM, *(f"{HONEST}-{n}" for n in range(NODES)), PROBE])
    often: tuple[str, ...] = NOW_AND_THEN
    """Periods that are two seconds here."""
    skipped: set[int] = field(default_factory=set)
    _busy: int = 0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Run the aggregator until the end of the block."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "rules.toml").write_text(RULES)
        channels = {name: self.pager.settings(self.folder, **RATE) for name in (CHANNEL, "honest-channel")}
        config = AggregatorConfig(
            data_dir=self.folder / "data",
            listen=f"127.0.0.1:{free_port()}",
            rules=(self.folder / "rules.toml",),
            flush_seconds=1.0,
            rule_seconds=1.0,
            power=self.site,
            store=self.store,
            alerts=msgspec.convert({"channels": channels, "group_wait_seconds": 0}, AlertsConfig),
        )
        with self.clock.in_force(), pytest.MonkeyPatch.context() as patch:
            patch.setattr(service, "FanInClient", SilentBus)
            patch.setattr(MeterHub, "run", _forever)
            patch.setattr(service, "load_rules", self.load_rules)
            patch.setattr(Aggregator, "_shed", _forever)  # it measures real CPU time
            for name in self.often:
                patch.setattr(name, 2.0)
            self._count_threads(patch)
            self.aggregator = Aggregator(config)
            one = self.aggregator
            one.jobs.meter._lag = 2.0
            one.impairments._clock = one.marks._clock = time.monotonic
            one.impairments._wall = one.electrical._clock = time.time_ns
            timings = self.aggregator.alerting._timings
            self.aggregator.alerting._timings = msgspec.structs.replace(
                timings,
                settle=0.5,
                settle_recurring=0.5,
                storm_size=10_000,
                flap_start=10_000,
                together=0.5,
                ticket_wait=0.5,
            )
            stop = asyncio.Event()
            async with self.pager.listening():
                task = asyncio.create_task(self.aggregator.run(stop))
                while not self.aggregator.serving.is_set():
                    assert not task.done(), task
                    await self._quiet()
                    self.clock.seconds += 0.01
                one.store.content._clock = time.monotonic
                for name in self.names:
                    self._hello(name)
                try:
                    yield self
                finally:
                    stop.set()
                    while not task.done():
                        self.clock.seconds += 0.05
                        await self._quiet()
                    await asyncio.gather(task, return_exceptions=True)

    @staticmethod
    def load_rules(paths: Sequence[Path]) -> tuple[Rule, ...]:
        """Return the rules of the aggregator."""
        return few_rules(paths)

    def _count_threads(self, patch: pytest.MonkeyPatch) -> None:
        """Count the calls that any thread of a pool works at: no time passes meanwhile."""
        wrap = asyncio.wrap_future

        def counted(future: Any, *, loop: Any = None) -> Any:
            wrapped = wrap(future, loop=loop)
            if wrapped is not future:
                self._busy += 1
                wrapped.add_done_callback(self._done)
            return wrapped

        patch.setattr(asyncio, "wrap_future", counted)
        patch.setattr(asyncio.futures, "wrap_future", counted)  # that of `run_in_executor`

    def _done(self, _: Any) -> None:
        self._busy -= 1

    async def _quiet(self) -> None:
        """Wait for everything that happens at this instant."""
        loop, calm = asyncio.get_running_loop(), 0
        for _ in range(20_000):  # seconds: what does not end is the injected fault
            for _ in range(6):
                await asyncio.sleep(0)
            if self.aggregator._round_robin._waiting:
                calm = 0
            elif self._busy or self.pager.at_once or self._sending():
                calm = 0
                # Until a thread, or the receiver of pages, has something for this one.
                if not loop._ready:
                    loop._selector.select(0.0005)
            elif (calm := calm + 1) == 3:
                return

    def _sending(self) -> bool:
        parts = self.aggregator.alerting._parts
        return parts is not None and any(
            not task.done() for one in parts.outbox._workers.values() for task in one._in_flight.values()
        )

    async def second(self, parts: int = 2) -> None:
        """Send a frame of every node, and pass a second."""
        self.seq += 1
        for name in self.names:
            self._frame(name)
        for name, watts in ((METER, 1200.0 if self.hot else 900.0), (WRONG, 0.9)):
            meter = self.aggregator.electrical.meters._hub._records[name]
            with contextlib.suppress(Exception):
                sample = MeterSample(watts=watts, energy_joules=900.0 * self.seq)
                meter.add([sample], self.clock.seconds)
        for _ in range(parts):
            self.clock.seconds += 1 / parts
            await self._quiet()

    # -- What nodes send -------------------------------------------------------------------------

    def deliver(self, name: str, kind: Topic, body: bytes) -> None:
        """Deliver a message of a node."""
        SilentBus.last.bring(topic("default", name, kind), body)

    def _hello(self, name: str) -> None:
        self._status(name, NodeState.ONLINE)
        self.inventory(name)
        self.jobs(name)

    def _status(self, name: str, state: NodeState) -> None:
        body = CollectorStatus(state=state, session=1)
        self.deliver(name, Topic.STATUS, messages.encode(body))

    def inventory(self, name: str, version: int = 0) -> None:
        """Deliver a node's inventory."""
        gpus = tuple(
            Gpu(
                uuid=f"GPU-{name}-{i}",
                index=i,
                name="NVIDIA H100 80GB HBM3",
                pci=f"0000:{i + 1:02x}:00.0",
                power_limit_watts=700.0,
            )
            for i in range(2)
        )
        links = tuple(Link(gpu=gpu.uuid, number=0, peer="switch") for gpu in gpus)
        body = Inventory(node=name, session=1, version=version, taken_at=time.time_ns(), gpus=gpus, links=links)
        self.deliver(name, Topic.INVENTORY, messages.encode(body))

    def jobs(self, name: str, version: int = 0, ended: int = 0) -> None:
        """Deliver a node's list: a job on one GPU, over where `ended` says when, and an idle one on the other."""
        now = time.time_ns()
        keys = [JobKey("slurm", name, str(number)) for number in range(2)]
        begin = START - 3600 * 10**9
        body = NodeJobs(
            session=1,
            version=version,
            at=now,
            jobs=tuple(Job(key=key, name="train", user="ann", account=name, begin=begin) for key in keys),
            allocations=tuple(
                Allocation(
                    job=key, gpu=f"GPU-{name}-{number}", begin=begin, end=0 if number else ended, source="slurm-hook"
                )
                for number, key in enumerate(keys)
            ),
            processes=(GpuProcess(gpu=f"GPU-{name}-0", pid=7, user="ann", job=keys[0], sm_ratio=0.5),)
            if not ended
            else (),
            sources=(JobSourceState(name="slurm-hook"),),
        )
        self.deliver(name, Topic.JOBS, messages.encode(body))

    def _frame(self, name: str) -> None:
        self.deliver(name, Topic.FRAME, self._encoded(name))

    def _encoded(self, name: str, seq: int | None = None) -> bytes:
        hot = self.hot and name == VICTIM
        values = {
            "gpu_temperature_celsius": 90.0 if hot else 50.0,
            "gpu_power_watts": self.gpu_watts.get(name, 300.0),
            "gpu_utilization_ratio": 0.5,
            "gpu_power_limit_watts": 700.0,
            "gpu_energy_joules_total": 300.0 * self.seq,
            "node_driver_up": 1.0,
        }
        slow = self.seq % 15 == 0
        readings = {
            number: [[values.get(metric, NOT_SUPPORTED) for metric in SCHEMA.blocks[number].names] for _ in range(rows)]
            for number, rows in ((GPU_FAST, 2), *(((GPU_SLOW, 2),) if slow else ()), (LINK_FAST, 2), (NODE_FAST, 1))
        }
        return frames.encode(frames.build(1, self.seq if seq is None else seq, time.time_ns(), readings))

    def xid(self, name: str, gpu: int, code: int = 12) -> None:
        """Deliver an XID of a GPU."""
        self.events += 1
        event = Event(
            id=f"1-{self.events}",
            node=name,
            at=time.time_ns(),
            kind="xid",
            gpu=f"GPU-{name}-{gpu}",
            data={"xid": code, "line": f"NVRM: Xid (PCI:0000:01:00): {code}, pid=7"},
        )
        self.deliver(name, Topic.EVENT, messages.encode(event))

    def trouble(self, number: int) -> None:
        """Do everything to the victim that can happen to a node."""
        self.hot = True
        self.xid(VICTIM, number % 2)
        self.xid(VICTIM, number % 2, 79)
        self.inventory(VICTIM, version=number + 1)
        self.jobs(VICTIM, version=2 * number + 1, ended=time.time_ns())
        self._late = self._encoded(VICTIM, self.seq + 1)
        self._status(VICTIM, NodeState.ONLINE)
        self.deliver(VICTIM, Topic.BACKFILL, frames.encode_many([self._late]))
        stays, goes = self._newcomers(number)
        for name in (stays, goes):
            self._hello(name)
            self._frame(name)
        self._status(goes, NodeState.OFFLINE)

    def pauses(self) -> list[str]:
        """Return the channels that wait before they try again."""
        parts = self.aggregator.alerting._parts
        return (
            []
            if parts is None
            else [
                name for name, one in parts.outbox._workers.items() if one._limiter._paused_until > self.clock.seconds
            ]
        )

    def forget_refusals(self) -> None:
        """End the reports of refused messages, which otherwise last for two minutes."""
        ingest = self.aggregator._ingest
        assert ingest is not None
        for series in ingest.refusals._series.values():
            series.times.append(-1e9)

    def calm(self, number: int) -> None:
        """End what happens to the victim."""
        self.hot = False
        self.inventory(VICTIM, version=number + 2)
        self.jobs(VICTIM, version=2 * number + 2)

    async def forget(self, number: int) -> None:
        """Remove the nodes that came with a trouble, as their operator would."""
        for name in self._newcomers(number):
            self._status(name, NodeState.OFFLINE)
            await self.aggregator.forget(name)

    @staticmethod
    def _newcomers(number: int) -> tuple[str, str]:
        return f"{VICTIM}-{number}", f"{VICTIM}-{number}-gone"

    async def everything(self) -> None:
        """Play what a cluster sees in a day: alerts begin, change and end, frames are lost and
        come later, inventories change, nodes come and go."""
        self.trouble(0)
        self.xid(f"{HONEST}-1", 0)
        for _ in range(3):
            await self.second()
        self.inventory(f"{HONEST}-2", version=1)
        self.calm(0)
        for _ in range(3):
            await self.second()
        late = self._encoded(VICTIM, self.seq + 1)
        for _ in range(2):
            await self.second()
        self.deliver(VICTIM, Topic.BACKFILL, frames.encode_many([late]))
        self._status(VICTIM, NodeState.ONLINE)
        for _ in range(8):
            await self.second()

    def paged(self, where: str) -> bool:
        """Whether the receiver has a page about a place."""
        return any(where in str(call.body) for call in self.pager.calls)


def few_rules(paths: Sequence[Path]) -> tuple[Rule, ...]:
    """Return the scene's own rules, and of those that kilowatch ships the first of each kind."""
    kinds: dict[tuple[str, ...], Rule] = {}
    for rule in load(paths):
        if rule.name == "gpu_oddity":
            continue  # it would join the incidents of the honest rule
        own = rule.name in {RULE, "honest_rule"}
        when = (rule.name,) if own else (str(rule.table), *(type(one).__name__ for one in conditions_of(rule.when)))
        kinds.setdefault(when, rule)
    return tuple(kinds.values())


async def _forever(*_: Any) -> None:
    await asyncio.Event().wait()
