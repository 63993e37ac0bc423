"""Facts that a node says of itself, as far as nodes of a kind should be alike in it. Pure.

What a node does not say is left out: it is unknown, and never a difference. Not compared are what is a node's
own (serials, addresses, names), and power limits, which are set for each node by intention.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from telemetry.wire.inventory import (
    ARGUMENTS_FACT,
    DRIVES_FACT,
    LABEL_FACT,
    MEMORY_BLOCKS_FACT,
    MEMORY_FACT,
    SERVICE_FACT,
    Inventory,
    NodeRole,
    role_of,
)

Facts = Mapping[str, str]
"""Value by fact; without those that are not known."""

_HOST_FACTS = ("kernel", "os", "cpu", "cpus", "bios")
"""Facts of the host that like nodes share."""
FIRMWARE = "port firmware "
SERVICE = "service "
"""First words of facts."""
NO_ARGUMENTS = "none of note"
_VERSIONS = frozenset({"driver", "cuda", "kilowatch", "kernel", "os", "bios", "gpu vbios", "kernel args"})


def is_version(fact: str) -> bool:
    """Return whether a fact changes node by node while a release is rolled out."""
    return fact in _VERSIONS or fact.startswith(FIRMWARE)


def facts_of(inventory: Inventory) -> dict[str, str]:
    """Return what a node says of itself."""
    there = [gpu for gpu in inventory.gpus if gpu.present]
    host = inventory.host
    found: dict[str, str | None] = {
        "driver": inventory.driver_version,
        "cuda": inventory.cuda_version,
        "kilowatch": inventory.kilowatch,
        **{name: host.get(name) for name in _HOST_FACTS},
        "nvme drives": host.get(DRIVES_FACT),
        **{
            SERVICE + name.removeprefix(SERVICE_FACT): state
            for name, state in host.items()
            if name.startswith(SERVICE_FACT)
        },
    }
    if ARGUMENTS_FACT in host:
        found["kernel args"] = host[ARGUMENTS_FACT] or NO_ARGUMENTS
    if MEMORY_BLOCKS_FACT in host:  # else the kernel's own part, which differs, is not in it
        found["memory"] = size_text(memory_of(inventory))
    # A driver that is gone lists no GPU: that is a fault, which rings, and no deviation.
    if inventory.gpus:
        linked = Counter(link.gpu for link in inventory.links)
        found |= {
            "gpus": str(len(there)),
            "gpus excluded": None if inventory.excluded is None else str(len(inventory.excluded)),
            "gpu model": of_each(gpu.name for gpu in there),
            "gpu vbios": of_each(gpu.vbios for gpu in there),
            "gpu part number": of_each(gpu.part_number for gpu in there),
            "gpu memory": of_each(None if gpu.memory_bytes is None else size_text(gpu.memory_bytes) for gpu in there),
            "gpu mig": of_each(switch_text(gpu.mig) for gpu in there),
            "gpu ecc": of_each(switch_text(gpu.ecc) for gpu in there),
            "gpu persistence": of_each(switch_text(gpu.persistence) for gpu in there),
            "gpu pcie width": of_each(None if gpu.pcie_width is None else str(gpu.pcie_width) for gpu in there),
            "nvlinks": of_each(str(linked[gpu.uuid]) for gpu in there),
        }
    ports = [port for port in inventory.ports if port.present]
    if inventory.ports:
        found["ports"] = counted_text(f"{port.link_layer} {port.model or ''}".strip() for port in ports)
        for model in {port.model for port in ports if port.model}:
            found[FIRMWARE + model] = of_each(port.firmware for port in ports if port.model == model)
    return {fact: value for fact, value in found.items() if value}


def memory_of(inventory: Inventory) -> int | None:
    """Return the memory of a node, bytes; None where it is not known."""
    text = inventory.host.get(MEMORY_FACT, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 18 else None


def size_text(size: int | None) -> str | None:
    """Return bytes in GiB."""
    return None if size is None else f"{size / 2**30:.0f} GiB"


def switch_text(value: bool | None) -> str | None:
    """Return a mode in a word."""
    return None if value is None else "on" if value else "off"


def of_each(values: Iterable[str | None]) -> str | None:
    """Return what all have, without their number, for one that is missing is another fact; else the counts."""
    listed = list(values)
    return listed[0] if len(set(listed)) == 1 else counted_text(listed)


def counted_text(values: Iterable[str | None]) -> str | None:
    """Return the counts: `7 x 96.00.61.00.01, 1 x 96.00.5F.00.03`, the commonest first; None where one is not
    known."""
    listed = list(values)
    if not listed or None in listed:
        return None
    each = sorted(Counter(listed).items(), key=lambda pair: (-pair[1], str(pair[0])))
    return ", ".join(f"{count} x {value}" for value, count in each)


def kind_of(inventory: Inventory) -> str:
    """Return the kind of a node: its role where that is not `gpu`, its product and the model of most of its GPUs,
    gone ones too; "" where none is known."""
    models = Counter(gpu.name for gpu in inventory.gpus)
    model = min(models, key=lambda name: (-models[name], name), default="")
    role = role_of(inventory)
    word = "" if role in {None, NodeRole.GPU} else role
    return ", ".join(filter(None, (word, inventory.host.get("product"), model)))


def own_labels(inventory: Inventory) -> dict[str, str]:
    """Return the labels that a node gives itself, by `collector.labels`."""
    return {
        name.removeprefix(LABEL_FACT): value for name, value in inventory.host.items() if name.startswith(LABEL_FACT)
    }
