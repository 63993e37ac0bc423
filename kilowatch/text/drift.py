"""How nodes differ, as text."""

from __future__ import annotations

from collections.abc import Iterator

from api.drift import Deviation, DriftReply, NodeDifferenceReply, NodeGroup
from kilowatch.text.table import columns
from telemetry.text import counted

UNKNOWN = "not known"
_WIDTH = 160


def drift_lines(reply: DriftReply) -> list[str]:
    """Return the text of `kilowatch drift`."""
    lines = [line for group in reply.groups for line in _group_lines(group)]
    return lines or ["no node has sent an inventory yet"]


def _group_lines(group: NodeGroup) -> Iterator[str]:
    name = f"{group.name}: {counted(group.nodes, 'node')}"
    if group.declared:
        name += f", declared for {group.declared}"
    if not group.evaluated:
        name += ", too few to say what most have"
        if not group.deviations:
            yield name
            return
    who = len({one.node for one in group.deviations})
    yield (
        f"{name}, {who} of them {'differs' if who == 1 else 'differ'}" if who else f"{name}, alike"
    )
    rows = [
        ("", one.node, one.fact, one.has, f"{one.most_have} ({_by_whom(one)})")
        for one in group.deviations
    ]
    if rows:
        yield from columns([("", "NODE", "FACT", "HAS", "SHOULD HAVE"), *rows], width=_WIDTH)
    for mixed in group.mixed:
        values = ", ".join(f"{count} x {value}" for value, count in mixed.values.items())
        yield f"  mixed: {mixed.fact}: {values}"
    if group.unknown:
        facts = ", ".join(
            f"{fact} of {counted(count, 'node')}" for fact, count in group.unknown.items()
        )
        yield f"  {UNKNOWN}: {facts}"


def _by_whom(one: Deviation) -> str:
    return "declared" if one.declared else f"{one.nodes} of {one.of}"


def difference_lines(reply: NodeDifferenceReply) -> list[str]:
    """Return the text of `kilowatch diff`."""
    same = counted(len(reply.same), "fact")
    if not reply.differences:
        return [f"{reply.first} and {reply.second} are alike in {same}"]
    rows = [(one.fact, one.first or UNKNOWN, one.second or UNKNOWN) for one in reply.differences]
    return [
        *columns([("FACT", reply.first, reply.second), *rows], width=_WIDTH),
        f"alike in {same}",
    ]
