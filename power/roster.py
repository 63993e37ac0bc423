"""The parts of a configured cluster, for its report.

Link topology is measured on a running node (its inventory's pools). Without one, `linked_gpus` says
how many GPUs share memory: a configuration that does not say it gets lone GPUs.
"""

from __future__ import annotations

from power.devices import counted, find_card, find_system
from power.machine import HOST_WATTS
from power.report import Part
from power.site import Node, Site
from telemetry.errors import ConfigError

_GB = 1e9


def parts_of(where: str, site: Site) -> list[Part]:
    """Return the parts of all nodes with GPUs. Raises `ConfigError` when there are none."""
    parts = [
        part
        for name, node in site.nodes.items()
        if (part := part_of(f"{where}: nodes.{name}", node)) is not None
    ]
    if not parts:
        raise ConfigError(
            f"{where}: nodes", "no node has GPUs", 'Write [nodes.rig1] and gpus = "4x RTX 5090".'
        )
    return parts


def part_of(where: str, node: Node) -> Part | None:
    """Return one node as a part; None for one without GPUs."""
    if node.profile is not None:
        system = find_system(where, node.profile)
        card = find_card(where, system.card) if system.card else None
        memory = system.gpus * card.memory_gb if card else system.memory_gb or 0.0
        each = memory / system.gpus
        pools = _pools(where, system.gpus, each, node.linked_gpus)
        price = node.price_usd if node.price_usd is not None else system.price_usd
        sustained = system.sustained_watts or system.max_watts
        return Part(card.name if card else system.name, pools, sustained, system.max_watts, price)
    if node.gpus is None:
        return None
    number, model = counted(f"{where}.gpus", node.gpus)
    card = find_card(f"{where}.gpus", model)
    limit = node.cap_watts if node.cap_watts is not None else card.tdp_watts
    host = HOST_WATTS if node.host_watts is None else node.host_watts
    # As clusters are published: the sum of the parts' watts, before the supplies' losses.
    watts = number * limit + host
    price = None
    if node.price_usd is not None:
        price = node.price_usd
    elif card.price_usd is not None and node.host_price_usd is not None:
        price = number * card.price_usd + node.host_price_usd
    pools = _pools(where, number, card.memory_gb, node.linked_gpus)
    return Part(card.name, pools, watts, watts, price)


def _pools(where: str, gpus: int, each_gb: float, linked: int) -> tuple[tuple[int, float], ...]:
    if linked < 1 or gpus % linked:
        raise ConfigError(f"{where}.linked_gpus", f"{gpus} GPUs do not fall into pools of {linked}", "Write how many reach each other over NVLink, as `nvidia-smi topo -m` shows.")  # fmt: skip
    return tuple((linked, linked * each_gb) for _ in range(gpus // linked))
