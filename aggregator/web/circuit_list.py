"""The page of all circuits: a tree, in which the branch with the most urgent circuit comes first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aggregator.web.bars import LOAD_HEAD, load_bar
from aggregator.web.markup import WIDE, fact, keyed_row, link, page_links, part, table, text
from api.power import CircuitState, PowerReply
from present.circuit.figures import by_urgency, tree
from present.circuit.outlook import ESTIMATE, next_row
from present.circuit.rows import headroom_row, load_row, share_row, state_row
from present.circuit.rules import NO_CIRCUITS
from present.circuit.set_aside import set_aside_lines
from present.row import Tone
from telemetry.runtime.isolation import Parts, each
from telemetry.text import counted

ROWS = 50
"""Rows of a page: an update of 700 keeps a browser busy for a tenth of a second, one of 100 for 37 ms."""
STEP = 10
"""Percent of load that are as urgent as each other: whole branches changed places because one of forty loads had grown by a percent."""
STATUS_WORDS = {0: "", 1: "ticket", 2: "page"}
"""Worst alert of a circuit, as its row is marked."""
ALERT_TONES = (Tone.PLAIN, Tone.WARN, Tone.CRIT)
"""Tones of these."""
Status = Mapping[str, int]


def circuits_body(
    circuits: Sequence[CircuitState],
    status: Status,
    power: PowerReply,
    filtered: str = "",
    parts: Parts | None = None,
    page: int = 1,
) -> str:
    """Return the page's content. `filtered`: only circuits whose name or a node of which has it, with
    the panels above them. `parts`: leaves out rows that can't be made; `page` counts from 1."""
    if not circuits:
        return f"<p>{text(_none(power))}</p>"
    urgent = by_urgency(circuits, lambda name: status.get(name, 0), STEP)
    shown = _filtered(circuits, filtered.casefold()) if filtered else {one.id for one in circuits}
    rows = [row for row in tree(_worst_first(circuits, urgent)) if row[1].id in shown]
    pages = max(1, -(-len(rows) // ROWS))
    page = min(page, pages)
    found = counted(len(rows), "circuit") + (f" of {len(circuits):,}" if filtered else "")
    found += f", page {page} of {pages}" if pages > 1 else ""
    return (
        f"{_problems(power)}"
        '<form class="filter" role="search" aria-label="Filter" method="get"><label>Filter '
        f'<input name="q" type="search" value="{text(filtered)}" placeholder="circuit or node"></label> '
        f'<button>Filter</button> <span class="dim">{found}</span></form>'
        f"{circuits_table(rows[(page - 1) * ROWS : page * ROWS], status, parts)}{page_links('circuits', page, pages, {'q': filtered})}"
        f'<p class="dim">{ESTIMATE} Load: about the last ten seconds. An unknown load is no number, and is in '
        "no sum.</p>"
    )


def _none(power: PowerReply) -> str:
    if power.failure:
        return f"No circuit, budget or UPS is monitored: {power.failure}"
    if power.configured:
        return "The circuits are not computed yet."
    return NO_CIRCUITS


def _problems(power: PowerReply) -> str:
    fault = power.configuration.error
    lines = [f"A newer configuration was refused: {fault}"] if fault else []
    if power.site_problem:
        lines.insert(0, power.site_problem)
    lines += [f"{line[:1].upper()}{line[1:]}" for line in set_aside_lines(power.set_aside)]
    lines += [f"Meter {meter.name}: {meter.error}" for meter in power.meters if meter.error]
    shown = "".join(f"<li>{text(line)}</li>" for line in lines[:20])
    return f'<ul class="problems">{shown}</ul>' if shown else ""


def _filtered(circuits: Sequence[CircuitState], wanted: str) -> set[str]:
    by_name = {circuit.id: circuit for circuit in circuits}
    found: set[str] = set()
    for circuit in circuits:
        if any(wanted in name.casefold() for name in (circuit.id, *circuit.nodes)):
            above: str | None = circuit.id
            while above is not None and above in by_name and above not in found:
                found.add(above)
                above = by_name[above].parent
    return found


def _worst_first(circuits: Sequence[CircuitState], urgent: Sequence[CircuitState]) -> list[CircuitState]:
    """Return circuits so that the tree's branches come by the most urgent circuit in each."""
    rank = {circuit.id: place for place, circuit in enumerate(urgent)}
    for circuit in reversed(circuits):  # parents come before what they feed
        if circuit.parent in rank:
            rank[circuit.parent] = min(rank[circuit.parent], rank[circuit.id])
    return sorted(circuits, key=lambda circuit: rank[circuit.id])


_HEADS = ("circuit", "load", "of the breaker", "", "next", "headroom", "state of the load", "nodes")


def circuits_table(rows: Sequence[tuple[int, CircuitState]], status: Status, parts: Parts | None = None) -> str:
    """Return a table of circuits, each with its depth in the tree. `parts`: leaves out rows that can't be made."""
    names = [circuit.id for _, circuit in rows]
    body = "".join(each(parts, "circuit", names, lambda place: _row(*rows[place], status.get(names[place], 0))))
    heads = "".join(
        f'<th scope="col"{" class=num" if place in {1, 2, 5, 7} else ""}>{name or "<span class=hidden>bar</span>"}</th>'
        for place, name in enumerate(_HEADS)
    )
    return (
        f'{WIDE}<table class="circuits"><caption>Circuits and panels, the most urgent first'
        f'</caption><thead><tr>{heads}</tr></thead><tbody data-k="rows">{body}</tbody></table></div>'
    )


def _row(depth: int, circuit: CircuitState, status: int) -> str:
    mark = STATUS_WORDS.get(status, "")
    rules = f' <span class="badge {mark}">{text(", ".join(circuit.alerts))}</span>' if mark else ""
    feeds = " (panel)" if circuit.kind == "panel" else ""
    cells = (
        f'<th scope="row" class="tree d{min(depth, 6)}">{link(circuit.id, "circuits", circuit.id)}'
        f'<span class="dim">{feeds}</span>{rules}</th>',
        f'<td class="num">{part("load", text(load_row(circuit).value))}</td>',
        f'<td class="num">{part("share", text(share_row(circuit).short))}</td>',
        f"<td>{load_bar(circuit, mark, key='bar')}</td>",
        f"<td>{part('next', fact(next_row(circuit, ALERT_TONES[status])))}</td>",
        f'<td class="num">{part("headroom", text(headroom_row(circuit).value))}</td>',
        f"<td>{part('state', fact(state_row(circuit)))}</td>",
        f'<td class="num">{len(circuit.nodes) or ""}</td>',
    )
    return keyed_row("".join(cells), mark)


def nearest_table(circuits: Sequence[CircuitState], status: Status, parts: Parts | None = None) -> str:
    """Return the circuits that are nearest to a limit in a narrow table."""
    names = [circuit.id for circuit in circuits]
    rows = each(parts, "circuit", names, lambda place: near_row(circuits[place], status.get(names[place], 0)))
    heads = ("circuit", "load", LOAD_HEAD, "next")
    return table("The most urgent first" if len(names) > 1 else "", heads, rows, (1,), "nearest")


def near_row(circuit: CircuitState, status: int) -> Sequence[str]:
    """Return the cells of a circuit in such a table: its name, load, bar, and what happens to it next."""
    return (
        link(circuit.id, "circuits", circuit.id),
        text(share_row(circuit).value),
        load_bar(circuit, STATUS_WORDS.get(status, "")),
        fact(next_row(circuit, ALERT_TONES[status])),
    )
