"""`/api/v1/ports`: every port of the fleet, by switch and rail, worst first."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np
from aiohttp import web

from aggregator.access.tokens import AccessScope
from aggregator.http.operation import Operation, Parameter
from aggregator.http.parameters import query, whole_number
from aggregator.http.reply import VIEW, send_json
from aggregator.view import AggregatorView, parts_of
from api.alerts import Severity
from api.ports import SPEED, STATE, UP, USUAL, PortGroup, PortLine, PortsReply, faults, firing_by_port
from present.port import state_text
from telemetry.devices import Port
from telemetry.fleet import Fleet, Node
from telemetry.gap import reason_of
from telemetry.metric import Table

MOST, USUAL_LINES = 10_000, 1000
"""Lines that an answer may have, and has if nothing is said."""


async def ports(request: web.Request) -> web.Response:
    """Answer with the ports; `limit`: lines at most."""
    asked = query(request, "limit")
    limit = whole_number(asked, "limit", USUAL_LINES, MOST)
    reply = ports_reply(request.app[VIEW], limit)
    return await send_json(request, reply, values=15 * len(reply.lines))


def ports_reply(view: AggregatorView, limit: int | None = None) -> PortsReply:
    """Return all ports of the fleet; of the lines as many as `limit`, None for all."""
    lines = sorted(_lines(view), key=_order)
    return PortsReply(at=view.wall(), ports=len(lines), groups=_groups(lines), lines=lines[:limit])


def _order(line: PortLine) -> tuple[object, ...]:
    """Return how urgent a port is: the worst is the smallest."""
    errors = line.errors or 0.0
    return (-line.pages, -line.tickets, not line.slow, line.up is not False, line.up is not None,
            -errors, line.node, line.name)  # fmt: skip


def _lines(view: AggregatorView) -> Iterator[PortLine]:
    fleet, now = view.fleet, view.now()
    state, speed, usual = (fleet.column(name, now) for name in (STATE, SPEED, USUAL))
    counts = np.array([fleet.column(name, now) for name in faults()])
    known = ~np.isnan(counts)
    errors = np.where(known.any(axis=0), np.where(known, counts, 0.0).sum(axis=0), np.nan)
    firing = firing_by_port(view.alerts())
    nodes = list(fleet.nodes.values())

    def of_node(place: int) -> list[PortLine]:
        inventory, start = nodes[place].inventory, nodes[place].rows[Table.PORT].start
        gpus = {gpu.uuid: gpu.index for gpu in inventory.gpus}
        found = []
        for row, port in enumerate(inventory.ports, start):
            now_state = float(state[row])
            its = None if np.isnan(speed[row]) else float(speed[row])
            found.append(
                PortLine(
                    id=port.id,
                    node=inventory.node,
                    name=port.name,
                    role=port.role,
                    rail=port.rail,
                    gpu=None if port.gpu is None else gpus.get(port.gpu),
                    switch=port.switch or "",
                    switch_port=port.switch_port or "",
                    state=_word(now_state, port),
                    up=None if np.isnan(now_state) or not port.present else now_state == UP,
                    speed=its,
                    slow=its is not None and bool(its < 0.95 * usual[row]),
                    errors=None if np.isnan(errors[row]) else float(errors[row]),
                    pages=firing[port.id, Severity.PAGE],
                    tickets=firing[port.id, Severity.TICKET],
                )
            )
        return found

    names = [node.inventory.node for node in nodes]
    return chain.from_iterable(parts_of(view, "ports").each("node", names, of_node))


def _word(state: float, port: Port) -> str:
    reason = reason_of(state)
    if reason is None:
        return state_text({STATE: state}, {}, present=port.present)
    return state_text({}, {STATE: reason.word}, present=port.present)


def _groups(lines: list[PortLine]) -> list[PortGroup]:
    found: dict[tuple[str, str], list[PortLine]] = {}
    for line in lines:
        if line.switch:
            found.setdefault(("switch", line.switch), []).append(line)
        if line.rail is not None:
            found.setdefault(("rail", str(line.rail)), []).append(line)
    groups = [
        PortGroup(
            kind=kind,
            name=name,
            ports=len(inside),
            up=sum(line.up is True for line in inside),
            down=sum(line.up is False for line in inside),
            unknown=sum(line.up is None for line in inside),
            slow=sum(line.slow for line in inside),
            firing=sum(bool(line.pages or line.tickets) for line in inside),
            nodes=len({line.node for line in inside}),
        )
        for (kind, name), inside in found.items()
    ]
    return sorted(groups, key=lambda one: (one.kind != "switch", -one.firing, len(one.name), one.name))


def find_port(fleet: Fleet, identity: str) -> tuple[Node, int] | None:
    """Return the node of a port and its place in the inventory; None where there is none."""
    for node in fleet.nodes.values():
        for place, port in enumerate(node.inventory.ports):
            if port.id == identity:
                return node, place
    return None


OPERATIONS = (
    Operation(
        "/api/v1/ports",
        ports,
        "ports",
        "All ports of network adapters, by switch and rail, and each of them, worst first.",
        PortsReply,
        (Parameter("limit", f"Highest number of them, 1 to {MOST}; {USUAL_LINES} if absent.", "100"),),
        scope=AccessScope.READ,
    ),
)
