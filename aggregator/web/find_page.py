"""`/find`: nodes, GPUs, circuits, jobs, users, open incidents and rules whose name or number has some words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import nsmallest

from aiohttp import web

from aggregator.http.auth import CALLER
from aggregator.http.parameters import query
from aggregator.http.reply import VIEW
from aggregator.view import AggregatorView
from aggregator.web.content import PageContent, shown_to
from aggregator.web.icons import badge
from aggregator.web.job_words import job_link
from aggregator.web.markup import link, path, section, text
from alerts.rules.rule import monitor_rules
from api.alerts import Incident, IncidentsReply
from present.device.gpu import gpu_name
from telemetry.text import counted
from telemetry.wire.jobs import JobKey

MOST, MOST_INCIDENTS = 20, 1000
"""Finds of one kind that are listed, and open incidents that are searched, the worst first."""


async def find(request: web.Request) -> PageContent:
    """Return what was found; private things alone where the caller may see them."""
    wanted = query(request, "q").get("q", "").strip()
    view = request.app[VIEW]
    if not wanted:
        return PageContent(
            "Find", "<p>Name a node, a GPU by its UUID or serial number, a circuit, a job, a user, or a rule.</p>"
        )
    open_ones = IncidentsReply(view.wall(), view.pipeline.manager.incidents()[:MOST_INCIDENTS])
    incidents = shown_to(request, open_ones).incidents  # what is hidden is not found either
    private = request[CALLER].sees_private
    kinds = dict(_kinds(view, wanted.casefold(), incidents, private=private))
    found = "".join(_listed(kind, its) for kind, its in kinds.items() if its)
    nothing = f"<p>Nothing that is heard or configured now is named {text(repr(wanted))}.</p>"
    return PageContent(f"Find {wanted}", found or nothing)


def _listed(kind: str, its: list[str]) -> str:
    more = f"<li>and {len(its) - MOST:,} more</li>" if len(its) > MOST else ""
    shown = "".join(f"<li>{one}</li>" for one in its[:MOST])
    return section(counted(len(its), kind), f'<ul class="found">{shown}{more}</ul>', kind.replace(" ", "-"))


def _kinds(
    view: AggregatorView, wanted: str, incidents: Sequence[Incident], *, private: bool
) -> Iterator[tuple[str, list[str]]]:
    def has(*names: str) -> bool:
        return any(wanted in name.casefold() for name in names)

    nodes = view.fleet.nodes
    yield "node", [link(name, "nodes", name) for name in _best(filter(has, nodes), wanted)]
    yield (
        "GPU",
        [
            f"{link(gpu_name(name, gpu.index), 'gpus', gpu.uuid)} <span class=dim>{text(gpu.name)} {text(gpu.uuid)}</span>"
            for name, node in nodes.items()
            for gpu in node.inventory.gpus
            if has(gpu.uuid, gpu.serial or "", gpu.pci or "", gpu_name(name, gpu.index))
        ],
    )
    layout = view.electrical.site.layout
    circuits = [] if layout is None else list(layout.circuits)
    yield "circuit", [link(name, "circuits", name) for name in _best(filter(has, circuits), wanted)]
    if private:
        jobs = {job.key: job for message in view.jobs.lists.values() for job in message.jobs}
        found = [key for key, job in jobs.items() if has(key.id, job.name)]
        yield ("job", [job_link(key.id, key) for key in nsmallest(MOST + 1, found, key=_recent_first)])
        users = _best({job.user for job in jobs.values() if job.user and has(job.user)}, wanted)
        yield "user", [f'<a href="{path("jobs", user=name)}">{text(name)}</a>' for name in users]
    yield (
        "open incident",
        [
            f"{badge(one.severity, one.severity)} {link(one.title or one.key, 'incidents', one.key)}"
            for one in incidents
            if has(one.title, one.key)
        ],
    )
    rules = {rule.name: rule for rule in (*monitor_rules(), *view.pipeline.engine.rules)}
    yield (
        "rule",
        [link(name, "runbook", name) for name in _best(filter(lambda name: has(name, rules[name].id), rules), wanted)],
    )


def _best(names: Iterable[str], wanted: str) -> list[str]:
    """Return names, those that are or begin with what is wanted first."""
    return nsmallest(
        MOST + 1, names, key=lambda name: (name.casefold() != wanted, not name.casefold().startswith(wanted), name)
    )


def _recent_first(key: JobKey) -> tuple[int, str]:
    return -int(key.id) if key.id.isdecimal() else 0, key.id
