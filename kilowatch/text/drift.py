"""How nodes differ, as text."""

from __future__ import annotations

from collections.abc import Iterator

from api.drift import DriftReply, NodeDifferenceReply, NodeGroup
from kilowatch.text.table import columns
from present.fleet.drift import DEVIATION_HEADS, NOTHING, deviation_cells, group_row, mixed_values, unknown_row
from telemetry.text import counted

UNKNOWN = "not known"
_WIDTH = 160


def drift_lines(reply: DriftReply) -> list[str]:
    """Return the text of `kilowatch drift`."""
    lines = [line for group in reply.groups for line in _group_lines(group)]
    return lines or [NOTHING]


def _group_lines(group: NodeGroup) -> Iterator[str]:
    its, unknown = group_row(group), unknown_row(group)
    yield f"{its.label}: {its.note}, {its.value}"
    rows = [("", node, fact, has, f"{wanted} ({by})") for node, fact, has, wanted, by in map(deviation_cells, group.deviations)]  # fmt: skip
    if rows:
        yield from columns([("", *(head.upper() for head in DEVIATION_HEADS[:-1])), *rows], width=_WIDTH)
    for mixed in group.mixed:
        yield f"  mixed: {mixed.fact}: {mixed_values(mixed)}"
    if unknown.value:
        yield f"  {unknown.label}: {unknown.value}"


def difference_lines(reply: NodeDifferenceReply) -> list[str]:
    """Return the text of `kilowatch diff`."""
    same = counted(len(reply.same), "fact")
    if not reply.differences:
        return [f"{reply.first} and {reply.second} are alike in {same}"]
    rows = [(one.fact, one.first or UNKNOWN, one.second or UNKNOWN) for one in reply.differences]
    return [*columns([("FACT", reply.first, reply.second), *rows], width=_WIDTH), f"alike in {same}"]
