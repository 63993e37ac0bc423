"""`/metrics` (the cluster, and the aggregator itself) and the pages of nodes."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, chain

from aiohttp import web
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

from aggregator.access.tokens import AccessScope
from aggregator.http.access_metrics import access_families
from aggregator.http.alert_metrics import alert_families
from aggregator.http.circuit_metrics import circuit_families
from aggregator.http.drift_metrics import drift_families
from aggregator.http.errors import RequestError, unknown
from aggregator.http.exposition import ExpositionPages, joined
from aggregator.http.exposition import render as render_pages
from aggregator.http.fitness import fitness_families
from aggregator.http.load_metrics import load_families
from aggregator.http.node_metrics import PAGE_TURN, snapshots_of, wait_for_turn
from aggregator.http.operation import Operation, Parameter
from aggregator.http.parameters import NODE, one_of, query
from aggregator.http.reply import VIEW, send
from aggregator.http.rule_input_metrics import RULE_INPUTS
from aggregator.http.stream_hub import HUB, Hub
from aggregator.http.summary import Summarizer
from aggregator.store.executor import StoreExecutor
from aggregator.view import AggregatorView, parts_of
from api.alerts import Alert
from api.fleet import FleetSummary
from api.stats import LAG_BOUNDS, LagHistogram, Stats, Timing
from telemetry.errors import StoreError
from telemetry.fleet import Node
from telemetry.runtime.isolation import Parts
from telemetry.runtime.release import release
from telemetry.wire.exposition import (
    CONTENT_TYPE,
    COUNTER,
    GAUGE,
    HISTOGRAM,
    PREFIX,
    SUMMARY,
    Family,
    Sample,
    labels,
    render,
)

SIZE_SECONDS = 1.0
"""Seconds that a scrape waits for the size of the store; then the size is left out."""
MOST_SERIES = 2_000_000
"""A page of all nodes beyond this is refused: about 200 MB of text and a second of work."""
KNOWN_DROPS = ("malformed", "oversize", "foreign", "schema", "budget")
"""Reasons that are shown as 0 before they first occur, so that their rate is right."""

PAGES = web.AppKey("pages", ExpositionPages)
SUMMARIZER = web.AppKey("summarizer", Summarizer)

_registry = CollectorRegistry(auto_describe=False)
ProcessCollector(registry=_registry)

_TIMINGS = {
    "flush": "Time from a batch to the fleet matrix.",
    "store": "Time from a batch to its commit.",
    "rules": "Time to run all rules once.",
    "rule_period": "Time from one run of all rules to the next.",
    "lag": "Time from sampled at the node to present in the fleet; assumes synchronised clocks.",
}
_LAGS = {
    "shown": "Time from sampled at the node to present in the fleet.",
    "judged": "Time from sampled at the node to evaluated by the rules.",
    "committed": "Time from sampled at the node to committed by the store, live frames only.",
}
_COUNTERS = {
    "nodes_expired": ("nodes_expired", "Nodes removed: offline and silent for too long."),
    "nodes_forgotten": ("nodes_forgotten", "Nodes removed by a person."),
    "sessions_expired": (
        "sessions_expired",
        "Sessions of collectors removed from memory: complete, superseded, in no ring.",
    ),
    "newcomers_expired": ("newcomers_expired", "Names dropped because no inventory or no frame followed."),
    "bytes_received": ("received_bytes", "Bytes received from the bus."),
    "frames_received": ("frames_received", "Frames received."),
    "frames_stored": ("frames_stored", "Frames stored."),
    "frames_backfilled": ("frames_backfilled", "Frames stored that came on request."),
    "frames_duplicate": ("frames_duplicate", "Frames that came again and were not stored again."),
    "frames_lost": ("frames_lost", "Frames recorded as lost: neither the aggregator nor a ring has them."),
    "frames_lost_claimed": (
        "frames_lost_claimed",
        "Frames recorded as lost of nodes of which none came, or fewer than were lost and than an hour has: by their word alone.",
    ),
    "resend_requests": ("resend_requests", "Requests to send frames again."),
    "events_stored": ("events_stored", "Events stored."),
    "events_duplicate": ("events_duplicate", "Events that came again and were not stored again."),
    "bus_connects": ("bus_connects", "Connections made to the broker."),
    "store_errors": ("store_errors", "Batches that the store refused at first."),
    "remote_samples": ("remote_write_samples", "Samples that a receiver of remote write accepted."),
    "remote_errors": ("remote_write_errors", "Requests of remote write that failed and are repeated."),
    "remote_dropped": ("remote_write_dropped", "Samples of remote write that were refused or waited too long."),
    "otlp_sent": ("otlp_sent", "Points and log records that a receiver of OTLP accepted."),
    "otlp_errors": ("otlp_errors", "Requests of OTLP that failed and are repeated."),
    "otlp_dropped": ("otlp_dropped", "Points and log records of OTLP that were refused or waited too long."),
}


def _family(name: str, text: str, kind: str, samples: Iterable[Sample]) -> Family:
    return Family(PREFIX + name, text, kind, list(samples))


def cluster_families(summary: FleetSummary, cluster: str, alerts: Iterable[Alert]) -> list[Family]:
    """Return the roll-ups of the fleet. There is no sum of energy: it would fall whenever a GPU
    leaves, and Prometheus would take that for a reset; `sum(rate(...))` over the GPUs is right."""
    its = {"cluster": cluster}
    here = labels(its)

    def one(name: str, text: str, value: float | None) -> Family:
        return _family(f"cluster_{name}", text, GAUGE, [] if value is None else [(here, float(value))])

    def by_model(model: str, **more: str) -> str:
        return labels({**its, "model": model, **more})

    models = summary.models
    return [
        _family("cluster_nodes", "Nodes by state.", GAUGE,
                [(labels({**its, "state": state}), float(n)) for state, n in summary.nodes.items()]),
        _family("cluster_nodes_by_release", "Nodes by the release of their collector.", GAUGE,
                [(labels({**its, "release": release}), float(n))
                 for release, n in summary.releases.items()]),
        _family("cluster_nodes_by_role", "Nodes by what they are for.", GAUGE,
                [(labels({**its, "role": role}), float(n)) for role, n in summary.roles.items()]),
        _family("cluster_gpus", "GPUs by model and state.", GAUGE,
                [(by_model(m.model, state=state), float(n))
                 for m in models for state, n in m.gpus.items()]),
        _family("cluster_gpu_power_watts", "Power of all GPUs of a model that report it.", GAUGE,
                [(by_model(m.model), m.power_watts) for m in models if m.power_watts is not None]),
        _family("cluster_gpu_power_known", "GPUs of a model that report their power.", GAUGE,
                [(by_model(m.model), float(m.power_known)) for m in models]),
        one("gpu_power_limit_watts", "Sum of the power limits of all GPUs.",
            summary.gpu_power_limit_watts),
        one("wall_power_watts", "Wall power of the nodes that report it.", summary.wall_power_watts),
        one("wall_power_known", "Nodes that report their wall power.", summary.wall_power_known),
        one("gpu_temperature_max_celsius", "Temperature of the hottest GPU.",
            summary.temperature_max_celsius),
        one("gpu_memory_temperature_max_celsius", "Temperature of the hottest GPU memory.",
            summary.memory_temperature_max_celsius),
        one("gpu_utilization_mean_ratio", "Mean utilisation of the GPUs that report it.",
            summary.utilization_mean_ratio),
        one("gpu_memory_used_bytes", "GPU memory in use.", summary.memory_used_bytes),
        one("gpu_memory_total_bytes", "Total GPU memory.", summary.memory_total_bytes),
        _family("cluster_alerts", "Alerts by state and severity.", GAUGE, _alerts(alerts, its)),
    ]  # fmt: skip


def _alerts(alerts: Iterable[Alert], its: Mapping[str, str]) -> list[Sample]:
    counts = {(state, severity): 0 for state in ("pending", "firing") for severity in ("page", "ticket", "info")}
    for alert in alerts:
        key = (alert.state.value, alert.severity.value)
        if key in counts:
            counts[key] += 1
    return [
        (labels({**its, "state": state, "severity": severity}), float(count))
        for (state, severity), count in counts.items()
    ]


def self_families(stats: Stats, sizes: Mapping[str, int], uptime: float) -> list[Family]:
    """Return the metrics of the aggregator itself."""
    build = {"version": release(), "python": platform.python_version()}
    dropped = {**dict.fromkeys(KNOWN_DROPS, 0), **stats.dropped}
    families = [
        _family("build_info", "Release of kilowatch.", GAUGE, [(labels(build), 1.0)]),
        _family("aggregator_uptime_seconds", "Time since the start.", GAUGE, [("", uptime)]),
        _family("aggregator_messages_received_total", "Messages received, by kind.", COUNTER,
                _by("kind", stats.messages)),
        _family("aggregator_messages_dropped_total", "Messages thrown away, by reason.", COUNTER,
                _by("reason", dropped)),
        _family("aggregator_messages_refused_total",
                "Messages refused at the border, by node and reason; other names are one.", COUNTER,
                [(labels({"node": node, "reason": reason}), float(count))
                 for node, reasons in sorted(stats.refused.items())
                 for reason, count in sorted(reasons.items())]),
        _family("aggregator_budget_used", "What is used of each budget of the cluster.", GAUGE,
                _by("budget", stats.budget_used)),
        _family("aggregator_budget_limit", "What may be used of it, by aggregator.budgets.", GAUGE,
                _by("budget", stats.budget_limit)),
        _family("aggregator_holes_open", "Frames missing now and requested.", GAUGE,
                [("", float(stats.holes_open))]),
        _family("aggregator_bus_connected", "1 while the broker is connected.", GAUGE,
                [("", float(stats.bus_connected))]),
        _family("aggregator_store_ok", "1 while the store works.", GAUGE,
                [("", float(stats.store_ok))]),
        _family("aggregator_store_bytes", "Size of the store on disk, by part.", GAUGE,
                _by("part", {part: size for part, size in sizes.items() if part != "memory"})),
        _family("aggregator_store_memory_bytes", "Memory of the store's database, a part of the "
                "resident memory.", GAUGE, [("", float(n)) for n in [sizes.get("memory")] if n is not None]),
    ]  # fmt: skip
    for field, (name, text) in _COUNTERS.items():
        value = float(getattr(stats, field))
        families.append(_family(f"aggregator_{name}_total", text, COUNTER, [("", value)]))
    for name, text in _TIMINGS.items():
        timing: Timing = getattr(stats, name)
        families += [
            _family(
                f"aggregator_{name}_seconds", text, SUMMARY, [("_count", float(timing.count)), ("_sum", timing.total)]
            ),
            _family(f"aggregator_{name}_last_seconds", f"{text} The last one.", GAUGE, [("", timing.last)]),
            _family(
                f"aggregator_{name}_highest_seconds",
                f"{text} The highest since the start.",
                GAUGE,
                [("", timing.highest)],
            ),
        ]
    for name, text in _LAGS.items():
        spread: LagHistogram = getattr(stats, "evaluated" if name == "judged" else name)
        families.append(_family(f"aggregator_{name}_lag_seconds", text, HISTOGRAM, _buckets(spread)))
        families.append(
            _family(
                f"aggregator_{name}_lag_highest_seconds",
                f"{text} The highest since the start.",
                GAUGE,
                [("", spread.highest)],
            )
        )
    return families


def _buckets(spread: LagHistogram) -> Iterable[Sample]:
    reached = list(accumulate(spread.counts))
    for bound, count in zip((*LAG_BOUNDS, float("inf")), reached, strict=True):
        word = "+Inf" if bound == float("inf") else f"{bound:.6g}"
        yield f"_bucket{labels({'le': word})}", float(count)
    yield "_count", float(reached[-1])
    yield "_sum", spread.total


def stream_families(hub: Hub) -> list[Family]:
    """Return the metrics of the stream's viewers."""
    return [
        _family("aggregator_stream_viewers", "Viewers of the stream.", GAUGE, [("", float(hub.viewers))]),
        _family(
            "aggregator_stream_viewers_dropped_total",
            "Viewers cut off because they did not read.",
            COUNTER,
            [("", float(hub.dropped))],
        ),
    ]


