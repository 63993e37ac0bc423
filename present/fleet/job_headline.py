"""The headline of a job's page: whether it runs, what holds it up, and what it does not know. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from api.alerts import Severity
from api.jobs import JobPhase, JobReply, JobRow, JobsReply
from present.device.figures import UNKNOWN, USE, DeviceFigure, others, slowed
from present.device.gpu import gpu_name
from present.fleet.headline import Headline, Urgency, sentence
from present.row import FactRow, Tone
from present.units import (
    ENERGY_FROM,
    NO_COST,
    WALL_FROM,
    at_least,
    energy,
    is_partial,
    money,
    number,
    percent,
    roughly,
    watts,
)
from telemetry.text import counted, duration

_DOUBTS = ("partial:", "no use was read")
"""Beginnings of hints that say what is not known: they are no fault of a job."""
HOLDS_UP = frozenset({"gpu_lost", "gpu_hung", "job_slow_gpu"})
"""Rules about a GPU that works no more, or slower than the others of its job."""
_SHORT = 600.0
"""Seconds of a run below which its figures say little."""


@dataclass(frozen=True, slots=True)
class JobGpu:
    """A GPU that a job holds, with what it reads now."""

    node: str
    index: int
    readings: Mapping[str, float]


def job_headline(reply: JobReply, gpus: Sequence[JobGpu]) -> Headline:
    """Return the headline of a job. `gpus`: those that it holds, as far as the fleet has them."""
    job = reply.job
    if job.phase is JobPhase.SILENT:
        why = "Its nodes are silent: its GPUs may be lost, or work on unwatched."
        return Headline(Urgency.UNKNOWN, "Whether it runs is not known", why)
    if job.end is not None:
        return _ended(job)
    slow = next((one for one in gpus if slowed(one.readings.get)), None)
    lead = reply.alerts[0] if reply.alerts else None
    waits = _waiting(len(gpus) - 1)
    if lead is not None and lead.severity in {Severity.PAGE, Severity.TICKET}:
        urgency = Urgency.PAGE if lead.severity is Severity.PAGE else Urgency.TICKET
        more = len(reply.alerts) - 1
        what = lead.summary or f"{lead.rule.replace('_', ' ')} on {lead.node}"
        rest = f" (and {counted(more, 'more alert')})" if more else ""
        why = _gpu_words(slow, gpus) or sentence(waits if lead.rule in HOLDS_UP else "")
        return Headline(urgency, f"{what}{rest}", why)
    if slow is not None:
        name = gpu_name(slow.node, slow.index)
        return Headline(
            Urgency.TICKET,
            f"{name} is slowed down: {slowed(slow.readings.get)}",
            sentence(_use_words(slow, gpus), waits),
        )
    odd = [one for one in job.hints if not one.startswith(_DOUBTS)]
    if odd:
        return Headline(Urgency.TICKET, sentence(odd[0]), sentence(*odd[1:]))
    return _running(job, reply.at)


def _waiting(peers: int) -> str:
    return f"where they work in step, its {counted(peers, 'other GPU')} wait for it" if peers > 0 else ""


def _gpu_words(slow: JobGpu | None, gpus: Sequence[JobGpu]) -> str:
    if slow is None:
        return ""
    return f"{gpu_name(slow.node, slow.index)} is slowed down: {slowed(slow.readings.get)}, {_use_words(slow, gpus)}"


def _use_words(slow: JobGpu, gpus: Sequence[JobGpu]) -> str:
    """Return the use of a GPU beside that of the others of its job."""
    its = slow.readings.get(USE)
    beside = others(USE, [one.readings[USE] for one in gpus if one is not slow and USE in one.readings])
    return "" if its is None else f"use {percent(its)}{f' ({beside})' if beside else ''}"


def _ended(job: JobRow) -> Headline:
    ran = duration(max(0, (job.end or job.begin) - job.begin) / 1e9)
    if job.phase is JobPhase.LOST:
        return Headline(Urgency.UNKNOWN, "It ended unseen", f"It was listed last {ran} after its begin")
    word = job.state.lower().replace("_", " ")
    failed = bool(job.exit_code) or word in {"failed", "node fail", "out of memory", "timeout"}
    code = f", exit code {job.exit_code}" if job.exit_code else ""
    text = f"It ended after {ran}{f': {word}' if word else ''}{code}"
    return Headline(Urgency.TICKET if failed else Urgency.WELL, text, sentence(*job.hints))


def _running(job: JobRow, at: int) -> Headline:
    ran = (at - job.begin) / 1e9
    text = f"It runs on {counted(job.gpus, 'GPU')} of {counted(len(job.nodes), 'node')}"
    summary = job.summary
    if summary is None or summary.utilization_ratio is None:
        return Headline(Urgency.UNKNOWN, text, "What it does is not measured yet")
    short = "too short a time to judge" if ran < _SHORT else ""
    use = roughly(percent(summary.utilization_ratio), partial=summary.partial)
    if summary.partial:
        return Headline(Urgency.UNKNOWN, text, sentence(f"use {use} in the mean of what was read", short))
    return Headline(Urgency.WELL, text, sentence(f"use {use} in the mean", short))


def jobs_headline(reply: JobsReply) -> Headline:
    """Return the headline of a list of jobs: the worst of those that need a look."""
    live = [one for one in reply.jobs if one.end is None]
    if not live:
        unread = [one.name for one in reply.sources if one.state != "reading"] + reply.missing
        if unread:
            return Headline(Urgency.UNKNOWN, "No job is known to hold a GPU", f"{', '.join(unread)} can't be read")
        return Headline(Urgency.WELL, "No job of these holds a GPU now")
    odd = sorted((one for one in live if _odd(one)), key=_rank)
    if odd:
        worst = odd[0]
        urgency = Urgency.PAGE if worst.severity is Severity.PAGE else Urgency.TICKET
        text = f"{len(odd):,} of {counted(len(live), 'job')} that run{'s' if len(live) == 1 else ''} need{'s' if len(odd) == 1 else ''} a look"
        alert = "" if worst.severity is None else f"an alert ({worst.severity}) fires on its GPUs or nodes"
        words = "; ".join(filter(None, (alert, *_remarks(worst))))
        return Headline(urgency, text, f"{worst.scheduler} {worst.id}: {words}")
    blind = sum(one.summary is None or one.summary.partial for one in live)
    text = f"{counted(len(live), 'job')} run{'s' if len(live) == 1 else ''}, and nothing is odd about {'it' if len(live) == 1 else 'them'}"
    if blind:
        return Headline(
            Urgency.UNKNOWN,
            f"{text} in what is known",
            f"The use of {blind:,} of {counted(len(live), 'job')} is not wholly known",
        )
    return Headline(Urgency.WELL, text)


def _remarks(job: JobRow) -> list[str]:
    return [one for one in job.hints if not one.startswith(_DOUBTS)]


def _odd(job: JobRow) -> bool:
    alerted = job.severity in {Severity.PAGE, Severity.TICKET}
    return alerted or job.phase is JobPhase.SILENT or bool(_remarks(job))


def _rank(job: JobRow) -> tuple[int, int]:
    """Return a key by which the worst comes first; of two the larger."""
    return {Severity.PAGE: 0, Severity.TICKET: 1}.get(job.severity or Severity.INFO, 2), -job.gpus


def jobs_figures(reply: JobsReply) -> list[DeviceFigure]:
    """Return the figures of a list of jobs: sums over those that are listed, of what is known of them."""
    jobs = reply.jobs
    live = [one for one in jobs if one.end is None]
    found = [one.summary for one in jobs if one.summary is not None]
    currency = next((one.currency for one in found if one.currency), "")
    held = sum(one.gpus for one in live)
    figures = [DeviceFigure(FactRow("running", counted(len(live), "job"), note=f"{counted(held, 'GPU')} held"))]
    read = [
        (one.utilization_ratio, one.gpu_hours * one.coverage)
        for one in found
        if one.utilization_ratio is not None and one.coverage
    ]
    hours = sum(weight for _, weight in read)
    if hours:
        mean = sum(value * weight for value, weight in read) / hours
        note = f"mean of {number(hours, 1)} GPU hours that were read"
        figures.append(DeviceFigure(FactRow("use of held GPUs", percent(mean), note=note), mean))
    else:
        figures.append(DeviceFigure(FactRow("use of held GPUs", UNKNOWN, Tone.STALE, note="nothing was read")))
    idle = [one.idle_gpu_hours for one in found if one.idle_gpu_hours is not None]
    if idle and hours:
        lost = [one.idle_cost for one in found if one.idle_cost]
        cost = f"{money(sum(lost), currency)} of the cost; " if lost else ""
        figures.append(
            DeviceFigure(
                FactRow("idle while held", f"{number(sum(idle), 1)} GPU hours", note=f"{cost}below 5% use"),
                min(1.0, sum(idle) / hours),
            )
        )
    joules = [one.wall_joules for one in found if one.wall_joules is not None]
    figures.append(_sum_figure("energy at the wall", energy(sum(joules)) if joules else "", len(jobs) - len(joules)))
    costs = [one.cost for one in found if one.cost is not None]
    figures.append(_sum_figure("cost", money(sum(costs), currency) if costs else "", len(jobs) - len(costs)))
    return figures


def _sum_figure(label: str, words: str, missing: int) -> DeviceFigure:
    """Return a sum over jobs; `missing`: those of which it is not known."""
    if not words:
        return DeviceFigure(FactRow(label, UNKNOWN, Tone.STALE, note="not known of any of them"))
    without = f"without {counted(missing, 'job')} of which it is not known" if missing else ""
    return DeviceFigure(FactRow(label, at_least(words, partial=missing > 0), note=without))


def job_figures(reply: JobReply, held: Sequence[float | None]) -> list[DeviceFigure]:
    """Return the figures that a job's page shows first. `held`: power of the GPUs that it holds, W; None is not read."""
    job, summary = reply.job, reply.job.summary
    found = [_use_figure(job)]
    if summary is not None:
        read = "nothing of it was read" if summary.coverage is None else f"{percent(summary.coverage)} of it read"
        ran = duration(max(0, (job.end or reply.at) - job.begin) / 1e9)
        found.append(
            DeviceFigure(
                FactRow(
                    "GPU hours", number(summary.gpu_hours, 1), note=f"{counted(job.gpus, 'GPU')} for {ran}; {read}"
                ),
                summary.coverage,
            )
        )
    if held:
        known = [one for one in held if one is not None]
        missing = f"; {counted(len(held) - len(known), 'GPU')} not read" if len(known) < len(held) else ""
        value = watts(sum(known)) if known else UNKNOWN
        row = FactRow(
            "power now",
            at_least(value, partial=bool(missing) and bool(known)),
            Tone.PLAIN if known else Tone.STALE,
            note=f"at its GPUs{missing}",
        )
        found.append(DeviceFigure(row))
    found += [_energy_figure(job), _cost_figure(job)]
    return found


