"""A `View` without a bus: a real fleet with real frames in it, and a store in memory.

What HTTP shows can then be compared with what was put in, number by number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from aggregator.alerting.delivery_view import AlertStats, DeliveryView
from aggregator.alerting.pipeline import AlertPipeline
from aggregator.electrical.service import ElectricalService
from aggregator.fitness.service import FitnessTracker
from aggregator.impairments import Impairments
from aggregator.jobs.service import JobService
from aggregator.jobs.stored import JobQuery, StoredJob
from aggregator.load.shedding import Shedding
from aggregator.register.drift_tracker import DriftTracker
from aggregator.register.node_register import NodeRegister
from aggregator.store.executor import StoreExecutor
from aggregator.store.protocol import (
    Batch,
    BlockRows,
    CollectorRun,
    FleetPast,
    Frames,
    HistorySeries,
    LostFrames,
    PastInstants,
    StoredDevice,
    StoredState,
    StoreStatus,
)
from aggregator.view import FlushBroadcast, SingleView, SiteView
from alerts.message.picture_link import PictureLink
from alerts.notice import Delivery
from api.alerts import Alert, ChannelRow, Incident, TestReply
from api.evidence import EvidenceReply
from api.fleet import StoredEvent
from api.jobs import JobRow
from api.stats import Stats
from telemetry.catalogue import BY_NAME
from telemetry.devices import INSTANCE_PREFIX, PORT_PREFIX, Event, Gpu, Link, MigInstance, Port
from telemetry.errors import NodeError
from telemetry.fleet import Fleet
from telemetry.gap import NOT_SUPPORTED
from telemetry.metric import Lane, Table
from telemetry.runtime.isolation import Isolation
from telemetry.runtime.supervision import ProgressMarks
from telemetry.wire import frame as frames
from telemetry.wire.intervals import IntervalSet
from telemetry.wire.inventory import Inventory
from telemetry.wire.jobs import Allocation, GpuProcess, Job, JobKey, NodeJobs
from telemetry.wire.persons import PersonWords
from telemetry.wire.schema import SCHEMA

START = 1_790_000_000_000_000_000
"""The wall clock of tests at monotonic second 1000, ns since 1970."""


def inventory(node: str, gpus: int = 2, links: int = 2, version: int = 0) -> Inventory:
    """A node with `gpus` GPUs, each with `links` links to the next."""
    devices = tuple(
        Gpu(
            uuid=f"GPU-{node}-{index}",
            index=index,
            name="NVIDIA H100 80GB HBM3",
            pci=f"0000:{index + 1:02x}:00.0",
            serial=f"16{index:04d}",
            vbios="96.00.61.00.01",
            memory_bytes=85_520_809_984,
        )
        for index in range(gpus)
    )
    wires = tuple(
        Link(gpu=gpu.uuid, number=number, peer_kind="gpu", peer=devices[(gpu.index + 1) % gpus].uuid)
        for gpu in devices
        for number in range(links)
    )
    return Inventory(
        node=node,
        cluster="lab",
        session=7,
        version=version,
        kilowatch="2026.1",
        source="simulated:test",
        driver_version="595.10",
        driver_state="up",
        gpus=devices,
        links=wires,
        ports=(Port(id=f"{PORT_PREFIX}{node}:0000:19:00.1/1", adapter="mlx5_0", number=1),),
        instances=(
            MigInstance(uuid=f"{INSTANCE_PREFIX}{node}-7", gpu=devices[-1].uuid, gpu_instance=7, profile="1g.10gb"),
        ),
    )


def readings(what: Inventory, tick: int) -> dict[int, list[list[float]]]:
    """Every block of a node: values that name their place, some gaps."""
    counts = {Table.GPU: len(what.gpus), Table.LINK: len(what.links), Table.NODE: 1, Table.PORT: len(what.ports), Table.INSTANCE: len(what.instances)}  # fmt: skip
    blocks: dict[int, list[list[float]]] = {}
    for number, block in enumerate(SCHEMA.blocks):
        blocks[number] = [[value(name, row, tick) for name in block.names] for row in range(counts[block.table])]
    return blocks


def value(name: str, row: int, tick: int) -> float:
    """The reading of one metric of one row at one tick."""
    if name in {"gpu_fan_speed_ratio", "gpu_module_power_watts"}:
        return NOT_SUPPORTED
    known = {
        "gpu_power_watts": 300.25 + row + tick,
        "gpu_temperature_celsius": 60.0 + row,
        "gpu_utilization_ratio": 0.67 + row / 100,
        "gpu_memory_used_bytes": 40e9 - (40e9 % 4096),
        "gpu_memory_total_bytes": 85_520_809_984.0,
        "gpu_power_limit_watts": 700.0,
        "gpu_energy_joules_total": 123_456_789.125 + 300 * tick,
        "gpu_sm_clock_hertz": 2.505e9,
        "link_state": 1.0,
        "node_wall_power_watts": 5123.5,
    }
    if name in known:
        return known[name]
    return float((len(name) * 7 + row) % 90) + (0.37 if name.endswith("_celsius") else 0.0)


class MemoryStore:
    """A store that forgets at the end: the protocol, in dicts."""

    def __init__(self) -> None:
        self.frames: set[tuple[str, int, int]] = set()
        self.values: dict[tuple[str, str], list[tuple[int, float]]] = {}
        self.kept: list[StoredEvent] = []
        self.newest: dict[str, Inventory] = {}
        self.holes: dict[tuple[str, int], IntervalSet] = {}
        self.runs: dict[int, CollectorRun] = {}
        self.devices: dict[int, StoredDevice] = {}
        self.named: dict[str, StoredDevice] = {}
        self.state = StoreStatus("memory")
        self.jobs: dict[JobKey, StoredJob] = {}

    def write(self, batch: Batch) -> int:
        """Keep what is new; a frame that is there is not stored twice."""
        self.runs.update({run.id: run for run in batch.runs})
        self.devices.update({device.id: device for device in batch.devices})
        self.named.update({device.key: device for device in batch.devices})
        fresh: set[int] = set()
        pairs = zip(batch.frames.run.tolist(), batch.frames.seq.tolist(), strict=True)
        for number, (run, seq) in enumerate(pairs):
            key = (self.runs[run].node, self.runs[run].session, seq)
            if key not in self.frames:
                fresh.add(number)
                self.frames.add(key)
        for rows in batch.blocks:
            self._keep(batch, rows, fresh)
        for hole in batch.holes:
            spans = self.holes.setdefault((hole.node, hole.session), IntervalSet())
            spans.add_span(hole.first, hole.last)
        known = {stored.event.id for stored in self.kept}
        self.kept += [each for each in batch.events if each.event.id not in known]
        self.newest.update({each.node: each for each in batch.inventories})
        return len(fresh)

    def _keep(self, batch: Batch, rows: BlockRows, fresh: set[int]) -> None:
        names = SCHEMA.blocks[rows.block].names
        table = np.hstack([rows.gauges, rows.counters]).tolist()
        for row, (device, frame) in enumerate(zip(rows.device.tolist(), rows.frame.tolist(), strict=True)):
            if frame in fresh:
                at = int(batch.frames.sampled_at[frame])
                for name, number in zip(names, table[row], strict=True):
                    key = (self.devices[device].key, name)
                    self.values.setdefault(key, []).append((at, number))

    def known(self) -> StoredState:
        """The numbers given out."""
        return StoredState(list(self.runs.values()), list(self.devices.values()))

    def accounted(self) -> dict[tuple[str, int], IntervalSet]:
        """Frames and holes of each session."""
        found = {key: IntervalSet(spans) for key, spans in self.holes.items()}
        for node, session, seq in self.frames:
            found.setdefault((node, session), IntervalSet()).add(seq)
        return found

    def inventories(self) -> list[Inventory]:
        """The newest of each node."""
        return list(self.newest.values())

    def history(self, device: str, metric: str, start: int, end: int, step: float) -> HistorySeries:
        """Buckets of `step` seconds, or every reading."""
        width = max(1, int(step * 1e9))
        buckets: dict[int, list[float]] = {}
        for at, number in sorted(self.values.get((device, metric), []), key=lambda pair: pair[0]):
            if start <= at < end:
                buckets.setdefault(at - at % width, []).append(number)
        present = {at: [n for n in numbers if not math.isnan(n)] for at, numbers in buckets.items()}
        return HistorySeries(
            device,
            metric,
            step,
            list(present),
            [sum(n) / len(n) if n else None for n in present.values()],
            [min(n, default=None) for n in present.values()],
            [max(n, default=None) for n in present.values()],
        )

    def past(
        self,
        table: Table,
        columns: Sequence[str],
        when: PastInstants,
        reach: Mapping[Lane, int],
        nodes: Sequence[str] | None,
    ) -> FleetPast:
        """The newest of each device at each instant."""
        keys = [
            key
            for key, device in self.named.items()
            if any((key, name) in self.values for name in columns) and (nodes is None or device.node in nodes)
        ]
        shape = (when.count, len(keys))
        first = [at for values in self.values.values() for at, _ in values[:1]]
        begins = min(first, default=None)
        past = FleetPast([self.named[key] for key in keys], {}, {}, {}, set(), begins)
        for name in columns:
            values, lane = np.full(shape, math.nan), BY_NAME[name].lane
            seen = past.seen.setdefault(lane, np.zeros(shape, np.int64))
            for place, key in enumerate(keys):
                for number, moment in enumerate(when.all().tolist()):
                    for at, value in sorted(self.values.get((key, name), ()), key=lambda p: p[0]):
                        if moment - reach[lane] < at <= moment:
                            values[number, place], seen[number, place] = value, at
            past.columns[name] = values
        return past

    def events(self, start: int, end: int, node: str | None, kind: str | None, limit: int) -> list[StoredEvent]:
        """Newest first."""
        found = [
            each
            for each in self.kept
            if start <= each.event.at < end and node in {None, each.event.node} and kind in {None, each.event.kind}
        ]
        return sorted(found, key=lambda each: -each.event.at)[:limit]

    def write_jobs(self, jobs: Sequence[StoredJob]) -> None:
        """Keep the newest of each."""
        self.jobs.update({each.record.job.key: each for each in jobs})

    def open_jobs(self) -> list[StoredJob]:
        """Jobs without an end."""
        return [each for each in self.jobs.values() if each.row.end is None]

    def jobs_of(self, keys: Sequence[JobKey]) -> list[StoredJob]:
        """As far as they are kept."""
        return [self.jobs[key] for key in keys if key in self.jobs]

    def find_jobs(self, query: JobQuery) -> list[JobRow]:
        """By id and whether they run only."""
        rows = [each.row for each in self.jobs.values()]
        found = [row for row in rows if query.running in {None, row.end is None}]
        return [row for row in found if query.id in {"", row.id}][: query.limit]

    def tidy(self) -> bool:
        """Do nothing."""
        return False

    def maintain(self, now: int) -> bool:
        """Nothing is sealed in memory."""
        return False

    def size(self) -> dict[str, int]:
        """Bytes by part."""
        return {"hot": 16 * sum(map(len, self.values.values())), "sealed": 0, "rollups": 0}

    def seal(self) -> None:
        """Nothing is sealed in memory."""

    def check_next(self) -> None:
        """Nothing is sealed in memory."""

    def drain_refill(self) -> list[LostFrames]:
        """Nothing is lost in memory."""
        return []

    def status(self) -> StoreStatus:
        """State that a test has set."""
        return self.state

    def close(self) -> None:
        """Nothing to let go of."""


class FakePost:
    """Delivery to a channel that takes everything, with a journal that forgets: a `DeliveryView`."""

    def __init__(self) -> None:
        self.sent: list[Delivery] = []
        self.ever: list[Incident] = []
        self.cards: dict[str, EvidenceReply] = {}

    async def saved(self, seconds: float) -> bool:
        """Memory is always written."""
        return seconds > 0

    async def history(self, since: int, limit: int) -> list[Incident]:
        """What a test says was."""
        return [one for one in self.ever if one.ended is None or one.ended >= since][:limit]

    async def deliveries(self, since: int, limit: int, incident: str | None = None) -> list[Delivery]:
        """What a test says was sent."""
        found = [one for one in self.sent if one.created >= since]
        return [one for one in found if incident in {None, one.notice.incident.key}][:limit]

    async def evidence(self, key: str, incident: Incident | None) -> EvidenceReply | None:
        """Return the cards that a test has set."""
        return self.cards.get(key if incident is None else incident.key)

    async def picture(self, link: PictureLink, wall: int) -> bytes | None:
        """None: no channel has pictures."""
        return None

    def channels(self) -> list[ChannelRow]:
        """One."""
        return [
            ChannelRow(
                name="oncall",
                kind="webhook",
                waiting=0,
                oldest_seconds=None,
                delivered=1,
                failed=0,
                refused=0,
                expired=0,
                superseded=0,
                failing="",
                last_error="",
                last_delivered=START,
            )
        ]

    async def test(self, channel: str) -> TestReply:
        """It arrives."""
        return TestReply(channel, True, 0.01)

    def alert_stats(self) -> AlertStats:
        """All is well."""
        return AlertStats(commits=3, commit_seconds=0.012, heartbeat_at=START, heartbeat_failed=0)


class FakeView(SingleView):
    """All that HTTP may see, filled by `add` and `tick`."""

    def __init__(self, cluster: str = "lab") -> None:
        self.fleet = Fleet()
        self.stats = Stats(bus_connected=True)
        self.impairments = Impairments()
        self.marks = ProgressMarks({}, ())
        self.shedding = Shedding()
        self.pages_aside = Isolation(None)
        self.process_words: PersonWords | None = None
        self.jobs = JobService()
        self.site_role: SiteView | None = None
        self.memory = MemoryStore()
        self.store = StoreExecutor(self.memory, self.stats)
        self.cluster = cluster
        self.started_at = START
        self.monotonic = 1000.0
        self.flushes = FlushBroadcast()
        self.raised: list[Alert] = []
        self.happened: list[Event] = []
        self.electrical = ElectricalService({}, Path("/nowhere"))
        self.register = NodeRegister()
        self.fitness = FitnessTracker()
        self.drift = DriftTracker()
        self.pipeline = AlertPipeline(
            (), lambda *_: None, cluster=cluster, impairments=self.impairments, now=self.monotonic, wall=START
        )
        self.delivery: DeliveryView = FakePost()

    def now(self) -> float:
        """Seconds; tests move it."""
        return self.monotonic

    def wall(self) -> int:
        """In step with `now`."""
        return START + round((self.monotonic - 1000.0) * 1e9)

    def alerts(self) -> Sequence[Alert]:
        """What a test raised."""
        return self.raised

    async def forget(self, node: str) -> bool:
        """There is no bus to clear."""
        raise NodeError(f"{node} is no node of this view")

    def record_event(self, event: Event) -> None:
        """Keep it where events are."""
        self.happened.insert(0, event)
        if event.id not in {each.event.id for each in self.memory.kept}:
            self.memory.kept.append(StoredEvent(event, self.wall()))

    def recent_events(self) -> Sequence[Event]:
        """Return the events that a test has added."""
        return self.happened

    def add(self, what: Inventory) -> None:
        """Place a node, online."""
        node = self.fleet.place(what)
        node.online, node.session = True, what.session

    def put(self, name: str, blocks: dict[int, list[list[float]]], seq: int) -> None:
        """Send one frame through the codec into the fleet and the store."""
        node = self.fleet.nodes[name]
        payload = frames.encode(frames.build(node.session, seq, self.wall(), blocks))
        frame = frames.decode(payload)
        batch = Batch(
            frames=Frames(
                np.zeros(1, np.int32),
                np.array([seq]),
                np.array([frame.sampled_at]),
                np.array([self.wall()]),
                np.zeros(1, np.bool_),
            ),
            inventories=[node.inventory],
            runs=[CollectorRun(0, name, node.session)],
        )
        for packed in frame.blocks:
            block = SCHEMA.blocks[packed.block]
            gauges = np.frombuffer(packed.gauges, "<f4").reshape(packed.rows, len(block.gauges))
            tall = np.frombuffer(packed.counters, "<f8").reshape(packed.rows, len(block.counters))
            self.fleet.store(packed.block, node.rows[block.table], gauges, tall, self.monotonic)
            its = devices(node.inventory, block.table)
            first = len(batch.devices)
            batch.devices += [StoredDevice(first + n, name, key) for n, key in enumerate(its)]
            numbers = np.arange(first, first + len(its), dtype=np.int32)
            zeros = np.zeros(packed.rows, np.int32)
            batch.blocks.append(BlockRows(packed.block, zeros, numbers, gauges, tall))
        node.seen, node.sampled_at, node.seq = self.monotonic, frame.sampled_at, seq
        self.stats.frames_received += 1
        self.stats.messages["frame"] = self.stats.messages.get("frame", 0) + 1
        self.stats.frames_stored += self.memory.write(batch)

    async def tick(self, seq: int, seconds: float = 1.0) -> None:
        """Let time pass, send a frame of every node that is online, and wake the viewers."""
        self.monotonic += seconds
        for name, node in self.fleet.nodes.items():
            if node.online:
                self.put(name, readings(node.inventory, seq), seq)
        await self.flush()

    async def flush(self) -> None:
        """Count a flush and wake the viewers."""
        self.stats.flush.add(0.001)
        self.flushes.tick()


def give_jobs(view: FakeView, *jobs: tuple[str, str, str, tuple[int, ...]]) -> None:
    """Let GPUs of nodes be held for two hours by jobs: node, id, user and numbers of GPUs; with a process on
    each."""
    begin = view.wall() - 7200 * 10**9
    for node in dict.fromkeys(each[0] for each in jobs):
        what = view.fleet.nodes[node].inventory
        its = [(JobKey("slurm", "lab", name), user, gpus) for at, name, user, gpus in jobs if at == node]
        held = [(key, user, what.gpus[number].uuid) for key, user, gpus in its for number in gpus]
        message = NodeJobs(
            session=7,
            version=1,
            at=view.wall(),
            jobs=tuple(Job(key=key, user=user, account="physics", name="pretrain") for key, user, _ in its),
            allocations=tuple(Allocation(job=key, gpu=gpu, begin=begin) for key, _, gpu in held),
            processes=tuple(
                GpuProcess(gpu=gpu, pid=4000 + number, user=user, name="python", job=key, memory_bytes=2**36)
                for number, (key, user, gpu) in enumerate(held)
            ),
        )
        own = {gpu.uuid for gpu in what.gpus}
        view.jobs.receive(node, msgspec.json.encode(message), own, view.wall())
    for _ in view.jobs.steps(view.fleet, view.now(), view.wall()):
        pass


def devices(what: Inventory, table: Table) -> list[str]:
    """The names of the rows of a table, as the store keeps them."""
    match table:
        case Table.GPU:
            return [gpu.uuid for gpu in what.gpus]
        case Table.LINK:
            return [f"{link.gpu}/{link.number}" for link in what.links]
        case Table.NODE:
            return [what.node]
        case Table.PORT:
            return [port.id for port in what.ports]
        case Table.INSTANCE:
            return [each.uuid for each in what.instances]
