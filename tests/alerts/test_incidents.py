"""The incident manager: which alerts are one incident, and when it is notified."""

from __future__ import annotations

import msgspec
import pytest

from alerts.incidents.manager import IncidentManager
from alerts.incidents.policy import RulePolicy, RuleScope, policies_of
from alerts.rules.rule import load
from api.alerts import Action, NotificationState, Severity
from present.alert.incident import short_title
from telemetry.errors import ConfigError
from tests.alerts.deliveries import NOON, SECOND, ManagerHarness, acknowledge, alert, described, over, trip


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
    assert harness.manager.next_due() == pytest.approx(harness.now + harness.timings.repeat_page, abs=0.01)


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
            *(alert("power_brake", f"dgx-0{node}", f"GPU-{node}-{number}", circuits="A1, B1") for number in range(8)),
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
    harness.tick(*(alert("ecc_contained", gpu=f"GPU-{number}", severity=Severity.TICKET) for number in range(6)))
    harness.wait(60)
    assert described(harness.sent) == ["trigger new"]
    assert harness.sent[0].incident.severity is Severity.TICKET


def test_all_gpus_of_a_node_lost_at_once_are_one_page_and_one_lost_later_is_another() -> None:
    harness = ManagerHarness({"gpu_gone": RulePolicy(group=RuleScope.BURST)})
    harness.tick(*(alert("gpu_gone", gpu=f"GPU-{number}") for number in range(6)))
    harness.wait(1)
    harness.tick(alert("gpu_gone", gpu="GPU-6"), alert("gpu_gone", "dgx-09", "GPU-x"))
    harness.wait(20)
    assert described(harness.sent) == ["trigger new", "trigger new", "update more"]
    assert [notice.incident.total for notice in harness.sent] == [6, 1, 7]
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


def test_more_tickets_are_an_update_every_five_minutes_and_a_page_is_an_incident_of_its_own() -> None:
    harness = ManagerHarness()
    harness.tick(alert("gpu_hung", gpu="GPU-0", severity=Severity.TICKET))
    for number in range(1, 21):
        harness.wait(30, every=10)
        harness.tick(alert("gpu_hung", gpu=f"GPU-{number}", severity=Severity.TICKET))
    assert described(harness.sent) == ["trigger new", "update more", "update more"]
    harness.tick(alert("gpu_hung", gpu="GPU-bad"))
    harness.wait(5)
    assert described(harness.sent)[-1] == "trigger new"
    assert harness.sent[-1].incident.key != harness.sent[0].incident.key
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


def test_a_cause_that_follows_its_consequence_within_moments_is_no_second_page() -> None:
    harness = ManagerHarness()
    gpu = alert("gpu_hung", gpu="GPU-a")
    harness.tick(gpu)
    harness.wait(2)
    assert described(harness.sent) == ["trigger new"]
    harness.tick(alert("driver_down"))
    harness.wait(400, every=10)
    assert described(harness.sent) == ["trigger new", "update more"]
    assert {one.rule for one in harness.only().alerts} == {"gpu_hung", "driver_down"}


@pytest.mark.parametrize("late", [5, 60, 600])
@pytest.mark.parametrize("severity", [Severity.PAGE, Severity.TICKET])
def test_a_cause_that_comes_later_pages_and_ends_nothing_that_was_notified(late: int, severity: Severity) -> None:
    harness = ManagerHarness()
    gpu = alert("gpu_hung", gpu="GPU-a", severity=severity)
    harness.tick(gpu)
    harness.wait(20 + late)
    harness.tick(alert("driver_down"))
    harness.wait(400, every=10)
    assert described(harness.sent) == ["trigger new", "trigger new"]
    assert harness.state(gpu) is NotificationState.NOTIFIED
    harness.tick(over(alert("driver_down")))
    [end] = harness.wait(60)
    assert (end.action, end.incident.key) == (Action.RESOLVE, harness.sent[1].incident.key)


