"""Who differs from nodes of its kind, by the inventories of the fleet. Pure.

A kind is a product with a model of GPU. What at least four fifths of a kind have is what its nodes should have,
if these are four nodes at least; what fewer have is a deviation. Where no value has so many, the fact is mixed,
as while a release is rolled out, and nobody deviates. What a node does not say is unknown, never a difference.

Not compared: what is a node's own (serials, addresses, names), and power limits, which are set for each node by
intention.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from api.drift import (
    Deviation,
    DriftReply,
    FactDifference,
    MixedFact,
    NodeDifferenceReply,
    NodeGroup,
)
from telemetry.inventory import Inventory

LEAST_NODES = 5
"""Nodes of a kind, fewer than which have no majority."""
LEAST_ALIKE = 4
"""Nodes that must have a value for it to be that of most."""
MOST = 0.8
"""Share of the nodes that say what they have."""
_HOST_FACTS = ("kernel", "os", "cpu", "cpus", "bios")
"""Facts of the host that like nodes share."""

Facts = Mapping[str, str]
"""Value by fact; without those that are not known."""


def facts_of(inventory: Inventory) -> dict[str, str]:
    """Return what a node says of itself, as far as nodes of a kind should be alike in it."""
    there = [gpu for gpu in inventory.gpus if gpu.present]
    found: dict[str, str | None] = {
        "driver": inventory.driver_version,
        "cuda": inventory.cuda_version,
        "kilowatch": inventory.kilowatch,
        **{name: inventory.host.get(name) for name in _HOST_FACTS},
    }
    # A driver that is gone lists no GPU: that is a fault, which rings, and no deviation.
    if inventory.gpus:
        linked = Counter(link.gpu for link in inventory.links)
        found |= {
            "gpus": str(len(there)),
            "gpu model": _of_each(gpu.name for gpu in there),
            "gpu vbios": _of_each(gpu.vbios for gpu in there),
            "gpu part number": _of_each(gpu.part_number for gpu in there),
            "gpu memory": _of_each(
                None if gpu.memory_bytes is None else f"{gpu.memory_bytes / 2**30:.0f} GiB"
                for gpu in there
            ),
            "gpu mig": _of_each("on" if gpu.mig else "off" for gpu in there),
            "nvlinks": _of_each(str(linked[gpu.uuid]) for gpu in there),
        }
    ports = [port for port in inventory.ports if port.present]
    if inventory.ports:
        found["ports"] = _counted(f"{port.link_layer} {port.model or ''}".strip() for port in ports)
        for model in {port.model for port in ports if port.model}:
            found[f"port firmware {model}"] = _of_each(
                port.firmware for port in ports if port.model == model
            )
    return {fact: value for fact, value in found.items() if value}


def _of_each(values: Iterable[str | None]) -> str | None:
    """Return what all have, without their number, for one that is missing is another fact; else the counts."""
    listed = list(values)
    return listed[0] if len(set(listed)) == 1 else _counted(listed)


def _counted(values: Iterable[str | None]) -> str | None:
    """Return the counts: `7 x 96.00.61.00.01, 1 x 96.00.5F.00.03`, the commonest first; None where one is not
    known."""
    listed = list(values)
    if not listed or None in listed:
        return None
    each = sorted(Counter(listed).items(), key=lambda pair: (-pair[1], str(pair[0])))
    return ", ".join(f"{count} x {value}" for value, count in each)


def group_of(inventory: Inventory) -> str:
    """Return the kind of a node: its product and the model of most of its GPUs, gone ones too; "" where neither
    is known."""
    models = Counter(gpu.name for gpu in inventory.gpus)
    model = min(models, key=lambda name: (-models[name], name), default="")
    return ", ".join(filter(None, (inventory.host.get("product"), model)))


def drift_of(inventories: Iterable[Inventory], at: int) -> DriftReply:
    """Return how the nodes of each kind differ. `at`: ns since 1970."""
    by_group: defaultdict[str, dict[str, Facts]] = defaultdict(dict)
    for inventory in inventories:
        by_group[group_of(inventory)][inventory.node] = facts_of(inventory)
    groups = [_evaluated(name, nodes) for name, nodes in sorted(by_group.items())]
    groups.sort(key=lambda group: (-len(group.deviations), -len(group.mixed)))
    return DriftReply(at=at, nodes=sum(group.nodes for group in groups), groups=groups)


def _evaluated(name: str, nodes: Mapping[str, Facts]) -> NodeGroup:
    if not name or len(nodes) < LEAST_NODES:
        return NodeGroup(name=name or "of no known kind", nodes=len(nodes), evaluated=False)
    deviations: list[Deviation] = []
    mixed: list[MixedFact] = []
    unknown: dict[str, int] = {}
    for fact in sorted({fact for facts in nodes.values() for fact in facts}):
        its = {node: facts[fact] for node, facts in nodes.items() if fact in facts}
        if len(its) < len(nodes):
            unknown[fact] = len(nodes) - len(its)
        counts = Counter(its.values()).most_common()
        usual, count = counts[0]
        if count < LEAST_ALIKE or count < MOST * len(its):
            if len(its) >= LEAST_NODES:
                mixed.append(MixedFact(fact=fact, values=dict(counts)))
            continue
        deviations += [
            Deviation(node=node, fact=fact, has=value, most_have=usual, nodes=count, of=len(its))
            for node, value in sorted(its.items())
            if value != usual
        ]
    deviations.sort(key=lambda one: (one.node, one.fact))
    return NodeGroup(
        name=name,
        nodes=len(nodes),
        evaluated=True,
        deviations=deviations,
        mixed=mixed,
        unknown=unknown,
    )


def difference(first: Inventory, second: Inventory) -> NodeDifferenceReply:
    """Return in what two nodes differ; a fact that only one of them says is one of the differences."""
    one, other = facts_of(first), facts_of(second)
    facts: Sequence[str] = sorted(one.keys() | other.keys())
    return NodeDifferenceReply(
        first=first.node,
        second=second.node,
        same=[fact for fact in facts if one.get(fact) == other.get(fact)],
        differences=[
            FactDifference(fact=fact, first=one.get(fact, ""), second=other.get(fact, ""))
            for fact in facts
            if one.get(fact) != other.get(fact)
        ],
    )
