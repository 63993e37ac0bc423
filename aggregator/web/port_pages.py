"""Pages of ports: all ports of the fleet by switch and rail, worst first, and a port with its readings."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterable, Iterator, Sequence

from aiohttp import web

from aggregator.http.errors import unknown
from aggregator.http.history import stored_past
from aggregator.http.nodes import device
from aggregator.http.parameters import query, whole_number
from aggregator.http.ports import find_port, ports_reply
from aggregator.http.reply import VIEW
from aggregator.web.chart_time import chart_span, time_tabs
from aggregator.web.content import PageContent, shown_to
from aggregator.web.device_tables import alert_table, readings_table
from aggregator.web.load_chart import NOTHING_STORED, load_chart
from aggregator.web.markup import facts, link, path, section, table, text
from aggregator.web.node_list import firing_badges
from aggregator.web.past_readings import SHARED_PAST, traffic_of
from api.alerts import Alert, Severity
from api.device import PortReply
from api.ports import SPEED, PortGroup, PortLine, PortsReply, firing_by_port, port_of
from present.device.reading import metric_text, plain
from present.port import line_of
from present.units import gigabits
from telemetry.devices import Gpu, Port
from telemetry.metric import Table
from telemetry.text import ABSENT, counted

ROWS = 100
"""Ports of a page."""
_TRAFFIC = ("port_receive_bytes_total", "port_transmit_bytes_total")
_HEADS = ("port", "role", "rail", "GPU", "state", "speed", "errors", "far end")
_NUMBERS = (2, 3, 5, 6)


async def ports(request: web.Request) -> PageContent:
    """Return the page of all ports, worst first; `q` filters by node, name, role, switch and state; `page` counts
    from 1."""
    asked, view = query(request, "q", "page"), request.app[VIEW]
    page = whole_number(asked, "page", 1, 100_000)
    reply = shown_to(request, await asyncio.to_thread(ports_reply, view))
    return PageContent("Ports", ports_body(reply, asked.get("q", ""), page), live=True)


def ports_body(reply: PortsReply, asked: str, page: int) -> str:
    """Return the content of the page of all ports."""
    if not reply.ports:
        return "<p>No node has told of a port.</p>"
    wanted = asked.casefold()
    found = [line for line in reply.lines if not wanted or _has(line, wanted)]
    pages = max(1, -(-len(found) // ROWS))
    page = min(page, pages)
    shown = found[(page - 1) * ROWS : page * ROWS]
    many = counted(len(found), "port")
    caption = many if pages == 1 else f"{many}, page {page} of {pages}"
    rows = [
        (link(line.node, "nodes", line.node), *_cells(line), firing_badges(line.pages, line.tickets)) for line in shown
    ]
    places = [places_table(reply.groups, kind) for kind in ("switch", "rail")]
    return (
        section("Switches", places[0], "switches")
        + section("Rails", places[1], "rails")
        + '<form class="filter" role="search" aria-label="Filter" method="get"><label>Filter <input name="q" type="search" '
        f'value="{text(asked)}" placeholder="node, port, role, switch, state"></label> <button>Filter</button></form>'
        + table(f"{caption}, worst first", ("node", *_HEADS, "alerts"), rows, [place + 1 for place in _NUMBERS])
        + _pages(page, pages, asked)
    )


def _has(line: PortLine, wanted: str) -> bool:
    words = (line.node, line.name, line.role, line.switch, line.state, "slow" if line.slow else "")
    return any(wanted in word.casefold() for word in words)


def places_table(groups: Iterable[PortGroup], kind: str) -> str:
    """Return the switches, or the rails, with how many of their ports are up."""
    rows = [
        (
            link(one.name, "ports", q=one.name) if kind == "switch" else text(one.name),
            f"{one.nodes:,}",
            f"{one.ports:,}",
            f"{one.up:,}",
            f"{one.down:,}",
            f"{one.unknown:,}",
            f"{one.slow:,}",
            f'<span class="badge page">{one.firing:,}</span>' if one.firing else "0",
        )
        for one in groups
        if one.kind == kind
    ]
    heads = (kind, "nodes", "ports", "up", "down", "not known", "slow", "with alerts")
    caption = f"{len(rows):,} {'switches' if kind == 'switch' and len(rows) != 1 else kind}"
    return table(caption if kind == "switch" else counted(len(rows), kind), heads, rows, range(1, 8))


def places_line(groups: Iterable[PortGroup], kind: str, most: int) -> str:
    """Return a sentence on the ports of all switches, or of all rails: one line whatever is at fault. `most`: places that are
    named."""
    its = [one for one in groups if one.kind == kind]
    if not its:
        return ""
    ports, up = sum(one.ports for one in its), sum(one.up for one in its)
    of = f"{counted(ports, 'port')} of {_places(len(its), kind)}"
    wrong = [one for one in its if one.up < one.ports or one.slow or one.firing]
    if not wrong:
        return f'<p class="beside">All of {of} are up, and none is slow.</p>'
    found = {
        "down": sum(one.down for one in its),
        "not known": sum(one.unknown for one in its),
        "slow": sum(one.slow for one in its),
        "with alerts": sum(one.firing for one in its),
    }
    faults = ", ".join(f"{many:,} {words}" for words, many in found.items() if many)
    names = [link(one.name, "ports", q=one.name) if kind == "switch" else text(one.name) for one in wrong[:most]]
    more = f" and {len(wrong) - most:,} more" if len(wrong) > most else ""
    what = _places(len(wrong), kind).partition(" ")[2]
    return f'<p class="beside">{up:,} of {of} are up; {faults}: {what} {", ".join(names)}{more}.</p>'


def _places(many: int, kind: str) -> str:
    return f"{many:,} switches" if kind == "switch" and many > 1 else counted(many, kind)


def _cells(line: PortLine) -> tuple[str, ...]:
    far = " ".join(filter(None, (line.switch, line.switch_port)))
    return (
        link(line.name, "ports", line.id),
        text(line.role) or ABSENT,
        ABSENT if line.rail is None else str(line.rail),
        ABSENT if line.gpu is None else str(line.gpu),
        _marked(line.state, well=line.up is not False or not (line.pages or line.tickets)),
        _marked(gigabits(line.speed), well=not line.slow),
        ABSENT if line.errors is None else f"{line.errors:,.0f}",
        text(far) or ABSENT,
    )


def _marked(words: str, *, well: bool) -> str:
    return text(words) if well else f'<span class="badge ticket">{text(words)}</span>'


def _pages(page: int, pages: int, asked: str) -> str:
    if pages == 1:
        return ""
    found = " ".join(
        f'<a href="{path("ports", q=asked, page=None if number == 1 else str(number))}">{words} page</a>'
        for number, words in ((page - 1, "previous"), (page + 1, "next"))
        if 1 <= number <= pages
    )
    return f'<nav aria-label="More ports"><p>{found}</p></nav>'


def ports_of_node(found: Sequence[PortReply], gpus: Sequence[Gpu], alerts: Sequence[Alert]) -> str:
    """Return the table of the ports of a node."""
    firing = firing_by_port(alerts)
    rows = []
    for each in found:
        counts = (firing[each.port.id, severity] for severity in (Severity.PAGE, Severity.TICKET))
        rows.append(_cells(line_of(each, gpus, *counts)))
    return table(counted(len(rows), "port"), _HEADS, rows, _NUMBERS)


async def port(request: web.Request) -> PageContent:
    """Return the page of a port; `from` and `to` choose the time of its charts."""
    asked, view = query(request, "from", "to"), request.app[VIEW]
    identity = request.match_info["id"]
    found = find_port(view.fleet, identity)
    if found is None:
        known = [each.id for node in view.fleet.nodes.values() for each in node.inventory.ports]
        raise unknown("port", identity, known)
    node, place = found
    its, home, now = node.inventory.ports[place], node.inventory.node, view.now()
    row = node.rows[Table.PORT].start + place
    reply = shown_to(request, PortReply(its, *device(view.fleet, Table.PORT, row, now)))
    alerts = [one for one in view.alerts() if port_of(one) == identity]
    start, end = chart_span(asked, view.wall())
    charts = ""
    for name in _TRAFFIC:
        read = functools.partial(traffic_of, stored_past(view), identity, name, start, end)
        series = await request.app[SHARED_PAST].read((identity, name, start, end), read)
        if any(value is not None for value in series.values):
            speed = reply.readings.get(SPEED)
            limits = [] if speed is None else [("speed", speed * 8e-9)]
            charts += load_chart(series, start, end, limits, metric_text(name))
    body = (
        facts(_facts(home, reply.port, reply, node.inventory.gpus))
        + section("Alerts", alert_table(view.pipeline.manager, alerts, view.wall()), "alerts")
        + section(
            "Past", time_tabs(("ports", identity), "past", asked, start, end) + (charts or NOTHING_STORED), "past"
        )
        + section("Readings", readings_table(reply.readings, reply.gaps), "readings")
    )
    return PageContent(f"{home} {its.name}", body, live="to" not in asked)


def _facts(node: str, port: Port, reply: PortReply, gpus: Sequence[Gpu]) -> Iterator[tuple[str, str]]:
    line = line_of(reply, gpus)
    yield "node", link(node, "nodes", node)
    yield "state", text(line.state)
    yield "speed", _marked(gigabits(line.speed), well=not line.slow)
    yield "role", text(port.role)
    yield "rail", "" if port.rail is None else str(port.rail)
    yield ("GPU beside it", "" if port.gpu is None else link(f"GPU {line.gpu}", "gpus", port.gpu))
    yield (
        "far end",
        "" if not port.switch else f"{link(port.switch, 'ports', q=port.switch)} {text(port.switch_port or '')}",
    )
    names = ("link_layer", "model", "firmware", "guid", "pci", "numa_node", "interface", "bond")
    for name in names:
        value = getattr(port, name)
        yield plain(name), "" if value is None else text(value)
