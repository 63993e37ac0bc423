"""The incident manager: which alerts are one incident, and when it is notified."""

from __future__ import annotations

import pytest

from alerts.incidents.manager import IncidentManager
from alerts.incidents.policy import RulePolicy, RuleScope, policies_of
from alerts.rules.rule import load
from api.alerts import Action, NotificationState, Severity
from telemetry.errors import ConfigError
from tests.alerts.deliveries import NOON, SECOND, ManagerHarness, alert, described, over, trip


def test_a_page_is_told_a_second_after_it_fires_and_its_end_ten_seconds_after_it() -> None:
    harness = ManagerHarness()
    lost = alert("gpu_lost", gpu="GPU-a")
    assert harness.tick(lost) == []
    [told] = harness.tick()
    assert (told.action, told.reason) == (Action.TRIGGER, "new")
    assert told.incident.group == {"rule": "gpu_lost", "node": "dgx-01", "gpu": "GPU-a"}
    assert told.incident.title == lost.summary
    assert (told.incident.firing, told.incident.total) == (1, 1)
    assert len(told.incident.key) <= 255
    assert harness.tick(over(lost)) == []
    [end] = harness.wait(12)
    assert (end.action, end.reason) == (Action.RESOLVE, "resolved")
    assert end.incident.key == told.incident.key
    assert end.incident.ended == harness.wall - 2 * SECOND
    assert end.incident.firing == 0
    assert harness.manager.incidents() == []
    assert harness.manager.recent() == [end.incident]


def test_the_manager_returns_when_it_must_be_called() -> None:
    harness = ManagerHarness()
    assert harness.manager.next_due() is None
    harness.tick(alert("gpu_lost", gpu="GPU-a"))
    assert harness.manager.next_due() == pytest.approx(harness.now + 1.001)
    assert described(harness.tick(seconds=1.0)) == ["trigger new"]
    assert harness.manager.next_due() == pytest.approx(
        harness.now + harness.timings.repeat_page, abs=0.01
    )


def test_a_ticket_waits_longer_and_information_is_told_to_nobody() -> None:
    harness = ManagerHarness()
    news = alert("thermal", gpu="GPU-b", severity=Severity.INFO)
    harness.tick(alert("thermal", gpu="GPU-a", severity=Severity.TICKET), news)
    assert harness.wait(14) == []
    assert described(harness.tick()) == ["trigger new"]
    assert harness.state(news) is None
    assert len(harness.manager.incidents()) == 1


def test_what_resolves_before_it_is_told_is_told_to_nobody() -> None:
    harness = ManagerHarness()
    hot = alert("thermal", gpu="GPU-a", severity=Severity.TICKET)
    harness.tick(hot)
    harness.tick(over(hot))
    assert harness.wait(60) == []
    assert harness.manager.incidents() == []


def test_every_incident_has_a_key_of_its_own() -> None:
    harness = ManagerHarness()
    lost = alert("gpu_lost", gpu="GPU-a")
    for _ in range(5):
        harness.tick(lost)
        harness.tick()
        harness.tick(over(lost))
        harness.wait(301)
    keys = [notice.incident.key for notice in harness.sent if notice.action is Action.TRIGGER]
    assert len(keys) == len(set(keys)) == 5
    ids = [notice.id for notice in harness.sent]
    assert len(ids) == len(set(ids))


def test_two_aggregators_that_see_the_same_find_the_same_key() -> None:
    keys = set()
    for start in (10.0, 99.5):
        harness = ManagerHarness(now=start)
        harness.tick(alert("gpu_lost", gpu="GPU-a"), seconds=start / 100)
        keys.add(harness.only().key)
    assert len(keys) == 1


# -- Grouping: the cases (a) to (e), and what they are not ---------------------------------------


