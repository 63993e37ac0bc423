"""The power chain of a large cluster in a few rows: the branch of the most urgent circuit open, the rest folded into the next
few and a count of what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from aggregator.web.bars import LOAD_HEAD
from aggregator.web.circuit_list import Status, near_row
from aggregator.web.markup import link, section, table, text
from api.chain import ChainState
from api.power import CircuitState
from power.snapshot.power_chain import branch, leaves_of
from present.circuit.chain import folded_words
from present.circuit.rows import load_row
from telemetry.runtime.isolation import Parts, each
from telemetry.text import counted

MOST_ROWS, MOST_OPEN, MOST_NODES = 5, 4, 4
"""Rows in all, of them of the open branch, and nodes that are named."""
Row = tuple[CircuitState, str, bool]
"""A circuit, what feeds it, and whether it stands below the row before."""


def folded_chain(
    circuits: Sequence[CircuitState], status: Status, sources: Mapping[str, str], parts: Parts | None = None
) -> str:
    """Return the panel; nothing without circuits that feed nodes. `circuits`: the most urgent first; `sources`: what feeds
    each; `parts`: leaves out rows that can't be made."""
    found = branch(circuits)
    if not found.leaves:
        return ""
    opened = list(_opened(found.feeders, found.leaves, sources))[:MOST_OPEN]
    drawn = {one.id for one, _, _ in opened}
    folded = [one for one in leaves_of(circuits) if one.id not in drawn]
    rows: list[Row] = [*opened, *((one, "", False) for one in folded[: MOST_ROWS - len(opened)])]
    body = each(parts, "circuit", [row[0].id for row in rows], lambda place: _row(rows[place], status))
    heads = ("circuit", "load", LOAD_HEAD, "next")
    caption = f"{load_row(found.leaves[0]).label}; the branch of the most urgent, then the next".capitalize()
    shown = table(caption, heads, body, (1,), "nearest folded")
    return section(
        "Power chain",
        f'{shown}<p class="dim">{_feeds(found.nodes, found.left_out)}{text(_rest(folded, found.states))}</p>',
        "chain",
        more=link(f"all {len(circuits):,}", "circuits"),
    )


def _opened(
    feeders: Sequence[CircuitState], leaves: Sequence[CircuitState], sources: Mapping[str, str]
) -> Iterator[Row]:
    """Yield each circuit of the branch below what feeds it."""
    by_name = {one.id: one for one in feeders}
    before = None
    for one in leaves:
        if one.parent != before and one.parent in by_name:
            yield by_name[one.parent], sources.get(one.parent, ""), False
        before = one.parent
        yield one, "", one.parent in by_name


def _row(row: Row, status: Status) -> Sequence[str]:
    circuit, source, below = row
    name, *rest = near_row(circuit, status.get(circuit.id, 0))
    fed = f' <span class="dim">from {text(source)}</span>' if source else ""
    return f'<span class="tree d{int(below)}">{name}</span>{fed}', *rest


def _feeds(nodes: Sequence[str], left_out: int) -> str:
    """Return the nodes at the end of the branch, as links."""
    links = ", ".join(link(name, "nodes", name) for name in nodes[:MOST_NODES])
    more = max(0, len(nodes) - MOST_NODES) + left_out
    return f"It feeds {links}{f' and {more:,} more' if more else ''}. " if links else ""


def _rest(folded: Sequence[CircuitState], states: Mapping[str, ChainState]) -> str:
    """Return how many circuits are folded, and what is wrong with them."""
    if not folded:
        return ""
    return f"{counted(len(folded), 'further circuit')} with nodes: {folded_words([states[one.id] for one in folded])}."
