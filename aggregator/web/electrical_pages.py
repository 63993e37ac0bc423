"""Pages of the electrical side: circuits, a circuit, energy and cost."""

from __future__ import annotations

import asyncio
from calendar import monthrange
from collections.abc import Mapping, Sequence

from aiohttp import web

from aggregator.electrical.energy_sampler import local
from aggregator.electrical.plan import live_plan
from aggregator.electrical.service import SAVE_SECONDS
from aggregator.http.auth import CALLER
from aggregator.http.chain import beside
from aggregator.http.circuits import circuit_history, circuit_reply, circuits_now
from aggregator.http.errors import RequestError, printable
from aggregator.http.marks import status_of
from aggregator.http.parameters import query, whole_number
from aggregator.http.power import bill_reply, power_reply
from aggregator.http.reply import VIEW
from aggregator.http.use import use_reply
from aggregator.view import AggregatorView, parts_of
from aggregator.web.chain_part import chain_part
from aggregator.web.chart_time import chart_span, time_tabs
from aggregator.web.circuit_list import circuits_body
from aggregator.web.circuit_page import circuit_body, losses_body
from aggregator.web.content import PageContent, shown_to
from aggregator.web.day_bars import day_bars
from aggregator.web.energy_page import energy_body, users_table
from aggregator.web.gpu_holders import WITHHELD, circuit_jobs, jobs_on
from aggregator.web.load_chart import LoadSeries, load_chart
from aggregator.web.markup import path, text
from aggregator.web.past_readings import SHARED_PAST
from aggregator.web.what_if import MOST_CIRCUITS, MOST_WATTS, cap_form, what_if, what_if_link
from api.bill import MonthBill
from api.power import CircuitHistoryReply, CircuitsReply, CircuitState
from power.plan.plan import Suppose
from power.report.energy import JOULES_PER_KWH
from power.report.energy_ledger import Day
from power.report.measured import measured
from present.circuit.rows import limit_marks
from present.fleet.bill_headline import DayEnergy
from telemetry.errors import ConfigError


async def circuits(request: web.Request) -> PageContent:
    """Return the page of all circuits."""
    asked, view = query(request, "q", "page"), request.app[VIEW]
    page = whole_number(asked, "page", 1, 100_000)
    found = shown_to(request, CircuitsReply(at=view.wall(), circuits=await circuits_now(view)))
    power = shown_to(request, power_reply(view))
    status, wanted = status_of(view.alerts()), asked.get("q", "")
    parts = parts_of(view, "web")
    body = await asyncio.to_thread(circuits_body, found.circuits, status, power, wanted, parts, page)
    return PageContent("Circuits", body, live=True)


async def circuit(request: web.Request) -> PageContent:
    """Return the page of a circuit; `from` and `to` choose the time of its chart, `lose` asks what its loss
    would do."""
    asked, view = query(request, "from", "to", "lose", "cap", "what-if"), request.app[VIEW]
    name = request.match_info["circuit"]
    reply = shown_to(request, await circuit_reply(view, name))
    chart = await _chart(request, reply.circuit, asked)
    way = path("circuits", name, lose="1", **{"from": asked.get("from")})
    losses = f'<p><a href="{way}#losses">What would its loss do?</a></p>'
    if "lose" in asked:
        losses = await _losses(view, name)
    fed = [row.id for row in reply.supplies]
    caps = await _caps(view, name, fed, asked)
    jobs = circuit_jobs(view, fed, private=request[CALLER].sees_private)
    status = status_of(view.alerts())
    around = await circuits_now(view, beside(view.electrical.site.layout, name))
    shown = shown_to(request, CircuitsReply(at=view.wall(), circuits=around)).circuits
    chain = await chain_part(view, shown, status, around=name)
    return PageContent(
        name,
        circuit_body(reply, status.get(name, 0), chart, losses, jobs, chain, caps),
        live=not asked.keys() & {"lose", "to", "cap", "what-if"},
    )


async def circuit_with_facts(request: web.Request, name: str) -> CircuitState | None:
    """Return a circuit as it is now, with its facts in words; None for one that is not configured any more."""
    try:
        return shown_to(request, await circuit_reply(request.app[VIEW], name)).circuit
    except RequestError:
        return None


