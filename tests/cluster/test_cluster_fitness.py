"""Fitness and drift over several members: the fleet is that of all, and what nobody answers for is not known."""

from __future__ import annotations

import pytest

from aggregator.fitness.joined import joined_fitness, joined_history
from aggregator.fitness.score import NodeCondition, node_fitness
from aggregator.fitness.service import SAMPLE_NS, node_states, nodes_of_jobs
from api.decoding import decode
from api.drift import DriftReply
from api.fitness import Fitness, FitnessReply, FitnessSample, FleetFitness
from telemetry.wire.jobs import JobKey
from telemetry.wire.topics import shard_of
from tests.aggregator.fake_view import FakeView, inventory
from tests.aggregator.http_client import door
from tests.cluster.test_cluster_jobs import ACROSS, Members


def score(view: FakeView) -> FitnessReply:
    """Compute the fitness of a member's own nodes, as it does every few seconds."""
    states = node_states(view.fleet, view.now(), view.alerts(), None, {})
    return view.fitness.compute(states, nodes_of_jobs(view.jobs.lists), 0.25, "EUR", view.wall())


@pytest.fixture
def scored() -> Members:
    """Two members with a node each and a job over both; a GPU of the second has left the bus."""
    both = Members()
    both.send("n0", (ACROSS, 0, both.begin, 0))
    both.send("n1", (ACROSS, 0, both.begin, 0))
    both.run(10)
    for view in both.own.values():
        score(view)
    return both


async def test_the_fleet_and_its_jobs_are_scored_by_the_nodes_of_all_members(scored: Members) -> None:
    """A job over two members is as good as the worst of its nodes, wherever that is."""
    parts = {name: view.fitness.newest for name, view in scored.own.items()}
    wanted = {one.node: one for part in parts.values() if part for one in part.nodes}
    async with scored.answering("b"), door(scored.views["a"]) as client:
        reply = decode((await client.text("/api/v1/fitness"))[1].encode(), FitnessReply)
    assert {one.node: one for one in reply.nodes} == wanted
    assert wanted.keys() == {"n0", "n1"}
    assert sum(share.gpus for share in reply.fleet.states.values()) == 4
    assert reply.fleet.currency == "EUR"
    (job,) = reply.jobs
    assert (job.job, job.nodes) == (ACROSS.id, 2)
    assert job.score == min(one.score for one in wanted.values())
    assert [sample.fit + sample.degraded + sample.out + sample.unknown for sample in reply.history] == [2]
    assert reply.missing == []


async def test_nodes_of_a_member_that_does_not_answer_are_not_known(scored: Members) -> None:
    """They were scored a moment ago: nobody can say what they are now."""
    view = scored.views["a"]
    async with scored.answering("b"):
        pass
    for own in scored.own.values():
        own.monotonic += 10.0
    scored.one.now += 10.0
    async with door(view) as client:
        reply = decode((await client.text("/api/v1/fitness"))[1].encode(), FitnessReply)
        page = (await client.text("/fitness"))[1]
    lost = next(one for one in reply.nodes if one.node == "n1")
    assert (lost.state, lost.score, lost.gpus) == (Fitness.UNKNOWN, 0, 2)
    assert [each.text for each in lost.reasons] == ["its aggregator does not answer"]
    assert reply.missing == ["b"]
    assert "its aggregator does not answer" in page


async def test_drift_compares_the_nodes_of_all_members() -> None:
    """Five nodes make a majority, though no member has five."""
    both, nodes = Members(), {"n0": "a", "n1": "b"}
    for name, own in both.own.items():
        for number in range(2):
            what = inventory(f"{name}{number}", gpus=2, links=0)
            own.fleet.place(what)
            nodes[what.node] = name
    assert len({shard_of(node) for node in nodes}) == len(nodes)
    both.hold({shard_of(node): name for node, name in nodes.items()})
    async with both.answering("b"), door(both.views["a"]) as client:
        reply = decode((await client.text("/api/v1/drift"))[1].encode(), DriftReply)
        metrics = (await client.text("/metrics"))[1]
    (group,) = reply.groups
    assert (reply.nodes, group.nodes, group.evaluated) == (6, 6, True)
    assert "kilowatch_cluster_nodes_differing{" in metrics


def test_of_two_that_score_a_node_the_one_that_has_it_counts() -> None:
    good = node_fitness(NodeCondition(node="n", online=True), None)
    bad = node_fitness(NodeCondition(node="n", online=False), None)
    parts = {name: FitnessReply(at=1, fleet=FleetFitness(), nodes=[one]) for name, one in (("old", bad), ("new", good))}
    key = JobKey("slurm", "lab", "1")
    found = joined_fitness(parts, lambda name, _: name == "new", (), {key: {"n", "gone"}}, (), 2)
    assert found.nodes == [good]
    assert found.fleet.score == 100
    assert [(one.state, one.worst) for one in found.jobs] == [(Fitness.UNKNOWN, "gone")]


def test_pasts_are_added_by_steps_and_a_member_that_was_down_is_not_carried_on() -> None:
    """Samples of members drift against each other by seconds: none of them falls out of a step."""
    first = [FitnessSample(step * (SAMPLE_NS + 10**9), 100, 3, 0, 0, 0) for step in range(8)]
    second = [FitnessSample(SAMPLE_NS // 2 + step * SAMPLE_NS, 50, 0, 1, 0, 0) for step in range(4)]
    found = joined_history([first, second])
    assert [one.fit for one in found] == [3] * len(found)
    assert [one.degraded for one in found] == [1, 1, 1, 1, 1, 0, 0, 0][: len(found)]
    assert [one.score for one in found][:4] == [87] * 4
    assert found[-1].score == 100
    assert joined_history([]) == []
