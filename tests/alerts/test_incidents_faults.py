"""An exception in the middle of a change to the index of incidents: the next page is sent all the same."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from alerts.incidents.index import IncidentIndex
from alerts.incidents.notification_schedule import NotificationScheduler
from alerts.incidents.policy import NotificationTimings
from api.alerts import Action
from tests.alerts.deliveries import ManagerHarness, alert, over

pytestmark = pytest.mark.systems
METHODS = sorted(
    name
    for name, method in inspect.getmembers(IncidentIndex, inspect.isfunction)
    if name not in {"__init__", "memory", "add_changes", "_load", "_load_alert", "policy"}
)


CALM = NotificationTimings(flap_start=1000)
"""An alert that is played twice does not flap."""


def play(harness: ManagerHarness) -> None:
    """Make two GPUs fail and recover, one of them by a cause that hides the other's fault."""
    lost, other = alert("gpu_lost", gpu="GPU-a"), alert("thermal", gpu="GPU-b")
    harness.tick(lost, other)
    harness.wait(3)
    harness.tick(over(lost))
    harness.wait(15)
    harness.tick(over(other))
    harness.wait(15)


class Failing:
    """A method of the index that raises at one of its calls, before or after its work."""

    def __init__(self, name: str, at: int, *, after: bool) -> None:
        self.raised = False
        self._whole = getattr(IncidentIndex, name)
        self._left, self._after = at, after

    def method(self) -> Callable[..., Any]:
        """Return what stands in its place."""

        def called(index: IncidentIndex, *given: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left != -1:
                return self._whole(index, *given, **named)
            self.raised = True
            if self._after:
                self._whole(index, *given, **named)
            raise RuntimeError("put in by the test")

        return called


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("name", METHODS)
def test_a_page_after_an_exception_in_the_index_is_sent(
    name: str, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exception comes at each call of the method in turn."""
    for at in range(1000):
        harness, failing = ManagerHarness(timings=CALM), Failing(name, at, after=after)
        with monkeypatch.context() as patch:
            patch.setattr(IncidentIndex, name, failing.method())
            play(harness)
        if not failing.raised:
            break
        harness.wait(90)
        notices = harness.tick(alert("gpu_lost", gpu="GPU-a"))
        notices += harness.wait(65)
        assert Action.TRIGGER in {one.action for one in notices}, at


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("name", METHODS)
def test_nothing_stays_set_aside_once_the_exception_is_over(
    name: str, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alerts that go on firing, whether they join an incident, open one or are suppressed meanwhile."""
    for at in range(1000):
        harness, failing = ManagerHarness(timings=CALM), Failing(name, at, after=after)
        with monkeypatch.context() as patch:
            patch.setattr(IncidentIndex, name, failing.method())
            harness.tick(alert("thermal", gpu="GPU-a"))
            harness.tick(alert("thermal", gpu="GPU-b"))
            harness.tick(alert("gpu_lost", gpu="GPU-a"))
            harness.wait(15)
        if not failing.raised:
            break
        harness.wait(65)
        assert not harness.manager.aside.reasons(), at


def test_indexes_that_could_not_be_made_again_are_tried_until_they_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever raises in an alert's change, and then in each rebuild for a while."""
    harness = ManagerHarness(timings=CALM)

    def broken(*_: Any) -> None:
        raise RuntimeError("put in by the test")

    with monkeypatch.context() as patch:
        patch.setattr(IncidentIndex, "add_incident", broken)
        patch.setattr(IncidentIndex, "_load", broken)
        harness.tick(alert("gpu_lost", gpu="GPU-a"))
        harness.wait(5)
        assert "indexes" in harness.manager.aside
    harness.wait(65)
    assert not harness.manager.aside.reasons()
    notices = harness.tick(alert("gpu_lost", gpu="GPU-b"))
    assert Action.TRIGGER in {one.action for one in notices + harness.wait(3)}


def test_alerts_are_notified_by_themselves_while_no_incident_can_be_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that wait for others of their incident, those that begin meanwhile, and each only once."""
    harness = ManagerHarness(timings=NotificationTimings(page_wait=30))
    harness.tick(alert("gpu_lost", gpu="GPU-a"))

    def broken(_: NotificationScheduler) -> None:
        raise RuntimeError("put in by the test")

    with monkeypatch.context() as patch:
        patch.setattr(NotificationScheduler, "evaluate", broken)
        waiting = harness.tick()
        begun = harness.tick(alert("gpu_lost", gpu="GPU-b"))
        later = harness.wait(20)
    assert ["GPU-a" in one.incident.title for one in waiting] == [True]
    assert ["GPU-b" in one.incident.title for one in begun] == [True]
    assert not later
    harness.wait(65)
    assert not harness.manager.aside.reasons()
    assert len(harness.sent) == 4, "the incidents themselves, once the evaluation works"
