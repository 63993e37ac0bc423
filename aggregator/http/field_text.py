"""The sentences under the fields of our types, for the schemas that are made from them.

A field's docstring is nothing to Python, so it is read from the source: written once, and shown to
whoever reads the code and to whoever reads the API's document.
"""

from __future__ import annotations

import ast
import inspect
from functools import cache
from typing import Any

from aggregator import model
from aggregator.alerting import messages
from aggregator.http import (
    columns,
    errors,
    events,
    fleet,
    health,
    history,
    nodes,
    sd,
    stream,
    stream_hub,
    summary,
)
from alerts import alert, notice
from telemetry import inventory

_MODULES = (
    alert, columns, errors, events, fleet, health, history, inventory, messages, model, nodes, notice, sd, stream,
    stream_hub, summary,
)  # fmt: skip


@cache
def field_texts() -> dict[str, dict[str, str]]:
    """Return the sentences by class and field."""
    found: dict[str, dict[str, str]] = {}
    for module in _MODULES:
        for node in ast.parse(inspect.getsource(module)).body:
            if isinstance(node, ast.ClassDef):
                found[node.name] = _fields(node)
    return found


def _fields(kind: ast.ClassDef) -> dict[str, str]:
    """An expression that is a string, right below an annotated name, is about that name."""
    found: dict[str, str] = {}
    for field, text in zip(kind.body, kind.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        ):
            found[field.target.id] = " ".join(text.value.value.split())
    return found


def describe(schema: dict[str, Any]) -> None:
    """Add to each property of a schema what the source says of it."""
    texts = field_texts().get(schema.get("title", ""), {})
    for name, text in texts.items():
        if name in schema.get("properties", {}):
            schema["properties"][name]["description"] = text
