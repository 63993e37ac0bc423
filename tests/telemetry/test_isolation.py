"""Isolation: a part of each kind that raises is reported, tried again by one policy, and costs no other."""

from __future__ import annotations

import logging

import pytest

from alerts.rules.rule import monitor_rules
from telemetry.runtime.isolation import LONGEST_RETRY, Isolation, PartFault, PartKind


class Part:
    """A part whose step raises while it is broken."""

    def __init__(self, reason: str = "put in by the test") -> None:
        self.reason, self.tries = reason, 0

    def step(self) -> str:
        """Count a try, and return what the part is for."""
        self.tries += 1
        if self.reason:
            raise IndexError(self.reason)
        return "done"


@pytest.mark.parametrize("kind", PartKind)
def test_a_part_of_each_kind_that_raises_is_reported_and_costs_no_other(kind: PartKind) -> None:
    isolation, bad, good = Isolation(kind), Part(), Part("")
    for second in range(300):
        assert isolation.run("bad", float(second), bad.step, "unknown") == "unknown"
        assert isolation.run("good", float(second), good.step, "unknown") == "done"
        (fault,) = isolation.faults()
        assert (fault.rule, fault.part) == kind.fault("bad", "")[:2]
        assert fault.reason.startswith("IndexError: put in by the test (")
    assert good.tries == 300
    assert bad.tries == len([0, 1, 3, 7, 15, 31, 63, 123, 183, 243])
    bad.reason = ""
    assert isolation.run("bad", 300.0 + LONGEST_RETRY, bad.step, "unknown") == "done"
    assert list(isolation.faults()) == []
    assert isolation.failures == 10


@pytest.mark.parametrize("kind", PartKind)
def test_each_kind_is_reported_by_a_rule_of_the_monitor(kind: PartKind) -> None:
    rules = {rule.name for rule in monitor_rules()}
    assert {kind.fault("x", "").rule, kind.fault("node/x", "").rule} <= rules


def test_what_a_page_lacks_of_a_node_is_said_of_the_node() -> None:
    assert PartKind.PAGE.fault("gpu/x/bus", "why") == PartFault("page_set_aside", "gpu/x/bus", "why")
    assert PartKind.PAGE.fault("node/x/bus", "why").rule == "node_set_aside"
    assert PartKind.POWER.fault("node/x", "why").rule == "circuit_set_aside"


def test_a_fault_of_an_instant_is_reported_once() -> None:
    isolation, part = Isolation(PartKind.RULE), Part()
    isolation.run("hot", 0.0, part.step, None)
    part.reason = ""
    isolation.run("hot", 1.0, part.step, None)
    assert [fault.part for fault in isolation.faults()] == ["rule/hot"]
    assert list(isolation.faults()) == []


def test_what_would_be_lost_is_tried_during_a_pause() -> None:
    isolation, part = Isolation(PartKind.POWER), Part()
    for now in (0.0, 0.1, 0.2):
        isolation.run("checkpoint", now, part.step, None, pressing=True)
    assert part.tries == 3
    assert not isolation.due("checkpoint", 0.9), "failures within a pause do not prolong it"
    assert isolation.due("checkpoint", 1.0)


def test_a_block_that_raises_costs_its_part() -> None:
    isolation, part = Isolation(PartKind.CHANNEL), Part()
    for reason, left in (("raises", ["pager"]), ("", [])):
        part.reason, went_on = reason, False
        with isolation.attempt("pager", 0.0):
            part.step()
            went_on = True
        assert (went_on, list(isolation.reasons())) == (not reason, left)
    with pytest.raises(KeyboardInterrupt), isolation.attempt("pager", 0.0):
        raise KeyboardInterrupt
    assert len(isolation) == 0


def test_an_exception_that_is_the_callers_is_no_fault_of_the_part() -> None:
    isolation = Isolation(PartKind.RULE, passes=(IndexError,))
    with pytest.raises(IndexError):
        isolation.run("rows", 0.0, Part().step, None)
    with pytest.raises(IndexError), isolation.attempt("rows"):
        Part().step()
    assert isolation.failures == 0


def test_a_part_is_reported_by_the_name_that_its_owner_gives_it() -> None:
    isolation = Isolation(PartKind.NOTIFICATION, lambda part: part.partition("/")[0])
    for part in ("alert/a", "alert/b"):
        isolation.fail(part, "why", 0.0)
    assert {fault.part for fault in isolation.faults()} == {"alert"}
    assert isolation.reasons() == {"alert/a": "why", "alert/b": "why"}


def test_the_log_names_a_part_once_and_a_trial_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    for kind, expected in ((PartKind.JOBS, 2), (None, 0)):
        caplog.clear()
        isolation, part = Isolation(kind), Part()
        for now in (0.0, 1.0, 3.0):
            isolation.run("a", now, part.step, None)
        part.reason = ""
        isolation.run("a", 7.0, part.step, None)
        found = [(one.levelno, one.getMessage()) for one in caplog.records]
        assert len(found) == expected
        if kind is not None:
            assert found[0][0] == logging.ERROR
            assert found[0][1].startswith("jobs of node a is set aside; ")
            assert found[1] == (logging.WARNING, "jobs of node a works again")
        assert kind is not None or list(isolation.faults()) == []