def _by(label: str, counts: Mapping[str, int]) -> list[Sample]:
    return [(labels({label: word}), float(count)) for word, count in sorted(counts.items())]


async def store_sizes(store: StoreExecutor) -> dict[str, int]:
    """Return the store's bytes by part; nothing when it is too busy, or fails."""
    try:
        async with asyncio.timeout(SIZE_SECONDS):
            return await store.size()
    except (TimeoutError, StoreError):
        return {}


Makers = Mapping[str, Callable[[], Sequence[Family]]]
"""Makers of the families of each part of a metrics page, by its name."""


def own_makers(view: AggregatorView, summarizer: Summarizer, sizes: Mapping[str, int], parts: Parts) -> Makers:
    """Return the parts about the cluster and the aggregator, of page and push."""
    return {
        "cluster": lambda: cluster_families(summarizer.summary(view.fleet, view.now()), view.cluster, view.alerts()),
        "aggregator": lambda: self_families(view.stats, sizes, (view.wall() - view.started_at) / 1e9),
        "load": lambda: load_families(view.shedding),
        "alerts": lambda: alert_families(view),
        "circuits": lambda: site_families(view, parts),
    }


def families_of(makers: Makers, parts: Parts) -> list[Family]:
    """Return the families of all parts that can be made."""
    makes = list(makers.values())
    return list(chain.from_iterable(parts.each("metrics", makers, lambda place: makes[place]())))


