"""Pages of jobs: those that had GPUs in a time, and one with all about it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence

import numpy as np
from aiohttp import web

from aggregator.http.auth import CALLER
from aggregator.http.errors import RequestError
from aggregator.http.history import MOST_EVENTS, StoredPast, events_of, stored_past
from aggregator.http.jobs import FILTERS, MOST, RUN, USUAL_FROM, job_reply, jobs_reply
from aggregator.http.parameters import between, one_of, query, whole_number
from aggregator.http.reply import STORE_SECONDS, VIEW
from aggregator.jobs.faults import AFTER_SECONDS
from aggregator.view import AggregatorView, parts_of
from aggregator.web.alert_list import incidents_body
from aggregator.web.chart_time import chart_now
from aggregator.web.content import PageContent, shown_to
from aggregator.web.gpu_holders import power_now
from aggregator.web.job_list import COLUMNS, NEWEST, jobs_body
from aggregator.web.job_page import GpuName, JobParts, faults_body, job_body
from aggregator.web.load_chart import NOTHING_STORED, load_chart
from aggregator.web.markup import link, path, text
from aggregator.web.past_readings import SHARED_PAST, power_and_use
from aggregator.web.use_strip import use_strip
from api.alerts import Incident, Severity
from api.jobs import AllocationRow, JobReply, JobRow
from present.device.figures import USE, slowed
from present.device.gpu import CLOCK_LIMITS, gpu_name
from present.device.reading import plain
from present.fleet.job_headline import JobGpu, job_headline
from telemetry.devices import Event
from telemetry.fleet import Fleet
from telemetry.text import rfc3339

MOST_CHARTED = 32
"""GPUs of a job whose past is drawn: each costs two questions to the store."""
MOST_ASKED = 8
"""Nodes of a job that are asked for events one by one; of more, the whole cluster is."""
MOST_SHOWN = 200
"""Events that are listed."""
MOST_INCIDENTS = 1000
_LEAST_NS = 60 * 10**9
"""Length of the charts of a job that has just begun."""


async def jobs(request: web.Request) -> PageContent:
    """Return the page of the jobs that had GPUs in a time, the newest first or by the column `sort`."""
    asked = query(request, *FILTERS, "sort", "page")
    one_of(asked, "sort", (NEWEST, *COLUMNS))
    page = whole_number(asked, "page", 1, 100_000)
    reply = shown_to(request, await jobs_reply(request, asked, MOST))
    private = request[CALLER].sees_private
    parts = parts_of(request.app[VIEW], "web")
    body = await asyncio.to_thread(jobs_body, reply, asked, page, private=private, parts=parts)
    return PageContent("Jobs", body, live="to" not in asked)


async def job(request: web.Request) -> PageContent:
    """Return the page of a job: its newest run, or that of `restart`; `from` and `to` choose the time of its
    charts, its whole run if absent."""
    if not request[CALLER].sees_private:
        raise RequestError(401, "job", "it is shown to callers with a token", "Sign in.")
    asked, view = query(request, *RUN, "from", "to"), request.app[VIEW]
    reply = await job_reply(request, asked)
    row = reply.job
    held = {each.gpu for each in reply.allocations if each.end is None}
    names = _names(view.fleet, {each.gpu for each in reply.allocations})

    def name(uuid: str) -> str:
        return names.get(uuid) or f"<code>{text(uuid)}</code>"

    gpus = _held_now(view.fleet, view.now(), held)
    charts, strips = await _past(request, reply, asked)
    parts = JobParts(charts, await _faults(view, reply, name), strips, _wrong(reply, gpus))
    title = job_headline(reply, list(gpus.values()))
    body = job_body(reply, title, parts, name, power_now(view.fleet, view.now(), held))
    live = row.end is None and "to" not in asked
    return PageContent(f"Job {row.id} {row.job_name}".rstrip(), body, live=live)


def _names(fleet: Fleet, gpus: set[str]) -> Mapping[str, str]:
    """Return links to the pages of those GPUs that the fleet still has."""
    found = {}
    for uuid in gpus & fleet.by_uuid.keys():
        entry = fleet.gpus[fleet.by_uuid[uuid]]
        if entry is not None:
            found[uuid] = link(gpu_name("", entry[1].index), "gpus", uuid)
    return found


def _held_now(fleet: Fleet, now: float, gpus: set[str]) -> Mapping[str, JobGpu]:
    """Return those of some GPUs that the fleet has, with their use and what slows them now, by UUID. A job may hold all
    of a fleet: its columns are read at once."""
    entries = {uuid: fleet.gpus[fleet.by_uuid[uuid]] for uuid in sorted(gpus & fleet.by_uuid.keys())}
    known = {uuid: entry for uuid, entry in entries.items() if entry is not None}
    rows = [fleet.by_uuid[uuid] for uuid in known]
    names = (USE, *CLOCK_LIMITS)
    values = np.stack([fleet.column(name, now)[rows] for name in names], axis=1)
    return {
        uuid: JobGpu(node, gpu.index, {name: one for name, one in zip(names, each, strict=True) if not math.isnan(one)})
        for (uuid, (node, gpu)), each in zip(known.items(), values.tolist(), strict=True)
    }


def _wrong(reply: JobReply, gpus: Mapping[str, JobGpu]) -> Mapping[str, tuple[str, str]]:
    """Return what is wrong with the GPUs that a job holds: the worst alert of each, else why it is slowed down."""
    found = {uuid: ("ticket", words) for uuid, one in gpus.items() if (words := slowed(one.readings.get))}
    for alert in reversed(reply.alerts):  # the worst last
        if alert.gpu and alert.severity is not Severity.INFO:
            found[alert.gpu] = alert.severity.value, plain(alert.rule)
    return found


async def _past(request: web.Request, reply: JobReply, asked: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
    """Return the charts of a job's power and use, from its begin to its end or as `from` and `to` say; and the use of
    each GPU as a strip."""
    view, row, held = request.app[VIEW], reply.job, _spans(reply.allocations, reply.at)
    if len(held) > MOST_CHARTED:
        words = (
            f"<p>Its {len(held):,} GPUs are too many to draw: the pages of its nodes have charts, of "
            f"up to {MOST_CHARTED} GPUs this one has.</p>"
        )
        return words, {}
    now = chart_now(reply.at)
    end = max(now if row.end is None else row.end, row.begin + _LEAST_NS)
    start, end = between(
        asked.get("from", rfc3339(row.begin)), asked.get("to", rfc3339(end)), max(now, end), USUAL_FROM
    )
    key = ("job", row.scheduler, row.cluster, row.id, str(row.restart), start, end)
    past = await request.app[SHARED_PAST].read(key, lambda: power_and_use(stored_past(view), held, start, end))
    run = {name: asked.get(name) for name in RUN}
    whole = ' aria-current="page"' if not asked.keys() & {"from", "to"} else ""
    tabs = (
        f'<nav aria-label="Time of the charts"><ul class="tabs"><li><a href="{path("jobs", row.id, **run)}#past"{whole}>'
        "its whole run</a></li></ul></nav>"
    )
    charts = load_chart(past.power, start, end, (), "power of its GPUs", caption="") + load_chart(
        past.use, start, end, (), "use of its GPUs", caption=""
    )
    strips = {
        uuid: use_strip(past.use_of[uuid], spans, start, end) for uuid, spans in held.items() if uuid in past.use_of
    }
    return tabs + (f'<div class="multiples">{charts}</div>' if charts else NOTHING_STORED), strips


def _spans(allocations: Sequence[AllocationRow], now: int) -> Mapping[str, Sequence[tuple[int, int]]]:
    """Return when a job held each GPU."""
    found: dict[str, list[tuple[int, int]]] = {}
    for one in allocations:
        found.setdefault(one.gpu, []).append((one.begin, now if one.end is None else one.end))
    return found


async def _faults(view: AggregatorView, reply: JobReply, name: GpuName) -> str:
    row = reply.job
    end = reply.at if row.end is None else row.end + round(AFTER_SECONDS * 1e9)
    async with asyncio.timeout(STORE_SECONDS):
        events = await _events(stored_past(view), reply.allocations, row, end)
        ever = await view.delivery.history(row.begin, MOST_INCIDENTS)
    gpus = {each.gpu for each in reply.allocations}
    incidents = [one for one in ever if one.began < end and _concerns(one, row, gpus)]
    shown = incidents_body(incidents, reply.at, past=False) if incidents else ""
    return faults_body(row.summary, events, name, shown)


COLLECTORS_OWN = frozenset({
    "collector_started", "collector_stopped", "ticks_skipped", "ring_down", "ring_up", "name_in_use",
    "command_refused", "task_failed", "task_works", "recovery",
})  # fmt: skip
"""Kinds of events of a node that are no fault of what a job runs on."""


async def _events(stored: StoredPast, allocations: Sequence[AllocationRow], row: JobRow, end: int) -> list[Event]:
    """Return the events of a job's GPUs while it ran, and those of its nodes as a whole, but for what their
    collectors say of themselves."""
    wanted = row.nodes if len(row.nodes) <= MOST_ASKED else [None]
    nodes, gpus = set(row.nodes), {each.gpu for each in allocations}
    found = [
        one.event
        for node in wanted
        for one in await events_of(stored, row.begin, end, node, None, MOST_EVENTS)
        if one.event.node in nodes
        and (one.event.gpu in gpus or (one.event.gpu is None and one.event.kind not in COLLECTORS_OWN))
    ]
    return sorted(found, key=lambda one: one.at)[-MOST_SHOWN:]


def _concerns(incident: Incident, row: JobRow, gpus: set[str]) -> bool:
    """Return whether an incident is of a job's GPUs, or names the job."""
    return any(alert.gpu in gpus or row.id in alert.labels.get("job", "").split(",") for alert in incident.alerts)
