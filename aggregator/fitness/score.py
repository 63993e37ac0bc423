"""The score of a node, a job and the fleet. Pure: a table of weights, and functions over facts.

A node begins with 100 and loses the points of each reason, down to 0. The worst reason decides its state. A
node that nothing is known of is not known and counts as 0: silence is no good answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from api.fitness import Fitness, FitnessReason, FitnessShare, FleetFitness, JobFitness, NodeFitness
from telemetry.text import counted


class FitnessWeight(NamedTuple):
    """A reason against a node."""

    points: int
    """Of 100."""
    state: Fitness
    """State that the node has at best."""
    why: str
    """Reason of the weight, for docs/fitness.md."""


WHOLE = 100
WEIGHTS: dict[str, FitnessWeight] = {
    "silent": FitnessWeight(WHOLE, Fitness.UNKNOWN, "Its frames do not arrive: it may be well or burnt, nobody can say."),
    "unread": FitnessWeight(WHOLE, Fitness.UNKNOWN, "It reports, but its driver is not open, or no GPU was read."),
    "driver": FitnessWeight(WHOLE, Fitness.OUT, "Its driver is missing, mismatched or hung: no GPU work can begin."),
    "gpus missing": FitnessWeight(WHOLE, Fitness.OUT, "A job that asks for the whole node would end at its start."),
    "page": FitnessWeight(WHOLE, Fitness.OUT, "A rule of the severity `page` fires on it: jobs are lost, or hardware is at risk."),
    "ticket": FitnessWeight(15, Fitness.DEGRADED, "Work goes on, slower or with less in reserve. Each rule once."),
    "declared": FitnessWeight(10, Fitness.DEGRADED, "It is not what `[[expected]]` declares. Each fact once."),
    "unlike its kind": FitnessWeight(3, Fitness.DEGRADED, "It differs from four fifths of its kind, which nobody declared. Each fact once."),
}  # fmt: skip
"""Reasons, the worst first."""
_ORDER = (Fitness.OUT, Fitness.UNKNOWN, Fitness.DEGRADED, Fitness.FIT)
"""States, the worst first. A node that is out for a known reason is out, whatever else is not known."""
_NO_DRIVER = frozenset({"missing", "mismatched", "hung"})
_WITHOUT = frozenset({"none"})


class NodeCondition(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The facts that a node's score depends on."""

    node: str
    role: str = ""
    online: bool
    """Whether its frames arrive."""
    unheard: bool = False
    """Whether the aggregator that holds it does not answer: nothing is known here."""
    driver: str = "up"
    gpus: int = 0
    """GPUs that it has or had."""
    gpus_read: int = 0
    """Of these, those that were read a moment ago."""
    gpus_gone: int = 0
    """Of these, those that have left the bus."""
    pages: Sequence[str] = ()
    """Rules that fire."""
    tickets: Sequence[str] = ()
    declared: Sequence[str] = ()
    """Facts that are others than declared."""
    unlike: Sequence[str] = ()
    """Facts that are others than those of its kind."""
    watts: float | None = None


def node_fitness(node: NodeCondition, price: float | None) -> NodeFitness:
    """Return the score of a node. `price`: of a kWh at the wall, everything included; None without a tariff."""
    reasons, state, score = list(_reasons(node)), Fitness.FIT, WHOLE
    if reasons:  # most have none, and a fleet has many
        reasons.sort(key=lambda one: -one.points)
        state = min({WEIGHTS[one.name].state for one in reasons}, key=_ORDER.index)
        score = max(0, WHOLE - sum(one.points for one in reasons))
    return NodeFitness(
        node=node.node,
        role=node.role,
        state=state,
        score=score,
        gpus=node.gpus,
        watts=node.watts,
        cost_per_hour=_cost(node.watts, price),
        reasons=reasons,
    )


def _cost(watts: float | None, price: float | None) -> float | None:
    return None if watts is None or price is None else round(watts / 1000 * price, 4)


def _reasons(node: NodeCondition) -> Iterable[FitnessReason]:
    def reason(name: str, text: str) -> FitnessReason:
        return FitnessReason(name=name, points=WEIGHTS[name].points, text=text)

    for rule in dict.fromkeys(node.pages):
        yield reason("page", rule)
    if not node.online:
        why = "its aggregator does not answer" if node.unheard else "its frames do not arrive"
        yield reason("silent", why)
        return
    if node.driver in _NO_DRIVER:
        yield reason("driver", f"its driver is {node.driver}")
    elif node.driver not in _WITHOUT and node.driver != "up":
        yield reason("unread", f"its driver is {node.driver.replace('_', ' ')}")
    elif node.gpus_gone:
        yield reason("gpus missing", f"{node.gpus_gone} of {counted(node.gpus, 'GPU')} left the bus")
    elif node.gpus_read < node.gpus:
        yield reason("unread", f"{node.gpus_read} of {counted(node.gpus, 'GPU')} are read")
    elif node.role == "gpu" and not node.gpus:
        yield reason("unread", "its driver lists no GPU")
    for rule in dict.fromkeys(node.tickets):
        yield reason("ticket", rule)
    for fact in node.declared:
        yield reason("declared", fact)
    for fact in node.unlike:
        yield reason("unlike its kind", fact)


def fleet_fitness(nodes: Sequence[NodeFitness], currency: str) -> FleetFitness:
    """Return the score of all nodes together, and what those of each state are and cost."""
    shares = {state: [one for one in nodes if one.state is state] for state in Fitness}
    weight = sum(max(1, one.gpus) for one in nodes)
    total = sum(max(1, one.gpus) * one.score for one in nodes)
    names = Counter(name for one in nodes for name in {each.name for each in one.reasons})
    return FleetFitness(
        score=total // weight if weight else None,
        states={state.value: _share(its) for state, its in shares.items()},
        reasons=dict(names.most_common()),
        currency=currency,
    )


def _share(nodes: Sequence[NodeFitness]) -> FitnessShare:
    return FitnessShare(
        nodes=len(nodes),
        gpus=sum(one.gpus for one in nodes),
        watts=_sum(one.watts for one in nodes),
        cost_per_hour=_sum(one.cost_per_hour for one in nodes),
    )


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known), 4) if known else None


def job_fitness(scheduler: str, job: str, names: Iterable[str], nodes: Mapping[str, NodeFitness]) -> JobFitness:
    """Return the score of a job: that of its worst node, for a job waits for its slowest part. A node that is
    not in the fleet is not known."""
    found = [
        nodes.get(name) or NodeFitness(node=name, role="", state=Fitness.UNKNOWN, score=0, gpus=0)
        for name in sorted(names)
    ]
    worst = min(found, key=lambda one: (one.score, _ORDER.index(one.state)))
    state = min((one.state for one in found), key=_ORDER.index)
    return JobFitness(job=job, scheduler=scheduler, state=state, score=worst.score, nodes=len(found), worst=worst.node)


def worst_first(nodes: Iterable[NodeFitness]) -> list[NodeFitness]:
    """Return nodes by state and score."""
    return sorted(nodes, key=lambda one: (_ORDER.index(one.state), one.score, one.node))
