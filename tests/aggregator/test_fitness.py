"""Is the fleet good? Scores by timelines, what they cost, and where they are shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator.fitness.score import WEIGHTS, NodeCondition, fleet_fitness, job_fitness, node_fitness
from aggregator.fitness.service import SAMPLE_NS, FitnessTracker, node_states, nodes_of_jobs
from aggregator.register.drift import compared, drift_of
from api.alerts import Alert, AlertState, Severity
from api.fitness import Fitness, FitnessReply
from telemetry.wire.jobs import JobKey
from tests.aggregator.fake_view import FakeView, give_jobs, inventory
from tests.aggregator.http_client import door
from tests.aggregator.test_drift import dgx, gpu

WELL: dict[str, Any] = {"node": "n", "role": "gpu", "online": True, "gpus": 8, "gpus_read": 8}


def condition(**facts: Any) -> NodeCondition:
    return NodeCondition(**{**WELL, **facts})


@pytest.mark.parametrize(
    ("facts", "state", "score", "names"),
    [
        ({}, "fit", 100, []),
        ({"role": "head", "gpus": 0, "gpus_read": 0, "driver": "none"}, "fit", 100, []),
        ({"tickets": ["pcie_slow"]}, "degraded", 85, ["ticket"]),
        ({"tickets": ["pcie_slow", "pcie_slow", "fan"]}, "degraded", 70, ["ticket", "ticket"]),
        ({"declared": ["memory"], "unlike": ["bios"]}, "degraded", 87, ["declared", "unlike its kind"]),
        ({"tickets": [f"rule_{n}" for n in range(9)]}, "degraded", 0, ["ticket"] * 9),
        ({"pages": ["xid_79"], "tickets": ["fan"]}, "out", 0, ["page", "ticket"]),
        ({"driver": "missing", "gpus_read": 0}, "out", 0, ["driver"]),
        ({"driver": "missing", "gpus": 0, "gpus_read": 0}, "out", 0, ["driver"]),
        ({"gpus_gone": 1, "gpus_read": 7}, "out", 0, ["gpus missing"]),
        ({"gpus_read": 7}, "not known", 0, ["unread"]),
        ({"gpus": 0, "gpus_read": 0}, "not known", 0, ["unread"]),
        ({"driver": "released", "gpus_read": 0}, "not known", 0, ["unread"]),
        ({"driver": "no_permission", "gpus_read": 0}, "not known", 0, ["unread"]),
        ({"online": False}, "not known", 0, ["silent"]),
        ({"online": False, "pages": ["node_silent"]}, "out", 0, ["page", "silent"]),
    ],
)
def test_a_node_has_the_state_and_points_of_its_reasons(
    facts: dict[str, Any], state: str, score: int, names: list[str]
) -> None:
    found = node_fitness(condition(**facts), None)
    assert (found.state, found.score, [one.name for one in found.reasons]) == (state, score, names)
    assert sum(one.points for one in found.reasons) >= 100 - found.score


def test_a_timeline_of_a_node() -> None:
    """One letter a step: Fit, Degraded, Out, not known (?)."""
    steps = [
        ({}, "F"), ({"tickets": ["ecc_corrected"]}, "D"), ({"pages": ["xid_79"]}, "O"),
        ({"online": False, "pages": ["xid_79"]}, "O"), ({"online": False}, "?"),
        ({"gpus_read": 0, "driver": "unknown"}, "?"), ({"declared": ["driver"]}, "D"), ({}, "F"),
    ]  # fmt: skip
    letters = {Fitness.FIT: "F", Fitness.DEGRADED: "D", Fitness.OUT: "O", Fitness.UNKNOWN: "?"}
    shown = "".join(letters[node_fitness(condition(**facts), None).state] for facts, _ in steps)
    assert shown == "".join(letter for _, letter in steps)


@given(
    st.booleans(), st.sampled_from(["up", "none", "missing", "hung", "unknown", "released", "later"]),
    st.integers(0, 8), st.integers(0, 8), st.lists(st.sampled_from("abc"), max_size=3),
)  # fmt: skip
def test_what_is_not_known_is_never_good(online: bool, driver: str, gpus: int, read: int, pages: list[str]) -> None:
    found = node_fitness(
        condition(online=online, driver=driver, gpus=gpus, gpus_read=min(gpus, read), pages=pages), None
    )
    known = online and driver in {"up", "none"} and read >= gpus and (gpus or driver == "none")
    if not known:
        assert found.state in {Fitness.OUT, Fitness.UNKNOWN}
        assert found.score == 0
    assert (found.score == 100) == (not found.reasons) == (found.state is Fitness.FIT)


def test_the_fleet_is_the_mean_by_gpus_and_says_what_each_state_costs() -> None:
    nodes = [
        node_fitness(condition(node="a", watts=8000.0), 0.25),
        node_fitness(condition(node="b", watts=6000.0, tickets=["fan"]), 0.25),
        node_fitness(condition(node="c", online=False), 0.25),
        node_fitness(condition(node="head", role="head", gpus=0, gpus_read=0, driver="none", watts=400.0), 0.25),
    ]
    fleet = fleet_fitness(nodes, "EUR")
    assert fleet.score == (8 * 100 + 8 * 85 + 8 * 0 + 100) // 25
    shares = {state: (its.nodes, its.gpus, its.watts, its.cost_per_hour) for state, its in fleet.states.items()}
    assert shares == {
        "fit": (2, 8, 8400.0, 2.1),
        "degraded": (1, 8, 6000.0, 1.5),
        "out": (0, 0, None, None),
        "not known": (1, 8, None, None),
    }
    assert fleet.reasons == {"ticket": 1, "silent": 1}
    assert fleet_fitness([], "EUR").score is None


def test_a_job_is_as_good_as_its_worst_node() -> None:
    nodes = {
        "a": node_fitness(condition(node="a"), None),
        "b": node_fitness(condition(node="b", tickets=["fan"]), None),
    }
    both = job_fitness("slurm", "7", {"a", "b"}, nodes)
    assert (both.state, both.score, both.worst, both.nodes) == ("degraded", 85, "b", 2)
    gone = job_fitness("slurm", "8", {"a", "unheard"}, nodes)
    assert (gone.state, gone.score, gone.worst) == ("not known", 0, "unheard")


def alert(node: str, rule: str, severity: Severity, state: AlertState = AlertState.FIRING) -> Alert:
    found: Alert = msgspec.convert(
        {"key": f"{rule}/{node}", "rule": rule, "severity": severity, "state": state, "node": node,
         "summary": rule, "since": 1, "gpu": None, "value": None, "runbook": "", "remediation": "reset"},
        Alert, strict=False,
    )  # fmt: skip
    return found


async def test_the_state_of_a_fleet_comes_from_readings_alerts_and_drift() -> None:
    view = FakeView()
    for name in ("n1", "n2", "n3"):
        view.add(inventory(name))
    await view.tick(0)
    view.fleet.nodes["n3"].online = False
    raised = [
        alert("n1", "fan", Severity.TICKET),
        alert("n1", "node_differs", Severity.TICKET),
        alert("n2", "xid_79", Severity.PAGE, AlertState.PENDING),
    ]
    found = {s.node: s for s in node_states(view.fleet, view.now(), raised, None, {"n1": 5000.0, "n2": float("nan")})}
    assert (found["n1"].tickets, found["n1"].watts) == (["fan"], 5000.0)
    assert (list(found["n2"].pages), found["n2"].watts, found["n2"].gpus_read) == ([], None, 2)
    assert not found["n3"].online
    drift = drift_of([compared(gpu(7, present=False)(dgx(n)) if n == 3 else dgx(n)) for n in range(6)], 0)
    view.add(dgx(3))
    deviating = {s.node: s for s in node_states(view.fleet, view.now(), [], drift, {})}["dgx-003"]
    assert deviating.unlike == ["gpus"]


async def test_it_is_served_with_metrics_and_its_jobs(tmp_path: Path) -> None:
    view = FakeView()
    for name in ("n1", "n2"):
        view.add(inventory(name))
    await view.tick(0)
    give_jobs(view, ("n1", "4711", "ann", (0, 1)))
    async with door(view) as client:
        status, body = await client.json("/api/v1/fitness")
        assert (status, body["nodes"], body["fleet"]["score"]) == (200, [], None)
        states = node_states(view.fleet, view.now(), [alert("n1", "fan", Severity.TICKET)], None, {"n1": 4000.0})
        jobs = nodes_of_jobs(view.jobs.lists)
        assert jobs == {JobKey("slurm", "lab", "4711"): {"n1"}}
        view.fitness.compute(states, jobs, 0.5, "EUR", view.wall())
        reply = msgspec.convert((await client.json("/api/v1/fitness"))[1], FitnessReply)
        assert [(one.node, one.score) for one in reply.nodes] == [("n1", 85), ("n2", 100)]
        assert [(one.job, one.score, one.worst) for one in reply.jobs] == [("4711", 85, "n1")]
        assert (await client.json("/api/v1/status"))[1]["fitness"]["score"] == 92
        page = (await client.text("/metrics"))[1]
        assert 'kilowatch_cluster_fitness_score{cluster="lab"} 92' in page
        assert 'kilowatch_node_fitness_score{cluster="lab",node="n1",state="degraded"} 85' in page
        assert 'kilowatch_job_fitness_score{cluster="lab",job_id="4711",scheduler="slurm"} 85' in page
        assert 'kilowatch_cluster_fitness_cost_per_hour{cluster="lab",state="degraded",currency="EUR"} 2' in page


async def test_its_past_outlives_a_restart_and_is_bounded_by_time(tmp_path: Path) -> None:
    path = tmp_path / "fitness.json"
    first = FitnessTracker(path)
    first.load()
    for step in range(4):
        tickets = ["fan"] if step >= 2 else []
        first.compute([condition(tickets=tickets)], {}, None, "", step * SAMPLE_NS)
        first.compute([condition()], {}, None, "", step * SAMPLE_NS + 1)
        await first.save()
    again = FitnessTracker(path)
    again.load()
    reply = again.compute([condition(online=False)], {}, None, "", 4 * SAMPLE_NS)
    assert [(one.score, one.fit, one.degraded, one.unknown) for one in reply.history] == [
        (100, 1, 0, 0), (100, 1, 0, 0), (85, 0, 1, 0), (85, 0, 1, 0), (0, 0, 0, 1),
    ]  # fmt: skip
    path.write_text("[[")
    broken = FitnessTracker(path)
    broken.load()
    assert len(broken.compute([condition()], {}, None, "", SAMPLE_NS).history) == 1
    assert FitnessTracker().compute([], {}, None, "", 0).history == []


def test_the_page_has_every_weight() -> None:
    text = Path("docs/fitness.md").read_text(encoding="utf-8")
    for name, weight in WEIGHTS.items():
        assert f"| {name} | {weight.points} | {weight.state.value} | {weight.why} |" in text
