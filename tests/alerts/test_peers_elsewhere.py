"""Jobs over several members: each compares its GPUs as one aggregator would that had all nodes."""

from __future__ import annotations

import copy

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from alerts.rules.gpu_jobs import GpuJobs
from alerts.rules.medians import medians
from alerts.rules.peers import Outlier
from alerts.rules.peers_elsewhere import STATED, PeersElsewhere
from alerts.rules.row_memory import RowMemory
from telemetry.wire.jobs import NodeJobs
from tests.alerts.split_job import RULES, SOON, SplitJobs, jobs_of

THREE = {"n0": "a", "n1": "b", "n2": "c"}
FIVE = dict(zip(("n0", "n1", "n2", "n3", "n4"), "abbcc", strict=True))
NODES = [f"n{number}" for number in range(6)]
WINDOW = 30
"""Seconds of a window of `job_slow_gpu`."""
STRAGGLER = {f"straggler/n0/n0-{n}" for n in range(8)}
SLOW = {f"job_slow_gpu/n0/n0-{n}" for n in range(8)}


def test_a_node_that_is_slow_as_a_whole_is_found_by_the_member_that_has_it() -> None:
    """A node that is slow as a whole differs from the others of its job, which have other members."""
    split = SplitJobs({"1": list(THREE)}, THREE)
    split.run(120)
    split.slow["n0"] = 0.2
    split.run(300)
    assert {key for key in split.one.firing if key.startswith("straggler")} == STRAGGLER
    assert split.parts["a"].firing >= STRAGGLER
    assert split.firing == split.one.firing


@settings(max_examples=3, deadline=None)
@example(members=["a"] * 6, slow={"n0": 0.07}, asked=False, two=False, seed=0)
@given(
    members=st.lists(st.sampled_from("abc"), min_size=6, max_size=6),
    slow=st.dictionaries(
        st.sampled_from([*NODES, *(f"{node}/{n}" for node in NODES for n in (0, 5))]),
        st.sampled_from([0.07, 0.3]),
        max_size=3,
    ),
    asked=st.booleans(),
    two=st.booleans(),
    seed=st.integers(0, 9),
)
def test_members_find_what_one_aggregator_finds(
    members: list[str], slow: dict[str, float], asked: bool, two: bool, seed: int
) -> None:
    """However the nodes of one or two jobs are divided, the same alerts begin, a window or a moment later; less than a
    window earlier where a member has a whole job, since its windows begin with the clock."""
    jobs = {"1": NODES[:4], "2": NODES[4:]} if two else {"1": NODES}
    split = SplitJobs(jobs, dict(zip(NODES, members, strict=True)), asked=asked, seed=seed)
    split.run(400)
    split.slow = slow
    split.run(480)
    end = split.now - 60
    early, soon = ({key for key, at in found.items() if at <= end} for found in (split.one.fired, split.fired))
    assert early <= split.fired.keys()
    assert soon <= split.one.fired.keys()
    assert all(-WINDOW < split.fired[key] - split.one.fired[key] <= 60 for key in soon)


@settings(max_examples=3, deadline=None)
@given(
    members=st.lists(st.sampled_from("abc"), min_size=6, max_size=6),
    slow=st.dictionaries(st.sampled_from([*NODES, "n0/5", "n3/0"]), st.just(0.3), max_size=2),
    steps=st.lists(
        st.tuples(
            st.sampled_from(["silent", "moved", "restarted", "gone"]), st.sampled_from("abc"),
            st.sampled_from(NODES), st.sampled_from([30, 120]),
        ),
        min_size=2, max_size=3,
    ),
    seed=st.integers(0, 9),
)  # fmt: skip
def test_whatever_happens_to_members_nothing_false_is_found_and_all_in_the_end(
    members: list[str], slow: dict[str, float], steps: list[tuple[str, str, str, int]], seed: int
) -> None:
    """Members that do not answer, start anew, or are gone while others take their nodes; and nodes that move."""
    split = SplitJobs({"1": NODES}, dict(zip(NODES, members, strict=True)), seed=seed)
    split.run(60)
    split.slow = slow
    split.run(120)
    for what, name, node, seconds in steps:
        others = sorted(split.parts.keys() - {name})
        split.silent = {name} if what == "silent" else set()
        if what == "moved" and name in split.parts and split.members[node] != name:
            split.move(node, name)
        elif what == "restarted" and name in split.parts:
            split.begin(name)
        elif what == "gone" and name in split.parts and others:
            split.end(name, others[0])
        split.run(seconds)
        assert split.fired.keys() <= split.one.fired.keys()
    split.silent = set()
    split.run(300)
    assert {key for key in split.firing if key.startswith("straggler")} == {
        key for key in split.one.firing if key.startswith("straggler")
    }


@pytest.fixture(scope="module")
def once() -> SplitJobs:
    """A node that is slow as a whole, of a job over five members, and the alerts about it."""
    split = SplitJobs({"1": [*FIVE]}, FIVE)
    split.run(400)
    split.slow["n0"] = 0.2
    split.run(360)
    assert split.firing == split.one.firing == STRAGGLER | SLOW
    return split


