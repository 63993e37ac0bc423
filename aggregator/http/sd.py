"""`/sd/prometheus`: every node as a scrape target, for Prometheus' HTTP service discovery.
`/sd/dcgm`: the same with the names of dcgm-exporter.

    - job_name: kilowatch
      http_sd_configs: [{url: "http://127.0.0.1:9400/sd/prometheus"}]

needs no relabelling: each target has `instance`, `node` and `cluster`, and its page leaves them out.
"""

from __future__ import annotations

import re
from urllib.parse import quote

from aiohttp import hdrs, web

from aggregator.access.tokens import AccessScope
from aggregator.http.config import CONFIG
from aggregator.http.dcgm import HOST_LABEL, host_label
from aggregator.http.errors import bad
from aggregator.http.operation import Operation
from aggregator.http.parameters import query
from aggregator.http.reply import VIEW, send_json
from aggregator.view import parts_of
from api.fleet import ScrapeTarget
from telemetry.fleet import Node

_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(:\d{1,5})?")


def target(node: Node, address: str, page: str, parameter: tuple[str, str]) -> ScrapeTarget:
    """Return the scrape target of a node. `__` labels steer the scrape and are dropped then."""
    name, cluster = node.inventory.node, node.inventory.cluster
    return ScrapeTarget(
        [address],
        {
            "__metrics_path__": f"/metrics/{page}/{quote(name, safe='')}",
            f"__param_{parameter[0]}": parameter[1],
            "__meta_kilowatch_node": name,
            "__meta_kilowatch_cluster": cluster,
            "__meta_kilowatch_source": node.inventory.source,
            "cluster": cluster,
            "instance": name,
            "node": name,
        },
    )


async def prometheus(request: web.Request) -> web.Response:
    """Answer with every node as a scrape target."""
    query(request)
    return await _send(request, "node", ("labels", "device"))


async def dcgm(request: web.Request) -> web.Response:
    """Answer with every node as a scrape target of its page with dcgm-exporter's names."""
    return await _send(request, "dcgm", ("host_label", host_label(request)))


async def _send(request: web.Request, page: str, parameter: tuple[str, str]) -> web.Response:
    view = request.app[VIEW]
    address: str = request.app[CONFIG].address or request.headers.get(hdrs.HOST) or ""
    if not _ADDRESS.fullmatch(address):
        raise bad("Host", "it does not name the address of this server", "Set aggregator.address to host:port.")
    names = sorted(view.fleet.nodes)
    targets = parts_of(view, "sd").each(
        "node", names, lambda place: target(view.fleet.nodes[names[place]], address, page, parameter)
    )
    return await send_json(request, targets)


OPERATIONS = (
    Operation(
        "/sd/dcgm",
        dcgm,
        "dcgmDiscovery",
        "Every node as a target of its page with the names of dcgm-exporter.",
        list[ScrapeTarget],
        (HOST_LABEL,),
        scope=AccessScope.READ,
    ),
    Operation(
        "/sd/prometheus",
        prometheus,
        "serviceDiscovery",
        "Every node as a target, for Prometheus' http_sd.",
        list[ScrapeTarget],
        scope=AccessScope.READ,
    ),
)
