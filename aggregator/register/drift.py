"""Who differs from what is declared, or else from nodes of its kind, by the inventories of the fleet. Pure.

A kind is a role with a product and a model of GPU. What at least four fifths of a kind have is what its nodes
should have, if these are four nodes at least; what fewer have is a deviation. Where no value has so many, the
fact is mixed, as while a release is rolled out, and nobody deviates. A fact that `[[expected]]` declares is
compared with that alone. What a node does not say is unknown, never a difference.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from aggregator.register.domains import domain_of, outside_their_domain
from aggregator.register.expected import ExpectedState, Shortfall, shortfalls
from aggregator.register.facts import Facts, facts_of, kind_of
from aggregator.register.measured import measured_of, slow_nodes
from api.drift import Deviation, DriftReply, FactDifference, MixedFact, NodeDifferenceReply, NodeGroup
from telemetry.wire.inventory import Inventory

LEAST_NODES = 5
"""Nodes of a kind, fewer than which have no majority."""
LEAST_ALIKE = 4
"""Nodes that must have a value for it to be that of most."""
MOST = 0.8
"""Share of the nodes that say what they have."""


class ComparedNode(NamedTuple):
    """A node with what it says and what is declared for it, as members tell each other."""

    node: str
    kind: str
    facts: Facts
    wanted: ExpectedState | None = None
    shortfalls: tuple[Shortfall, ...] = ()
    """In what it is not as declared."""
    measured: Mapping[str, float] = {}
    rack: str = ""
    domain: str | None = None
    """NVLink domain of its GPUs; None where one of them does not say it."""


def compared(inventory: Inventory, wanted: ExpectedState | None = None) -> ComparedNode:
    """Return a node as it is compared; of a port no speed is known."""
    return ComparedNode(
        inventory.node,
        kind_of(inventory),
        facts_of(inventory),
        wanted,
        () if wanted is None else tuple(shortfalls(inventory, wanted, {})),
        measured_of(inventory),
        inventory.host.get("rack", ""),
        domain_of(inventory),
    )


def drift_of(nodes: Iterable[ComparedNode], at: int) -> DriftReply:
    """Return how the nodes of each kind differ. `at`: ns since 1970."""
    by_kind: defaultdict[str, list[ComparedNode]] = defaultdict(list)
    for node in nodes:
        by_kind[node.kind].append(node)
    groups = [_evaluated(name, its) for name, its in sorted(by_kind.items())]
    groups.sort(key=lambda group: (-len(group.deviations), -len(group.mixed)))
    return DriftReply(at=at, nodes=sum(group.nodes for group in groups), groups=groups)


def _evaluated(name: str, nodes: Sequence[ComparedNode]) -> NodeGroup:
    deviations = [
        Deviation(node=node.node, fact=each.fact, has=each.has, most_have=each.wanted, nodes=0, of=0, declared=True)
        for node in nodes
        for each in node.shortfalls
    ]
    declared = sum(node.wanted is not None for node in nodes)
    enough = bool(name) and len(nodes) >= LEAST_NODES
    mixed: list[MixedFact] = []
    unknown: dict[str, int] = {}
    for fact in sorted({fact for node in nodes for fact in node.facts}) if enough else ():
        open_ = [node for node in nodes if node.wanted is None or not node.wanted.covers(fact)]
        its = {node.node: node.facts[fact] for node in open_ if fact in node.facts}
        if len(its) < len(open_):
            unknown[fact] = len(open_) - len(its)
        if not its:
            continue
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
    if enough:
        deviations += slow_nodes({node.node: node.measured for node in nodes if node.measured})
        places = [(node.node, node.rack, node.domain) for node in nodes]
        deviations += outside_their_domain(places, LEAST_ALIKE, MOST)
    deviations.sort(key=lambda one: (one.node, one.fact))
    return NodeGroup(
        name=name or "of no known kind",
        nodes=len(nodes),
        evaluated=enough,
        declared=declared,
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
