"""An operation of the HTTP API: what each module of handlers declares in its `OPERATIONS`, beside the handler.

Routes, access rules, the OpenAPI document and the reference of the API are made from these declarations, which
`aggregator.http.operations` collects.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

from aggregator.access.tokens import AccessScope
from aggregator.http.errors import Handler
from telemetry.wire.exposition import CONTENT_TYPE


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a path or a query."""

    name: str
    text: str
    example: str
    choices: tuple[str, ...] = ()
    required: bool = False
    place: str = "query"


@dataclass(frozen=True, slots=True)
class Operation:
    """A method on a path, its handler, and its description."""

    path: str
    handler: Handler
    id: str
    summary: str
    reply: Any = None
    """Type of the JSON; None: a page of Prometheus' text; `dict`: any object."""
    parameters: tuple[Parameter, ...] = ()
    faults: tuple[int, ...] = ()
    """Statuses beyond those that any path may answer with."""
    also: tuple[int, ...] = ()
    """Further statuses with the same body."""
    body: Any = None
    """Type of the JSON that is sent; None where nothing is."""
    body_required: bool = True
    method: str = "get"
    _: KW_ONLY
    scope: AccessScope | None
    """Scope that the token of a caller must have; None: it needs no token, wherever the listener is."""
    most_bytes: int = 16 * 1024
    """Bytes of a body at most."""
    own: bool = False
    """Whether the token of a user may call it too, and then gets what belongs to its user alone."""
    local: bool = False
    """Whether an aggregator answers it by itself, without asking the others of its cluster."""
    text_type: str = CONTENT_TYPE
    """Content type of an answer that is no JSON."""