def test_what_is_inhibited_is_never_announced_as_resolved() -> None:
    harness = ManagerHarness()
    ticket = alert("ecc_contained", gpu="GPU-a", severity=Severity.TICKET)
    harness.tick(ticket)
    harness.wait(20)
    assert described(harness.sent) == ["trigger new"]
    lost = alert("gpu_lost", gpu="GPU-a")
    harness.tick(lost)
    harness.wait(400, every=10)
    assert described(harness.sent) == ["trigger new", "trigger new"]
    harness.tick(over(lost))
    harness.wait(60)
    assert described(harness.sent)[2:] == ["resolve resolved"]
    assert harness.sent[2].incident.group["rule"] == "gpu_lost"
    harness.tick(over(ticket))
    harness.wait(60)
    assert described(harness.sent)[3:] == ["resolve resolved"]


def test_a_ticket_whose_flag_is_set_is_not_resolved_by_a_fault_of_another_gpu() -> None:
    """A firmware processor dies on GPU 0; GPU 6 awaits a repair, and has a fault and a request."""
    harness = ManagerHarness(policies_of(load()))
    repair = alert("remap_pending", gpu="GPU-6", severity=Severity.TICKET)
    harness.tick(repair)
    harness.wait(30)
    faults = [alert("gsp_dead", gpu="GPU-0"), alert("gpu_fault", gpu="GPU-6"), alert("recovery_action", gpu="GPU-6")]
    for fault in faults:
        harness.tick(fault)
        harness.wait(15)
    harness.wait(600, every=10)
    pages = [one.incident.group["rule"] for one in harness.sent if one.action is Action.TRIGGER]
    assert pages == ["remap_pending", "gsp_dead", "gpu_fault"]
    assert harness.state(faults[2]) is NotificationState.INHIBITED
    assert harness.state(repair) is NotificationState.NOTIFIED
    harness.tick(over(faults[0]), over(faults[1]))
    ends = harness.wait(60)
    assert {one.incident.group["rule"] for one in ends if one.action is Action.RESOLVE} == {"gsp_dead", "gpu_fault"}
    [rung] = [one for one in ends if one.action is Action.TRIGGER]
    assert [one.rule for one in rung.incident.alerts] == ["recovery_action"]


# -- A second fault -------------------------------------------------------------------------------


@pytest.mark.parametrize("acknowledged", [False, True])
def test_a_page_that_no_text_named_rings_whatever_was_sent_or_acknowledged_before(acknowledged: bool) -> None:
    """XID 62 on GPU 1, 15 s later on GPU 5, then XID 119 on GPU 2, and on a GPU that has paged."""
    harness = ManagerHarness(policies_of(load()))
    faults = [("gpu_fault", "GPU-1"), ("gpu_fault", "GPU-5"), ("gsp_dead", "GPU-2"), ("ecc_dbe", "GPU-5")]
    for number, (rule, gpu) in enumerate(faults, 1):
        harness.tick(alert(rule, gpu=gpu))
        harness.wait(5)
        pages = [one for one in harness.sent if one.action is Action.TRIGGER]
        assert len(pages) == number
        assert len({one.incident.key for one in pages}) == number
        assert [one.gpu for one in pages[-1].incident.alerts] == [gpu]
        if acknowledged:
            acknowledge(harness, pages[-1].incident.key)
        harness.wait(10)


def test_another_link_of_a_gpu_that_has_paged_is_an_update() -> None:
    harness = ManagerHarness(policies_of(load()))
    harness.tick(alert("nvlink_errors", gpu="GPU-1", link=3))
    harness.wait(30)
    harness.tick(alert("nvlink_errors", gpu="GPU-1", link=4))
    harness.wait(30)
    assert described(harness.sent) == ["trigger new", "update more"]


def test_a_cascade_is_one_page_and_what_comes_after_it_is_another() -> None:
    harness = ManagerHarness(policies_of(load()))
    for number in range(8):
        harness.tick(alert("gpu_fault", gpu=f"GPU-{number}"), seconds=0.3)
    harness.tick(alert("nvlink_fatal", gpu="GPU-0"), seconds=0.3)
    harness.wait(60)
    assert described(harness.sent) == ["trigger new", "update more"]
    assert harness.only().total == 9
    harness.tick(alert("gpu_fault", "dgx-01", "GPU-8"))
    harness.wait(5)
    assert described(harness.sent) == ["trigger new", "update more", "trigger new"]


