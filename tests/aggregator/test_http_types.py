"""The types of the API are those of `api`, and clients of other releases understand each other."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from aggregator.http.operations import OPERATIONS
from api.alerts import AlertRow, AlertsReply, AlertState, Incident, NotificationState, Severity
from api.decoding import decode, lenient
from api.power import CircuitsReply, CircuitState
from api.stream import (
    StreamAlerts,
    StreamData,
    StreamError,
    StreamEvents,
    StreamMessage,
    StreamPacked,
    StreamRequest,
    StreamRows,
)
from tests.aggregator.http_client import door
from tests.aggregator.test_http_openapi import EXAMPLES, busy
from tui.feed.wants import ALWAYS, DocumentRequest
from tui.screens.circuit import circuit_documents
from tui.screens.gpu import gpu_documents
from tui.screens.incident_timeline import timeline_request
from tui.screens.lists import EVENTS
from tui.screens.node import node_documents

ROOT = Path(__file__).resolve().parents[2]
READS = {op.path: op for op in OPERATIONS if op.method == "get"}
MESSAGES = (StreamRequest, StreamRows, StreamData, StreamPacked, StreamAlerts, StreamEvents, StreamError)


def types_within(kind: object, seen: set[type]) -> Iterator[type]:
    """Yield every class of ours that a type is made of."""
    found = inspect.type_info(kind)
    todo: list[object] = [found]
    while todo:
        each = todo.pop()
        cls = getattr(each, "cls", None)
        if isinstance(each, inspect.StructType | inspect.EnumType | inspect.DataclassType):
            assert isinstance(cls, type)
            if cls in seen:
                continue
            seen.add(cls)
            yield cls
            todo += [field.type for field in getattr(each, "fields", ())]
        for name in ("item_type", "key_type", "value_type"):
            if hasattr(each, name):
                todo.append(getattr(each, name))
        todo += [*getattr(each, "item_types", ()), *getattr(each, "types", ())]


def test_every_type_of_an_operation_is_defined_in_api() -> None:
    """What it is made of too; devices and events are those of the bus."""
    seen: set[type] = set()
    kinds = [kind for op in OPERATIONS for kind in (op.reply, op.body) if kind is not None]
    modules = {cls.__name__: cls.__module__ for kind in (*kinds, *MESSAGES) for cls in types_within(kind, seen)}
    elsewhere = {
        name: module
        for name, module in modules.items()
        if not module.startswith("api.")
        and module not in {"telemetry.devices", "telemetry.wire.jobs", "telemetry.metric"}
    }
    assert not elsewhere
    assert {"AlertRow", "Stats", "CircuitState", "Gpu", "Severity"} <= set(modules)


def test_api_imports_only_telemetry_and_what_is_light() -> None:
    """The dashboard's start is measured: neither NumPy nor the catalogue of all metrics is loaded."""
    for path in (ROOT / "api").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [one.name for one in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                first = name.partition(".")[0]
                known = {"api", "telemetry", "msgspec"} | sys.stdlib_module_names
                assert first in known, f"{path.name} imports {name}"
    every = ", ".join(f"api.{path.stem}" for path in (ROOT / "api").glob("[!_]*.py"))
    code = f"import sys, {every}; print(sorted({{'numpy', 'telemetry.catalogue', '_hashlib'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(("path", "request_path"), EXAMPLES, ids=[each[1] for each in EXAMPLES])
async def test_a_client_decodes_every_answer_and_loses_nothing(path: str, request_path: str) -> None:
    """Encoded again it is the same."""
    async with door(await busy()) as client:
        _, body, _ = await client.text(request_path)
    found: Any = decode(body.encode(), READS[path].reply)
    assert json.loads(msgspec.json.encode(found)) == json.loads(body)


DOCUMENTS: list[DocumentRequest] = [
    *ALWAYS, *gpu_documents("GPU-n1-0", 600), *node_documents("n1", 600), *circuit_documents("rack"), EVENTS,
    timeline_request("a/n1/GPU-n1-0"),
]  # fmt: skip


@pytest.mark.parametrize("document", DOCUMENTS, ids=[each.path[:70] for each in DOCUMENTS])
async def test_the_dashboard_decodes_what_a_running_aggregator_answers(document: DocumentRequest) -> None:
    """Each document in its own type, in its short form too."""
    operation = next(op for op in OPERATIONS if op.method == "get" and fits(op.path, f"/{document.path}"))
    assert document.kind is operation.reply
    async with door(await busy()) as client:
        status, body, _ = await client.text(f"/{document.path}")
        assert status == 200
        assert isinstance(decode(body.encode(), document.kind), document.kind)
        if document.short is not None:
            _, body, _ = await client.text(f"/{document.path}?{document.short.query}")
            short = document.short.whole(decode(body.encode(), document.short.kind))
            assert isinstance(short, document.kind)


def fits(pattern: str, path: str) -> bool:
    """Whether a path is one of a pattern."""
    parts, given = pattern.split("/"), path.partition("?")[0].split("/")
    return len(parts) == len(given) and all(
        part in {each, "{" + part[1:-1] + "}"} for part, each in zip(parts, given, strict=True)
    )


NEWER = {
    "at": 1, "alerts": [{
        "key": "k", "rule": "r", "state": "snoozed", "severity": "page", "node": "n", "subject": "rack",
        "standing": "delegated", "mood": {"new": True},
    }], "more": [],
}  # fmt: skip


def test_a_newer_servers_words_and_fields_are_accepted_by_a_client() -> None:
    """A state, a subject and a field that this release does not know."""
    found = decode(msgspec.json.encode(NEWER), AlertsReply)
    (alert,) = found.alerts
    assert (alert.state, alert.subject, alert.notification) == ("snoozed", "rack", "delegated")
    assert alert.severity is Severity.PAGE
    assert msgspec.json.decode(msgspec.json.encode(alert), type=dict[str, Any])["state"] == "snoozed"


def test_settings_and_requests_refuse_an_unknown_word() -> None:
    """Outside a client a word must be one of the enumeration."""
    with pytest.raises(msgspec.ValidationError, match="snoozed"):
        msgspec.json.decode(msgspec.json.encode(NEWER), type=AlertsReply)
    with lenient(), pytest.raises(ValueError, match="7"):
        AlertState(7)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="snoozed"):
        AlertState("snoozed")


OLDER: list[tuple[dict[str, Any], type[msgspec.Struct]]] = [
    ({"at": 3, "circuits": [{"id": "PDU-1", "watts": 1234.0}]}, CircuitsReply),
    ({"id": "PDU-1"}, CircuitState),
    ({"key": "k", "severity": "page", "title": "t", "began": 1}, Incident),
    ({"key": "k", "rule": "r", "state": "firing", "severity": "info", "node": ""}, AlertRow),
]


@pytest.mark.parametrize(("body", "kind"), OLDER, ids=[kind.__name__ for _, kind in OLDER])
def test_an_older_servers_answer_lacks_newer_fields(body: dict[str, Any], kind: type[msgspec.Struct]) -> None:
    """They have defaults."""
    assert decode(msgspec.json.encode(body), kind)


def test_names_on_the_wire_stay() -> None:
    """Where Python's name is another."""
    row = AlertRow("k", "r", AlertState.FIRING, Severity.PAGE, "n", incident="i")
    assert json.loads(msgspec.json.encode(row))["standing"] == "told" == NotificationState.NOTIFIED
    rows = msgspec.json.encode(StreamAlerts(1, [row]))
    assert isinstance(msgspec.json.decode(rows, type=StreamMessage), StreamAlerts)
