"""`/api/v1/jobs`, `/api/v1/jobs/<id>` and `/api/v1/nodes/<node>/jobs`: who had which GPUs, and what they used.

The token of a user gets the jobs of that user alone. A caller from whom persons are hidden can't ask by
job, user or account: whether there is an answer would tell what the answer hides.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import msgspec
from aiohttp import web

from aggregator.access.tokens import AccessScope
from aggregator.http.auth import CALLER, no_token
from aggregator.http.errors import RequestError, bad, unknown
from aggregator.http.operation import Operation, Parameter
from aggregator.http.parameters import NODE, OF_NODE, TO, WHEN, between, query, whole_number
from aggregator.http.present_jobs import PresentJobs
from aggregator.http.reply import VIEW, send_json
from aggregator.jobs.scheduled import Word, wait_words, waiting
from aggregator.jobs.stored import FoundJobs, JobQuery, key_of
from aggregator.view import parts_of
from api.jobs import JobReply, JobsReply, NodeJobsReply
from telemetry.notations.batch import without_server
from telemetry.wire.jobs import JobKey

USUAL, MOST = 100, 5000
USUAL_FROM = "-24h"
STATES = ("running", "ended")
FILTERS = ("job", "user", "account", "node", "state", "from", "to")
"""Parameters that choose jobs."""
_PERSONAL = ("job", "user", "account")
"""Parameters that ask about somebody."""
RUN = ("scheduler", "node", "restart")
"""Parameters that choose among jobs of one id."""

JobFinder = Callable[[JobQuery], Awaitable[FoundJobs]]
"""Returns the jobs of memory and store that a query wants."""


async def jobs(request: web.Request) -> web.Response:
    """Answer with jobs that ran at some time between `from` and `to`."""
    asked = query(request, *FILTERS, "limit")
    reply = await jobs_reply(request, asked, whole_number(asked, "limit", USUAL, MOST))
    return await send_json(request, reply, values=30 * len(reply.jobs))


async def job(request: web.Request) -> web.Response:
    """Answer with all about one job: its newest run, where it was requeued."""
    return await send_json(request, await job_reply(request, query(request, *RUN)))


async def node_jobs(request: web.Request) -> web.Response:
    """Answer with who uses the GPUs of a node, as its collector said last."""
    query(request)
    view, name = request.app[VIEW], request.match_info["node"]
    _check_personal(request)
    home = view.fleet.nodes.get(name)
    if home is None:
        raise unknown("node", name, view.fleet.nodes)
    inventory = home.inventory
    reply = NodeJobsReply(
        at=view.wall(),
        driver_state=inventory.driver_state,
        driver_message=inventory.driver_message,
        gpus=list(inventory.gpus),
        found=view.jobs.lists.get(name),
    )
    return await send_json(request, reply)


async def jobs_reply(request: web.Request, asked: Mapping[str, str], limit: int) -> JobsReply:
    """Return jobs that ran at some time between `from` and `to`, the newest begin first. `asked`: parameters
    of `FILTERS`. Raises a 400 for a value that can't be, a 401 for names of persons without a token, and
    a 403 for a user who asks about another."""
    view, own, state = request.app[VIEW], _own_user(request, asked), asked.get("state", "")
    if state and state not in STATES:
        raise unknown("state", state, STATES, status=400)
    if any(asked.get(name) for name in _PERSONAL):
        _check_personal(request)
    since, until = between(asked.get("from"), asked.get("to"), view.wall(), USUAL_FROM)
    wanted = JobQuery(
        id=without_server(asked.get("job", "")),
        user=own or asked.get("user", ""),
        account=asked.get("account", ""),
        node=asked.get("node", ""),
        since=since,
        until=until,
        limit=MOST + 1,
        running=state == "running" if state else None,
    )
    found, missing = await view.find_jobs(wanted)
    present, listed = PresentJobs(view, own), found[:limit]
    names = [f"{row.scheduler} {row.id}" for row in listed]
    shown = parts_of(view, "list").each("job", names, lambda place: present.row(listed[place]))
    sources = [] if own else view.jobs.sources()  # their words may name jobs of others
    return JobsReply(view.wall(), shown, len(found) > limit, own, sources, list(missing))


async def job_reply(request: web.Request, asked: Mapping[str, str]) -> JobReply:
    """Return all about the job of a path, its newest run. `asked`: parameters of `RUN`. Raises a 401
    without a token where persons are hidden, and a 404."""
    view, name, own = request.app[VIEW], request.match_info["id"], _own_user(request, asked)
    _check_personal(request)
    restart = asked.get("restart", "")
    if restart and not restart.isdecimal():
        raise bad("restart", f"{restart!r} is not a number", "Leave it out for the newest run.")
    rows = [
        row
        for row in (await view.find_jobs(JobQuery(id=without_server(name), user=own, limit=MOST))).rows
        if asked.get("scheduler", row.scheduler) == row.scheduler
        and (not asked.get("node") or asked["node"] in row.nodes)
        and (not restart or int(restart) == row.restart)
    ]
    if not rows:
        raise _waiting(view.jobs.word, name, own) or unknown("job", name, list(view.jobs.ids(own)))
    key = key_of(max(rows, key=lambda row: (row.begin, row.restart)))
    whole = await view.whole_jobs([key])
    found = whole.jobs.get(key)
    if found is None or own not in {"", found.row.user}:
        raise unknown("job", name, ())
    present = PresentJobs(view, own)
    return JobReply(
        view.wall(),
        present.row(msgspec.structs.replace(found.row, summary=found.summary)),
        sorted(found.record.allocations, key=lambda a: a.begin),
        present.processes(key),
        present.alerts(key),
        present.indices(found.record.allocations),
        list(whole.missing),
    )


def _waiting(word: Word | None, name: str, own: str) -> RequestError | None:
    """Return a 404 that says why a job has not begun, to who may see it; None where the scheduler lists no such job."""
    job = waiting(word, without_server(name))
    if job is None or own not in {"", job.user}:
        return None
    return RequestError(404, "job", f"{name!r} {wait_words(job)}", "It has no GPU yet.")


async def job_key(find: JobFinder, name: str, at: int) -> JobKey | None:
    """Return the job of an id that ran at a time, ns since 1970, else the newest; None where none is known."""
    rows = (await find(JobQuery(id=without_server(name), limit=MOST))).rows
    then = [row for row in rows if row.begin <= at <= (row.end or at)]
    return next((key_of(row) for row in then or rows), None)


def _own_user(request: web.Request, asked: Mapping[str, str]) -> str:
    """Return the user whose jobs are all that the caller sees; empty for one who sees all. Raises a 403
    where he asks for another's."""
    caller = request[CALLER]
    user = asked.get("user", "")
    if caller.own and user not in {"", caller.own}:
        raise RequestError(
            403,
            "user",
            f"the token {caller.name!r} sees the jobs of the user {caller.own!r} alone",
            "Leave `user` out.",
        )
    return caller.own


