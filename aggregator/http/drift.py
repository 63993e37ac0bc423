"""How nodes differ from nodes of their kind, and from each other."""

from __future__ import annotations

from aiohttp import web

from aggregator.access.tokens import AccessScope
from aggregator.alerting.node_labels import labels_of
from aggregator.http.errors import unknown
from aggregator.http.operation import Operation, Parameter
from aggregator.http.parameters import NODE, query
from aggregator.http.reply import VIEW, send_json
from aggregator.register.drift import difference
from api.drift import DriftReply, NodeDifferenceReply


async def drift(request: web.Request) -> web.Response:
    """Answer with all kinds of nodes, and who differs from most of its kind."""
    query(request)
    view = request.app[VIEW]
    labels = labels_of(view.fleet, view.electrical.site.layout)
    reply = await view.drift.compare(view.fleet, labels, view.now(), view.wall())
    return await send_json(request, reply, values=5 * sum(len(group.deviations) for group in reply.groups))


async def between(request: web.Request) -> web.Response:
    """Answer with the facts in which two nodes differ."""
    query(request)
    view = request.app[VIEW]
    found = []
    for part in ("node", "other"):
        name = request.match_info[part]
        if name not in view.fleet.nodes:
            raise unknown("node", name, view.fleet.nodes)
        found.append(view.fleet.nodes[name].inventory)
    return await send_json(request, difference(*found))


OPERATIONS = (
    Operation(
        "/api/v1/drift",
        drift,
        "drift",
        "Nodes whose driver, firmware, GPUs or ports are others than those of most nodes of their kind.",
        DriftReply,
        scope=AccessScope.READ,
    ),
    Operation(
        "/api/v1/drift/{node}/{other}",
        between,
        "differenceOfNodes",
        "The facts in which two nodes differ.",
        NodeDifferenceReply,
        (NODE, Parameter("other", "Name of the other node.", "dgx-02", required=True, place="path")),
        (404,),
        scope=AccessScope.READ,
    ),
)
