"""Pure parts of the work, each a stimulus and what it costs to answer it, for `bench.short.counted`.

A part imports what it measures inside its own function: where another tree has other names, that part alone cannot be
compared. It raises where the work was not done, because refusing a message is cheap too.
"""

from __future__ import annotations

import asyncio
import os
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

EPOCH = 1_790_000_000_000_000_000
SECOND = 1_000_000_000
GPUS = 8


@dataclass(frozen=True, slots=True)
class CountedWork:
    """Unit of counted parts."""

    stimulus: Callable[[int], Any]
    """Return the input of a step by its number. The same in both trees, and not counted."""
    work: Callable[[Any], object]


class CountedPart(NamedTuple):
    """A part: of how many nodes, and how many steps are counted after those that build memory."""

    prepare: Callable[[Path, int, int], CountedWork]
    """Called with an empty folder, the number of nodes, and that of all steps."""
    unit: str
    nodes: int
    warm: int
    steps: int
    environment: Callable[[Path], Mapping[str, str]] = lambda _: {}
    """Environment that the process needs, by its folder."""


def message_path(folder: Path, nodes: int, steps: int) -> CountedWork:
    """Frames from the bytes of an MQTT connection into the fleet and a batch, in five flushes a second."""
    from aggregator.config import AggregatorConfig  # noqa: PLC0415
    from aggregator.ingest.dead_letters import DeadLetters  # noqa: PLC0415
    from aggregator.ingest.ids import IdRegistry  # noqa: PLC0415
    from aggregator.ingest.router import MessageRouter  # noqa: PLC0415
    from aggregator.mqtt.packets import read_packets  # noqa: PLC0415
    from aggregator.settings.budgets import IngestBudgets  # noqa: PLC0415
    from aggregator.store.protocol import StoredState  # noqa: PLC0415
    from api.stats import Stats  # noqa: PLC0415
    from bench.load import CLUSTER, head, make_load  # noqa: PLC0415
    from telemetry.fleet import Fleet  # noqa: PLC0415
    from telemetry.wire.topics import Topic, topic  # noqa: PLC0415

    load = make_load(nodes, GPUS)
    config = AggregatorConfig(
        cluster=CLUSTER, data_dir=folder, budgets=IngestBudgets(newcomers=nodes, newcomer_bytes=nodes << 20)
    )
    letters = DeadLetters(folder / "quarantine", config.quarantine_bytes)
    router = MessageRouter(config, Fleet(), Stats(), IdRegistry(StoredState()), letters)
    router.restore((), {}, 0.0)
    for node in range(nodes):
        for kind, body in ((Topic.STATUS, load.status(node)), (Topic.INVENTORY, load.inventory(node))):
            router.receive(topic(CLUSTER, load.name(node), kind), body, 0.0, EPOCH)

    def stimulus(step: int) -> tuple[int, list[bytes]]:
        at = EPOCH + step * SECOND
        packets = [
            load.publish_head(node) + head(load.session(node), step, at) + load.body(node, step)
            for node in range(nodes)
        ]
        return step, [b"".join(packets[part::5]) for part in range(5)]

    def work(given: tuple[int, list[bytes]]) -> None:
        step, reads = given
        for part, data in enumerate(reads):
            now, wall = step + part / 5, EPOCH + step * SECOND + part * SECOND // 5

            def receive(name: str, body: bytes, now: float = now, wall: int = wall) -> None:
                router.receive(name, body, now, wall)

            whole = read_packets(data, receive, lambda _: -1)
            if whole != len(data):
                raise ValueError(f"{whole} of {len(data)} bytes were read")
            router.flush(now, wall)
        stored = len(router.drain_batch(EPOCH + step * SECOND).frames.seq)
        router.stored()
        if stored != nodes:
            raise ValueError(f"{stored} of {nodes} frames are in the batch")

    return CountedWork(stimulus, work)


