"""NVLink domains across nodes: the trays of a rack are one domain, and one that is in another talks to its neighbours
over the network, slowly and without an error. Pure.

Each rack has a cluster UUID of its own, so trays are compared with those of their rack. A machine whose NVSwitches are
its own has a domain of its own, if any: it shares it with nobody, and deviates from nobody.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from aggregator.register.facts import of_each
from api.drift import Deviation
from telemetry.wire.inventory import Inventory

DOMAIN = "nvlink domain"
"""The fact."""


def outside_their_domain(nodes: Iterable[tuple[str, str, str | None]], least: int, share: float) -> list[Deviation]:
    """Return the nodes (name, rack, domain) that are in another domain than most of their rack: at least `least` nodes and `share` of
    those that say it."""
    by_rack: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for name, rack, domain in nodes:
        if rack and domain is not None:
            by_rack[rack][name] = domain
    found = []
    for its in by_rack.values():
        usual, count = Counter(its.values()).most_common(1)[0]
        if count < least or count < share * len(its):
            continue
        found += [
            Deviation(node=name, fact=DOMAIN, has=has, most_have=usual, nodes=count, of=len(its))
            for name, has in its.items()
            if has != usual
        ]
    return found


def domain_of(node: Inventory) -> str | None:
    """Return cluster and clique of a node's GPUs; None where one that is there does not say it."""
    there = [gpu for gpu in node.gpus if gpu.present]
    return of_each(None if gpu.fabric_cluster is None else f"{gpu.fabric_cluster}.{gpu.fabric_clique}" for gpu in there)