async def _chart(request: web.Request, circuit: CircuitState, asked: dict[str, str]) -> str:
    view, rated = request.app[VIEW], circuit.rated_amps
    start, end = chart_span(asked, view.wall())
    word = "watts" if rated is None else "sustained_ratio"
    history = circuit_history(view.electrical.snapshot_log, circuit.id, word, start, end)
    found: CircuitHistoryReply = await request.app[SHARED_PAST].read(
        ("circuit", circuit.id, word, start, end), lambda: asyncio.to_thread(history)
    )
    scale = rated or 1.0
    values, highs = ([None if one is None else one * scale for one in column] for column in (found.values, found.high))
    series = LoadSeries(
        found.at, values, highs, "W" if rated is None else "A", round(max(found.step, SAVE_SECONDS) * 1e9)
    )
    drawn = load_chart(
        series,
        start,
        end,
        limit_marks(circuit),
        "load of the highest pole, means of ten seconds" if rated else "load",
        empty=True,
    )
    return time_tabs(("circuits", circuit.id), "load", asked, start, end) + drawn


async def _caps(view: AggregatorView, name: str, nodes: Sequence[str], asked: Mapping[str, str]) -> str:
    """Return what a cap of every GPU would do, or the link that asks for it."""
    cap = whole_number(asked, "cap", 1, MOST_WATTS) if "cap" in asked else None
    layout = view.electrical.site.layout
    small = layout is not None and len(layout.circuits) <= MOST_CIRCUITS
    if not (small or asked.keys() & {"cap", "what-if"}):
        return what_if_link(name)
    return await what_if(view, name, nodes, cap) + cap_form(name, cap)


async def _losses(view: AggregatorView, name: str) -> str:
    try:
        plan = await asyncio.to_thread(
            live_plan(view.electrical, view.fleet, Suppose(lose=(name,)), view.pipeline.engine.rules)
        )
    except ConfigError as error:
        return f"<p>{text(error)}</p>"
    return losses_body(name, plan, await circuits_now(view))


async def energy(request: web.Request) -> PageContent:
    """Return the page of energy and cost."""
    name, view = query(request, "month").get("month"), request.app[VIEW]
    bill = await bill_reply(view.electrical, name, view.wall())
    months = await asyncio.to_thread(view.electrical.months.files.names)
    names = sorted({*months, bill.month})
    ledger, place = view.electrical.energy.ledger.days, view.electrical.site.config.site
    date, _ = local(view.wall(), view.electrical.site.zone)
    today = measured(ledger[date], place) if date in ledger and not bill.finished else None
    days = day_bars(_days(ledger, bill, date), monthrange(*map(int, bill.month.split("-")))[1])
    users = await _users(request, bill.month)
    body = energy_body(bill, names, today, days, users)
    return PageContent(f"Energy and cost, {bill.month}", body)


def _days(ledger: Mapping[str, Day], bill: MonthBill, today: str) -> list[DayEnergy | None]:
    """Return the energy of each day of a month up to today; None where nothing is known of one."""
    year, month = map(int, bill.month.split("-"))
    found: list[DayEnergy | None] = []
    for number in range(1, monthrange(year, month)[1] + 1):
        name = f"{bill.month}-{number:02d}"
        if name > today:
            break
        its = ledger.get(name)
        if its is None or its.seconds <= 0:
            found.append(None)
        else:
            kwh = its.joules / JOULES_PER_KWH
            found.append(DayEnergy(kwh, kwh * its.unknown_seconds / its.seconds))
    return found


async def _users(request: web.Request, month: str) -> str:
    """Return who used the GPUs of a month; nothing where no node says who holds them."""
    view = request.app[VIEW]
    if not jobs_on(view.jobs):
        return ""
    if not request[CALLER].sees_private:
        return WITHHELD
    try:
        return users_table(await use_reply(view, {"month": month}))
    except RequestError as error:
        return f"<p>{text(printable(error.fault).what)}</p>"
