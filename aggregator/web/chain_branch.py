"""The part of the power chain that is drawn: all of a small site, else the branch of the most urgent circuit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from api.power import CircuitState

MOST_NODES, MOST_CIRCUITS = 8, 8


@dataclass(frozen=True, slots=True)
class Branch:
    """Circuits that feed nodes, by the circuits above them."""

    feeders: Sequence[CircuitState]
    """Circuits that feed the `leaves`, in the order in which they are drawn."""
    leaves: Sequence[CircuitState]
    """Circuits with nodes, those of one feeder beside each other."""
    nodes: Sequence[str]
    """Nodes, in the order in which they are drawn."""
    folded: int
    """Circuits with nodes that are not drawn."""
    left_out: int
    """Nodes of the circuits drawn that are not drawn."""
    around: str
    """Circuit whose branch it is; "" for the most urgent one's, or all."""


def branch(circuits: Sequence[CircuitState], around: str = "") -> Branch:
    """Return what is drawn of circuits. `circuits`: the most urgent first; `around`: the circuit whose branch is
    wanted, or "" for the most urgent one's where not all fit."""
    by_name = {one.id: one for one in circuits}
    feeding = {one.parent for one in circuits}
    # A panel lists the nodes of all that it feeds: only the lowest circuit of a node is its leaf.
    leaves = [one for one in circuits if one.nodes and one.id not in feeding]
    if around:
        its = [one for one in leaves if around in _above(one, by_name)]
        chosen = _with_other_sides(its, leaves)
    else:
        chosen = leaves if _fits(leaves) else _with_other_sides(leaves[:1], leaves)
    chosen = sorted(chosen, key=lambda one: (one.parent or "", one.id))
    feeders = [by_name[name] for name in dict.fromkeys(one.parent for one in chosen) if name in by_name]  # fmt: skip
    nodes = sorted({name for one in chosen for name in one.nodes})
    folded, left_out = len(leaves) - len(chosen), max(0, len(nodes) - MOST_NODES)
    return Branch(feeders, chosen, nodes[:MOST_NODES], folded, left_out, around)


def _above(circuit: CircuitState, by_name: Mapping[str, CircuitState]) -> set[str]:
    """Return a circuit's name and those of all that feed it."""
    found: set[str] = set()
    at: CircuitState | None = circuit
    while at is not None and at.id not in found:
        found.add(at.id)
        at = by_name.get(at.parent or "")
    return found


def _fits(leaves: Sequence[CircuitState]) -> bool:
    nodes = {name for one in leaves for name in one.nodes}
    return len(leaves) <= MOST_CIRCUITS and len(nodes) <= MOST_NODES


def _with_other_sides(
    first: Sequence[CircuitState], leaves: Sequence[CircuitState]
) -> list[CircuitState]:
    """Return circuits with those that feed their nodes too: the other sides of their redundancy."""
    names = {one.id for one in first}
    its = {node for one in first for node in one.nodes[:MOST_NODES]}
    beside = [one for one in leaves if one.id not in names and its & set(one.nodes)]
    return [*first, *beside][:MOST_CIRCUITS]
