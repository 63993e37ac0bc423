"""The data that a view requests, and how often: nothing else is fetched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from api.alerts import IncidentsReply
from api.power import CircuitsReply, PowerReply, RowsReply
from api.report import Report
from tui.state import circuit_columns
from tui.state.documents import BUDGETS, CIRCUITS, INCIDENTS, POWER_PAGE, TODAY
from tui.state.readings import COLUMNS


@dataclass(frozen=True, slots=True)
class ShortForm:
    """A shorter form of a document, under another query; an older aggregator answers 400 to it."""

    query: str
    kind: type[msgspec.Struct]
    whole: Callable[[Any], msgspec.Struct]
    """Makes the whole document of the short one."""


@dataclass(frozen=True, slots=True)
class DocumentRequest:
    """A request for a document of the API."""

    path: str
    """Below the aggregator's address, with its query."""
    kind: type[msgspec.Struct]
    every: float
    """Seconds between two requests at least."""
    short: ShortForm | None = None


ALWAYS = (
    DocumentRequest(INCIDENTS, IncidentsReply, 1.0),
    DocumentRequest(
        CIRCUITS, CircuitsReply, 1.0, ShortForm(circuit_columns.QUERY, CircuitsReply, circuit_columns.whole)
    ),
    DocumentRequest(POWER_PAGE, PowerReply, 5.0),
    DocumentRequest(BUDGETS, RowsReply, 5.0),
    DocumentRequest(TODAY, Report, 30.0),
)
"""Documents of the header, requested whatever the view."""
SELDOM, RARE = 5.0, 300.0
"""Seconds between two requests at most, however long a document takes: a countdown must stay true;
a report may be older."""
SHARE = 0.04
"""Share of the time that a document may take to be made: 700 circuits, as objects, cost 100 ms, and are
then requested every 2.5 s."""


@dataclass(frozen=True)
class Wants:
    """The data that a view requests."""

    columns: tuple[str, ...] = COLUMNS
    nodes: tuple[str, ...] | None = None
    """Nodes whose GPUs are requested; None for all."""
    documents: tuple[DocumentRequest, ...] = ()
