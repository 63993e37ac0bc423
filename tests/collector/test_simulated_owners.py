"""Who has the GPUs of a simulated node."""

from __future__ import annotations

from collections import Counter

import pytest

from collector.jobs.source import JobsAnswer, KnowsJobs
from collector.simulated import SimulatedSource, scenario
from collector.simulated.cluster import cluster
from collector.simulated.owners import LEFT_OVER, PAUSE, SimulatedJobs
from telemetry.wire.jobs import ENDED_SECONDS, JobKey, NodeJobs

FLEET = scenario("fleet", nodes=64, faults="")
HOUR = 3600


def source(node: str) -> SimulatedJobs:
    found = SimulatedSource(FLEET, node)
    assert isinstance(found, KnowsJobs)
    assert isinstance(found.job_source, SimulatedJobs)
    return found.job_source


def of_kind(kind: str) -> str:
    """The first node of a kind of load that somebody has."""
    nodes = (cluster(FLEET).node(name) for name in FLEET.nodes)
    return next(node.name for node in nodes if node.job.kind == kind and source(node.name).at(0).jobs)


def holders(answer: JobsAnswer) -> dict[str, JobKey]:
    return {one.gpu: one.job for one in answer.allocations if not one.end}


def seconds_of_change(node: str, within: int) -> list[int]:
    """The seconds at which other jobs have the node's GPUs than a second before."""
    own = source(node)
    before, found = holders(own.at(0)), []
    for second in range(1, within):
        now = holders(own.at(second))
        if now != before:
            found.append(second)
        before = now
    return found


def test_a_fleet_shows_every_use_of_a_scheduler() -> None:
    jobs_of_node = {name: source(name).at(0) for name in FLEET.nodes}
    several = [name for name, answer in jobs_of_node.items() if len(set(holders(answer).values())) > 1]
    of_nodes = Counter(key for answer in jobs_of_node.values() for key in set(holders(answer).values()))
    idle = [name for name, answer in jobs_of_node.items() if holders(answer) and not answer.processes]
    users = {job.user for answer in jobs_of_node.values() for job in answer.jobs}
    schedulers = {key.scheduler for key in of_nodes}
    assert several
    assert max(of_nodes.values()) > 1
    assert idle
    assert len(users) > 2
    assert schedulers == {"slurm", "kubernetes"}
    for name in idle:
        assert cluster(FLEET).node(name).job.kind == "idle"


def test_a_job_has_the_same_id_on_all_of_its_nodes_and_says_how_many_they_are() -> None:
    found: dict[JobKey, list[tuple[int, int]]] = {}
    for name in FLEET.nodes:
        answer = source(name).at(77)
        mine = Counter(holders(answer).values())
        for job in answer.jobs:
            if job.key in mine:
                found.setdefault(job.key, []).append((job.nodes, mine[job.key]))
                assert job.gpus == job.nodes * mine[job.key]
    assert all({nodes for nodes, _ in places} == {len(places)} for places in found.values())


@pytest.mark.parametrize("kind", ["mixed", "evaluation"])
def test_a_job_ends_and_its_gpus_are_free_before_the_next_one_begins(kind: str) -> None:
    node = of_kind(kind)
    end, begin = seconds_of_change(node, HOUR + 1)[:2]
    if holders(source(node).at(end)):
        end, begin = begin, seconds_of_change(node, 2 * HOUR)[2]
    assert begin - end == PAUSE
    own = source(node)
    before, free, after = own.at(end - 1), own.at(end), own.at(begin)
    assert holders(before)
    assert not holders(free)
    assert not set(holders(before).values()) & set(holders(after).values())
    ended = [one for one in own.at(end + 5).allocations if one.end]
    assert {one.end for one in ended} == {FLEET.at_ns(end)}
    assert not any(one.end for one in own.at(int(end + ENDED_SECONDS) + 1).allocations)


def test_a_process_outlives_its_job_where_two_users_share_a_node() -> None:
    node = of_kind("mixed")
    own = source(node)
    changes = seconds_of_change(node, 2 * HOUR)
    end = next(second for second in changes if not holders(own.at(second)))
    left = own.at(end + PAUSE + 10)
    strays = [one for one in left.processes if holders(left).get(one.gpu) != one.job]
    assert len(strays) == 2
    ended = {one.job for one in left.allocations if one.end}
    assert {one.job for one in strays} <= ended
    later = own.at(end + LEFT_OVER)
    assert all(holders(later).get(one.gpu) == one.job for one in later.processes)


def test_the_last_of_two_nodes_has_two_users() -> None:
    two = scenario("two-dgx-h100")
    first, last = (SimulatedSource(two, name).job_source for name in two.nodes)
    assert isinstance(first, SimulatedJobs)
    assert isinstance(last, SimulatedJobs)
    [training] = set(holders(first.at(100)).values())
    both = Counter(holders(last.at(100)).values())
    assert both[training] == 4
    assert len(both) == 2
    [job] = [one for one in first.at(100).jobs if one.key == training]
    assert (job.nodes, job.gpus) == (2, 12)


def test_the_same_second_has_the_same_jobs_in_any_process() -> None:
    for name in FLEET.nodes[:8]:
        assert source(name).at(4711) == source(name).at(4711)
        assert len(NodeJobs(session=1, jobs=source(name).at(4711).jobs).jobs) <= 16


def test_the_answer_of_a_second_does_not_depend_on_those_before() -> None:
    """It is made once for all seconds in which nobody comes or goes."""
    for kind in ("training", "mixed", "evaluation", "idle"):
        name = of_kind(kind)
        own, other = source(name), source(name)
        for second in (*range(0, 4000, 7), *range(HOUR - 30, HOUR + 700), 5, 6 * HOUR):
            assert own.at(second) == other._made(second), (kind, second)
        assert own.at(second) is own.at(second + 1) or own.at(second + 1) != own.at(second)
