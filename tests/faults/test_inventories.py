"""Inventories that change while frames come fast and some are lost: each value must stand at the GPU it was read from."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from pathlib import Path

import duckdb
import msgspec
import numpy as np

from aggregator.ingest.sequence import KEPT_LAYOUTS
from aggregator.service import Aggregator
from telemetry.devices import Gpu
from telemetry.gap import NOT_SUPPORTED
from telemetry.wire import frame as frames
from telemetry.wire.inventory import Inventory
from telemetry.wire.mqtt import BrokerConfig
from telemetry.wire.schema import GPU_FAST, NODE_FAST, SCHEMA
from tests.aggregator.node import ScriptedNode
from tests.aggregator.test_service import running
from tests.brokers import Mosquitto
from tests.faults.record import ROUNDS, Observe, fault
from tests.faults.scripted import POWER, fired, unsealed_rows, with_rules
from tests.kit.waiting import until

NODES, MOST_GPUS = 6, 8
STEP = 50_000_000
"""ns between two frames by their clock, and as they are sent."""


class ChangingNode(ScriptedNode):
    """A node whose GPUs come, go and are replaced, each with readings of its own."""

    step = STEP

    def __init__(self, broker: BrokerConfig, name: str, dice: random.Random) -> None:
        super().__init__(broker, name, gpus=0)
        self._dice, self._made_gpus = dice, 0
        self._serials = [self._next() for _ in range(4)]
        self.version = 0
        self.wanted: set[tuple[int, str, float]] = set()
        """Number, GPU and watts of every reading."""
        self._describe()

    def _next(self) -> int:
        self._made_gpus += 1
        return self._made_gpus

    def _uuid(self, serial: int) -> str:
        return f"GPU-{self.name}-{serial}"

    def _describe(self) -> None:
        self.gpus = len(self._serials)
        self.made_of = Inventory(
            node=self.name,
            session=self.session,
            version=self.version,
            taken_at=self.begin + self.made.get(self.session, 0) * self.step - 1,
            host={"kernel": str(self.version)},
            gpus=tuple(
                Gpu(uuid=self._uuid(serial), index=index, name="NVIDIA Test 80GB")
                for index, serial in enumerate(self._serials)
            ),
        )

    async def change(self) -> None:
        """Lose, get or replace a GPU, or other facts alone, as a collector says it: before the first frame that has it."""
        way = self._dice.choice(["lose", "get", "replace", "swap", "swap", "facts"])
        if way == "lose" and len(self._serials) > 1:
            self._serials.pop(self._dice.randrange(len(self._serials)))
        elif way == "get" and len(self._serials) < MOST_GPUS:
            self._serials.append(self._next())
        elif way == "swap" and len(self._serials) > 1:
            self._serials.reverse()
        elif way != "facts":
            self._serials[self._dice.randrange(len(self._serials))] = self._next()
        self.version += 1
        self._describe()
        await self.hello()

    def sample(self) -> tuple[int, bytes]:
        """Make the next frame and put it into the ring."""
        seq = self.made.get(self.session, 0)
        self.made[self.session] = seq + 1
        names = SCHEMA.blocks[GPU_FAST].names
        rows = []
        for serial in self._serials:
            watts = float(np.float32(100 * serial + seq % 97))
            rows.append([watts if name == POWER else NOT_SUPPORTED for name in names])
            self.wanted.add((seq, self._uuid(serial), watts))
        node_row = [NOT_SUPPORTED] * len(SCHEMA.blocks[NODE_FAST].names)
        readings = {GPU_FAST: rows, NODE_FAST: [node_row]}
        at = self.begin + seq * self.step
        encoded = frames.encode(frames.build(self.session, seq, at, readings, ()))
        self.ring.setdefault(self.session, {})[seq] = encoded
        return seq, encoded

    async def hello(self) -> None:
        """Publish status and inventory, retained."""
        if self._client is not None:
            await super().hello()


@fault("36", "each reading is stored once, at the GPU that it was read from; nothing is lost")
async def test_changing_inventories(mosquitto: Mosquitto, tmp_path: Path, observe: Observe, seed: int) -> None:
    """GPUs of six nodes come, go, change places and are replaced at 20 frames a second, of which a tenth is lost."""
    dice = random.Random(seed)
    settings = msgspec.structs.replace(with_rules(mosquitto.config, tmp_path), rule_seconds=1.0)
    nodes = [ChangingNode(mosquitto.config, f"n-{number}", dice) for number in range(NODES)]

    async def play(node: ChangingNode) -> None:
        for _ in range(KEPT_LAYOUTS - 1):
            for _ in range(dice.randint(1, 8)):
                await node.tick(lost=dice.random() < 0.1)
                await asyncio.sleep(STEP / 1e9)
            await node.change()
        await node.tick()

    async with running(settings) as aggregator:
        for node in nodes:
            await node.__aenter__()
        try:
            for _ in range(ROUNDS):
                await asyncio.gather(*(play(node) for node in nodes))
                sent = sum(node.made[1] for node in nodes)
                await until(partial(_stored, aggregator, sent), "all frames")
            assert aggregator.stats.frames_lost == 0
            again = aggregator.stats.frames_backfilled
            alerts = fired(aggregator)
        finally:
            for node in nodes:
                await node.__aexit__()
    assert alerts <= {"gpu_missing"}, alerts
    changes = sum(node.version for node in nodes)
    compared = sum(_check(tmp_path, node) for node in nodes)
    observe(
        f"{changes} changes in {sent} frames, {again} of them from the rings, none lost; {compared} readings "
        "at their GPUs"
    )


def _stored(aggregator: Aggregator, sent: int) -> bool:
    return aggregator.stats.frames_stored == sent


def _check(folder: Path, node: ChangingNode) -> int:
    """Compare what is stored of a node with what it sent; return how many readings it was."""
    with duckdb.connect(str(folder / "data" / "hot.duckdb"), read_only=True) as store:
        rows = unsealed_rows(store, f't.seq, d.key, t."{POWER}"', node.name)
    assert len(rows) == len(set(rows))
    assert set(rows) == node.wanted
    return len(rows)
