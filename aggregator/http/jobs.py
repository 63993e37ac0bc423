"""`/api/v1/jobs` and `/api/v1/jobs/<id>`: who had which GPUs, and what they used."""

from __future__ import annotations

import msgspec
from aiohttp import web

from aggregator.http.errors import bad, unknown
from aggregator.http.parameters import between, query, whole_number
from aggregator.http.reply import VIEW, send_json
from aggregator.jobs.stored import JobQuery, StoredJob
from aggregator.view import AggregatorView
from api.jobs import JobPhase, JobReply, JobRow, JobsReply
from telemetry.jobs import JobKey

USUAL, MOST = 100, 5000
USUAL_FROM = "-24h"
RUNNING_PHASES = frozenset({JobPhase.RUNNING, JobPhase.SILENT})
STATES = ("running", "ended")


async def jobs(request: web.Request) -> web.Response:
    """Answer with jobs that ran at some time between `from` and `to`."""
    asked = query(request, "job", "user", "account", "node", "state", "from", "to", "limit")
    state = asked.get("state", "")
    if state and state not in STATES:
        raise unknown("state", state, STATES, status=400)
    limit = whole_number(asked, "limit", USUAL, MOST)
    view = request.app[VIEW]
    since, until = between(asked.get("from"), asked.get("to"), view.wall(), USUAL_FROM)
    wanted = JobQuery(
        id=asked.get("job", ""), user=asked.get("user", ""), account=asked.get("account", ""),
        node=asked.get("node", ""), since=since, until=until, limit=MOST + 1,
    )  # fmt: skip
    found = [
        row
        for row in await find_rows(view, wanted)
        if not state or (row.phase in RUNNING_PHASES) is (state == "running")
    ]
    reply = JobsReply(view.wall(), found[:limit], more=len(found) > limit)
    return await send_json(request, reply, values=30 * len(reply.jobs))


async def job(request: web.Request) -> web.Response:
    """Answer with all about one job: its newest run, where it was requeued."""
    asked = query(request, "scheduler", "node", "restart")
    view, name = request.app[VIEW], request.match_info["id"]
    restart = asked.get("restart", "")
    if restart and not restart.isdecimal():
        raise bad("restart", f"{restart!r} is not a number", "Leave it out for the newest run.")
    rows = [
        row
        for row in await find_rows(view, JobQuery(id=name, limit=MOST))
        if asked.get("scheduler", row.scheduler) == row.scheduler
        and (not asked.get("node") or asked["node"] in row.nodes)
        and (not restart or int(restart) == row.restart)
    ]
    if not rows:
        raise unknown("job", name, [key.id for key in view.jobs.ledger.jobs])
    found = await whole_job(view, max(rows, key=lambda row: (row.begin, row.restart)))
    if found is None:
        raise unknown("job", name, ())
    row = msgspec.structs.replace(found.row, summary=found.summary)
    return await send_json(
        request, JobReply(view.wall(), row, sorted(found.record.allocations, key=lambda a: a.begin))
    )


async def find_rows(view: AggregatorView, wanted: JobQuery) -> list[JobRow]:
    """Return jobs in memory and in the store, the newest begin first; memory is newer."""
    live = view.jobs.matching(wanted, view.wall())
    known = {_key(row) for row in live}
    kept = view.jobs.ledger.jobs
    stored = [
        row for row in await view.store.find_jobs(wanted) if _key(row) not in known | kept.keys()
    ]
    return sorted([*live, *stored], key=lambda row: -row.begin)


async def whole_job(view: AggregatorView, row: JobRow) -> StoredJob | None:
    """Return all that is known of a job; memory is newer than the store."""
    key = _key(row)
    if key in view.jobs.ledger.jobs:
        return view.jobs.stored(key, view.wall())
    return next(iter(await view.store.jobs_of([key])), None)


def _key(row: JobRow) -> JobKey:
    return JobKey(row.scheduler, row.cluster, row.id, row.restart)