def test_who_acknowledges_before_the_first_notice_knows_what_has_fired_by_then() -> None:
    harness = ManagerHarness(policies_of(load()))
    harness.tick(alert("gpu_fault", gpu="GPU-0"))
    acknowledge(harness, harness.only().key)
    harness.tick(alert("gpu_fault", gpu="GPU-1"), seconds=0.5)
    harness.wait(3)
    assert [[one.gpu for one in page.incident.alerts] for page in harness.sent] == [["GPU-0"], ["GPU-1"]]


@pytest.mark.parametrize("then", ["gpu_lost", "nvlink_fatal"])
def test_what_follows_an_acknowledgement_is_no_cascade(then: str) -> None:
    harness = ManagerHarness(policies_of(load()))
    harness.tick(alert("gpu_lost", gpu="GPU-0"))
    harness.tick()
    acknowledge(harness, harness.only().key)
    harness.tick(alert(then, gpu="GPU-1"))
    harness.wait(3)
    assert described(harness.sent).count("trigger new") == 2


def test_nodes_that_fall_silent_within_ten_seconds_are_one_page_and_later_ones_another() -> None:
    harness = ManagerHarness(policies_of(load()))
    for number in range(4):
        harness.tick(alert("nodes_silent", f"n{number}"))
        harness.wait(2)
    harness.wait(20)
    assert described(harness.sent) == ["trigger new", "update more"]
    harness.tick(alert("nodes_silent", "n9"))
    harness.wait(3)
    assert described(harness.sent) == ["trigger new", "update more", "trigger new"]


def test_a_lost_gpu_and_the_links_of_others_in_one_second_are_one_page() -> None:
    harness = ManagerHarness(policies_of(load()))
    harness.tick(alert("gpu_lost", gpu="GPU-0"))
    harness.tick(*(alert("nvlink_fatal", gpu=f"GPU-{number}") for number in range(8)))
    harness.wait(5)
    [page] = harness.sent
    assert page.incident.total == 8
    assert page.incident.inhibited == ("nvlink_fatal/dgx-01/GPU-0",)


def test_a_fault_that_spreads_for_minutes_is_a_few_pages_and_each_gpu_is_named_in_one() -> None:
    harness = ManagerHarness(policies_of(load()))
    gpus = [f"GPU-{number}" for number in range(60)]
    for gpu in gpus:
        harness.tick(alert("gpu_fault", gpu=gpu))
        harness.wait(4)
    harness.wait(300, every=10)
    pages = [one for one in harness.sent if one.action is Action.TRIGGER]
    assert len(pages) <= 8
    assert {one.gpu for page in pages for one in page.incident.alerts} == set(gpus)


def test_a_page_of_another_rule_does_not_wait_with_one_that_repeats() -> None:
    harness = ManagerHarness(policies_of(load()))
    for number in range(3):
        harness.tick(alert("gpu_fault", gpu=f"GPU-{number}"))
        harness.wait(4)
    assert described(harness.sent).count("trigger new") == 2
    harness.tick(alert("gsp_dead", gpu="GPU-9"))
    harness.wait(2)
    assert [one.rule for one in harness.sent[-1].incident.alerts] == ["gsp_dead"]
    harness.wait(10)
    assert [one.gpu for one in harness.sent[-1].incident.alerts] == ["GPU-2"]


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
        "a": RulePolicy(inhibits={"b": RuleScope.NODE}),
        "b": RulePolicy(inhibits={"c": RuleScope.NODE}),
        "c": RulePolicy(inhibits={"a": RuleScope.NODE}),
    }
    with pytest.raises(ConfigError, match=r"inhibit one another: a -> . -> . -> a"):
        IncidentManager(circle, now=0.0, wall_ns=NOON)


def test_the_shipped_rules_give_policies() -> None:
    rules = load()
    policies = policies_of(rules)
    assert policies.keys() == {rule.name for rule in rules}
    assert any(policy.edge for policy in policies.values())


