"""The parts of a cluster, for its report: from its configuration, or from running nodes.

Link topology comes from a running node's inventory, else from `linked_gpus`, else from the catalogue
of complete systems, also where a node has as many of a model as one of them; other cards count as single GPUs.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import lru_cache

from power.devices.catalogue import SYSTEMS, Card, find_card, find_system
from power.devices.mains import MAINS
from power.devices.supply import wall_watts
from power.report.report import ReportPart
from power.site.config import NodeConfig, PowerConfig, SupplyConfig
from power.site.machine import HOST_WATTS, gpu_parts, supply_points
from telemetry.devices import Gpu
from telemetry.errors import ConfigError
from telemetry.wire.inventory import Inventory

_GIB = 2**30


def parts_of(where: str, site: PowerConfig) -> list[ReportPart]:
    """Return the parts of all nodes. Raises `ConfigError` when none has GPUs."""
    listed = [node for circuit in site.circuits.values() for node in circuit.nodes]
    specs = {**dict.fromkeys(listed, NodeConfig()), **site.nodes}
    volts = MAINS.get(site.region or "EU", MAINS["EU"]).volts
    parts = [part_of(f"{where}: nodes.{name}", node, volts) for name, node in specs.items()]
    if not any(part.gpus for part in parts):
        raise ConfigError(f"{where}: nodes", "no node has GPUs", 'Write [nodes.rig1] and gpus = "4x RTX 5090".')
    return parts


def part_of(where: str, node: NodeConfig, volts: float = 230.0) -> ReportPart:
    """Return one configured node as a part; `volts` of its supplies' input."""
    if node.profile is not None:
        return _system(where, node, node.profile)
    if node.gpus is None:
        inside = math.nan if node.host_watts is None else node.host_watts
        wall = _at_wall(where, node, volts, inside) if node.watts is None else node.watts
        watts = inside if node.watts is None else node.watts
        return ReportPart({}, (), watts, watts, wall, price=node.price_usd, role=node.role or "support")
    parts = gpu_parts(where, node)
    number = sum(part.count for part in parts)
    host = HOST_WATTS if node.host_watts is None else node.host_watts
    # As clusters are published: the sum of the parts' watts, before the supplies' losses.
    watts = sum(part.count * part.limit_watts for part in parts) + host
    wanted = node.linked_gpus
    linked = [_on_board(p.card.id, p.count) if wanted is None else wanted for p in parts]
    pools = tuple(
        pool
        for p, number in zip(parts, linked, strict=True)
        for pool in _pools(where, p.count, p.card.memory_gb, number)
    )
    return ReportPart(
        dict(sum((Counter({p.card.name: p.count}) for p in parts), Counter[str]())),
        pools,
        watts,
        watts,
        _at_wall(where, node, volts, watts),
        *_price(node, number, parts[0].card if len(parts) == 1 else None),
        node.hourly_rate,
        node.role or "gpu",
    )


def _on_board(card: str, count: int) -> int:
    """Return how many of so many GPUs of a model reach each other: all, where that is a whole chassis of them, as of
    boards that exist in nothing else (eight MI300X); else 1."""
    return max((each.linked_gpus for each in SYSTEMS if (each.card, each.gpus) == (card, count)), default=1)


def _at_wall(where: str, node: NodeConfig, volts: float, watts: float) -> float:
    """Return what the node's supplies draw for `watts` inside the case."""
    if math.isnan(watts):
        return math.nan
    supply = node.supply or SupplyConfig()
    points = supply_points(f"{where}.supply", supply, volts)
    return wall_watts(watts, points, supply.watts, supply.count)


def _system(where: str, node: NodeConfig, profile: str) -> ReportPart:
    system = find_system(where, profile)
    card = find_card(where, system.card) if system.card else None
    memory = system.gpus * card.memory_gb if card else system.memory_gb or 0.0
    return ReportPart(
        {card.name if card else system.name: system.gpus},
        _pools(
            where,
            system.gpus,
            memory / system.gpus,
            system.linked_gpus if node.linked_gpus is None else node.linked_gpus,
        ),
        system.sustained_watts or system.max_watts,
        system.max_watts,
        system.sustained_watts or system.max_watts,  # makers publish what goes in
        price=node.price_usd if node.price_usd is not None else system.price_usd,
        hourly_rate=node.hourly_rate,
        role=node.role or "gpu",
    )


