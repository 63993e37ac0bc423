"""`/api/v1/use`: who used the GPUs in a month."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec
from aiohttp import web

from aggregator.access.tokens import AccessScope
from aggregator.electrical.energy_sampler import zone_text
from aggregator.http.errors import bad, unknown
from aggregator.http.operation import Operation, Parameter
from aggregator.http.parameters import query
from aggregator.http.reply import VIEW, send_json
from aggregator.jobs.months import is_split, month_summary
from aggregator.jobs.stored import JobQuery, StoredJob, key_of
from aggregator.jobs.unheld import row_of
from aggregator.jobs.usage import UnheldUse
from aggregator.jobs.use import JobPart, crosses, held_between, share_of_time, use_rows, with_co2
from aggregator.view import AggregatorView, parts_of
from api.jobs import JobRow
from api.use import BY, UseReply, UseRow
from power.report.months import month_at, month_named
from power.site.config import SiteConfig
from telemetry.errors import ConfigError
from telemetry.fleet import Fleet

MOST_JOBS = 100_000
"""Jobs of a month above which the answer is an error: a sum over a part of them would look whole."""


async def use(request: web.Request) -> web.Response:
    """Answer with the use of a month by user, account or job."""
    reply = await use_reply(request.app[VIEW], query(request, "by", "month"))
    return await send_json(request, reply, values=16 * len(reply.rows))


async def use_reply(view: AggregatorView, asked: Mapping[str, str]) -> UseReply:
    """Return the use of a month; `asked` may have `by` and `month`. Raises a 400 for what is none, and for a month of
    too many jobs."""
    by = asked.get("by", "user")
    if by not in BY:
        raise unknown("by", by, BY, status=400)
    now, site = view.wall(), view.electrical.site
    try:
        month = month_named(asked["month"], site.zone) if "month" in asked else month_at(now / 1e9, site.zone)
    except ConfigError as error:
        raise bad(error.where, error.problem, error.hint) from error
    start, end = month.start * 10**9, month.end * 10**9
    after = month_at(month.end, site.zone).name
    rows, missing = await view.find_jobs(JobQuery(since=start, until=end, limit=MOST_JOBS + 1, sums=True))
    if len(rows) > MOST_JOBS:
        raise bad("month", f"{month.name} has more than {MOST_JOBS} jobs", "Ask /api/v1/jobs for shorter times.")
    over = [key_of(row) for row in rows if crosses(row, start, end, now)]
    whole, free = await view.whole_jobs(over), await view.unheld(month.name)

    def part(place: int) -> JobPart:
        row = rows[place]
        if not crosses(row, start, end, now):
            return JobPart(row, 1.0, split=False)
        return _part(whole.jobs.get(key_of(row)), row, month.name, after, (start, end, now))

    names = [f"{row.scheduler} {row.id}" for row in rows]
    parts = parts_of(view, "use").each("job", names, part)
    currency = next((row.summary.currency for row in rows if row.summary and row.summary.currency), "")
    place = site.config.site
    return UseReply(
        at=now,
        by=by,
        month=month.name,
        timezone=zone_text(site.zone, configured=site.config.site.timezone is not None),
        currency=currency,
        g_per_kwh=place.g_per_kwh,
        rows=[with_co2(row, place) for row in await asyncio.to_thread(use_rows, parts, by, _memory(view.fleet))],
        unheld=_unheld(free.reported, place),
        unreported=_unheld(free.unreported, place),
        missing=sorted({*missing, *whole.missing, *free.missing}),
    )


def _part(found: StoredJob | None, row: JobRow, month: str, after: str, span: tuple[int, int, int]) -> JobPart:
    """Return the part of a job in a month, by its sums at the edges, else by the time that it held GPUs.
    `span`: begin and end of the month, and the present."""
    if found is None:
        return JobPart(row, None, split=True)
    start, end, now = span
    held = held_between(found.record.allocations, start, min(end, now))
    if not sum(held.values()):
        return JobPart(row, 0.0, split=True)
    share = share_of_time(found.record.allocations, start, end, now)
    if is_split(found.accounts):
        summary = month_summary(found.accounts, held, month, after, found.summary.currency)
        return JobPart(msgspec.structs.replace(row, summary=summary), 1.0, split=False, time_share=share)
    return JobPart(row, share, split=True, time_share=share)


def _memory(fleet: Fleet) -> dict[str, int]:
    """Return the bytes of memory of a GPU by node, of nodes whose GPUs have the same."""
    sizes = {name: {gpu.memory_bytes for gpu in node.inventory.gpus} for name, node in fleet.nodes.items()}
    return {name: size for name, its in sizes.items() if len(its) == 1 and (size := next(iter(its)))}


def _unheld(found: UnheldUse | None, place: SiteConfig) -> UseRow | None:
    return None if found is None else with_co2(row_of(found), place)


OPERATIONS = (
    Operation(
        "/api/v1/use",
        use,
        "use",
        "Use of the GPUs in a month of the site's time zone by user, account or job: GPU hours, utilisation, "
        "energy, cost, CO2, and what was asked for against what was used of it. A job over the month's edge is counted on each side of it.",
        UseReply,
        (
            Parameter("by", "What a row is; user if absent.", "user", BY),
            Parameter("month", "A month; the present one if absent.", "2026-10"),
        ),
        scope=AccessScope.READ,
    ),
)
