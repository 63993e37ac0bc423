"""The table of nodes: worst first, or by a column; sorting, filter and page are in the URL."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from aggregator.web.markup import WIDE, keyed_row, link, page_links, path, text
from api.fleet import NodeReply, NodeStatus
from api.node_register import ReleaseDrift
from present.device.node import firing, frame_row, gpus_row, release_row, role_row, state_row
from present.row import FactRow
from present.units import celsius, watts
from telemetry.runtime.isolation import Parts, each
from telemetry.text import ABSENT, counted

ROWS = 100
"""Rows of a page: more would make a browser slow to sort them, and nobody reads them."""
WORST = "worst"
_BADNESS = {NodeStatus.OFFLINE: 2, NodeStatus.UNHEARD: 2, NodeStatus.STALE: 1, NodeStatus.ONLINE: 0}


@dataclass(frozen=True, slots=True)
class NodeLine:
    """A row of the table; None is not known."""

    node: NodeReply
    watts: float | None
    """Sum over its GPUs, if all that are present report it."""
    hottest: float | None
    """Temperature of its hottest GPU, °C."""
    pages: int
    """Firing alerts of the severity `page`."""
    tickets: int
    drift: ReleaseDrift
    """Its release beside the aggregator's."""

    @property
    def order(self) -> tuple[float, ...]:
        """How urgent it is: the worst is the smallest."""
        missing = self.node.gpus - self.node.gpus_present
        hottest = -math.inf if self.hottest is None else self.hottest
        return (-self.pages, -_BADNESS.get(self.node.state, 1), -missing, -self.tickets, -hottest)


Key = Callable[[NodeLine], tuple[object, ...]]
COLUMNS: dict[str, tuple[str, Key]] = {
    "node": ("node", lambda one: (one.node.node,)),
    "state": ("state", lambda one: (-_BADNESS.get(one.node.state, 1),)),
    "role": ("role", lambda one: (not one.node.role, one.node.role)),
    "gpus": ("GPUs", lambda one: (-one.node.gpus,)),
    "power": ("GPU power", lambda one: _most(one.watts)),
    "hottest": ("hottest GPU", lambda one: _most(one.hottest)),
    "alerts": ("alerts", lambda one: (-one.pages, -one.tickets)),
    "rack": ("rack", lambda one: (not one.node.rack, one.node.rack)),
    "release": ("release", lambda one: (one.node.release,)),
    "age": ("newest frame", lambda one: _most(one.node.age_seconds)),
}
"""Columns by their name in the URL: head, and sort key."""
_NUMBERS = {"gpus", "power", "hottest", "alerts", "age"}


def _most(value: float | None) -> tuple[object, ...]:
    """Return a key that puts the largest first, and what is not known last."""
    return (value is None, 0.0 if value is None else -value)


def nodes_body(lines: Iterable[NodeLine], asked: Mapping[str, str], page: int, parts: Parts | None = None) -> str:
    """Return the page's content. `asked`: parameters `sort` and `q`, valid; `page` counts from 1; `parts`: leaves
    out rows that can't be made."""
    wanted, sort = asked.get("q", "").casefold(), asked.get("sort", WORST)
    found = [one for one in lines if not wanted or _has(one, wanted)]
    found.sort(key=lambda one: one.node.node)
    found.sort(key=(lambda one: one.order) if sort == WORST else COLUMNS[sort][1])
    pages = max(1, -(-len(found) // ROWS))
    page = min(page, pages)
    shown = found[(page - 1) * ROWS : page * ROWS]
    keep = {"q": asked.get("q"), "sort": None if sort == WORST else sort}
    hidden = "" if sort == WORST else f'<input type="hidden" name="sort" value="{text(sort)}">'
    return (
        f'<form class="filter" role="search" aria-label="Filter" method="get">{hidden}<label>Filter <input name="q" type="search" '
        f'value="{text(asked.get("q", ""))}" placeholder="node, role, rack, job, state, release, older"></label> '
        f"<button>Filter</button></form>"
        f"{_table(shown, keep, sort, _counted(len(found), page, pages), parts)}{page_links('nodes', page, pages, keep)}"
    )


def _has(one: NodeLine, wanted: str) -> bool:
    node, drift = one.node, one.drift
    words = (node.node, node.role, node.rack, node.job, node.state, node.release)
    return any(wanted in each.casefold() for each in words) or wanted == drift


def _counted(found: int, page: int, pages: int) -> str:
    words = counted(found, "node")
    return words if pages == 1 else f"{words}, page {page} of {pages}"


def _table(lines: list[NodeLine], keep: Mapping[str, str | None], sort: str, caption: str, parts: Parts | None) -> str:
    heads = "".join(_head(name, words, keep, sort) for name, (words, _) in COLUMNS.items())
    names = [one.node.node for one in lines]
    rows = "".join(each(parts, "node", names, lambda place: _row(lines[place])))
    return (
        f'{WIDE}<table class="nodes"><caption data-k="caption" aria-live="polite">{text(caption)}, '
        f"{'worst first' if sort == WORST else f'by {COLUMNS[sort][0]}'}</caption>"
        f'<thead><tr>{heads}</tr></thead><tbody data-k="rows">{rows}</tbody></table></div>'
    )


def _head(name: str, words: str, keep: Mapping[str, str | None], sort: str) -> str:
    right = " class=num" if name in _NUMBERS else ""
    if name == sort:
        way, order = path("nodes", q=keep["q"]), ' aria-sort="other"'
    else:
        way, order = path("nodes", q=keep["q"], sort=name), ""
    return f'<th scope="col"{right}{order}><a href="{way}">{text(words)}</a></th>'


def _row(one: NodeLine) -> str:
    node = one.node
    cells = {
        "node": link(node.node, "nodes", node.node),
        "state": state_badge(node),
        "role": text(role_row(node.role).value),
        "gpus": gpus_row(node.gpus, node.gpus_present, node.role).value,
        "power": watts(one.watts),
        "hottest": celsius(one.hottest),
        "alerts": firing_badges(one.pages, one.tickets),
        "rack": text(node.rack) or ABSENT,
        "release": release_text(release_row(node.release, one.drift)),
        "age": frame_row(node.age_seconds).value,
    }
    made = "".join(f"<td{' class=num' if name in _NUMBERS else ''}>{cell}</td>" for name, cell in cells.items())
    return keyed_row(made)


def firing_badges(pages: int, tickets: int) -> str:
    """Return how many alerts fire, by severity."""
    found = firing(pages, tickets)
    return " ".join(f'<span class="badge {mark}">{words}</span>' for mark, words in found) or "none"


def state_badge(node: NodeReply) -> str:
    """Return the state of a node, marked unless it is online."""
    its = state_row(node)
    return f'<span class="badge ticket">{text(its.value)}</span>' if its.tone else text(its.value)


def release_text(row: FactRow) -> str:
    """Return a node's release, marked where it is older or newer than the aggregator's."""
    mark = f' <span class="badge ticket">{text(row.note)}</span>' if row.note else ""
    return f"{text(row.value)}{mark}"