def rules(_folder: Path, nodes: int, steps: int) -> CountedWork:
    """Evaluate all shipped rules over a fleet in which one GPU in a thousand is too hot."""
    from bench import rules as bench  # noqa: PLC0415

    moving, engine = bench.MovingFleet(nodes * GPUS, 0), bench.RuleEngine(bench.load())
    alike = bench.snapshots(max(2, nodes // 6))

    def work(now: float) -> None:
        wall = EPOCH + int(now * SECOND)
        engine.evaluate(moving.fleet, now, wall, snapshots=alike)

    return CountedWork(moving.move, work)


def circuits(_folder: Path, nodes: int, steps: int) -> CountedWork:
    """The load, heat and time to trip of all circuits."""
    from bench import circuits as bench  # noqa: PLC0415

    live = bench.LivePower(bench.lay_out("bench", bench.site_of(max(2, nodes // 12 * 2), nodes)))
    load = bench.CircuitLoad(live, seed=1)

    def work(given: tuple[int, Any]) -> None:
        step, tick = given
        live.tick(1000.0 + step, EPOCH + step * SECOND, tick)

    return CountedWork(lambda step: (step, load.tick(step)), work)


def store_commit(folder: Path, nodes: int, steps: int) -> CountedWork:
    """Commits of a fleet's second. The engine's writes to the disk are the kernel's, and are not counted."""
    from aggregator.config import StoreConfig  # noqa: PLC0415
    from aggregator.store.embedded import EmbeddedStore  # noqa: PLC0415
    from bench.store_ticks import LONG, batch_of, fleet_ticks  # noqa: PLC0415

    ticks = list(fleet_ticks(nodes * GPUS, steps, EPOCH))
    stores: list[EmbeddedStore] = []

    def stimulus(step: int) -> Any:
        if not stores:  # in the process that uses it: the engine has threads
            own = folder / str(os.getpid())
            own.mkdir()
            stores.append(EmbeddedStore(StoreConfig(seal_seconds=LONG), own))
        return batch_of([ticks[step]], step, named=step == 0)

    def work(batch: Any) -> None:
        stored = stores[0].write(batch)
        if stored != nodes:
            raise ValueError(f"{stored} of {nodes} frames were stored")

    return CountedWork(stimulus, work)


def exposition(_folder: Path, nodes: int, steps: int) -> CountedWork:
    """A scrape of the fleet's `/metrics`, all of whose gauges have changed."""
    from bench import exposition as bench  # noqa: PLC0415

    fleet = bench.make_fleet(bench.make_load(nodes, GPUS))
    known, pages = list(fleet.nodes.values()), bench.ExpositionPages()
    rows = nodes * GPUS

    def stimulus(_step: int) -> None:
        fleet.matrices[bench.GPU_FAST].gauges[:rows] += np.float32(1.0)

    def work(_given: None) -> None:
        lines = bench.render(pages.snapshot(fleet, known, 0.0)).count(b"\n")
        if lines < rows:
            raise ValueError(f"{lines} lines for {rows} GPUs")

    return CountedWork(stimulus, work)


PATHS = ("/", "/nodes", "/circuits", "/alerts")


def web_pages(_folder: Path, nodes: int, steps: int) -> CountedWork:
    """Web pages over HTTP, made anew each, of a fleet with faults."""
    from aggregator.assembly.http_server import listening  # noqa: PLC0415
    from aggregator.http.config import HttpConfig  # noqa: PLC0415
    from bench.live_fleet import LiveFleet  # noqa: PLC0415

    fleet = LiveFleet(nodes, still=True)
    runner, addresses = asyncio.Runner(), list[tuple[str, int]]()
    server = listening(fleet, HttpConfig(listen="127.0.0.1:0"))

    async def page(path: str) -> bytes:
        reader, writer = await asyncio.open_connection(*addresses[0])
        writer.write(
            f"GET {path} HTTP/1.1\r\nHost: {addresses[0][0]}\r\nCache-Control: no-cache\r\nConnection: close\r\n\r\n".encode()
        )
        answer = await reader.read(-1)
        writer.close()
        return answer

    async def all_pages() -> None:
        for path in PATHS:
            answer = await page(path)
            if not answer.startswith(b"HTTP/1.1 200 ") or not answer.rstrip().endswith(b"</html>"):
                raise ValueError(f"{path}: {answer[:200]!r}")

    def stimulus(_step: int) -> None:
        if not addresses:  # in the process that uses it
            addresses.append(runner.run(server.__aenter__()))
        runner.run(fleet.beat())

    return CountedWork(stimulus, lambda _: runner.run(all_pages()))


def fake_driver(folder: Path) -> Mapping[str, str]:
    """Return the environment with the stand-in of libnvidia-ml."""
    from tests.fake_nvml import FakeDriver  # noqa: PLC0415

    return FakeDriver(folder / "driver", gpus=GPUS).environment


def collector_reading(_folder: Path, nodes: int, steps: int) -> CountedWork:
    """The fast lane of eight GPUs: driver, pipe between the two processes, frame."""
    import msgspec  # noqa: PLC0415

    from collector.nvml.driver import NvmlDriver  # noqa: PLC0415
    from collector.probe.protocol import FAST, ProbeReply, pack  # noqa: PLC0415
    from collector.probed.source import Shape, assemble  # noqa: PLC0415
    from telemetry.gap import Gap  # noqa: PLC0415
    from telemetry.metric import Lane  # noqa: PLC0415
    from telemetry.wire import frame  # noqa: PLC0415

    driver, turn = NvmlDriver(), SimpleNamespace(abandoned=False)
    found = driver.open().devices
    described = [driver.describe(device, turn) for device in range(found)]
    shape = Shape(
        tuple((len(one.links), len(one.instances)) for one in described if one is not None), frozenset({Lane.FAST})
    )
    decoder = msgspec.msgpack.Decoder(ProbeReply)

    def work(step: int) -> None:
        answer = pack(ProbeReply(step, [driver.read(device, FAST, turn) for device in range(found)]))
        readings = decoder.decode(answer[4:]).readings
        rows = assemble(shape, readings, Gap.ERROR)
        payload = frame.encode(frame.build(1, step, EPOCH + step * SECOND, rows))
        if len(readings) != GPUS or not len(array("B", payload)):
            raise ValueError(f"{len(readings)} readings of {GPUS} GPUs")

    return CountedWork(lambda step: step, work)


PARTS = {
    "message-path": CountedPart(message_path, "a second of 250 nodes", 250, 4, 6),
    "rules": CountedPart(rules, "an evaluation, 10,000 GPUs", 1250, 16, 6),
    "circuits": CountedPart(circuits, "a tick, 416 circuits", 2500, 4, 10),
    "store-commit": CountedPart(store_commit, "a second of 2,000 GPUs", 250, 3, 8),
    "exposition": CountedPart(exposition, "a scrape, 1,000 GPUs", 125, 2, 2),
    "web-pages": CountedPart(web_pages, "four pages, 1,000 GPUs", 125, 2, 2),
    "collector-reading": CountedPart(collector_reading, "a reading of 8 GPUs", 1, 5, 40, fake_driver),
}
