"""The document says what the server does: every route, every parameter, every answer."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

import aggregator.http
from aggregator.assembly.http_server import make_app
from aggregator.electrical.service import ElectricalService
from aggregator.http.openapi import build
from aggregator.http.operations import OPERATIONS
from aggregator.store.protocol import Batch
from aggregator.web.frame import page_rules
from alerts.engine.fault_history import FaultIndex
from alerts.incidents.matchers import parse_all
from alerts.message.card import card_of
from alerts.message.page import Links
from alerts.notice import Delivery, Notice
from api.alerts import Action, Alert, AlertState, Severity
from api.evidence import EvidenceReadings, EvidenceReply
from api.fleet import StoredEvent
from telemetry.devices import Event
from telemetry.wire.jobs import Allocation, JobKey, NodeJobs
from tests.aggregator.fake_view import START, FakePost, FakeView
from tests.aggregator.http_client import door, small_cluster

DOCUMENT: dict[str, Any] = json.loads(json.dumps(build(OPERATIONS)))
READS = {op.path: op for op in OPERATIONS if op.method == "get"}


def check(body: object, schema: dict[str, Any]) -> None:
    """Raise unless a body fits a schema of the document, with nothing beside it."""
    whole = {**schema, "components": DOCUMENT["components"]}
    jsonschema.Draft202012Validator(whole).validate(body)
    _no_more(body, schema)


def _no_more(body: object, schema: dict[str, Any]) -> None:
    """Fields that the document does not name are a fault too."""
    while "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if isinstance(body, dict) and "properties" in schema:
        assert set(body) <= set(schema["properties"])
        for name, value in body.items():
            _no_more(value, schema["properties"][name])
    elif isinstance(body, list) and isinstance(schema.get("items"), dict):
        for value in body:
            _no_more(value, schema["items"])


def schema_of(path: str, status: int) -> dict[str, Any]:
    """The schema of an answer."""
    answers = DOCUMENT["paths"][path]["get"]["responses"]
    assert str(status) in answers, f"{path} does not say that it may answer {status}"
    schema: dict[str, Any] = answers[str(status)]["content"]["application/json"]["schema"]
    return schema


async def busy() -> FakeView:
    """A cluster with an alert, events in memory and in the store."""
    view = await small_cluster()
    held = Allocation(job=JobKey("slurm", "lab", "4711"), gpu="GPU-n1-0", begin=view.wall() - 10**9)
    listed = NodeJobs(session=7, at=view.wall(), allocations=(held,))
    view.jobs.receive("n1", msgspec.json.encode(listed), {"GPU-n1-0"}, view.wall())
    view.raised = [
        Alert(
            key="a/n1/GPU-n1-0",
            rule="a",
            state=AlertState.FIRING,
            severity=Severity.PAGE,
            node="n1",
            gpu="GPU-n1-0",
            value=1.5,
        )
    ]
    event = Event(id="7-1", node="n1", at=START, kind="xid", gpu="GPU-n1-0", data={"xid": 79, "words": [1]})
    now, wall = view.now(), view.wall()
    view.pipeline.manager.receive(view.raised, now, wall)
    view.pipeline.manager.silence(
        parse_all(["node=n2"]),
        who="ann",
        why="a test",
        starts=None,
        ends=wall + 10**12,
        maintenance=False,
        now=now,
        wall_ns=wall,
    )
    incident = view.pipeline.manager.incident("a/n1/GPU-n1-0")
    notice = Notice(id="1", action=Action.TRIGGER, incident=incident, at=wall, reason="new")
    assert isinstance(view.delivery, FakePost)
    view.delivery.sent = [Delivery(id=1, channel="oncall", notice=notice, created=wall, due=wall)]
    card = card_of(
        incident.alerts[0],
        incident,
        None,
        Links(),
        events=[event],
        alerts=[],
        readings=EvidenceReadings(at=(wall,), columns={"gpu_power_watts": (None,)}),
        history=FaultIndex().of(incident.alerts[0], incident.key, wall),
        missing={},
        now=wall,
    )
    view.delivery.cards = {incident.key: EvidenceReply(at=wall, incident=incident.key, cards=(card,))}
    view.happened = [event]
    view.memory.write(Batch(events=[StoredEvent(event, START)]))
    view.monotonic += 1
    site = {
        "circuits": {"rack": {"breaker": 60, "volts": 240, "nodes": ["n1", "n2"]}},
        "budgets": {"lab": {"circuits": ["rack"], "kw": 12}},
        "ups": {"u": {"watts": 9000, "circuits": ["rack"]}},
    }
    view.electrical = ElectricalService(site, Path("/nowhere"))
    view.electrical.snapshots(view.fleet, view.now(), view.wall())
    return view


def test_the_document_is_openapi_3_1() -> None:
    """By the validator that others use."""
    assert not [error.message for error in OpenAPIV31SpecValidator(DOCUMENT).iter_errors()]


def test_every_route_is_in_the_document_and_the_other_way_round() -> None:
    """Paths and methods."""
    app = make_app(FakeView())
    served = {
        (route.resource.canonical, route.method.lower())
        for route in app.router.routes()
        if route.resource is not None and route.method != "HEAD"
    }
    written = {(path, method) for path, does in DOCUMENT["paths"].items() for method in does}
    assert served - set(page_rules()) == written


def test_the_operations_of_every_module_are_listed() -> None:
    """Operations of a module that `aggregator.http.operations` lacks would not be served."""
    modules = [import_module(f"aggregator.http.{each.name}") for each in iter_modules(aggregator.http.__path__)]
    assert {op for module in modules for op in getattr(module, "OPERATIONS", ())} == set(OPERATIONS)


EXAMPLES = [
    ("/healthz", "/healthz"),
    ("/readyz", "/readyz"),
    ("/sd/prometheus", "/sd/prometheus"),
    ("/sd/dcgm", "/sd/dcgm"),
    ("/api/v1/openapi.json", "/api/v1/openapi.json"),
    ("/api/v1/status", "/api/v1/status"),
    ("/api/v1/catalogue", "/api/v1/catalogue"),
    ("/api/v1/fleet", "/api/v1/fleet?columns=*"),
    ("/api/v1/fleet", "/api/v1/fleet?table=node&columns=*&node=n1"),
    ("/api/v1/fleet", "/api/v1/fleet?table=link&columns=*"),
    ("/api/v1/fleet", "/api/v1/fleet?columns=*&at=-1s"),
    ("/api/v1/fleet", "/api/v1/fleet?table=link&columns=link_state&at=-1s"),
    ("/api/v1/fleet/frames", "/api/v1/fleet/frames?from=-3s&step=1s&table=node"),
    ("/api/v1/nodes", "/api/v1/nodes"),
    ("/api/v1/register", "/api/v1/register"),
    ("/api/v1/drift", "/api/v1/drift"),
    ("/api/v1/fitness", "/api/v1/fitness"),
    ("/api/v1/ports", "/api/v1/ports?limit=5"),
    ("/api/v1/drift/{node}/{other}", "/api/v1/drift/n1/n2"),
    ("/api/v1/nodes/{node}", "/api/v1/nodes/n1"),
    ("/api/v1/nodes/{node}/jobs", "/api/v1/nodes/n1/jobs"),
    ("/api/v1/gpus/{uuid}", "/api/v1/gpus/GPU-n1-0"),
    ("/api/v1/history", "/api/v1/history?gpu=GPU-n1-0&metric=gpu_power_watts&step=10s"),
    ("/api/v1/history", "/api/v1/history?node=n1&metric=node_load_1m&from=-1d"),
    ("/api/v1/events", "/api/v1/events?limit=10"),
    ("/api/v1/alerts", "/api/v1/alerts?state=firing"),
    ("/api/v1/incidents", "/api/v1/incidents?severity=page"),
    ("/api/v1/alerts/quality", "/api/v1/alerts/quality?from=-7d"),
    ("/api/v1/alerts/quality/suggestions", "/api/v1/alerts/quality/suggestions"),
    ("/api/v1/incidents/{key}", "/api/v1/incidents/a%2Fn1%2FGPU-n1-0"),
    ("/api/v1/incidents/{key}/timeline", "/api/v1/incidents/a%2Fn1%2FGPU-n1-0/timeline"),
    ("/api/v1/incidents/{key}/evidence", "/api/v1/incidents/a%2Fn1%2FGPU-n1-0/evidence"),
    ("/api/v1/silences", "/api/v1/silences?maintenance=false"),
    ("/api/v1/rules", "/api/v1/rules?severity=page"),
    ("/api/v1/deliveries", "/api/v1/deliveries?channel=oncall"),
    ("/api/v1/channels", "/api/v1/channels"),
    ("/api/v1/circuits", "/api/v1/circuits"),
    ("/api/v1/circuits/{circuit}", "/api/v1/circuits/rack"),
    ("/api/v1/circuits/{circuit}/history", "/api/v1/circuits/rack/history?from=-1m"),
    ("/api/v1/budgets", "/api/v1/budgets"),
    ("/api/v1/ups", "/api/v1/ups"),
    ("/api/v1/power", "/api/v1/power"),
    ("/api/v1/power/chain", "/api/v1/power/chain"),
    ("/api/v1/report", "/api/v1/report?days=1"),
    ("/api/v1/bill", "/api/v1/bill"),
    ("/api/v1/use", "/api/v1/use?by=job&month=2026-01"),
    ("/api/v1/jobs", "/api/v1/jobs?from=2026-01-01T00:00:00Z"),
    ("/api/v1/jobs/{id}", "/api/v1/jobs/4711"),
]


@pytest.mark.parametrize(("path", "request_path"), EXAMPLES, ids=[each[1] for each in EXAMPLES])
async def test_an_answer_fits_its_schema(path: str, request_path: str) -> None:
    """And has no field beside it."""
    async with door(await busy()) as client:
        status, body = await client.json(request_path)
    assert status == 200
    check(body, schema_of(path, status))


def test_every_json_answer_has_an_example_above() -> None:
    """A new route must bring one."""
    shown = {path for path, _ in EXAMPLES}
    assert shown == {path for path, op in READS.items() if op.reply is not None}


FAULTS = [
    ("/readyz", "/readyz", 503),
    ("/metrics/node/{node}", "/metrics/node/none", 404),
    ("/metrics/node/{node}", "/metrics/node/n1?labels=x", 400),
    ("/api/v1/fleet", "/api/v1/fleet?columns=x", 400),
    ("/api/v1/fleet", "/api/v1/fleet?node=x", 404),
    ("/api/v1/nodes/{node}", "/api/v1/nodes/x", 404),
    ("/api/v1/nodes/{node}/jobs", "/api/v1/nodes/x/jobs", 404),
    ("/api/v1/drift/{node}/{other}", "/api/v1/drift/n1/x", 404),
    ("/api/v1/gpus/{uuid}", "/api/v1/gpus/x", 404),
    ("/api/v1/history", "/api/v1/history?gpu=x", 400),
    ("/api/v1/history", "/api/v1/history?gpu=x&metric=gpu_power_watts", 404),
    ("/api/v1/events", "/api/v1/events?limit=x", 400),
    ("/api/v1/alerts", "/api/v1/alerts?standing=x", 400),
    ("/api/v1/incidents", "/api/v1/incidents?limit=x", 400),
    ("/api/v1/incidents/{key}", "/api/v1/incidents/none", 404),
    ("/api/v1/incidents/{key}/timeline", "/api/v1/incidents/none/timeline", 404),
    ("/api/v1/incidents/{key}/evidence", "/api/v1/incidents/none/evidence", 404),
    ("/api/v1/silences", "/api/v1/silences?maintenance=x", 400),
    ("/api/v1/rules", "/api/v1/rules?subject=x", 400),
    ("/api/v1/deliveries", "/api/v1/deliveries?outcome=x", 400),
    ("/api/v1/use", "/api/v1/use?by=x", 400),
    ("/api/v1/jobs", "/api/v1/jobs?state=x", 400),
    ("/api/v1/jobs/{id}", "/api/v1/jobs/x", 404),
    ("/api/v1/stream", "/api/v1/stream", 426),
    ("/api/v1/status", "/api/v1/status?x=1", 400),
]


@pytest.mark.parametrize(("path", "request_path", "expected"), FAULTS, ids=[each[1] for each in FAULTS])
async def test_a_fault_fits_its_schema(path: str, request_path: str, expected: int) -> None:
    """Its status is in the document."""
    view = await busy()
    view.stats.bus_connected = False
    async with door(view) as client:
        status, body = await client.json(request_path)
    assert status == expected
    check(body, schema_of(path, status))


@pytest.mark.parametrize("path", list(READS))
def test_every_parameter_that_a_path_takes_is_written_down(path: str) -> None:
    """Those of the path are required, and named as in the path."""
    parameters = DOCUMENT["paths"][path]["get"]["parameters"]
    named = {each["name"] for each in parameters if each["in"] == "path"}
    assert named == {part[1:-1] for part in path.split("/") if part.startswith("{")}


@pytest.mark.parametrize("path", [path for path, op in READS.items() if "{" not in path and op.id != "stream"])
async def test_every_query_that_is_written_down_is_taken(path: str) -> None:
    """The example of each parameter is not refused as unknown; one that is not there is."""
    async with door(await busy()) as client:
        for each in DOCUMENT["paths"][path]["get"]["parameters"]:
            _, body, _ = await client.text(f"{path}?{each['name']}={each['example']}")
            assert f'"where":"query {each["name"]}"' not in body
        if path not in {"/healthz", "/readyz"}:
            assert (await client.json(f"{path}?xyzzy=1"))[0] == 400


async def test_what_the_stream_sends_fits_its_schemas() -> None:
    """Rows, data whole and in part, alerts, events, errors."""
    view = await busy()
    seen: set[str] = set()
    async with door(view) as client, client.session.ws_connect(client.url + "/api/v1/stream") as socket:
        await socket.send_json({"changes": True, "alerts": True, "events": True})
        for _ in range(4):
            seen.add(_check_message(await socket.receive_str(timeout=30)))
        await view.tick(3)
        seen.add(_check_message(await socket.receive_str(timeout=30)))
        await socket.send_str("{")
        while "error" not in seen:
            seen.add(_check_message(await socket.receive_str(timeout=30)))
    assert seen == {"rows", "data", "alerts", "events", "error"}


def _check_message(text: str) -> str:
    message = json.loads(text)
    kind: str = message["type"]
    check(message, {"$ref": f"#/components/schemas/Stream{kind.capitalize()}"})
    return kind


def test_fields_are_explained_as_in_the_source() -> None:
    """Units above all: an instant is ns, and a reader must not have to guess."""
    schemas = DOCUMENT["components"]["schemas"]
    assert schemas["Alert"]["properties"]["value"].get("description") is None
    assert "ns since 1970" in schemas["HistoryReply"]["properties"]["at"]["description"]
    assert schemas["Stats"]["properties"]["flush"]["description"] == "Batch to fleet matrix."
    for name in ("FleetReply", "NodesReply", "StatusReply", "StreamRows"):
        assert schemas[name]["properties"]["at"]["description"] == "ns since 1970."
