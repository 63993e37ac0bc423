"""`/api/v1/power` and its like: the electrical side as a whole, and what-ifs."""

from __future__ import annotations

import asyncio

import msgspec
from aiohttp import web
from msgspec.structs import asdict

from aggregator.access.tokens import AccessScope
from aggregator.electrical.bill import bill_of
from aggregator.electrical.plan import live_cap, live_fit, live_plan
from aggregator.electrical.report import running_report
from aggregator.electrical.service import ElectricalService
from aggregator.http.errors import bad
from aggregator.http.operation import Operation, Parameter
from aggregator.http.parameters import BODY_FAULTS, query, read_body, whole_number
from aggregator.http.present_jobs import held_gpus
from aggregator.http.reply import VIEW, send_json
from aggregator.view import AggregatorView, parts_of
from alerts.incidents.quality_ledger import DAY_NS
from alerts.incidents.quality_summary import overall
from api.bill import MonthBill
from api.power import (
    CapPlan,
    CapRequest,
    FitRequest,
    FitResult,
    MeterReply,
    PlanRequest,
    PlanResult,
    PowerReply,
    ReloadRequest,
    SiteConfiguration,
)
from api.report import Report
from power.meters.meter_record import MeterState
from power.plan.plan import Suppose
from telemetry.errors import ConfigError

USUAL_DAYS, MOST_DAYS = 30, 400


async def power(request: web.Request) -> web.Response:
    """Answer with the electrical side as a whole: configuration, notices, meters."""
    query(request)
    return await send_json(request, power_reply(request.app[VIEW]))


def power_reply(view: AggregatorView) -> PowerReply:
    """Return the electrical side as a whole."""
    electrical, layout = view.electrical, view.electrical.site.layout
    problems = electrical.meter_problems(view.now())
    wall = electrical.wall_sum(view.fleet, view.now())
    return PowerReply(
        cluster=view.cluster,
        at=electrical.latest_at,
        configured=layout is not None,
        configuration=electrical.configuration,
        failure=electrical.failure,
        set_aside=electrical.set_aside(),
        wall_watts=wall.watts,
        wall_nodes=wall.nodes,
        wall_partial_nodes=wall.partial,
        circuits=0 if layout is None else len(layout.circuits),
        nodes_mapped=0 if layout is None else len(layout.machines),
        nodes_unmapped=list(electrical.unmapped.names[:100]),
        notices=[] if layout is None else list(layout.notices),
        meters=[_meter(meter, view.now(), problems.get(meter.name, "")) for meter in electrical.meters.states()],
        tick_seconds=round(electrical.seconds, 6),
        site_leader="" if view.site_role is None else view.site_role.leader,
        site_problem="" if view.site_role is None else view.site_role.problem,
    )


async def plan(request: web.Request) -> web.Response:
    """Answer with load, limits and time to trip of every circuit under a supposed load."""
    query(request)
    supposed = await read_body(request, PlanRequest)
    view = request.app[VIEW]
    try:
        answer = await asyncio.to_thread(
            live_plan(view.electrical, view.fleet, Suppose(**asdict(supposed)), view.pipeline.engine.rules)
        )
    except ConfigError as error:
        raise bad("body", str(error)) from error
    return await send_json(request, answer)


async def fit(request: web.Request) -> web.Response:
    """Answer with the best places for some new machines."""
    query(request)
    asked = await read_body(request, FitRequest)
    view = request.app[VIEW]
    try:
        answer = await asyncio.to_thread(live_fit(view.electrical, view.fleet, asked))
    except ConfigError as error:
        raise bad("body", str(error)) from error
    return await send_json(request, answer)


async def cap(request: web.Request) -> web.Response:
    """Answer with caps of single GPUs that hold a circuit below a power."""
    query(request)
    asked = await read_body(request, CapRequest)
    view = request.app[VIEW]
    try:
        jobs = dict(held_gpus(view)) if asked.by == "job" else {}
        answer = await asyncio.to_thread(live_cap(view.electrical, view.fleet, asked, view.now(), jobs))
    except ConfigError as error:
        raise bad("body", str(error)) from error
    return await send_json(request, answer)


async def reload(request: web.Request) -> web.Response:
    """Load the configuration again. Answers 200 with the one in force, and with the fault of the newer
    one if it was refused."""
    query(request)
    await read_body(request, ReloadRequest)
    return await send_json(request, request.app[VIEW].electrical.reload())


