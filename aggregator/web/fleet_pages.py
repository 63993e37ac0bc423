"""Pages of the fleet as a whole: whether it is fit for work, with its past, and who differs from its kind."""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web

from aggregator.alerting.node_labels import labels_of
from aggregator.http.parameters import query
from aggregator.http.reply import VIEW
from aggregator.web.content import PageContent, shown_to
from aggregator.web.load_chart import LoadSeries, load_chart
from aggregator.web.markup import facts, link, section, table, text, toned
from api.drift import DriftReply, NodeGroup
from api.fitness import FitnessReply, FitnessSample, NodeFitness
from present.fleet.drift import DEVIATION_HEADS, NOTHING, deviation_cells, group_row, mixed_values, unknown_row
from present.fleet.fitness import NO_HISTORY, fitness_row, hourly_cost
from present.units import watts
from telemetry.text import ABSENT, counted

MOST = 200
"""Nodes, and jobs, that the page lists."""
_SAMPLE = 300 * 1_000_000_000
"""Between two samples of the history."""


async def fitness(request: web.Request) -> PageContent:
    """Return the page of the score: of the fleet with its history, of nodes and of running jobs."""
    query(request)
    view = request.app[VIEW]
    if view.fitness.newest is None:
        return PageContent("Fitness", "<p>The score is not known yet.</p>", live=True)
    reply = shown_to(request, view.fitness.newest)
    return PageContent("Fitness", fitness_body(reply), live=True)


def fitness_body(reply: FitnessReply) -> str:
    """Return the content of the page."""
    fleet = reply.fleet
    states = [
        (text(state), f"{share.nodes:,}", f"{share.gpus:,}", watts(share.watts),
         text(hourly_cost(share, fleet.currency)))
        for state, share in fleet.states.items()
    ]  # fmt: skip
    reasons = [(text(name), f"{nodes:,}") for name, nodes in fleet.reasons.items()]
    wanting = [one for one in reply.nodes if one.score < 100]
    jobs = [
        (link(one.job, "jobs", one.job), text(one.scheduler), str(one.score), text(one.state),
         f"{one.nodes:,}", link(one.worst, "nodes", one.worst))
        for one in reply.jobs[:MOST]
    ]  # fmt: skip
    more = len(wanting) - MOST
    return (
        facts([("fleet", fitness_row(fleet).value or ABSENT)])
        + section("Past", fitness_chart(reply.history), "past")
        + section("Nodes by state", table("what each state costs", ("state", "nodes", "GPUs", "power", "an hour"), states, range(1, 5)), "states")
        + section("Reasons", table("nodes by reason", ("reason", "nodes"), reasons, (1,)), "reasons")
        + section("Nodes that are not fit", _nodes(wanting[:MOST]) + (f"<p>and {more:,} more</p>" if more > 0 else ""), "nodes")
        + section("Running jobs", table(counted(len(jobs), "job"), ("job", "scheduler", "score", "state", "nodes", "worst node"), jobs, (2, 4)), "jobs")
    )  # fmt: skip


def _nodes(nodes: Sequence[NodeFitness]) -> str:
    rows = [
        (link(one.node, "nodes", one.node), text(one.role) or ABSENT, str(one.score), text(one.state), f"{one.gpus:,}",
         text("; ".join(f"{each.text} (-{each.points})" for each in one.reasons)))
        for one in nodes
    ]  # fmt: skip
    heads = ("node", "role", "score", "state", "GPUs", "why")
    return table(f"{counted(len(rows), 'node')}, worst first", heads, rows, (2, 4))


def fitness_chart(history: Sequence[FitnessSample]) -> str:
    """Return the chart of the fleet's score; a sentence before it has two samples."""
    known = [sample for sample in history if sample.score is not None]
    if len(known) < 2:
        return f"<p>{NO_HISTORY.capitalize()}.</p>"
    scores = [None if sample.score is None else float(sample.score) for sample in history]
    series = LoadSeries([sample.at for sample in history], scores, [None] * len(scores), "", _SAMPLE)
    return load_chart(series, known[0].at, known[-1].at, (), "fitness of the fleet, of 100")


async def drift(request: web.Request) -> PageContent:
    """Return the page of nodes that differ from what is declared, or from most of their kind."""
    query(request)
    view = request.app[VIEW]
    labels = labels_of(view.fleet, view.electrical.site.layout)
    reply = await view.drift.compare(view.fleet, labels, view.now(), view.wall())
    return PageContent("Drift", drift_body(shown_to(request, reply)), live=True)


def drift_body(reply: DriftReply) -> str:
    """Return the content of the page."""
    if not reply.groups:
        return f"<p>{NOTHING.capitalize()}.</p>"
    return "".join(_group(group, number) for number, group in enumerate(reply.groups))


def _group(group: NodeGroup, number: int) -> str:
    its, unknown = group_row(group), unknown_row(group)
    rows = [(link(node, "nodes", node), *map(text, cells)) for node, *cells in map(deviation_cells, group.deviations)]
    mixed = [(text(one.fact), text(mixed_values(one))) for one in group.mixed]
    body = (
        f"<p>{text(its.note)}, {text(its.value)}</p>"
        + table(counted(len(rows), "deviation"), DEVIATION_HEADS, rows)
        + table(f"mixed, so that nobody deviates: {counted(len(mixed), 'fact')}", ("fact", "values"), mixed)
        + (toned(f"{unknown.label}: {text(unknown.value)}", unknown.tone) if unknown.value else "")
    )
    return section(its.label, body, f"kind-{number}")
