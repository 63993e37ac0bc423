"""The OpenAPI 3.1 document of the HTTP API, made from the types that the handlers answer with.

A route without an operation here, or the other way round, fails a test; so does an answer that does
not fit its schema.
"""

from __future__ import annotations

import ast
import inspect
from functools import cache
from itertools import pairwise
from typing import Any

import msgspec
from aiohttp import web

from aggregator.http.dcgm import HOST_LABELS
from aggregator.http.events import MOST, USUAL
from aggregator.http.history import MOST_POINTS
from aggregator.http.metrics import release
from aggregator.http.openapi_alerts import READS as ALERT_READS
from aggregator.http.openapi_alerts import WRITES as ALERT_WRITES
from aggregator.http.openapi_circuits import READS as CIRCUIT_READS
from aggregator.http.openapi_circuits import WRITES as CIRCUIT_WRITES
from aggregator.http.operation import Operation, Parameter
from aggregator.http.past import MOST_CELLS, MOST_FRAMES
from aggregator.http.reply import query, send_json
from api import alerts, columns, device, errors, fleet, power, report, stats, stream
from api.columns import FleetReply, FramesReply, HistoryReply
from api.device import GpuPageReply, NodePageReply
from api.errors import ErrorReply
from api.fleet import (
    CatalogueReply,
    EventsReply,
    HealthReply,
    NodesReply,
    ScrapeTarget,
    StatusReply,
)
from api.stream import (
    StreamAlerts,
    StreamData,
    StreamError,
    StreamEvents,
    StreamPacked,
    StreamRequest,
    StreamRows,
)
from telemetry import devices
from telemetry.exposition import CONTENT_TYPE
from telemetry.metric import Table

Json = dict[str, Any]

# The sentences under the fields of our types, for the schemas that are made from them.
#
# Python drops a field's docstring, so it is read from the source: written once, and shown to readers of
# the code and of the API's document.

_MODULES = (alerts, columns, device, devices, errors, fleet, power, report, stats, stream)


@cache
def _structs() -> dict[str, tuple[type[msgspec.Struct], dict[str, str]]]:
    """Return each type of the API by name, with the sentences under its fields."""
    found: dict[str, tuple[type[msgspec.Struct], dict[str, str]]] = {}
    for module in _MODULES:
        for node in ast.parse(inspect.getsource(module)).body:
            if isinstance(node, ast.ClassDef) and issubclass(
                getattr(module, node.name), msgspec.Struct
            ):
                found[node.name] = getattr(module, node.name), _sentences(node)
    return found


def _sentences(kind: ast.ClassDef) -> dict[str, str]:
    """Return each string right below an annotated name, by that name."""
    found: dict[str, str] = {}
    for field, text in pairwise(kind.body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        ):
            found[field.target.id] = " ".join(text.value.value.split())
    return found


