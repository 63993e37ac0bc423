"""The OpenAPI 3.1 document of the HTTP API, made from the types that the handlers answer with.

An answer that does not fit its schema fails a test.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import msgspec
import msgspec.inspect

from aggregator.access.tokens import AccessScope
from aggregator.http.operation import Operation, Parameter
from api.errors import ErrorReply
from api.stream import StreamAlerts, StreamData, StreamError, StreamEvents, StreamPacked, StreamRequest, StreamRows
from telemetry.runtime.release import release
from telemetry.text.field_texts import field_texts

Json = dict[str, Any]


def _structs(kinds: Iterable[Any]) -> dict[str, type[msgspec.Struct]]:
    """Return by name the types of objects that these types are made of."""
    found: dict[str, type[msgspec.Struct]] = {}
    todo: list[Any] = list(msgspec.inspect.multi_type_info(kinds))
    while todo:
        each = todo.pop()
        if isinstance(each, msgspec.inspect.StructType) and not each.array_like:  # an array's parts have no names
            if each.cls.__name__ in found:
                continue
            found[each.cls.__name__] = each.cls
            todo += [field.type for field in each.fields]
        todo += [getattr(each, name) for name in ("item_type", "key_type", "value_type") if hasattr(each, name)]
        todo += [*getattr(each, "item_types", ()), *getattr(each, "types", ())]
    return found


def _describe(schema: Json, kind: type[msgspec.Struct]) -> None:
    """Add to each property of a type's schema the sentence in the source. Fields of an answer are required:
    their defaults are for clients of a server that does not know them."""
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


_MESSAGES = (StreamRequest, StreamRows, StreamData, StreamPacked, StreamAlerts, StreamEvents, StreamError)
_FAULTS = {
    400: "The request is wrong: the error has the place, the problem and the remedy.",
    401: "A token is needed, or it is wrong.",
    403: "The token lacks the scope, or the request comes from a page of another site.",
    404: "Nothing has that name; the error names the nearest.",
    408: "The body did not come in time.",
    409: "It can't be done now: the error has the reason, and when it can.",
    413: "Too much for one page, or for one request.",
    415: "The Content-Type of the body is not JSON.",
    421: "The Host header names another server.",
    426: "This is a WebSocket.",
    429: "Too many wrong tokens came from this address.",
    503: "The store, the broker or the node that it needs is away: the error says which.",
}


@cache
def build(operations: tuple[Operation, ...]) -> Json:
    """Return the document."""
    kinds = [kind for op in operations for kind in (op.reply, op.body) if kind is not None]
    every = [*kinds, ErrorReply, *_MESSAGES]
    schemas, components = msgspec.json.schema_components(every, ref_template=_REFERENCE)
    for name, kind in _structs(every).items():
        _describe(components[name], kind)
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
        "paths": _paths(operations, replies),
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Each operation names the scope that the token must have. On a "
                    "loopback listener the scope `read` needs no token.",
                }
            },
        },
    }


def _paths(operations: Iterable[Operation], kinds: dict[str, Json]) -> Json:
    paths: dict[str, Json] = {}
    for op in operations:
        found = paths.setdefault(op.path, {})[op.method] = _operation(op, kinds)
        if op.body is not None:
            found["requestBody"] = {
                "required": op.body_required,
                "content": {"application/json": {"schema": kinds[str(op.body)]}},
            }
    return paths


def _operation(op: Operation, replies: dict[str, Json]) -> Json:
    if op.id == "stream":
        answers: Json = {"101": {"description": "The connection is a WebSocket now."}}
    else:
        body = (
            {op.text_type: {"schema": {"type": "string"}}}
            if op.reply is None
            else {"application/json": {"schema": replies[str(op.reply)]}}
        )
        answers = {str(status): {"description": op.summary, "content": body} for status in (200, *op.also)}
    fault = {"application/json": {"schema": {"$ref": _REFERENCE.format(name="ErrorReply")}}}
    needed = set() if op.scope is None else {401, 429}
    for status in sorted({400, 403, 421, *needed, *op.faults}):
        answers[str(status)] = {"description": _FAULTS[status], "content": fault}
    return {
        "operationId": op.id,
        "security": _security(op.scope),
        "summary": op.summary,
        "parameters": [_parameter(parameter) for parameter in op.parameters],
        "responses": answers,
    }


def _security(scope: AccessScope | None) -> list[Json]:
    """Return the alternatives of a caller: without a token, or with one that has a scope."""
    free: list[Json] = [{}] if scope in {None, AccessScope.READ} else []
    return free if scope is None else [*free, {"token": [str(scope)]}]


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
