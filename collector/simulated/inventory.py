"""Inventory of a simulated node."""

from __future__ import annotations

from functools import cache

from collector.simulated.boards import GpuBoard
from collector.simulated.cluster import SimulatedCluster, SimulatedNode
from collector.simulated.columns import unsupported
from collector.simulated.gpu import FAST, SimulatedGpu, fast_layout
from collector.simulated.gpu_slow import slow_count, slow_layout
from collector.simulated.ports import ports_of
from collector.simulated.random import draw
from telemetry.devices import Gpu, Link, MemoryPool
from telemetry.wire.inventory import DRIVES_FACT, MEMORY_BLOCKS_FACT, MEMORY_FACT, Inventory, NodeRole
from telemetry.wire.schema import GPU_FAST, GPU_SLOW

_BUSES = {
    "desktop-4x5090": (0x01, 0x21, 0x41, 0x61),
    "two-dgx-h100": (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF),
    "fleet": (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF),
}
_SWITCHES = ("0000:07:00.0", "0000:08:00.0", "0000:09:00.0", "0000:0a:00.0")


def uuid_of(seed: int, node: str, index: int) -> str:
    """Return a GPU's UUID, in the driver's form."""
    text = f"{draw(seed, node, index, 'uuid', 0):016x}{draw(seed, node, index, 'uuid', 1):016x}"
    return f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def pci_of(scenario: str, index: int) -> str:
    """Return a GPU's PCI address; beyond the machine's usual slots in further domains."""
    buses = _BUSES[scenario]
    domain, slot = divmod(index, len(buses))
    return f"{domain:04x}:{buses[slot]:02x}:00.0"


@cache
def capabilities(board: GpuBoard) -> dict[str, str]:
    """Return the metrics that a board does not support, with their gap word."""
    return {
        **unsupported(fast_layout(board), GPU_FAST, len(FAST)),
        **unsupported(slow_layout(board), GPU_SLOW, slow_count()),
    }


def _gpu(node: SimulatedNode, gpu: SimulatedGpu, lost: tuple[int, ...]) -> Gpu:
    board, scenario = node.scenario.kind.board, node.scenario
    return Gpu(
        uuid=uuid_of(scenario.seed, node.name, gpu.index),
        index=gpu.index,
        name=board.name,
        pci=pci_of(scenario.name, gpu.index),
        # GeForce boards don't tell their serial number
        serial=f"{1_650_000_000_000 + draw(gpu.seed, 'serial') % 10**9}" if board.ecc else None,
        vbios=board.vbios,
        brand=board.brand,
        inforom=board.inforom,
        part_number=board.part_number,
        architecture=board.architecture,
        memory_bytes=board.memory_bytes,
        power_limit_watts=board.limit,
        minor=gpu.index,
        pcie_width=16,
        ecc=True if board.ecc else None,
        persistence=True,
        slot=str(gpu.index + 1),
        present=gpu.index not in lost,
        capabilities=capabilities(board),
    )


def _pools(node: SimulatedNode, gpus: tuple[Gpu, ...]) -> tuple[MemoryPool, ...]:
    board = node.scenario.kind.board
    if board.links and len(gpus) > 1:
        uuids = tuple(gpu.uuid for gpu in gpus)
        return (MemoryPool(gpus=uuids, bytes=board.memory_bytes * len(gpus), over="nvswitch"),)
    return tuple(MemoryPool(gpus=(gpu.uuid,), bytes=board.memory_bytes) for gpu in gpus)


def inventory(
    cluster: SimulatedCluster, node: SimulatedNode, lost: tuple[int, ...] = (), released: bool = False
) -> Inventory:
    """Return a node's inventory while the GPUs with the indexes `lost` have left the bus."""
    scenario, kind = node.scenario, node.scenario.kind
    gpus = tuple(_gpu(node, gpu, lost) for gpu in node.gpus)
    chassis, own = kind.chassis, draw(scenario.seed, node.name, "host")
    host = {
        "hostname": node.name,
        "os": "simulated",
        "product": chassis.product,
        "serial": f"S{own % 10**9:09d}",
        "machine": f"{own:016x}",
        "cpu": chassis.cpu,
        "cpus": str(chassis.cpus),
        MEMORY_FACT: str(chassis.memory_bytes),
        MEMORY_BLOCKS_FACT: "1",
        DRIVES_FACT: str(chassis.drives),
        "job": f"{node.job.kind}-{node.job.number}",
    }
    rack = cluster.rack(node.name)
    if rack is not None:
        host["rack"] = rack
    links: tuple[Link, ...] = ()
    if node.has_links:
        links = tuple(
            Link(gpu=gpu.uuid, number=number, peer_kind="switch", peer_pci=_SWITCHES[number % len(_SWITCHES)])
            for gpu in gpus
            for number in range(kind.board.links)
        )
    return Inventory(
        node=node.name,
        role=NodeRole.GPU,
        source=f"simulated:{scenario.name}",
        host=host,
        driver_version=kind.board.driver,
        cuda_version=kind.board.cuda,
        nvml_version=f"{kind.board.cuda.partition('.')[0]}.{kind.board.driver}",
        driver_state="released" if released else "up",
        driver_message="Released on request; `resume` opens the driver again." if released else "",
        gpus=gpus,
        links=links,
        ports=ports_of(node.name, gpus) if kind.ports else (),
        pools=_pools(node, gpus),
    )