def test_a_lost_gpu_and_the_switch_errors_that_follow_are_one_page() -> None:
    harness = ManagerHarness()
    lost = alert("gpu_lost", gpu="GPU-a")
    policies = {**harness.policies, "gpu_lost": RulePolicy(group=RuleScope.NODE)}
    harness = ManagerHarness(policies)
    harness.tick(lost)
    harness.wait(12)
    switch = alert("nvswitch_errors", severity=Severity.TICKET)
    harness.tick(switch)
    harness.wait(400)
    assert described(harness.sent) == ["trigger new", "update more"]
    assert {one.rule for one in harness.only().alerts} == {"gpu_lost", "nvswitch_errors"}
    assert harness.only().title == f"{lost.summary} (and 1 more)"


def test_link_errors_and_recovery_actions_of_four_gpus_of_a_tray_are_one_page() -> None:
    harness = ManagerHarness()
    gpus = [f"GPU-{number}" for number in range(4)]
    harness.tick(*(alert("nvlink_errors", gpu=gpu) for gpu in gpus))
    harness.tick(*(alert("recovery_action", gpu=gpu) for gpu in gpus), seconds=0.9)
    harness.wait(400)
    assert [one.action for one in harness.sent] == [Action.TRIGGER]
    assert harness.sent[0].incident.total == 8


def test_a_power_brake_of_many_nodes_is_one_incident_of_their_circuit() -> None:
    harness = ManagerHarness()
    for node in range(4):
        harness.tick(
            *(
                alert("power_brake", f"dgx-0{node}", f"GPU-{node}-{number}", circuits="A1, B1")
                for number in range(8)
            ),
            seconds=0.2,
        )
    [told] = harness.wait(60)
    assert told.incident.group == {"rule": "power_brake", "circuit": "A1,B1"}
    assert told.incident.total == 32
    assert told.incident.title.endswith("(and 31 more alike on 4 nodes)")


def test_a_failed_remap_and_the_error_behind_it_on_the_same_gpu_are_one_page() -> None:
    harness = ManagerHarness()
    harness.tick(alert("ecc_uncontained", gpu="GPU-a"))
    harness.tick(alert("ecc_contained", gpu="GPU-a", severity=Severity.TICKET), seconds=0.059)
    harness.wait(60)
    assert described(harness.sent) == ["trigger new"]
    assert harness.sent[0].incident.total == 2


def test_refused_accesses_on_six_gpus_in_a_second_are_one_ticket() -> None:
    harness = ManagerHarness()
    harness.tick(
        *(
            alert("ecc_contained", gpu=f"GPU-{number}", severity=Severity.TICKET)
            for number in range(6)
        )
    )
    harness.wait(60)
    assert described(harness.sent) == ["trigger new"]
    assert harness.sent[0].incident.severity is Severity.TICKET


def test_all_gpus_of_a_node_lost_at_once_are_one_page_and_one_lost_later_is_another() -> None:
    harness = ManagerHarness({"gpu_gone": RulePolicy(group=RuleScope.BURST)})
    harness.tick(*(alert("gpu_gone", gpu=f"GPU-{number}") for number in range(6)))
    harness.wait(5)
    harness.tick(alert("gpu_gone", gpu="GPU-6"), alert("gpu_gone", "dgx-09", "GPU-x"))
    harness.wait(5)
    assert described(harness.sent) == ["trigger new", "trigger new"]
    assert [notice.incident.total for notice in harness.sent] == [6, 1]
    harness.wait(600, every=10)
    harness.tick(alert("gpu_gone", gpu="GPU-7"))
    harness.wait(5)
    assert described(harness.sent)[-1] == "trigger new"
    assert harness.sent[-1].incident.total == 1


def test_another_fault_of_another_hour_is_another_incident() -> None:
    harness = ManagerHarness()
    harness.tick(alert("thermal", gpu="GPU-a"))
    harness.wait(3600, every=60)
    harness.tick(alert("ecc_uncontained", gpu="GPU-a"))
    harness.wait(5)
    assert described(harness.sent) == ["trigger new", "trigger new"]
    assert len({notice.incident.key for notice in harness.sent}) == 2