async def report(request: web.Request) -> web.Response:
    """Answer with the figures of this cluster for comparison with another."""
    days = whole_number(query(request, "days"), "days", USUAL_DAYS, MOST_DAYS)
    view = request.app[VIEW]
    answer = running_report(view.electrical, view.fleet, days, parts_of(view, "report"))
    sent = overall(view.pipeline.quality, view.wall() - days * DAY_NS, view.wall())
    answer = msgspec.structs.replace(answer, alerts=sent)
    return await send_json(request, answer)


async def bill(request: web.Request) -> web.Response:
    """Answer with the bill of a month."""
    name = query(request, "month").get("month")
    view = request.app[VIEW]
    return await send_json(request, await bill_reply(view.electrical, name, view.wall()))


async def bill_reply(electrical: ElectricalService, name: str | None, wall: int) -> MonthBill:
    """Return the bill of a month, of the present one for None; of several aggregators with what the others know. Raises
    a 400 for what is no month, and for one of which nothing is stored."""
    elsewhere = electrical.energy.elsewhere
    try:
        found = None if elsewhere is None else await elsewhere.month(name)
        return await asyncio.to_thread(bill_of(electrical, name, wall, found))
    except ConfigError as error:
        raise bad(error.where, error.problem, error.hint) from error


def _meter(meter: MeterState, now: float, problem: str) -> MeterReply:
    return MeterReply(
        name=meter.name,
        type=meter.type,
        where=meter.where,
        targets=meter.targets,
        ok=not problem,
        error=problem or None,
        age_seconds=None if meter.last_seen is None else round(now - meter.last_seen, 3),
        period_seconds=round(meter.period, 3),
        online=meter.online,
        readings=meter.readings,
        malformed=meter.malformed,
        errors=meter.errors,
    )


OPERATIONS = (
    Operation(
        "/api/v1/power",
        power,
        "power",
        "The electrical side as a whole: configuration, notices, meters.",
        PowerReply,
        scope=AccessScope.READ,
    ),
    Operation(
        "/api/v1/report",
        report,
        "report",
        "The figures of this cluster for comparison with another: size, power, energy and cost.",
        Report,
        (Parameter("days", f"Days that were measured, today the last; {USUAL_DAYS} if absent.", "30"),),
        scope=AccessScope.READ,
    ),
    Operation(
        "/api/v1/bill",
        bill,
        "bill",
        "The bill of a month in the site's time zone: energy by the hour's price, what fills its gaps, "
        "demand, contract, power factor, and idle GPUs by node.",
        MonthBill,
        (Parameter("month", "A stored month; the present one if absent.", "2026-10"),),
        scope=AccessScope.READ,
    ),
    Operation(
        "/api/v1/power/plan",
        plan,
        "planPower",
        "Compute load, limits and time to trip of every circuit for a supposed change of the present "
        "load. Changes nothing. Null seconds mean never or unknown.",
        PlanResult,
        faults=BODY_FAULTS,
        body=PlanRequest,
        method="post",
        most_bytes=256 * 1024,
        scope=AccessScope.READ,
    ),
    Operation(
        "/api/v1/power/fit",
        fit,
        "fitPower",
        "Find circuits for new machines: what is left on each legal place in normal state and after the "
        "worst loss of one circuit, panel or source. Changes nothing.",
        FitResult,
        faults=BODY_FAULTS,
        body=FitRequest,
        method="post",
        scope=AccessScope.READ,
    ),
    Operation(
        "/api/v1/power/cap",
        cap,
        "capPower",
        "Plan a power limit for each GPU that holds a circuit below a power, with the throughput that it "
        "costs where clocks were measured. Changes nothing.",
        CapPlan,
        faults=BODY_FAULTS,
        body=CapRequest,
        method="post",
        scope=AccessScope.READ,
    ),
    Operation(
        "/api/v1/power/reload",
        reload,
        "reloadPower",
        "Read the settings again. The reason for a refusal is in `error`; the configuration before it stays in force.",
        SiteConfiguration,
        faults=BODY_FAULTS,
        body=ReloadRequest,
        body_required=False,
        method="post",
        scope=AccessScope.ADMIN,
    ),
)