def _use_figure(job: JobRow) -> DeviceFigure:
    summary = job.summary
    if summary is None or summary.utilization_ratio is None:
        return DeviceFigure(FactRow("use, mean", UNKNOWN, Tone.STALE, note="nothing was read"))
    low = summary.utilization_p10_ratio
    note = "" if low is None else f"a tenth of the time below {percent(low)}"
    value = roughly(percent(summary.utilization_ratio), partial=summary.partial)
    return DeviceFigure(FactRow("use, mean", value, note=note), summary.utilization_ratio)


def _energy_figure(job: JobRow) -> DeviceFigure:
    summary = job.summary
    if summary is None or (summary.wall_joules is None and summary.energy_joules is None):
        return DeviceFigure(FactRow("energy", UNKNOWN, Tone.STALE, note="nothing was read"))
    words, basis = energy(summary.energy_joules), ENERGY_FROM.get(summary.energy_from, "")
    if summary.wall_joules is None:
        return DeviceFigure(
            FactRow(
                "energy at its GPUs",
                roughly(words, partial=is_partial(summary.energy_coverage)),
                note=f"{basis}; not at the wall",
            )
        )
    at_gpus = f"; {words} at its GPUs" if summary.energy_joules is not None else ""
    return DeviceFigure(
        FactRow(
            "energy at the wall",
            roughly(energy(summary.wall_joules), partial=is_partial(summary.wall_coverage)),
            note=f"{WALL_FROM[summary.energy_from]}{at_gpus}",
        )
    )


def _cost_figure(job: JobRow) -> DeviceFigure:
    summary = job.summary
    if summary is None or summary.cost is None:
        return DeviceFigure(FactRow("cost", UNKNOWN, Tone.STALE, note=NO_COST))
    idle = "" if not summary.idle_cost else f"{money(summary.idle_cost, summary.currency)} of it below 5% use; "
    return DeviceFigure(
        FactRow(
            "cost",
            roughly(money(summary.cost, summary.currency), partial=is_partial(summary.wall_coverage)),
            note=f"{idle}{WALL_FROM[summary.energy_from]}",
        )
    )
