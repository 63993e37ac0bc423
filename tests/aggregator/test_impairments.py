"""Impairments: reported once, listed until they are cleared, an alert each, and on every health page."""

from __future__ import annotations

import threading

from aggregator.alerting.pipeline import AlertPipeline
from aggregator.impairments import CLEARED_SHOWN, MOST_PARTS, SHOWN, BlockedParts, Impairments
from api.alerts import AlertState
from telemetry.fleet import Fleet
from telemetry.runtime.supervision import ProgressMarks
from tests.aggregator.http_client import door, small_cluster

OWN = "aggregator/default"


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        """Return seconds."""
        return self.now

    def wall(self) -> int:
        """Return ns since 1970."""
        return int(self.now * 1e9)


def test_a_report_keeps_its_begin_and_renews_its_reason() -> None:
    clock = Clock()
    found = Impairments(clock.monotonic, clock.wall)
    found.report("rules_failing", OWN, "first", whole=True)
    clock.now += 5
    found.report("rules_failing", OWN, "second", whole=True)
    (one,) = found.current()
    assert (one.reason, one.since_ns, one.whole) == ("second", 100 * 10**9, True)
    found.clear("rules_failing", OWN)
    assert found.current() == []
    assert list(found.recent()) == [OWN]
    clock.now += CLEARED_SHOWN + 1
    assert found.recent() == {}


def test_a_fault_of_an_instant_is_listed_for_seconds_each_time_that_it_occurs() -> None:
    clock = Clock()
    found = Impairments(clock.monotonic, clock.wall)
    for _ in range(2):
        found.report("loop_failing", "task/messages", "once")
        found.clear("loop_failing", "task/messages", after=SHOWN)
        clock.now += SHOWN - 1
        assert [one.since_ns for one in found.current()] == [100 * 10**9]
    clock.now += 2
    assert found.current() == []


def test_what_blinds_the_whole_cluster_is_listed_first() -> None:
    clock = Clock()
    found = Impairments(clock.monotonic, clock.wall)
    found.report("rules_failing", "node/a", "one node")
    clock.now += 1
    found.report("store_failing", OWN, "disk", whole=True)
    assert [one.part for one in found.current()] == [OWN, "node/a"]


def test_the_list_is_bounded_and_counts_what_it_does_not_hold() -> None:
    found = Impairments()
    for number in range(MOST_PARTS + 7):
        found.report("rules_failing", f"node/n{number}", "x")
        found.report("rules_failing", "node/n0", "again")
    assert (len(found.current()), found.unlisted) == (MOST_PARTS, 7)
    for number in range(MOST_PARTS):
        found.clear("rules_failing", f"node/n{number}")
    for number in range(MOST_PARTS):
        found.report("rules_failing", f"node/m{number}", "x")
        found.clear("rules_failing", f"node/m{number}")
    assert len(found.recent()) == MOST_PARTS


def test_many_nodes_hide_nothing_that_is_not_of_one_node() -> None:
    found = Impairments()
    for number in range(MOST_PARTS + 1):
        found.report("bad_messages", f"bus/n{number}/clock", "x")
    found.report("bus_lost", OWN, "no broker", whole=True)
    found.report("rule_set_aside", "rule/hot_gpu", "IndexError")
    found.report("node_set_aside", "node/n1", "x")
    found.report("node_set_aside", "node/n2", "all of them", whole=True)
    rules = [one.rule for one in found.current() if one.rule != "bad_messages"]
    assert rules == ["bus_lost", "node_set_aside", "rule_set_aside"]
    assert found.unlisted == 2


def test_a_clock_that_is_set_back_keeps_nothing_listed() -> None:
    clock, hours = Clock(), [3]
    found = Impairments(clock.monotonic, lambda: hours[0] * 3600 * 10**9)
    found.report("rules_failing", OWN, "x", whole=True)
    hours[0] = 1
    clock.now += 2
    found.clear("rules_failing", OWN, after=5.0)
    assert found.current()
    clock.now += 3
    assert found.current() == []


