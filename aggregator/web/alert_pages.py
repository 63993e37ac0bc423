"""Pages of alerts: incidents open and past, single alerts, silences, and an incident."""

from __future__ import annotations

import asyncio

from aiohttp import web

from aggregator.alerting.delivery_view import DeliveryView
from aggregator.http.alerts import MOST, USUAL, check_choices, fits, row_of, timeline_reply
from aggregator.http.errors import RequestError, unknown
from aggregator.http.jobs import JobFinder, job_key
from aggregator.http.parameters import query
from aggregator.http.reply import STORE_SECONDS, VIEW
from aggregator.web.alert_list import VIEWS, alert_rows_body, alerts_page, incidents_body, silences_body
from aggregator.web.content import PageContent, shown_to
from aggregator.web.electrical_pages import circuit_with_facts
from aggregator.web.incident_page import incident_body, jobs_named
from aggregator.web.job_words import job_link
from api.alerts import AlertsReply, AlertState, Incident, IncidentReply, IncidentsReply, SilencesReply, Subject
from api.evidence import EvidenceReply
from api.power import CircuitState
from telemetry.errors import IncidentError

MOST_JOBS = 32
"""Jobs of an incident that have links: each is a question to the store."""
PAST_NS = 30 * 86_400 * 10**9


async def alerts(request: web.Request) -> PageContent:
    """Return the page of alerts."""
    asked, view = query(request, "view", "severity", "node", "rule"), request.app[VIEW]
    check_choices(asked)
    which, now = asked.get("view", "open"), view.wall()
    if which not in VIEWS:
        raise unknown("view", which, VIEWS, status=400)
    manager = view.pipeline.manager
    wanted = {name: value for name, value in asked.items() if name != "view"}
    counts = {
        "open": len(list(manager.incidents())),
        "alerts": sum(one.state is AlertState.FIRING for one in view.alerts()),
        "silences": sum(one.ends > now for one in manager.silences()),
    }
    if which == "silences":
        reply = shown_to(request, SilencesReply(at=now, silences=list(manager.silences())))
        body = silences_body(reply.silences, now)
    elif which == "alerts":
        rows = [
            row_of(manager, one)
            for one in view.alerts()
            if one.state is not AlertState.RESOLVED
            and all(str(getattr(one, name)) == value for name, value in wanted.items())
        ]
        body = alert_rows_body(shown_to(request, AlertsReply(now, rows[:USUAL])).alerts, now)
    else:
        past = which == "past"
        ever = await _past(view.delivery, view.wall()) if past else list(manager.incidents())
        found = view.pipeline.quality.marked([one for one in ever if fits(one, wanted)][:USUAL])
        shown = shown_to(request, IncidentsReply(now, list(found)))
        body = incidents_body(shown.incidents, now, past=past, filtered=bool(wanted))
    return PageContent("Alerts", alerts_page(asked, counts, body), live=which != "past")


async def _past(delivery: DeliveryView, now: int) -> list[Incident]:
    """Return the incidents of the last 30 days, newest first."""
    async with asyncio.timeout(STORE_SECONDS):
        return await delivery.history(now - PAST_NS, MOST)


async def incident(request: web.Request) -> PageContent:
    """Return the page of an incident, open or of the last 30 days, by its key or that of an alert."""
    query(request)
    view, key = request.app[VIEW], request.match_info["key"]
    manager = view.pipeline.manager
    try:
        found = manager.incident(key)
        events = manager.timeline(key)
    except IncidentError as error:
        past = next((one for one in await _past(view.delivery, view.wall()) if one.key == key), None)
        if past is None:
            raise RequestError(404, "incident", str(error).rstrip("."), "Those of 30 days are under Alerts.") from error
        found, events = past, ()
    timeline = await timeline_reply(view.delivery, found, events, view.wall())
    async with asyncio.timeout(STORE_SECONDS):
        open_now = found.ended is None
        evidence = await view.delivery.evidence(found.key, found if open_now else None)
    [found] = view.pipeline.quality.marked([found])
    shown = shown_to(request, IncidentReply(view.wall(), found)).incident
    if evidence is not None:
        evidence = shown_to(request, evidence)
    jobs = await _job_links(view.find_jobs, shown, evidence)
    circuit = await _circuit_of(request, shown) if open_now else None
    body = incident_body(shown, shown_to(request, timeline), evidence, view.wall(), jobs, circuit)
    return PageContent(shown.title or shown.key, body, live=open_now, titled=False)


async def _circuit_of(request: web.Request, incident: Incident) -> CircuitState | None:
    """Return the circuit that an incident is about, as it is now."""
    lead = incident.alerts[0] if incident.alerts else None
    if lead is None or lead.subject is not Subject.CIRCUIT:
        return None
    return await circuit_with_facts(request, lead.name)


async def _job_links(find: JobFinder, incident: Incident, evidence: EvidenceReply | None) -> dict[str, str]:
    """Return links to the pages of the jobs that an incident names, as far as there are any."""
    names = sorted(jobs_named(incident, evidence))[:MOST_JOBS]
    keys = await asyncio.gather(*(job_key(find, name, incident.began) for name in names))
    return {name: job_link(name, key, run=True) for name, key in zip(names, keys, strict=True) if key is not None}
