"""The circuits' part of the OpenAPI document: what can be read, supposed and reloaded."""

from __future__ import annotations

from aggregator.http.operation import Operation, Parameter
from aggregator.http.power import USUAL_DAYS
from api.power import (
    CircuitHistoryReply,
    CircuitReply,
    CircuitsReply,
    PlanRequest,
    PlanResult,
    PowerReply,
    ReloadRequest,
    RowsReply,
    SiteConfiguration,
)
from api.report import Report

_FAULTS = (403, 413, 415)
_WHEN = "RFC 3339, seconds since 1970, '-1h' or 'now'."
_AT = Parameter(
    "at",
    "A past time: what was computed up to 30 s before it, one instant in ten seconds is kept. Neither "
    "facts nor alerts are; `at` is 0 where nothing is. "
    f"{_WHEN}",
    "-10m",
)
_CIRCUIT = Parameter(
    "circuit",
    "Name of a circuit or panel; '/' is written as %2F.",
    "office",
    required=True,
    place="path",
)

READS: dict[str, Operation] = {
    "/api/v1/circuits": Operation(
        "circuits",
        "Every circuit and panel, parents before what they feed. Times to trip are estimates; "
        "null is never where `trip_known`, else not known. `alerts` are those that speak: what another "
        "one inhibits is in `/api/v1/alerts?standing=inhibited`.",
        CircuitsReply,
        (
            Parameter(
                "columns",
                "Quantities of circuits, joined by commas, '*' for all: the answer then has `rows` and "
                "`columns` in place of `circuits`, a tenth of the bytes.",
                "circuit_watts,circuit_load_ratio",
            ),
            _AT,
        ),
    ),
    "/api/v1/circuits/{circuit}": Operation(
        "circuit",
        "One circuit, and the nodes that hang below it.",
        CircuitReply,
        (_CIRCUIT, _AT),
        (404,),
    ),
    "/api/v1/circuits/{circuit}/history": Operation(
        "circuitHistory",
        "One quantity of a circuit over time, in buckets: mean, lowest and highest.",
        CircuitHistoryReply,
        (
            _CIRCUIT,
            Parameter(
                "quantity", "Any of `circuit_*`, without the prefix; watts without.", "heat_ratio"
            ),
            Parameter("from", f"First instant; an hour ago without. {_WHEN}", "-6h"),
            Parameter("to", f"First instant that no longer counts. {_WHEN}", "now"),
            Parameter(
                "step",
                "Length of a bucket, as 10s, 5m or seconds; 0 is every instant, one in about ten "
                "seconds. By itself a step that makes about 300.",
                "1m",
            ),
        ),
        (404,),
    ),
    "/api/v1/budgets": Operation("budgets", "Every budget.", RowsReply, (_AT,)),
    "/api/v1/ups": Operation("ups", "Every UPS.", RowsReply, (_AT,)),
    "/api/v1/power": Operation(
        "power", "The electrical side as a whole: configuration, notices, meters.", PowerReply
    ),
    "/api/v1/report": Operation(
        "report",
        "What this cluster is and has taken, as its owner would compare it with another.",
        Report,
        (Parameter("days", f"Days that were measured, today the last; {USUAL_DAYS} without.", "30"),),
    ),
}  # fmt: skip

WRITES: dict[tuple[str, str], Operation] = {
    ("/api/v1/power/plan", "post"): Operation(
        "planPower",
        "What if, from what flows now: load, limits and time to trip of every circuit. Changes "
        "nothing. Null seconds are never, or not known.",
        PlanResult,
        faults=_FAULTS,
        body=PlanRequest,
    ),
    ("/api/v1/power/reload", "post"): Operation(
        "reloadPower",
        "Read the settings anew. What is refused is in `error`, and the configuration before goes on.",
        SiteConfiguration,
        faults=_FAULTS,
        body=ReloadRequest,
        body_required=False,
    ),
}
