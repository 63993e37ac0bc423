"""What one method does on one path, as the OpenAPI document tells it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a path or a query."""

    name: str
    text: str
    example: str
    choices: tuple[str, ...] = ()
    required: bool = False
    place: str = "query"


@dataclass(frozen=True, slots=True)
class Operation:
    """What a method does on one path."""

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