def _price(node: NodeConfig, number: int, card: Card | None) -> tuple[float | None, float | None, float | None]:
    """Return the price of the GPUs, of all else, and of the whole."""
    if node.price_usd is not None:
        return None, None, node.price_usd
    gpus = None if card is None or card.price_usd is None else number * card.price_usd
    if gpus is None or node.host_price_usd is None:
        return gpus, node.host_price_usd, None
    return gpus, node.host_price_usd, gpus + node.host_price_usd


def _pools(where: str, gpus: int, each_gb: float, linked: int) -> tuple[tuple[int, float], ...]:
    if linked < 1 or gpus % linked:
        raise ConfigError(
            f"{where}.linked_gpus",
            f"{gpus} GPUs do not fall into pools of {linked}",
            "Write how many reach each other over NVLink, as `nvidia-smi topo -m` shows.",
        )
    return tuple((linked, linked * each_gb) for _ in range(gpus // linked))


def running_part(inventory: Inventory, node: NodeConfig | None) -> ReportPart:
    """Return a running node as a part: devices and links from its inventory, prices and role from its
    configuration, if any. Its watts are measured elsewhere."""
    node = node or NodeConfig()
    models = Counter(gpu.name for gpu in inventory.gpus)
    cards = {name: card_named(name) for name in models}
    prices: tuple[float | None, float | None, float | None]
    if node.profile is not None and node.price_usd is None:
        prices = None, None, find_system(f"nodes.{inventory.node}.profile", node.profile).price_usd
    else:
        only = cards[next(iter(models))] if len(models) == 1 else None
        prices = _price(node, len(inventory.gpus), only)
    return ReportPart(
        dict(models),
        pools_of(inventory),
        math.nan,
        math.nan,
        math.nan,
        *prices,
        hourly_rate=node.hourly_rate,
        role=node.role or ("gpu" if inventory.gpus else "support"),
    )


def pools_of(inventory: Inventory) -> tuple[tuple[int, float], ...]:
    """Return (GPUs, GB) of each set of GPUs that reach each other's memory: from the inventory's pools,
    else from its links; any other GPU is a pool of its own."""
    by_uuid = {gpu.uuid: gpu for gpu in inventory.gpus}
    sets = [set(pool.gpus) & by_uuid.keys() for pool in inventory.pools if len(pool.gpus) > 1] or _linked(inventory)
    alone = by_uuid.keys() - set().union(*sets)
    groups = [*(group for group in sets if group), *({uuid} for uuid in alone)]
    return tuple((len(group), sum(memory_gb(by_uuid[uuid]) for uuid in group)) for group in groups)


def _linked(inventory: Inventory) -> list[set[str]]:
    """Return the sets that links join: GPU to GPU, or through a switch that both see."""
    groups: list[set[str]] = []
    for link in inventory.links:
        far = link.peer or (link.peer_pci if link.peer_kind == "switch" else None)
        if far is None:
            continue
        ends = {link.gpu, far}
        joined = [group for group in groups if group & ends]
        groups = [group for group in groups if not group & ends] + [ends.union(*joined)]
    known = {gpu.uuid for gpu in inventory.gpus}
    return [group & known for group in groups if len(group & known) > 1]


@lru_cache(maxsize=256)  # called for every GPU of a fleet; a miss compares with every name
def card_named(name: str) -> Card | None:
    """Return the catalogue's card for a driver's name (`NVIDIA H100 80GB HBM3`), if it has one."""
    try:
        return find_card("gpu", name)
    except ConfigError:
        return None


def memory_gb(gpu: Gpu) -> float:
    """Return a GPU's memory as vendors count it; 0 when nothing is known of it.

    The driver's GiB are rounded up: 81,559 MiB are sold as 80 GB. Where ECC takes a part (an L40S of
    48 GB shows 45 GiB), the catalogue's value is used if it is near.
    """
    card = card_named(gpu.name)
    if gpu.memory_bytes is None:
        return 0.0 if card is None else card.memory_gb
    size = gpu.memory_bytes / _GIB
    if card is not None and 0.9 * card.memory_gb <= size <= card.memory_gb:
        return card.memory_gb
    return float(math.ceil(size))