@pytest.fixture
def found(once: SplitJobs) -> SplitJobs:
    """A copy of it."""
    return copy.deepcopy(once)


def test_an_alert_goes_on_while_another_member_is_out_of_sight(found: SplitJobs) -> None:
    """Among the GPUs that are left it would look fine, and a GPU of them that is slower yet like an outlier."""
    found.silent = {"b", "c"}
    found.slow["n0/3"] = 0.5
    found.run(900)
    assert found.parts["a"].firing == STRAGGLER | SLOW
    assert found.fired.keys() == STRAGGLER | SLOW
    found.silent = set()
    found.slow.clear()
    found.run(540)
    assert found.firing == found.one.firing == set()


def test_no_alert_begins_because_a_member_is_out_of_sight() -> None:
    """Three nodes do less than the others by a setting that nobody changes; among two of them one is an outlier."""
    rules = [*RULES, SOON["power_outlier"]]
    split = SplitJobs({"1": [*FIVE]}, FIVE | {"n1": "a"}, rules=rules)
    split.slow = dict.fromkeys(("n1", "n2", "n3", "n4"), 0.3) | {f"n1/{n}": 0.0 for n in range(6)}
    split.run(100)
    split.silent = {"b", "c"}
    split.run(600)
    assert split.fired == split.one.fired == {}
    for part in (split.one, *split.parts.values()):  # one that begins meanwhile, too
        for node in part.fleet.nodes:
            part.engine.jobs.put(node, jobs_of(node, "2", 40))
    split.run(300)
    assert split.fired == split.one.fired == {}
    alone = SplitJobs({"1": ["n0", "n1"]}, {"n0": "a", "n1": "a"}, rules=rules)
    alone.slow = split.slow
    alone.run(300)
    assert {key.partition("/")[0] for key in alone.fired} == {"straggler", "power_outlier"}


def test_alerts_go_on_when_nodes_change_hands(found: SplitJobs) -> None:
    """By a plan, also to one that has nothing yet, and where a member has died and another one takes what it had."""
    found.begin("d")
    found.run(20)
    found.move("n1", "d")
    found.run(300)
    found.silent = {"b"}
    found.run(60)
    found.silent = set()
    found.end("b", "c")
    found.run(540)
    assert found.parts["a"].firing == found.one.firing == STRAGGLER | SLOW
    found.begin("c")
    found.run(540)
    assert found.parts["a"].firing == STRAGGLER | SLOW
    assert found.fired.keys() == STRAGGLER | SLOW


def test_a_job_that_has_left_nodes_is_compared_without_them(found: SplitJobs) -> None:
    """Their member says so: nothing is out of sight."""
    for node in ("n1", "n2"):
        found.parts["b"].engine.jobs.put(node, NodeJobs(session=1, sources=found.lists[node].sources))
    found.slow.clear()
    found.run(540)
    assert found.firing == set()


def test_a_part_of_many_gpus_is_stated_by_few_values_and_counts_as_many() -> None:
    """One node of fourteen is slow, alone at its member; the others are 104 GPUs of another."""
    nodes = {f"n{number}": "b" if number else "a" for number in range(14)}
    split = SplitJobs({"1": [*nodes]}, nodes)
    split.run(400)
    split.slow["n0"] = 0.2
    split.run(360)
    assert split.parts["a"].firing == split.one.firing == STRAGGLER | SLOW
    assert split.parts["b"].firing == set()
    elsewhere = split.parts["b"].elsewhere
    assert elsewhere is not None
    for stated in elsewhere.answer(elsewhere.wanted, {}).values():
        assert (stated.rows.tolist(), len(stated.values)) == ([104], min(STATED, *stated.compared))
    split.slow = {f"n{number}": 0.2 for number in range(14)}
    split.run(540)
    assert split.firing == set()


@given(parts=st.lists(st.integers(1, 400), min_size=1, max_size=4), own=st.integers(0, 9), seed=st.integers(0, 99))
def test_quantiles_of_a_part_move_the_median_by_less_than_a_hundredth_of_its_gpus(
    parts: list[int], own: int, seed: int
) -> None:
    """Counted in ranks among all GPUs, of which it is one itself."""
    draw = np.random.default_rng(seed)
    values = [np.sort(draw.normal(size=size)) for size in parts]
    mine = draw.normal(size=own)
    identities = np.array([0, 7], np.uint64)
    stated = []
    for its in values:
        elsewhere = PeersElsewhere()
        one = GpuJobs()
        one.grow(len(its))
        groups = np.ones(len(its), np.intp)
        elsewhere.follow(1, groups, identities, one)
        elsewhere.present("key", 0, its, np.ones(len(its), np.bool_), groups, 0.0)
        stated.append(elsewhere.answer(identities[1:], {})["key"])
    elsewhere, one, groups = PeersElsewhere(), GpuJobs(), np.ones(max(own, 1), np.intp)
    one.grow(len(groups))
    elsewhere.follow(1, groups, identities, one)
    answers = {str(number): {"key": its} for number, its in enumerate(stated)}
    elsewhere.hear(identities[1:], answers, dict.fromkeys(answers, ""), 0.0)
    there = np.arange(len(groups)) < own
    padded = np.append(mine, np.zeros(len(groups) - own))
    others, _ = elsewhere.present("key", 0, padded, there, groups, 0.0)
    median, size = medians(padded, groups, 2, there, others)
    everything = np.sort(np.concatenate([mine, *values]))
    assert size[1] == len(everything)
    if len(everything):
        rank = np.searchsorted(everything, median[1], side="left"), np.searchsorted(everything, median[1], side="right")
        most = sum(size / (2 * STATED) if size > STATED else 0 for size in parts) + 1
        assert rank[0] - most <= len(everything) / 2 <= rank[1] + most
        if max(parts) <= STATED:
            assert median[1] == np.median(everything)