async def metrics(request: web.Request) -> web.Response:
    """Answer with the metrics of the cluster and of the aggregator itself."""
    query(request)
    app, view = request.app, request.app[VIEW]
    sizes, store, parts = await store_sizes(view.store), view.store.status(), parts_of(view, "page")
    families = families_of({
        **own_makers(view, app[SUMMARIZER], sizes, parts),
        "stream": lambda: stream_families(app[HUB]),
        "access": lambda: access_families(app),
        "store": lambda: [
            *store.families,
            _family("aggregator_store_files_lost", "Sealed files that another program removed or "
                    "damaged, and that are missing now.", GAUGE, [("", float(store.lost_files))]),
        ],
        "fitness": lambda: fitness_families(view.fitness.newest, view.cluster),
        "drift": lambda: drift_families(view.drift.newest, view.cluster),
    }, parts)  # fmt: skip
    return await send(request, lambda: render(families) + generate_latest(_registry), CONTENT_TYPE)


def _scope(request: web.Request) -> bool:
    return one_of(query(request, "labels"), "labels", ("full", "device")) == "full"


async def node_page(request: web.Request) -> web.Response:
    """Answer with all readings of one node. `labels=device` leaves out the labels cluster and node, for a
    scrape target that has them already: Prometheus would rename them to exported_cluster."""
    view, name = request.app[VIEW], request.match_info["node"]
    node = view.fleet.nodes.get(name)
    if node is None:
        raise unknown("node", name, view.fleet.nodes)
    return await _send_nodes(request, [node], _scope(request))


