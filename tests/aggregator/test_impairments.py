"""Impairments: reported once, listed until they are cleared, an alert each, and on every health page."""

from __future__ import annotations

import threading

from aggregator.alerting.pipeline import AlertPipeline
from aggregator.impairments import CLEARED_SHOWN, MOST_PARTS, Impairments
from api.alerts import AlertState
from telemetry.fleet import Fleet
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
        pipeline.evaluate(
            Fleet(), float(second), second * 10**9, (), listening=True, snapshots=()
        )  # fmt: skip
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
