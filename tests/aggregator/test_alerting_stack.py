"""Many faults at once, and one that comes and goes: how often people are called, by the shipped rules
and the timings of the settings."""

from __future__ import annotations

from pathlib import Path

import msgspec

from aggregator.register.node_status import status_of
from alerts.rules.rule import load
from api.alerts import Action, NotificationState, Severity
from api.fleet import NodeStatus
from tests.aggregator.alerting_stack import Hall, calls

TOASTY = """
[[rule]]
name = "toasty"
when = { type = "above", metric = "gpu_temperature_celsius", level = 80 }
severity = "page"
remediation = "reset"
summary = "{where} is at {value}"
description = "Let it cool."
runbook = "toasty"
"""


def test_five_hundred_nodes_that_fall_silent_at_once_are_one_page_and_one_end() -> None:
    hall = Hall(500)
    assert hall.pass_by(10) == []
    hall.silent = set(hall.names)
    said = hall.pass_by(150, every=2.0)
    assert len(calls(said)) == 1
    (page,) = [one for one in said if one.action is Action.TRIGGER]
    assert page.incident.severity is Severity.PAGE
    assert page.incident.group == {"rule": "nodes_silent"}
    (incident,) = hall.pipeline.manager.incidents()
    assert incident.firing == 500
    assert incident.hidden == 500  # each node's own ticket is its consequence
    hall.silent = set()
    over = hall.pass_by(60, every=2.0)
    assert [one.action for one in over if one.action is not Action.UPDATE] == [Action.RESOLVE]
    assert hall.pipeline.manager.incidents() == []


def test_a_lost_broker_is_one_page_and_no_node_is_silent() -> None:
    """No frames arrive; the state of the nodes is unknown."""
    hall = Hall(50)
    hall.pass_by(10)
    hall.listening = False
    hall.pipeline.impairments.report("bus_lost", "aggregator/default", "", whole=True)
    said = hall.pass_by(300, every=2.0)
    assert calls(said) == ["kilowatch receives nothing: it has no connection to the broker"]
    hall.listening = True
    hall.pipeline.impairments.clear("bus_lost", "aggregator/default")
    back = hall.pass_by(240, every=2.0)
    assert calls(back) == []
    assert [one.action for one in back] == [Action.RESOLVE]


def test_a_gpu_of_every_node_that_is_lost_at_once_is_one_page_for_all() -> None:
    """The storm brake; what it holds back is listed, and ends with it."""
    hall = Hall(300)
    hall.pass_by(5)
    said = hall.pass_by(30, *(hall.xid(name, 0) for name in hall.names))
    (page,) = [one for one in said if one.action is Action.TRIGGER]
    assert page.reason == "storm"
    assert page.incident.title.startswith("Storm: 300 incidents on 300 nodes: gpu_lost 300")
    assert len(hall.pipeline.manager.incidents()) == 301
    held = hall.pipeline.manager.status("gpu_lost/n7/GPU-n7-0")
    assert held is not None
    assert held.state is NotificationState.STORM


def test_a_handful_of_lost_gpus_are_a_page_each() -> None:
    hall = Hall(50)
    hall.pass_by(5)
    said = hall.pass_by(30, *(hall.xid(name, 1) for name in hall.names[:5]))
    assert sorted(calls(said)) == [f"n{n} GPU 1 has fallen off the bus" for n in range(5)]


def test_a_lost_gpu_hides_the_faults_that_follow_from_it() -> None:
    """Inhibition by cause, through rules and incident manager."""
    hall = Hall(2)
    hall.pass_by(5)
    said = hall.pass_by(5, hall.xid("n0", 0, 79), hall.xid("n0", 0, 154), hall.xid("n0", 0, 45))
    assert calls(said) == ["n0 GPU 0 has fallen off the bus"]
    assert len(hall.pipeline.manager.incidents()) == 1


def test_an_xid_says_its_number_and_who_ran_there() -> None:
    hall = Hall(1)
    hall.pass_by(5)
    event = hall.xid("n0", 1)
    told = {"xid": 79, "process": "python", "pid": 4242}
    (page,) = hall.pass_by(3, msgspec.structs.replace(event, data=told))
    (alert,) = page.incident.alerts
    assert alert.value_text == "XID 79"
    assert alert.labels["process"] == "python (pid 4242)"


def test_an_alert_that_comes_and_goes_for_ten_minutes_is_told_twice_at_most(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(TOASTY)
    hall = Hall(2, load([tmp_path / "mine.toml"], shipped=False))
    hall.pass_by(5)
    for _ in range(30):
        hall.hot = {("n0", 0)}
        hall.pass_by(10)
        hall.hot = set()
        hall.pass_by(10)
    told = calls(hall.notices)
    assert 1 <= len(told) <= 2
    assert len({one.incident.key for one in hall.notices}) == 1
    held = hall.pipeline.manager.incidents()
    assert len(held) == 1
    hall.pass_by(700, every=5.0)
    assert hall.notices[-1].action is Action.RESOLVE
    assert hall.pipeline.manager.incidents() == []


def test_a_node_whose_status_is_online_and_that_sends_no_frames_is_stale_and_then_an_alert() -> None:
    """As a publisher that hangs leaves it: its last will is not sent, for its connection stands."""
    hall = Hall(2)
    hall.pass_by(5)
    node = hall.fleet.nodes["n0"]
    node.online = hall.fleet.nodes["n1"].online = True
    hall.silent = {"n0"}
    hall.pass_by(30)
    assert node.online
    assert status_of(node, hall.now) is NodeStatus.STALE
    assert status_of(hall.fleet.nodes["n1"], hall.now) is NodeStatus.ONLINE
    hall.pass_by(40)
    assert node.online
    found = {alert.rule for alert in hall.pipeline.alerts() if alert.node == "n0"}
    assert found & {"node_silent", "busy_node_silent"}
