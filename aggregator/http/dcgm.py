"""`/metrics/dcgm/{node}`: a node's readings under the names, units and labels of dcgm-exporter (`telemetry.wire.dcgm`).

Existing dashboards and alert rules keep working: Grafana's dashboard 12239 does, unchanged, with the
targets of `/sd/dcgm`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from aiohttp import web

from aggregator.access.tokens import AccessScope
from aggregator.http.auth import CALLER
from aggregator.http.errors import RequestError, unknown
from aggregator.http.load_metrics import shed_family
from aggregator.http.operation import Operation, Parameter
from aggregator.http.parameters import NODE, one_of, query
from aggregator.http.reply import VIEW, send
from aggregator.register.node_status import status_of
from aggregator.view import AggregatorView
from alerts.xid.catalogue import meaning_of
from api.fleet import NodeStatus
from telemetry.catalogue import BY_NAME
from telemetry.devices import Event
from telemetry.fleet import Node, StaleRows
from telemetry.text.decimals import plain
from telemetry.wire import dcgm
from telemetry.wire.dcgm import HOST_LABELS, CounterList, LastXid
from telemetry.wire.exposition import CONTENT_TYPE, Family, render
from telemetry.wire.jobs import NodeJobs

JOB_LABELS = ("yes", "no")
"""Whether readings have the labels of the job that has their GPU, as the exporter writes them."""
WANTED = web.AppKey("dcgm_counters", CounterList)
"""Counters and labels of the page, by the settings."""


def families(
    view: AggregatorView, node: Node, host_label: str, jobs: NodeJobs | None = None, wanted: CounterList = dcgm.DEFAULT
) -> Iterator[Family]:
    """Return a node's readings as the exporter would show them; nothing while it is not online. `jobs`: who has its
    GPUs, where readings are to say so."""
    now = view.now()
    stale: StaleRows = {}
    if status_of(node, now) is not NodeStatus.ONLINE:
        return iter(())

    def column(name: str) -> Sequence[float]:
        rows = node.rows[BY_NAME[name].table]
        values = view.fleet.column(name, now, stale)[rows]
        found: list[float] = (values if values.dtype == float else plain(values)).tolist()
        return found

    return dcgm.families(
        node.inventory, column, jobs=jobs, xids=_last_xids(view.recent_events()), wanted=wanted, host_label=host_label
    )


def _last_xids(events: Iterable[Event]) -> dict[str, LastXid]:
    """Return the newest XID of each GPU of which events, the newest first, still tell."""
    last: dict[str, LastXid] = {}
    for event in events:
        xid = event.data.get("xid")
        if event.kind == "xid" and event.gpu not in {None, *last} and isinstance(xid, int):
            last[str(event.gpu)] = LastXid(xid, meaning_of(xid).name or "Unknown Error")
    return last


async def node_page(request: web.Request) -> web.Response:
    """Answer with a node's readings under dcgm-exporter's names; with a 503 while the node is not online, as an exporter that
    is gone answers nothing: rules for dcgm-exporter find a node that dies by `up` alone."""
    view, name = request.app[VIEW], request.match_info["node"]
    node = view.fleet.nodes.get(name)
    if node is None:
        raise unknown("node", name, view.fleet.nodes)
    state = status_of(node, view.now())
    if state is not NodeStatus.ONLINE:
        raise RequestError(
            503, "node", f"{name} is {state}: none of its readings is of now", "Its page says since when."
        )
    asked = query(request, "host_label", "job_labels")
    label = one_of(asked, "host_label", HOST_LABELS)
    named = one_of(asked, "job_labels", JOB_LABELS) == "yes" and request[CALLER].sees_private
    if view.shedding.sheds("device_metrics"):
        view.shedding.pages_reduced += 1
        page = [shed_family(view.shedding)]
    else:
        jobs = view.jobs.lists.get(name) if named else None
        page = list(families(view, node, label, jobs, request.app[WANTED]))
    return await send(request, lambda: render(page), CONTENT_TYPE)


def host_label(request: web.Request) -> str:
    """Return the requested label for the node's name. Raises a 400 for another word."""
    return one_of(query(request, "host_label"), "host_label", HOST_LABELS)


HOST_LABEL = Parameter(
    "host_label", "Label with the node's name: dcgm-exporter renamed it after release 4.8.2.", "Hostname", HOST_LABELS
)

OPERATIONS = (
    Operation(
        "/metrics/dcgm/{node}",
        node_page,
        "dcgmOfNode",
        "A node under the names of dcgm-exporter.",
        None,
        (
            NODE,
            HOST_LABEL,
            Parameter(
                "job_labels",
                "Whether readings have hpc_job, or pod, namespace and container, of the only job on their GPU, for "
                "callers who may see jobs.",
                "no",
                JOB_LABELS,
            ),
        ),
        (404, 503),
        scope=AccessScope.READ,
    ),
)
