"""What a screen shows, and how often it is looked at: nothing else is asked for."""

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
    """Makes the document of it."""


@dataclass(frozen=True, slots=True)
class DocumentRequest:
    """A document that a screen shows."""

    path: str
    """Below the aggregator's address, with its query."""
    kind: type[msgspec.Struct]
    every: float
    """Seconds between two looks, at least."""
    short: ShortForm | None = None


ALWAYS = (
    DocumentRequest(INCIDENTS, IncidentsReply, 1.0),
    DocumentRequest(
        CIRCUITS,
        CircuitsReply,
        1.0,
        ShortForm(circuit_columns.QUERY, CircuitsReply, circuit_columns.whole),
    ),
    DocumentRequest(POWER_PAGE, PowerReply, 5.0),
    DocumentRequest(BUDGETS, RowsReply, 5.0),
    DocumentRequest(TODAY, Report, 30.0),
)
"""What the header shows, whatever is below it."""
SELDOM, RARE = 5.0, 300.0
"""But not more seldom than this: what counts down must stay true; a report may be older."""
SHARE = 0.04
"""A document is asked for so seldom that making it takes at most this share of the time: 700
circuits of a big site, as objects, cost 100 ms, and are then looked at every 2.5 s."""


@dataclass(frozen=True)
class Wants:
    """What a screen shows, and nothing else is asked for."""

    columns: tuple[str, ...] = COLUMNS
    nodes: tuple[str, ...] | None = None
    """Only the GPUs of these; None for all."""
    documents: tuple[DocumentRequest, ...] = ()