async def all_nodes_page(request: web.Request) -> web.Response:
    """Answer with all readings of all nodes of a small cluster."""
    query(request)
    view = request.app[VIEW]
    fleet = view.fleet
    sizes = (len(matrix.block.names) * fleet.size(matrix.block.table) for matrix in fleet.matrices)
    series = sum(sizes)
    if series > MOST_SERIES:
        raise RequestError(
            413,
            "path",
            f"{series} series are too many for one page",
            "Scrape node by node: /sd/prometheus lists the targets.",
        )
    turn = request.app[PAGE_TURN]
    await wait_for_turn(turn)
    try:
        return await _send_nodes(request, list(fleet.nodes.values()), True)
    finally:
        turn.release()


async def _send_nodes(request: web.Request, nodes: list[Node], scope: bool) -> web.Response:
    pages, inputs = request.app[PAGES], request.app[RULE_INPUTS]
    parts = await snapshots_of(request.app[VIEW], pages, inputs, nodes, scope)
    work = sum(part.cells for part in parts)
    return await send(request, lambda: render_pages(joined(parts)), CONTENT_TYPE, work=work)


def site_families(view: AggregatorView, parts: Parts) -> list[Family]:
    """Return all families, of several aggregators from the one that judges circuits alone: sums count each
    circuit once."""
    if view.site_role is not None and not view.site_role.leads:
        return []
    return circuit_families(view.electrical, view.cluster, view.now(), parts)


_LABELS = Parameter("labels", "'device' leaves out the labels cluster and node.", "device", ("full", "device"))

OPERATIONS = (
    Operation(
        "/metrics", metrics, "metrics", "The cluster and the aggregator itself, for Prometheus.", scope=AccessScope.READ
    ),
    Operation(
        "/metrics/nodes",
        all_nodes_page,
        "metricsOfAllNodes",
        "All readings of all nodes of a small cluster.",
        faults=(413,),
        scope=AccessScope.READ,
    ),
    Operation(
        "/metrics/node/{node}",
        node_page,
        "metricsOfNode",
        "All readings of one node.",
        None,
        (NODE, _LABELS),
        (404,),
        scope=AccessScope.READ,
    ),
)
