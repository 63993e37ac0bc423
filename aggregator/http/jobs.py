"""`/api/v1/jobs` and `/api/v1/jobs/<id>`: who had which GPUs, and what they used."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from aiohttp import web

from aggregator.http.auth import CALLER
from aggregator.http.errors import RequestError, bad, unknown
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
FILTERS = ("job", "user", "account", "node", "state", "from", "to")
"""Parameters that choose jobs."""
PERSONS = ("user", "account")
"""Parameters that name persons."""
RUN = ("scheduler", "node", "restart")
"""Parameters that choose among jobs of one id."""


async def jobs(request: web.Request) -> web.Response:
    """Answer with jobs that ran at some time between `from` and `to`."""
    asked = query(request, *FILTERS, "limit")
    reply = await jobs_reply(request, asked, whole_number(asked, "limit", USUAL, MOST))
    return await send_json(request, reply, values=30 * len(reply.jobs))


async def job(request: web.Request) -> web.Response:
    """Answer with all about one job: its newest run, where it was requeued."""
    return await send_json(request, await job_reply(request, query(request, *RUN)))


async def jobs_reply(request: web.Request, asked: Mapping[str, str], limit: int) -> JobsReply:
    """Return jobs that ran at some time between `from` and `to`, the newest begin first. `asked`: parameters
    of `FILTERS`. Raises a 400 for a value that can't be, a 401 for names of persons without a token."""
    _check_persons(request, asked)
    view, state = request.app[VIEW], asked.get("state", "")
    if state and state not in STATES:
        raise unknown("state", state, STATES, status=400)
    since, until = between(asked.get("from"), asked.get("to"), view.wall(), USUAL_FROM)
    wanted = JobQuery(
        id=asked.get("job", ""), user=asked.get("user", ""), account=asked.get("account", ""),
        node=asked.get("node", ""), since=since, until=until, limit=MOST + 1,
    )  # fmt: skip
    found = [
        row
        for row in await _rows(view, wanted)
        if not state or (row.phase in RUNNING_PHASES) is (state == "running")
    ]
    return JobsReply(view.wall(), found[:limit], more=len(found) > limit)


def _check_persons(request: web.Request, asked: Mapping[str, str]) -> None:
    """Raise a 401 for a question about a person from a caller to whom persons are not shown: the jobs that
    it found would tell whose they are."""
    named = next((name for name in PERSONS if name in asked), None)
    if named is not None and not request[CALLER].sees_private:
        raise RequestError(
            401, named, "jobs are not searched by it without a token",
            "Send a token with the scope read, or leave it out.",
        )  # fmt: skip


async def job_reply(request: web.Request, asked: Mapping[str, str]) -> JobReply:
    """Return all about the job of a path, its newest run. `asked`: parameters of `RUN`. Raises a 404."""
    view, name = request.app[VIEW], request.match_info["id"]
    restart = asked.get("restart", "")
    if restart and not restart.isdecimal():
        raise bad("restart", f"{restart!r} is not a number", "Leave it out for the newest run.")
    rows = [
        row
        for row in await _rows(view, JobQuery(id=name, limit=MOST))
        if asked.get("scheduler", row.scheduler) == row.scheduler
        and (not asked.get("node") or asked["node"] in row.nodes)
        and (not restart or int(restart) == row.restart)
    ]
    if not rows:
        raise unknown("job", name, [key.id for key in view.jobs.ledger.jobs])
    found = await _whole(view, max(rows, key=lambda row: (row.begin, row.restart)))
    if found is None:
        raise unknown("job", name, ())
    row = msgspec.structs.replace(found.row, summary=found.summary)
    return JobReply(view.wall(), row, sorted(found.record.allocations, key=lambda a: a.begin))


async def job_key(view: AggregatorView, name: str, at: int) -> JobKey | None:
    """Return the job of an id that ran at a time, ns since 1970, else the newest; None where none is known."""
    rows = await _rows(view, JobQuery(id=name, limit=MOST))
    then = [row for row in rows if row.begin <= at <= (row.end or at)]
    return next((_key(row) for row in then or rows), None)


async def _rows(view: AggregatorView, wanted: JobQuery) -> list[JobRow]:
    """Return jobs in memory and in the store, the newest begin first; memory is newer."""
    live = view.jobs.matching(wanted, view.wall())
    known = {_key(row) for row in live}
    kept = view.jobs.ledger.jobs
    stored = [
        row for row in await view.store.find_jobs(wanted) if _key(row) not in known | kept.keys()
    ]
    return sorted([*live, *stored], key=lambda row: -row.begin)


async def _whole(view: AggregatorView, row: JobRow) -> StoredJob | None:
    key = _key(row)
    if key in view.jobs.ledger.jobs:
        return view.jobs.stored(key, view.wall())
    return next(iter(await view.store.jobs_of([key])), None)


def _key(row: JobRow) -> JobKey:
    return JobKey(row.scheduler, row.cluster, row.id, row.restart)
