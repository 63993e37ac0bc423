"""Nodes that differ from what is declared, or from most of their kind, in words."""

from __future__ import annotations

from api.drift import Deviation, MixedFact, NodeGroup
from present.row import FactRow, Tone
from telemetry.text import counted

NOTHING = "no node has sent an inventory yet"
DEVIATION_HEADS = ("node", "fact", "has", "should have", "by")


def group_row(group: NodeGroup) -> FactRow:
    """Return how many nodes of a kind differ; as note how many there are."""
    who = len({one.node for one in group.deviations})
    found = [] if group.evaluated else ["too few to say what most have"]
    if who or group.evaluated or group.declared:
        found.append(f"{who:,} {'differs' if who == 1 else 'differ'}" if who else "alike")
    declared = f", declared for {group.declared:,}" if group.declared else ""
    known = group.evaluated or group.declared
    tone = Tone.WARN if who else Tone.PLAIN if known else Tone.DIM
    note = f"{counted(group.nodes, 'node')}{declared}"
    return FactRow(group.name or "nodes of no kind", ", ".join(found), tone, note=note)


def deviation_cells(one: Deviation) -> tuple[str, str, str, str, str]:
    """Return node, fact, what it has, what it should have, and by whom."""
    by = "declared" if one.declared else f"{one.nodes:,} of {one.of:,}"
    return one.node, one.fact, one.has, one.most_have, by


def mixed_values(one: MixedFact) -> str:
    """Return the values of a fact of which a kind has none for most."""
    return ", ".join(f"{count:,} x {value}" for value, count in one.values.items())


def unknown_row(group: NodeGroup) -> FactRow:
    """Return the facts that nodes do not say."""
    facts = (f"{fact} of {counted(count, 'node')}" for fact, count in group.unknown.items())
    return FactRow("not known", ", ".join(facts), Tone.DIM)
