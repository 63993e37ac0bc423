"""The page of a job: what it did, its GPUs by node, its past, and the faults of its GPUs while it ran."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from aggregator.web.headline_part import figure_tile, headline_part, tiles
from aggregator.web.icons import badge
from aggregator.web.job_words import UNKNOWN, known, lacking, nodes_text, phase_badge, times_text
from aggregator.web.markup import fact, facts, link, moment, path, section, table, text, unseen
from aggregator.web.use_strip import STRIP_LEGEND
from api.jobs import AllocationRow, GpuUse, JobReply, JobRow, JobSummary
from present.device.gpu import event_row
from present.fleet.headline import Headline
from present.fleet.job_headline import job_figures
from present.job import asked_row, energy_row, figure_rows, gpu_use_row, purpose_words, renamed_rows
from present.units import gibibytes, watts
from telemetry.devices import Event
from telemetry.text import counted, duration
from telemetry.wire.jobs import AllocationKind

MOST_GPUS = 1024
"""GPUs, and allocations, that are listed."""
GpuName = Callable[[str], str]
"""Returns the HTML that names a GPU by its UUID."""


class JobParts(NamedTuple):
    """Parts of the page that are made elsewhere, HTML."""

    charts: str
    faults: str
    strips: Mapping[str, str]
    """Use over its run, by UUID of a GPU; nothing of a job of many."""
    wrong: Mapping[str, tuple[str, str]]
    """Urgency of the fault of a GPU now, and its words, by UUID."""


def job_body(
    reply: JobReply, title: Headline, parts: JobParts, name: GpuName, power: Mapping[str, float | None]
) -> str:
    """Return the page's content. `power`: W now by UUID of the GPUs that it holds."""
    job, summary = reply.job, reply.job.summary
    listed = "".join(f"<li>{text(hint)}</li>" for hint in reply.job.hints)
    remarks = f"<ul class=problems>{listed}</ul>" if listed else ""
    left = (
        section("Past", parts.charts, "past")
        + section("Faults while it ran", parts.faults, "faults")
        + section("Allocations", _allocations(reply.allocations, name), "allocations")
    )
    right = (
        section("Remarks", remarks, "remarks")
        + section("What it did", _figures(summary), "figures")
        + section("About it", facts(_facts(job, reply.at)), "about")
    )
    return (
        f'<p class="about">{phase_badge(job)}</p>{lacking(reply.missing)}{headline_part(title)}'
        f"{tiles(*map(figure_tile, job_figures(reply, list(power.values()))))}"
        f"{section('Its GPUs', _gpus(summary, name, reply.indices, power, parts), 'gpus')}"
        f'<div class="stack w14">{left}</div><div class="stack w10">{right}</div>'
    )


def _facts(job: JobRow, at: int) -> Iterator[tuple[str, str]]:
    yield "name", known(job.job_name)
    yield "user", _search("user", job.user)
    yield "account", _search("account", job.account)
    cluster = f" ({text(job.cluster)})" if job.cluster else ""
    yield "scheduler", f"{text(job.scheduler)}{cluster}"
    yield "queue", text(job.queue)
    yield "owner", text(job.owner)
    yield from ((row.label, fact(row)) for row in renamed_rows(job))
    if job.restart:
        runs = f'<a href="{path("jobs", job=job.id, **{"from": "-30d"})}">all its runs</a>'
        yield "run", f"{job.restart + 1}, {runs}"
    asked = asked_row(job, at)
    yield asked.label, fact(asked)
    if job.submitted is not None:
        yield "submitted", moment(job.submitted)
    if job.eligible not in {None, job.submitted}:
        yield "eligible", moment(job.eligible or 0)
    yield "began", moment(job.begin, at)
    yield "ended", "" if job.end is None else moment(job.end, at)
    if (account := job.account_of_run) is not None:
        begin = UNKNOWN if account.begin is None else moment(account.begin)
        end = UNKNOWN if account.end is None else moment(account.end)
        yield "in the accounting", f"{text(account.state)}, from {begin} to {end}"
    yield "GPUs", f"{job.gpus:,}"
    if declares := purpose_words(job.purpose):
        yield "declares", text(declares)
    yield "nodes", nodes_text(job.nodes)


def _search(name: str, word: str) -> str:
    if not word:
        return UNKNOWN
    return f'<a href="{path("jobs", **{name: word, "from": "-30d"})}">{text(word)}</a>'