def test_more_of_the_same_is_an_update_every_five_minutes_and_worse_is_a_page() -> None:
    harness = ManagerHarness()
    harness.tick(alert("gpu_hung", gpu="GPU-0", severity=Severity.TICKET))
    for number in range(1, 21):
        harness.wait(30, every=10)
        harness.tick(alert("gpu_hung", gpu=f"GPU-{number}", severity=Severity.TICKET))
    assert described(harness.sent) == ["trigger new", "update more", "update more"]
    harness.tick(alert("gpu_hung", gpu="GPU-bad"))
    harness.wait(5)
    assert described(harness.sent)[-1] == "trigger worse"
    assert harness.sent[-1].incident.key == harness.sent[0].incident.key
    assert harness.sent[-1].incident.severity is Severity.PAGE


def test_an_incident_that_shrinks_is_told_so_but_never_as_a_page() -> None:
    harness = ManagerHarness()
    both = [alert("gpu_hung", gpu=f"GPU-{number}") for number in range(2)]
    harness.tick(*both)
    harness.wait(60)
    harness.tick(over(both[0]))
    harness.wait(400)
    assert described(harness.sent) == ["trigger new", "update fewer"]
    assert harness.sent[-1].incident.firing == 1


def test_an_incident_lists_a_hundred_alerts_and_counts_them_all() -> None:
    harness = ManagerHarness()
    harness.tick(*(alert("gpu_hung", gpu=f"GPU-{number}") for number in range(250)))
    [told] = harness.tick()
    assert len(told.incident.alerts) == 100
    assert told.incident.total == told.incident.firing == 250


def test_nobody_answers_and_it_is_told_again_after_four_hours() -> None:
    harness = ManagerHarness()
    harness.tick(alert("gpu_lost", gpu="GPU-a"))
    harness.wait(4 * 3600 - 60, every=60)
    assert described(harness.sent) == ["trigger new"]
    harness.wait(180, every=60)
    assert described(harness.sent) == ["trigger new", "trigger repeat"]


# -- Inhibition -----------------------------------------------------------------------------------


def test_a_tripped_breaker_hides_its_nodes_and_they_hide_their_gpus() -> None:
    harness = ManagerHarness()
    nodes = [alert("node_silent", f"dgx-0{n}", circuits="A1", rack="r7") for n in range(4)]
    gpus = [alert("gpu_lost", f"dgx-0{n}", f"GPU-{n}", circuits="A1") for n in range(4)]
    harness.tick(*gpus, *nodes, seconds=1.0)
    harness.tick(trip("A1"), seconds=0.9)
    [told] = harness.wait(60)
    assert told.incident.group == {"rule": "circuit_trip_suspected", "circuit": "A1"}
    assert told.incident.hidden == 8
    assert set(told.incident.inhibited) == {one.key for one in (*nodes, *gpus)}
    assert harness.state(nodes[0]) is NotificationState.INHIBITED
    held = harness.manager.status(gpus[0].key)
    assert held is not None
    assert held.by in {nodes[0].key, trip("A1").key}


def test_a_cause_that_names_its_nodes_hides_them() -> None:
    harness = ManagerHarness()
    mine, other = alert("node_silent", "dgx-01"), alert("node_silent", "dgx-09")
    harness.tick(trip("A1", nodes="dgx-01, dgx-02"), mine, other)
    harness.wait(5)
    assert harness.state(mine) is NotificationState.INHIBITED
    assert harness.state(other) is NotificationState.NOTIFIED


def test_a_lost_gpu_hides_its_own_links_only() -> None:
    harness = ManagerHarness()
    mine = alert("nvlink_down", gpu="GPU-a", link=3)
    other = alert("nvlink_down", gpu="GPU-b", link=3)
    harness.tick(alert("gpu_lost", gpu="GPU-a"), mine, other)
    harness.wait(5)
    assert harness.state(mine) is NotificationState.INHIBITED
    assert harness.state(other) is NotificationState.NOTIFIED


