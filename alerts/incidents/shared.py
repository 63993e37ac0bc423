"""Traits that the nodes of a storm share and the rest of the fleet does not have: its cause is to be looked for there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

Traits = Mapping[str, Collection[str]]
"""Values of a node by what they are: `{"rack": ["r12"], "driver": ["580.95.05"]}`."""
INSIDE, OUTSIDE = 0.95, 0.1
"""Share of the nodes hit that have a value at least, and other nodes that have it too at most, of those hit."""
MOST = 3


def shared(hit: Collection[str], fleet: Mapping[str, Traits]) -> tuple[str, ...]:
    """Return the values that the nodes hit have in common and hardly any other node has, the most telling first: `rack r12`.

    Nothing where the whole fleet is hit, or nodes of which nothing is known: then nothing tells them apart."""
    inside = [fleet[node] for node in hit if node in fleet]
    others = [traits for node, traits in fleet.items() if node not in hit]
    if not others or len(inside) < INSIDE * len(hit):
        return ()
    have, elsewhere = _counted(inside), _counted(others)
    found = [
        (elsewhere[trait], -count, *trait)
        for trait, count in have.items()
        if count >= INSIDE * len(inside) and elsewhere[trait] <= OUTSIDE * count
    ]
    return tuple(f"{name} {value}" for *_, name, value in sorted(found)[:MOST])


def _counted(nodes: Collection[Traits]) -> Counter[tuple[str, str]]:
    return Counter((name, value) for traits in nodes for name, values in traits.items() for value in set(values))