def field_texts(kind: type) -> dict[str, str]:
    """Return the sentences under the fields of a type and of those that it extends, by field."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        found |= _structs().get(base.__name__, (base, {}))[1]
    return found


def describe(schema: Json) -> None:
    """Add to each property of a schema the sentence in the source. Fields of an answer are required:
    their defaults are for clients of a server that does not know them."""
    kind, _ = _structs().get(schema.get("title", ""), (None, {}))
    if kind is None:
        return
    texts, config = field_texts(kind), kind.__struct_config__
    is_answer = not (config.forbid_unknown_fields or config.omit_defaults)
    required = [config.tag_field] if config.tag_field else []
    for field in msgspec.structs.fields(kind):
        found = schema["properties"][field.encode_name]
        if field.name in texts:
            found["description"] = texts[field.name]
        if is_answer and field.default is not msgspec.UNSET:
            found.pop("default", None)
            required.append(field.encode_name)
    if is_answer:
        schema["required"] = required


_REFERENCE = "#/components/schemas/{name}"
_WHEN = "RFC 3339, seconds since 1970, '-1h' or 'now'."


_NODE = Parameter("node", "Name of a node.", "n1", required=True, place="path")
_NODES = Parameter("node", "Names of nodes, joined by commas; all without.", "n1,n2")
_FROM = Parameter("from", f"First instant. {_WHEN}", "-1h")
_TO = Parameter("to", f"First instant that no longer counts. {_WHEN}", "now")
_AT = Parameter("at", f"A past time, answered from the store. {_WHEN}", "-10m")
_TABLE = Parameter("table", "What a row is; GPUs without.", "gpu", tuple(Table))
_LABELS = Parameter(
    "labels", "'device' leaves out the labels cluster and node.", "device", ("full", "device")
)
_HOST_LABEL = Parameter(
    "host_label",
    "How the node is called: dcgm-exporter renamed it after release 4.8.2.",
    "Hostname",
    HOST_LABELS,
)

_COLUMNS = Parameter(
    "columns",
    "Metrics of the table, joined by commas; the usual ones without, '*' for all.",
    "gpu_power_watts,gpu_temperature_celsius",
)

OPERATIONS: dict[str, Operation] = {
    "/healthz": Operation(
        "healthz", "Is the process alive? Needs no token.", HealthReply, also=(503,)
    ),
    "/readyz": Operation(
        "readyz", "Are there fresh readings here? Needs no token.", HealthReply, also=(503,)
    ),
    "/metrics": Operation("metrics", "The cluster and the aggregator itself, for Prometheus."),
    "/metrics/nodes": Operation(
        "metricsOfAllNodes", "All readings of all nodes of a small cluster.", faults=(413,)
    ),
    "/metrics/node/{node}": Operation(
        "metricsOfNode", "All readings of one node.", None, (_NODE, _LABELS), (404,)
    ),
    "/metrics/dcgm/{node}": Operation(
        "dcgmOfNode", "A node under the names of dcgm-exporter.", None, (_NODE, _HOST_LABEL), (404,)
    ),
    "/sd/dcgm": Operation(
        "dcgmDiscovery",
        "Every node as a target of its page with the names of dcgm-exporter.",
        list[ScrapeTarget],
        (_HOST_LABEL,),
    ),
    "/sd/prometheus": Operation(
        "serviceDiscovery", "Every node as a target, for Prometheus' http_sd.", list[ScrapeTarget]
    ),
    "/api/v1/openapi.json": Operation("openapi", "This document.", dict[str, Any]),
    "/api/v1/status": Operation(
        "status", "The aggregator and its cluster at this instant.", StatusReply
    ),
    "/api/v1/catalogue": Operation(
        "catalogue", "Every metric with unit, help and span.", CatalogueReply
    ),
    "/api/v1/fleet": Operation(
        "fleet",
        "Readings of the whole fleet, by columns: now, or with `at` as they were then.",
        FleetReply,
        (
            _TABLE,
            _COLUMNS,
            _NODES,
            _AT,
        ),
        (404, 503),
    ),
    "/api/v1/fleet/frames": Operation(
        "fleetFrames",
        "The fleet at several past times, from the store: what a time bar scrubs through. A row is "
        "whoever was there in one of them; `stale`, `unknown` and `not_read` say why a reading is "
        "absent.",
        FramesReply,
        (
            _TABLE,
            _COLUMNS,
            _NODES,
            Parameter("from", f"Time of the first frame; a minute ago without. {_WHEN}", "-10m"),
            Parameter("to", f"First instant that no longer counts. {_WHEN}", "-9m"),
            Parameter(
                "step",
                "Time between two frames; 5s without. One that a roll-up divides (10s, 1m) is "
                f"answered from it. {MOST_FRAMES} frames and {MOST_CELLS} readings at most.",
                "10s",
            ),
            Parameter(
                "packed",
                "'true': MessagePack of the same fields, with each column as the bytes of "
                "little-endian float32 (float64 where there are eight a row): much less work.",
                "false",
                ("true", "false"),
            ),
        ),
        (404, 503),
    ),
    "/api/v1/nodes": Operation("nodes", "All nodes.", NodesReply),
    "/api/v1/nodes/{node}": Operation(
        "node", "All about one node, now or then.", NodePageReply, (_NODE, _AT), (404, 503)
    ),
    "/api/v1/gpus/{uuid}": Operation(
        "gpu",
        "All about one GPU, now or then.",
        GpuPageReply,
        (Parameter("uuid", "UUID of a GPU.", "GPU-n1-0", required=True, place="path"), _AT),
        (404, 503),
    ),
    "/api/v1/history": Operation(
        "history",
        "One metric of one device over time.",
        HistoryReply,
        (
            Parameter("metric", "Name of a metric.", "gpu_power_watts", required=True),
            Parameter("gpu", "UUID of a GPU. Name one of gpu, link and node.", "GPU-n1-0"),
            Parameter("link", "A link: UUID of its GPU, '/', its number.", "GPU-n1-0/3"),
            Parameter("node", "Name of a node.", "n1"),
            _FROM,
            _TO,
            Parameter(
                "step",
                "Length of a bucket, in seconds or as '10s', '5m'; 0 for every reading; without, "
                "one that makes a readable picture, or every reading where that is not many more. "
                f"{MOST_POINTS} points at most.",
                "10s",
            ),
        ),
        (404, 503),
    ),
    "/api/v1/events": Operation(
        "events",
        "What happened: XIDs, GPUs lost and back, driver reloads. Newest first.",
        EventsReply,
        (
            _FROM,
            _TO,
            Parameter("node", "Name of a node.", "n1"),
            Parameter("kind", "Kind of event.", "xid"),
            Parameter("limit", f"Most events, 1 to {MOST}; {USUAL} without.", "100"),
        ),
        (503,),
    ),
    **ALERT_READS,
    **CIRCUIT_READS,
    "/api/v1/stream": Operation(
        "stream",
        "A WebSocket. Send a StreamRequest, and another to change it; get StreamRows, then "
        "StreamData for each tick (in MessagePack, StreamPacked), and as asked StreamAlerts and "
        "StreamEvents. StreamError names "
        "the fault of a request.",
        faults=(403, 426, 503),
    ),
}

WRITES: dict[tuple[str, str], Operation] = {**ALERT_WRITES, **CIRCUIT_WRITES}
"""What changes something, or supposes it, by path and method."""

_MESSAGES = (
    StreamRequest, StreamRows, StreamData, StreamPacked, StreamAlerts, StreamEvents, StreamError,
)  # fmt: skip
_FAULTS = {
    400: "The request is wrong: the error says where, what, and what to do instead.",
    401: "A token is needed.",
    403: "A page of another site asks.",
    404: "There is none of that name; the error names the nearest.",
    413: "Too much for one page, or for one request.",
    415: "A body that does not say that it is JSON.",
    421: "The Host header names somebody else.",
    426: "This is a WebSocket.",
    503: "The store does not answer.",
}


@cache
def build() -> Json:
    """Return the document."""
    operations = [*OPERATIONS.values(), *WRITES.values()]
    kinds = [kind for op in operations for kind in (op.reply, op.body) if kind is not None]
    schemas, components = msgspec.json.schema_components(
        [*kinds, ErrorReply, *_MESSAGES], ref_template=_REFERENCE
    )
    for schema in components.values():
        describe(schema)
    replies = dict(zip(map(str, kinds), schemas, strict=False))
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "kilowatch aggregator",
            "version": release(),
            "summary": "Readings of a GPU cluster: now, over time, and as a stream.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{}, {"token": []}],
        "paths": _paths(replies),
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Asked for wherever the aggregator listens beyond loopback.",
                }
            },
        },
    }


def _paths(kinds: dict[str, Json]) -> Json:
    paths: dict[str, Json] = {}
    for path, op in OPERATIONS.items():
        paths[path] = {"get": _operation(op, kinds)}
    for (path, method), op in WRITES.items():
        found = _operation(op, kinds)
        if op.body is not None:
            found["requestBody"] = {
                "required": op.body_required,
                "content": {"application/json": {"schema": kinds[str(op.body)]}},
            }
        paths.setdefault(path, {})[method] = found
    return paths


def _operation(op: Operation, replies: dict[str, Json]) -> Json:
    if op.id == "stream":
        answers: Json = {"101": {"description": "The connection is a WebSocket now."}}
    else:
        body = (
            {CONTENT_TYPE: {"schema": {"type": "string"}}}
            if op.reply is None
            else {"application/json": {"schema": replies[str(op.reply)]}}
        )
        answers = {
            str(status): {"description": op.summary, "content": body} for status in (200, *op.also)
        }
    fault = {"application/json": {"schema": {"$ref": _REFERENCE.format(name="ErrorReply")}}}
    for status in sorted({400, 401, 421, *op.faults}):
        answers[str(status)] = {"description": _FAULTS[status], "content": fault}
    return {
        "operationId": op.id,
        "summary": op.summary,
        "parameters": [_parameter(parameter) for parameter in op.parameters],
        "responses": answers,
    }


def _parameter(parameter: Parameter) -> Json:
    schema: Json = {"type": "string"}
    if parameter.choices:
        schema["enum"] = list(parameter.choices)
    return {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.required,
        "description": parameter.text,
        "schema": schema,
        "example": parameter.example,
    }


async def document(request: web.Request) -> web.Response:
    """The description of all this."""
    query(request)
    return await send_json(request, build())
