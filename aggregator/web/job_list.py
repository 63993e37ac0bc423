"""The table of jobs: the newest first, or by a column; filter, sorting and page are in the URL."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from aggregator.jobs.stored import key_of
from aggregator.web.bars import part_bar
from aggregator.web.headline_part import figure_tile, headline_part, tiles
from aggregator.web.job_words import job_link, known, lacking, lasted, nodes_text, phase_badge
from aggregator.web.markup import WIDE, clock_time, fact, keyed_row, page_links, path, text, toned
from api.jobs import JobPhase, JobRow, JobsReply
from present.fleet.job_headline import jobs_figures, jobs_headline
from present.job import cost_row, energy_row, use_row
from telemetry.runtime.isolation import Parts, each
from telemetry.text import ABSENT, counted

ROWS = 200
"""Rows of a page."""
NEWEST = "since"
FROM = {"": "a day", "-1h": "an hour", "-7d": "7 days", "-30d": "30 days"}
"""Beginnings of the time that the filter offers; empty is the usual one."""
_TEXTS = ("job", "user", "account", "node")
"""Fields of the filter that are typed."""
_URGENCY = {JobPhase.SILENT: 0, JobPhase.LOST: 1, JobPhase.RUNNING: 2, JobPhase.ENDED: 3}


@dataclass(frozen=True, slots=True)
class JobLine:
    """A row of the table."""

    job: JobRow

    @property
    def use(self) -> float | None:
        """Mean use; None is not known."""
        return None if self.job.summary is None else self.job.summary.utilization_ratio

    @property
    def joules(self) -> float:
        """Energy; minus infinity is not known."""
        found = None if self.job.summary is None else self.job.summary.energy_joules
        return -math.inf if found is None else found

    @property
    def cost(self) -> float:
        """Cost; minus infinity is not known."""
        found = None if self.job.summary is None else self.job.summary.cost
        return -math.inf if found is None else found


Key = Callable[[JobLine], tuple[object, ...]]
COLUMNS: dict[str, tuple[str, Key]] = {
    "state": ("state", lambda one: (_URGENCY.get(one.job.phase, 0),)),
    "user": ("user", lambda one: (not one.job.user, one.job.user)),
    "account": ("account", lambda one: (not one.job.account, one.job.account)),
    "job": ("job", lambda one: (len(one.job.id), one.job.id)),
    "scheduler": ("scheduler", lambda one: (one.job.scheduler, one.job.cluster)),
    "gpus": ("GPUs", lambda one: (-one.job.gpus,)),
    "nodes": ("nodes", lambda one: (-len(one.job.nodes), one.job.nodes)),
    NEWEST: ("since", lambda one: (-one.job.begin,)),
    "use": ("use", lambda one: (one.use is None, 0.0 if one.use is None else one.use)),
    "energy": ("energy", lambda one: (-one.joules,)),
    "cost": ("cost", lambda one: (-one.cost,)),
    "hints": ("hints", lambda one: (-len(one.job.hints),)),
}
"""Columns by their name in the URL: head, and sort key."""
_ORDER = {NEWEST: "newest first", "use": "least use first", "energy": "most energy first", "cost": "dearest first", "gpus": "most GPUs first"}  # fmt: skip
"""Words for the order by a column whose name alone does not say it."""
_NUMBERS = {"gpus", "energy", "cost"}


def jobs_body(
    reply: JobsReply, asked: Mapping[str, str], page: int, *, private: bool, parts: Parts | None = None
) -> str:
    """Return the page's content. `asked`: valid parameters; `page` counts from 1; `private`: whether the
    caller sees what says something of persons; `parts`: leaves out rows that can't be made."""
    sort = asked.get("sort", NEWEST)
    lines = [JobLine(job) for job in reply.jobs]
    lines.sort(key=lambda one: -one.job.begin)
    lines.sort(key=COLUMNS[sort][1])
    pages = max(1, -(-len(lines) // ROWS))
    page = min(page, pages)
    shown = lines[(page - 1) * ROWS : page * ROWS]
    names = (*_TEXTS, "state", "from", "to")
    keep: dict[str, str | None] = {name: asked.get(name) for name in names}
    keep["sort"] = None if sort == NEWEST else sort
    more = (
        f"<p class=problems>There are more than these {len(lines):,}: choose a shorter time or a filter.</p>"
        if reply.more
        else ""
    )
    again = {job_id for job_id, count in Counter(one.job.id for one in lines).items() if count > 1}
    words = _counted(lines, page, pages)
    table = _table(shown, keep, sort, words, again, reply.at, parts, private=private)
    unread = "".join(
        f"<li>{text(each.name)}: {text(each.state)}{f', {text(each.message)}' if each.message else ''}</li>"
        for each in reply.sources
        if each.state != "reading" or each.message
    )
    more += (f"<ul class=problems>{unread}</ul>" if unread else "") + lacking(reply.missing)
    first = f"{headline_part(jobs_headline(reply))}{tiles(*map(figure_tile, jobs_figures(reply)))}" if lines else ""
    return f"{first}{_filter(asked, keep, private=private)}{more}{table}{page_links('jobs', page, pages, keep)}"


def _filter(asked: Mapping[str, str], keep: Mapping[str, str | None], *, private: bool) -> str:
    fields = "".join(
        f'<label>{name} <input name="{name}" value="{text(asked.get(name, ""))}"></label> '
        for name in _TEXTS
        if private or name in {"job", "node"}
    )
    states = _choices({"": "all", "running": "running", "ended": "ended"}, asked.get("state", ""))
    since = asked.get("from", "")
    spans = _choices(FROM if since in FROM else {**FROM, since: since}, since)
    hidden = "".join(
        f'<input type="hidden" name="{name}" value="{text(value)}">' for name in ("sort", "to") if (value := keep[name])
    )
    return (
        f'<form class="filter" role="search" aria-label="Filter" method="get">{hidden}{fields}<label>state <select name="state">{states}</select>'
        f'</label> <label>in the last <select name="from">{spans}</select></label> <button>Filter</button> '
        f'<a href="{path("jobs")}">all</a></form>'
    )


def _choices(words: Mapping[str, str], chosen: str) -> str:
    return "".join(
        f'<option value="{text(value)}"{" selected" if value == chosen else ""}>{text(shown)}</option>'
        for value, shown in words.items()
    )


def _counted(lines: Sequence[JobLine], page: int, pages: int) -> str:
    phases = Counter(one.job.phase for one in lines)
    parts = [f"{count:,} {phase}" for phase, count in phases.items()]
    words = f"{counted(len(lines), 'job')}: {', '.join(parts)}"
    return words if pages == 1 else f"{words}, page {page} of {pages}"


def _table(
    lines: Sequence[JobLine],
    keep: Mapping[str, str | None],
    sort: str,
    caption: str,
    again: set[str],
    at: int,
    parts: Parts | None,
    *,
    private: bool,
) -> str:
    if not lines:
        return "<p>No job that was asked for had a GPU in that time.</p>"
    heads = "".join(_head(name, words, keep, sort) for name, (words, _) in COLUMNS.items())

    def row(place: int) -> str:
        one = lines[place]
        return _row(one, at, run=one.job.id in again, private=private)

    names = [f"{one.job.scheduler} {one.job.id}" for one in lines]
    rows = "".join(each(parts, "job", names, row))
    return (
        f'{WIDE}<table class="jobs"><caption data-k="caption">{text(caption)}, {_ORDER.get(sort) or f"by {COLUMNS[sort][0]}"}</caption>'
        f'<thead><tr>{heads}</tr></thead><tbody data-k="rows">{rows}</tbody></table></div>'
        f"<p class=dim>~ partial: read for less than 90% of the job's GPU time. Energy is that at its GPUs; "
        f"energy and cost are provisional while it runs</p>"
    )


def _head(name: str, words: str, keep: Mapping[str, str | None], sort: str) -> str:
    right = " class=num" if name in _NUMBERS else ""
    order = ' aria-sort="other"' if name == sort else ""
    way = path("jobs", **{**keep, "sort": None if name == NEWEST else name})
    return f'<th scope="col"{right}{order}><a href="{way}">{text(words)}</a></th>'


def _row(one: JobLine, at: int, *, run: bool, private: bool) -> str:
    job = one.job
    name = f" {text(job.job_name)}" if job.job_name else ""
    restart = f" <span class=dim>run {job.restart + 1}</span>" if job.restart else ""
    cluster = f' <span class="dim">{text(job.cluster)}</span>' if job.cluster else ""
    shown = job_link(job.id, key_of(job), run=run) if private else text(job.id)
    summary, use, cost = job.summary, use_row(job.summary), cost_row(job.summary)
    cells = {
        "state": phase_badge(job),
        "user": _person("user", job.user, private=private),
        "account": _person("account", job.account, private=private),
        "job": f"{shown}{name}{restart}",
        "scheduler": f"{text(job.scheduler)}{cluster}",
        "gpus": f"{job.gpus:,}",
        "nodes": nodes_text(job.nodes),
        NEWEST: f"{clock_time(job.begin, at)} <span class=dim>{'for' if job.end is None else 'ran'} {lasted(job, at)}</span>",
        "use": f'<div class="barred"><span>{toned(text(use.value), use.tone)}</span>{part_bar(one.use)}</div>',
        "energy": fact(energy_row("energy", *((None, None) if summary is None else (summary.energy_joules, summary.energy_coverage)))),
        "cost": toned(text(cost.value), cost.tone),
        "hints": "<br>".join(map(text, one.job.hints)) or ABSENT,
    }  # fmt: skip
    made = "".join(f"<td{' class=num' if column in _NUMBERS else ''}>{cell}</td>" for column, cell in cells.items())
    return keyed_row(made)


def _person(name: str, word: str, *, private: bool) -> str:
    """Return a user or an account with a link to its jobs."""
    if not private or not word:
        return known(word, private=private)
    return f'<a href="{path("jobs", **{name: word})}">{text(word)}</a>'