@pytest.mark.parametrize("severity", [Severity.PAGE, Severity.TICKET], ids=str)
@pytest.mark.parametrize(
    ("node", "labels", "another"),
    [
        ("dgx-02", {"slot": "1"}, True),
        ("dgx-01", {"slot": "7"}, True),
        ("dgx-01", {"slot": "", "pci": "0000:5d:00.0"}, True),
        ("dgx-01", {"slot": "1"}, False),
        ("dgx-01", {}, False),
        ("dgx-01", {"slot": "1", "pci": "0000:5d:00.0"}, False),
    ],
    ids=["node", "slot", "address", "where it was", "unknown", "renumbered"],
)
def test_a_board_that_moved_does_not_join_the_incident_of_its_slot_of_before(
    severity: Severity, node: str, labels: dict[str, str], another: bool
) -> None:
    """Within the time in which the incident waits to settle: the fault has moved with the board."""
    harness = ManagerHarness()
    first = alert("gpu_lost", gpu="GPU-a", severity=severity, slot="1", pci="0000:18:00.0")
    harness.tick(first)
    harness.wait(120)
    harness.tick(over(first))
    harness.wait(3)
    second = alert("gpu_lost", node=node, gpu="GPU-a", severity=severity)
    harness.tick(msgspec.structs.replace(second, labels=labels))
    harness.wait(120)
    triggers = [one for one in harness.sent if one.action is Action.TRIGGER]
    assert len({one.incident.key for one in triggers}) == (2 if another else 1)
    if another:
        assert described(harness.sent).count("resolve resolved") == 1
        old, new = (one.incident for one in triggers)
        assert (new.group["node"], new.firing) == (node, 1)
        assert old.key not in {one.key for one in harness.manager.incidents()}


def test_a_board_that_moved_leaves_its_incident_with_the_others_in_it() -> None:
    """An incident of another GPU stays open, and does not name the board's fault elsewhere."""
    harness = ManagerHarness()
    both = [alert("gpu_lost", gpu=gpu, slot=slot) for gpu, slot in (("GPU-a", "1"), ("GPU-b", "2"))]
    harness.tick(*both)
    harness.wait(60)
    harness.tick(over(both[0]))
    harness.wait(3600)
    harness.tick(alert("gpu_lost", node="dgx-02", gpu="GPU-a", slot="1"))
    harness.wait(60)
    open_now = {one.group["node"]: one for one in harness.manager.incidents()}
    assert set(open_now) == {"dgx-01", "dgx-02"}
    assert {one.node for one in open_now["dgx-01"].alerts} == {"dgx-01"}
    assert {one.node for one in open_now["dgx-02"].alerts} == {"dgx-02"}


def test_a_page_that_fires_again_rings_although_a_ticket_has_kept_its_incident_open() -> None:
    """A ticket about a board that fails often lasts for weeks; only what comes before the page has settled
    is no news."""
    harness = ManagerHarness()
    lost = alert("gpu_lost", gpu="GPU-a")
    ticket = alert("thermal", gpu="GPU-a", severity=Severity.TICKET)
    harness.tick(lost, ticket)
    harness.wait(60)
    harness.tick(over(lost))
    harness.wait(5)
    harness.tick(lost)
    harness.wait(10)
    harness.tick(over(lost))
    assert [one.reason for one in harness.sent if one.action is Action.TRIGGER] == ["new"]
    harness.wait(3600, every=10)
    before = harness.only()
    harness.tick(lost)
    harness.wait(60)
    assert [one.reason for one in harness.sent if one.action is Action.TRIGGER] == ["new", "new"]
    assert harness.sent[-1].incident.key != before.key


def test_a_title_counts_gpus_where_some_have_several_alerts() -> None:
    """Seven GPUs with two alerts each were "and 13 more"."""
    rules = ("nvlink_down", "gpu_hung")
    harness = ManagerHarness({name: RulePolicy(group=RuleScope.NODE) for name in rules})
    harness.tick(*(alert(rule, gpu=f"GPU-{n}") for n in range(7) for rule in rules))
    (page,) = harness.wait(3)
    assert page.incident.title.endswith(" (and 6 more GPUs)")
    assert "more" not in short_title(page.incident.title)