@pytest.mark.parametrize("late", [2.0, 60.0, 290.0])
def test_a_cause_that_comes_after_its_consequence_was_told_is_no_second_page(late: float) -> None:
    harness = ManagerHarness()
    gpu = alert("gpu_hung", gpu="GPU-a")
    harness.tick(gpu)
    harness.wait(late, every=late / 4)
    assert described(harness.sent) == ["trigger new"]
    harness.tick(alert("driver_down"))
    harness.wait(400, every=10)
    assert described(harness.sent) == ["trigger new", "update cause"]
    incident = harness.only()
    assert incident.key == harness.sent[0].incident.key
    assert incident.group["rule"] == "driver_down"
    assert incident.title == alert("driver_down").summary
    assert incident.inhibited == (gpu.key,)


def test_what_was_told_long_before_is_no_consequence() -> None:
    harness = ManagerHarness()
    gpu = alert("gpu_hung", gpu="GPU-a")
    harness.tick(gpu)
    harness.wait(600, every=10)
    harness.tick(alert("driver_down"))
    harness.wait(60)
    assert harness.state(gpu) is NotificationState.NOTIFIED
    assert described(harness.sent) == ["trigger new", "trigger new"]


def test_incidents_that_turn_out_to_be_consequences_are_merged_into_one() -> None:
    harness = ManagerHarness()
    nodes = [alert("node_silent", f"dgx-0{n}", circuits="A1", rack=f"r{n}") for n in range(3)]
    harness.tick(*nodes)
    harness.wait(3)
    assert described(harness.sent) == ["trigger new"] * 3
    harness.tick(trip("A1"))
    harness.wait(60)
    assert described(harness.sent)[3:] == ["resolve merged", "resolve merged", "update cause"]
    assert harness.only().group == {"rule": "circuit_trip_suspected", "circuit": "A1"}
    assert harness.only().key == harness.sent[0].incident.key
    assert harness.only().hidden == 3


def test_a_worse_cause_of_a_told_consequence_is_a_page() -> None:
    harness = ManagerHarness()
    harness.tick(alert("gpu_hung", gpu="GPU-a", severity=Severity.TICKET))
    harness.wait(20)
    harness.tick(alert("driver_down"))
    harness.wait(5)
    assert described(harness.sent) == ["trigger new", "trigger worse"]


def test_a_consequence_that_outlives_its_cause_is_told_after_a_grace() -> None:
    harness = ManagerHarness()
    node, gpu = alert("node_silent"), alert("gpu_lost", gpu="GPU-a")
    harness.tick(node, gpu)
    harness.wait(100)
    assert described(harness.sent) == ["trigger new"]
    harness.tick(over(node))
    harness.wait(14)
    assert described(harness.sent) == ["trigger new", "resolve resolved"]
    assert harness.state(gpu) is NotificationState.INHIBITED
    harness.wait(3)
    assert described(harness.sent) == ["trigger new", "resolve resolved", "trigger new"]
    assert harness.state(gpu) is NotificationState.NOTIFIED


def test_a_consequence_that_is_good_again_but_kept_is_not_told() -> None:
    harness = ManagerHarness()
    node, gpu = alert("node_silent"), alert("gpu_lost", gpu="GPU-a")
    harness.tick(node, gpu)
    harness.wait(100)
    harness.tick(over(node))
    for _ in range(100):
        harness.tick(recovering={gpu.key})
    assert harness.state(gpu) is NotificationState.INHIBITED
    harness.tick(over(gpu))
    harness.wait(60)
    assert described(harness.sent) == ["trigger new", "resolve resolved"]


def test_rules_that_hide_one_another_are_refused() -> None:
    circle = {
        "a": RulePolicy(inhibits=("b",)),
        "b": RulePolicy(inhibits=("c",)),
        "c": RulePolicy(inhibits=("a",)),
    }
    with pytest.raises(ConfigError, match=r"inhibit one another: a -> . -> . -> a"):
        IncidentManager(circle, now=0.0, wall_ns=NOON)


def test_the_shipped_rules_give_policies() -> None:
    rules = load()
    policies = policies_of(rules)
    assert policies.keys() == {rule.name for rule in rules}
    assert any(policy.edge for policy in policies.values())