def _check_personal(request: web.Request) -> None:
    """Raise a 401 for a caller from whom persons are hidden."""
    if not request[CALLER].sees_private:
        raise no_token(AccessScope.READ)


OPERATIONS = (
    Operation(
        "/api/v1/jobs",
        jobs,
        "jobs",
        "Jobs that had GPUs between `from` and `to`, with their use and energy, the newest begin first.",
        JobsReply,
        (
            Parameter("job", "Only the job of this id.", "4711"),
            Parameter("user", "Only those of this user; refused without a token (401).", "ada"),
            Parameter("account", "Only those of this account; likewise.", "physics"),
            OF_NODE,
            Parameter("state", "Only those that run, or that ended.", "running", STATES),
            Parameter("from", f"Start of the time; a day ago if absent. {WHEN}", "-1h"),
            TO,
            Parameter("limit", f"Highest number of them, 1 to {MOST}; {USUAL} if absent.", "100"),
        ),
        scope=AccessScope.READ,
        own=True,
    ),
    Operation(
        "/api/v1/jobs/{id}",
        job,
        "job",
        "A job: its facts, its allocations, and what it used of each GPU. The newest run, if it was requeued.",
        JobReply,
        (
            Parameter("id", "Id of the job; '/' is written as %2F.", "4711", required=True, place="path"),
            Parameter("scheduler", "Scheduler, where several have a job of this id.", "slurm"),
            Parameter("node", "One of its nodes: a user, a unit or a container is a job of each node.", "dgx01"),
            Parameter("restart", "Number of the run; the newest if absent.", "0"),
        ),
        (404,),
        scope=AccessScope.READ,
        own=True,
    ),
    Operation(
        "/api/v1/nodes/{node}/jobs",
        node_jobs,
        "nodeJobs",
        "Who uses the GPUs of a node: its jobs, allocations and processes, as its collector said last.",
        NodeJobsReply,
        (NODE,),
        (401, 404),
        scope=AccessScope.READ,
    ),
)