def test_a_part_is_blocked_when_two_checks_in_time_have_found_it_so() -> None:
    clock = Clock()
    found = Impairments(clock.monotonic, clock.wall)
    marks = ProgressMarks({"flush": 10.0, "rules": 30.0}, {"flush"}, clock.monotonic)
    parts = BlockedParts(found, marks)

    def check(seconds: float) -> list[str]:
        clock.now += seconds
        parts.check(clock.now)
        return [one.part for one in found.current()]

    assert check(1.0) == []
    assert check(100.0) == [], "the process was paused"
    marks.mark("flush")
    marks.mark("rules")
    assert check(1.0) == []
    for _ in range(9):
        assert check(1.0) == []
    assert (check(1.0), check(1.0)) == ([], ["task/flush"])
    marks.mark("flush")
    assert check(1.0) == []


def test_threads_report_and_clear_at_once() -> None:
    found = Impairments()

    def work(name: str) -> None:
        for number in range(300):
            found.report("rules_failing", f"node/{name}{number % 7}", str(number))
            found.current()
            found.clear("rules_failing", f"node/{name}{number % 7}")

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert (found.current(), found.unlisted) == ([], 0)


def test_each_impairment_is_an_alert_and_resolves_in_its_rules_own_time() -> None:
    """A cleared part stays in the snapshot as well, so that `keep` holds against flapping."""
    pipeline = AlertPipeline((), lambda *_: None, now=0.0, wall=1)
    pipeline.impairments.report("store_failing", "store/disk", "no room left", whole=True)

    def at(second: int) -> list[tuple[str, AlertState]]:
        pipeline.evaluate(Fleet(), float(second), second * 10**9, (), listening=True, snapshots=())
        return [(one.key, one.state) for one in pipeline.alerts()]

    for second in range(61):
        last = at(second)
    assert last == [("store_failing/store/disk", AlertState.FIRING)]
    pipeline.impairments.clear("store_failing", "store/disk")
    assert at(62) == [("store_failing/store/disk", AlertState.FIRING)]
    assert at(62 + 181) == [("store_failing/store/disk", AlertState.RESOLVED)]


async def test_health_pages_and_metrics_list_every_impairment() -> None:
    view = await small_cluster()
    view.impairments.report("rules_failing", "node/n1", "no rows")
    async with door(view) as client:
        for path in ("/healthz", "/readyz"):
            status, body = await client.json(path)
            assert (status, body["ok"], body["status"]) == (200, True, "impaired")
            (row,) = body["impairments"]
            assert (row["rule"], row["part"], row["reason"], row["whole"]) == (
                "rules_failing", "node/n1", "no rows", False,
            )  # fmt: skip
        _, page, _ = await client.text("/metrics")
        assert 'kilowatch_impaired{cluster="lab",rule="rules_failing",part="node/n1"} 1' in page

        view.impairments.report("circuits_failing", "aggregator/lab", "KeyError", whole=True)
        status, body = await client.json("/readyz")
        assert (status, body["status"]) == (503, "failing")
        assert body["reasons"] == ["circuits_failing: KeyError"]
        status, body = await client.json("/healthz")
        assert (status, body["status"]) == (200, "impaired")

        view.impairments.clear("circuits_failing", "aggregator/lab")
        view.impairments.clear("rules_failing", "node/n1")
        status, body = await client.json("/readyz")
        assert (status, body["status"], body["impairments"]) == (200, "ok", [])


async def test_that_nodes_are_not_listed_is_on_every_page() -> None:
    view = await small_cluster()
    async with door(view) as client:
        assert (await client.json("/healthz"))[1]["warnings"] == []
        for number in range(MOST_PARTS + 3):
            view.impairments.report("node_set_aside", f"node/n{number}", "x")
        _, page, _ = await client.text("/metrics")
        assert 'kilowatch_impairments_unlisted_total{cluster="lab"} 3' in page
        (warning,) = (await client.json("/healthz"))[1]["warnings"]
        assert warning == "More nodes may be impaired than the 1000 that are listed."
