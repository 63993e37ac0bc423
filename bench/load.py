"""Prepared frames of a fleet of any size, in a few megabytes.

Bodies come from the simulated fleet: `BASES` nodes, `TICKS` seconds each, so that from tick to tick
values change as in a long job (about a quarter of them). Node n sends what simulated node n mod
`BASES` reads; only number and clock are patched in. A frame is thus a pure function of (node, seq).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import msgspec

from bench.wire import publish_head
from collector.simulated import scenario
from collector.simulated.cluster import cluster as simulated_cluster
from collector.simulated.inventory import inventory as simulated_inventory
from telemetry.wire import frame as frames
from telemetry.wire import inventory as wire_messages
from telemetry.wire.inventory import CollectorStatus, FrameSpan, Inventory, NodeState
from telemetry.wire.schema import GPU_FAST, GPU_SLOW, SCHEMA, SCHEMA_ID
from telemetry.wire.topics import Topic, topic

BASES = 16
TICKS = 16
SLOTS = 100
"""Instants of a second at which nodes tick."""
CLUSTER = "bench"
_HEAD = struct.Struct(">BBQBQBQBQ")
"""Of a frame: array of six, then schema, session, seq and clock as 64-bit numbers."""
_U64 = 0xCF
SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Load:
    """`nodes` nodes of `gpus` GPUs, all of the same shape."""

    nodes: int
    gpus: int
    metrics: int
    """Readings of one GPU in one frame: of whole blocks, at least those requested."""
    bodies: tuple[tuple[bytes, ...], ...]
    """By base and tick: the bytes behind the head of a frame."""
    inventories: tuple[Inventory, ...]
    """By base."""

    @property
    def values(self) -> int:
        """Readings of the whole fleet in one tick."""
        return self.nodes * self.gpus * self.metrics

    @staticmethod
    def name(node: int) -> str:
        """Return a node's name: all of one length, so that packets are."""
        return f"bench-{node:06d}"

    @staticmethod
    def session(node: int) -> int:
        """Return the session of a node's collector."""
        return (1 << 40) + node

    def frame(self, node: int, seq: int, sampled_at: int) -> bytes:
        """Return a frame as `telemetry.wire.frame.encode` would give it."""
        return head(self.session(node), seq, sampled_at) + self.body(node, seq)

    def body(self, node: int, seq: int) -> bytes:
        """Return the bytes behind the head."""
        return self.bodies[node % BASES][(seq + node // BASES) % TICKS]

    def publish_head(self, node: int) -> bytes:
        """Return the MQTT header of all live frames of a node."""
        size = _HEAD.size + len(self.bodies[0][0])
        return publish_head(topic(CLUSTER, self.name(node), Topic.FRAME), size)

    def inventory(self, node: int) -> bytes:
        """Return a node's inventory, encoded."""
        base = self.inventories[node % BASES]
        gpus = tuple(
            msgspec.structs.replace(gpu, uuid=f"GPU-{node:08x}-0000-4000-8000-{gpu.index:012x}", serial=None)
            for gpu in base.gpus
        )
        mine = msgspec.structs.replace(
            base,
            node=self.name(node),
            cluster=CLUSTER,
            session=self.session(node),
            gpus=gpus,
            pools=(),
            ports=(),  # of the base: near its GPUs
        )
        return wire_messages.encode(mine)

    def status(self, node: int, last: int | None = None, interval: float = 1.0) -> bytes:
        """Return a node's status. Before a run it names no ring: the first live frame shows what is
        missing, so that earlier frames are not requested. After it, `last` is the last frame sent: only
        that shows which frames were lost behind the last that arrived."""
        session = self.session(node)
        ring = () if last is None else (FrameSpan(session, 0, last),)
        return wire_messages.encode(
            CollectorStatus(state=NodeState.ONLINE, session=session, ring=ring, interval=interval)
        )


def head(session: int, seq: int, sampled_at: int) -> bytes:
    """Return the head of a frame, always of the same size."""
    return _HEAD.pack(0x96, _U64, SCHEMA_ID, _U64, session, _U64, seq, _U64, sampled_at)


def make_load(nodes: int, gpus: int, metrics: int | None = None) -> Load:
    """Make a load. `metrics`: a GPU's readings in a frame, rounded up to whole blocks."""
    fast, slow = (len(SCHEMA.blocks[block].names) for block in (GPU_FAST, GPU_SLOW))
    both = metrics is not None and metrics > fast
    if metrics is not None and metrics > fast + slow:
        raise ValueError(f"--metrics {metrics}: a GPU has {fast + slow} at most")
    fleet = simulated_cluster(scenario("fleet", nodes=BASES, gpus=gpus, seed=7, faults=""))
    bodies, inventories = [], []
    for name in fleet.scenario.nodes:
        node = fleet.node(name)
        inventories.append(simulated_inventory(fleet, node))
        ticks = []
        for tick in range(TICKS):
            readings = {GPU_FAST: node.fast(tick)[GPU_FAST]}
            if both:
                readings[GPU_SLOW] = node.slow(tick)[GPU_SLOW]
            blocks = frames.build(0, 0, 0, readings).blocks
            ticks.append(msgspec.msgpack.encode(blocks) + b"\x90")
        bodies.append(tuple(ticks))
    return Load(nodes, gpus, fast + slow if both else fast, tuple(bodies), tuple(inventories))
