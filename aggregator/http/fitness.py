"""Whether the fleet is good: `/api/v1/fitness`, and its metrics."""

from __future__ import annotations

from collections.abc import Iterator

from aiohttp import web

from aggregator.access.tokens import AccessScope
from aggregator.http.operation import Operation
from aggregator.http.parameters import query
from aggregator.http.reply import VIEW, send_json
from api.fitness import FitnessReply, FleetFitness
from telemetry.wire.exposition import GAUGE, PREFIX, Family, labels

MOST_SERIES = 20_000
"""Nodes, and jobs, that have a series of their own."""


async def fitness(request: web.Request) -> web.Response:
    """Answer with the score of the fleet, of each node and of each running job."""
    query(request)
    view = request.app[VIEW]
    reply = view.fitness.newest or FitnessReply(at=view.wall(), fleet=FleetFitness())
    return await send_json(request, reply, values=5 * (len(reply.nodes) + len(reply.jobs)))


def fitness_families(reply: FitnessReply | None, cluster: str) -> list[Family]:
    """Return the families of the newest scores; without samples before the first."""
    its = {"cluster": cluster}

    def family(name: str, text: str, samples: Iterator[tuple[str, float]]) -> Family:
        return Family(f"{PREFIX}{name}", text, GAUGE, list(samples) if reply is not None else [])

    fleet = FleetFitness() if reply is None else reply.fleet
    nodes = [] if reply is None else reply.nodes[:MOST_SERIES]
    jobs = [] if reply is None else reply.jobs[:MOST_SERIES]
    return [
        family("cluster_fitness_score", "Fitness of the fleet, 0 to 100; what is not known is not good.",
               (("" + labels(its), float(score)) for score in [fleet.score] if score is not None)),
        family("cluster_fitness_nodes", "Nodes by their state for work.",
               ((labels({**its, "state": state}), float(share.nodes)) for state, share in fleet.states.items())),
        family("cluster_fitness_gpus", "GPUs by the state of their node for work.",
               ((labels({**its, "state": state}), float(share.gpus)) for state, share in fleet.states.items())),
        family("cluster_fitness_cost_per_hour", "Cost of the energy of these nodes, by the tariff; a node whose power is not known is left out.",
               ((labels({**its, "state": state, "currency": fleet.currency}), share.cost_per_hour)
                for state, share in fleet.states.items() if share.cost_per_hour is not None)),
        family("node_fitness_score", "Fitness of a node, 0 to 100.",
               ((labels({**its, "node": one.node, "state": one.state}), float(one.score)) for one in nodes)),
        family("job_fitness_score", "Fitness of a running job, that of its worst node.",
               ((labels({**its, "job_id": one.job, "scheduler": one.scheduler}), float(one.score)) for one in jobs)),
    ]  # fmt: skip


OPERATIONS = (
    Operation(
        "/api/v1/fitness",
        fitness,
        "fitness",
        "Whether the fleet is good: a score of it, its nodes and its running jobs, with the reasons.",
        FitnessReply,
        scope=AccessScope.READ,
    ),
)