def test_with_members_of_a_release_before_each_compares_its_own_as_it_did() -> None:
    """A part that was never stated is no part: a GPU that is slow among ours is found as ever."""
    split = SplitJobs({"1": [*FIVE]}, FIVE | {"n1": "a"}, apart={"b", "c"})
    split.run(400)
    split.slow = {"n0/3": 0.2, "n2/1": 0.2}
    split.run(360)
    wanted = {"job_slow_gpu/n0/n0-3", "straggler/n0/n0-3"}
    assert split.parts["a"].firing == wanted
    assert split.parts["b"].firing == {"job_slow_gpu/n2/n2-1", "straggler/n2/n2-1"}
    for joins in (True, False):  # upgraded, and back again
        split.begin("b", joins=joins)
        split.run(300)
        assert split.parts["a"].firing == wanted
    split.slow.clear()
    split.run(540)
    assert split.firing == set()


def test_rates_are_compared_with_those_of_other_members() -> None:
    """Half of the job's GPUs, all that a member has, are as bad as each other, and ten times as bad as the rest."""
    rule = SOON["pcie_outlier"]
    assert isinstance(rule.when, Outlier)
    when = msgspec.structs.replace(rule.when, window=60.0, among="job")
    soon = msgspec.structs.replace(rule, when=when)
    split = SplitJobs({"1": [*THREE]}, THREE, rules=[soon])
    split.run(100)
    split.replays["n0"] = 2.0
    split.run(400)
    assert split.firing == split.one.firing == {f"pcie_outlier/n0/n0-{n}" for n in range(8)}
    split.silent = {"b", "c"}
    split.run(400)
    assert len(split.parts["a"].firing) == 8
    split.silent = set()
    split.replays["n1"] = split.replays["n2"] = 2.0
    split.run(400)
    assert split.firing == split.one.firing == set()


def test_a_gpu_that_another_job_has_now_is_not_compared_by_what_it_did_for_the_one_before() -> None:
    """The other member has stated nothing of the new job yet."""
    elsewhere, one, memory = PeersElsewhere(), GpuJobs(), RowMemory(4)
    one.grow(4)
    identities, values = np.array([0, 7, 9], np.uint64), np.arange(4.0)
    there, before, after = np.ones(4, np.bool_), np.array([1, 1, 2, 2]), np.array([1, 2, 2, 2])
    other = PeersElsewhere()
    for version, groups in enumerate((before, after)):
        for each in (elsewhere, other):
            each.follow(version, groups, identities, one)
        other.present("key", version, values, there, groups, 0.0)
        answers = {"b": {"key": other.answer(identities[1:], {})["key"]}}
        elsewhere.hear(identities[1:], answers, {"b": "p"}, 0.0)
        elsewhere.compared("key", version, values, there, groups, memory, 0.0)
        elsewhere.state("key", version, values, there, groups, memory)
    found = elsewhere.compared("key", 1, values, there, after, memory, 0.0)
    assert found.there.tolist() == [True, False, True, True]
    assert found.late.all()


def test_nodes_with_one_label_are_compared_where_no_job_is_known() -> None:
    """The label of a node says which job it has, at all members."""
    split = SplitJobs({}, THREE)
    for part in (split.one, *split.parts.values()):
        part.engine.texts.node_labels = {node: {"job": "x"} for node in THREE}
    split.run(60)
    split.slow["n2"] = 0.2
    split.run(240)
    assert split.firing == split.one.firing == {f"straggler/n2/n2-{n}" for n in range(8)}


def test_one_member_with_all_gpus_of_a_job_asks_nobody_and_waits_for_nobody() -> None:
    """Compare a job within its member where the scheduler gave it nothing elsewhere."""
    split = SplitJobs({"1": [*THREE]}, dict.fromkeys(THREE, "a"))
    split.run(120)
    split.slow["n0"] = 0.2
    split.run(300)
    elsewhere = split.parts["a"].elsewhere
    assert elsewhere is not None
    assert not len(elsewhere.wanted)
    assert split.fired == split.one.fired != {}