def _figures(summary: JobSummary | None) -> str:
    if summary is None:
        return "<p>Nothing was measured of it yet.</p>"
    return facts((row.label, fact(row)) for row in figure_rows(summary))


def _gpus(
    summary: JobSummary | None,
    name: GpuName,
    indices: Mapping[str, int],
    power: Mapping[str, float | None],
    parts: JobParts,
) -> str:
    """Return the table of the GPUs, those of which something is wrong first; `indices`: their numbers on their nodes, where they are known."""
    uses = [] if summary is None else list(summary.gpus)
    uses.sort(key=lambda one: (one.node, indices.get(one.gpu, MOST_GPUS), one.gpu))
    uses.sort(key=lambda one: parts.wrong.get(one.gpu, ("well", ""))[0])  # page, ticket, well
    energy_read = None if summary is None else summary.energy_coverage
    shown = uses[:MOST_GPUS]
    rows = [_gpu(one, name, power, energy_read, parts) for one in shown]
    marks = [parts.wrong.get(one.gpu, ("", ""))[0] for one in shown]
    found = table(_caption(len(uses), "GPU"), _HEADS, rows, range(4, 9), "job-gpus", marks)
    return found + STRIP_LEGEND if found and parts.strips else found


_HEADS = (
    "node",
    "GPU",
    "what is wrong",
    "use over its run",
    "held",
    "use",
    "energy",
    "memory, peak",
    "power now",
    unseen("shared"),
)


def _gpu(
    one: GpuUse, name: GpuName, power: Mapping[str, float | None], energy_read: float | None, parts: JobParts
) -> tuple[str, ...]:
    """Return a row. `energy_read`: coverage of the energy of all, which marks each: that of one GPU is not
    kept."""
    now = power.get(one.gpu)
    return (
        link(one.node, "nodes", one.node),
        name(one.gpu),
        badge(*parts.wrong[one.gpu]) if one.gpu in parts.wrong else "",
        parts.strips.get(one.gpu, ""),
        duration(one.held_seconds),
        fact(gpu_use_row(one)),
        fact(energy_row("energy", one.energy_joules, energy_read)),
        UNKNOWN if one.memory_peak_bytes is None else gibibytes(one.memory_peak_bytes),
        ("given back" if one.gpu not in power else UNKNOWN) if now is None else watts(now),
        "shared with others" if one.shared else "",
    )


def _allocations(allocations: Sequence[AllocationRow], name: GpuName) -> str:
    heads = ("node", "GPU", "what", "from", "until", "source")
    rows = [
        (
            link(one.node, "nodes", one.node),
            name(one.gpu) + ("" if one.instance is None else f" instance {one.instance}"),
            _kind(one),
            f"{moment(one.begin)} <span class=dim>{text(one.begin_from)}</span>",
            _end(one),
            known(one.source) + (", its number assumed" if one.assumed else ""),
        )
        for one in allocations[:MOST_GPUS]
    ]
    return table(_caption(len(allocations), "allocation"), heads, rows)


def _kind(one: AllocationRow) -> str:
    words = "allocated" if one.kind is AllocationKind.ALLOCATED else "used by a process"
    return f"{words}, step {text(one.step)}" if one.step else words


def _end(one: AllocationRow) -> str:
    if one.end is None:
        return "it lasts"
    how = "unseen: listed last" if one.lost else text(one.end_from)
    return f"{moment(one.end)} <span class=dim>{how}</span>"


def _caption(count: int, word: str) -> str:
    words = counted(count, word)
    return words if count <= MOST_GPUS else f"{words}, of which {MOST_GPUS:,} are listed"


def faults_body(summary: JobSummary | None, events: Sequence[Event], name: GpuName, incidents: str) -> str:
    """Return the faults of a job's GPUs: as they were counted, those that are stored, and the incidents.
    `incidents` is HTML."""
    found = {} if summary is None else summary.faults
    kinds = ", ".join(f"{text(kind)} {times_text(times)}" for kind, times in sorted(found.items()))
    words = f"<p>Counted: {kinds}.</p>" if kinds else "<p>None was counted.</p>"
    rows = [
        (
            moment(one.at),
            link(one.node, "nodes", one.node),
            name(one.gpu) if one.gpu else "",
            text(one.kind),
            text(event_row(one).value),
        )
        for one in events
    ]
    heads = ("when", "node", "GPU", "kind", "what")
    return f"{words}{table(counted(len(rows), 'event'), heads, rows)}{incidents}"
