"""The circuits' part of the OpenAPI document: what can be read, supposed and reloaded."""

from __future__ import annotations

from aggregator.http.circuits import (
    USUAL_DAYS,
    CircuitReply,
    CircuitsReply,
    PlanRequest,
    PowerReply,
    ReloadRequest,
    RowsReply,
)
from aggregator.http.operation import Operation, Parameter
from aggregator.plant import Configuration
from power.answer import Plan
from power.report import Report

_FAULTS = (403, 413, 415)

READS: dict[str, Operation] = {
    "/api/v1/circuits": Operation(
        "circuits",
        "Every circuit and panel now, parents before what they feed. Times to trip are estimates; "
        "null is never where `trip_known`, else not known.",
        CircuitsReply,
    ),
    "/api/v1/circuits/{circuit}": Operation(
        "circuit",
        "One circuit, and the nodes that hang below it.",
        CircuitReply,
        (
            Parameter(
                "circuit", "Name of a circuit or panel; '/' is written as %2F.", "office",
                required=True, place="path",
            ),
        ),
        (404,),
    ),
    "/api/v1/budgets": Operation("budgets", "Every budget now.", RowsReply),
    "/api/v1/ups": Operation("ups", "Every UPS now.", RowsReply),
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
        Plan,
        faults=_FAULTS,
        body=PlanRequest,
    ),
    ("/api/v1/power/reload", "post"): Operation(
        "reloadPower",
        "Read the settings anew. What is refused is in `error`, and the configuration before goes on.",
        Configuration,
        faults=_FAULTS,
        body=ReloadRequest,
        body_required=False,
    ),
}
