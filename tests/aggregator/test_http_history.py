"""History and events come from the store, for the time and the step that were asked for."""

from __future__ import annotations

import numpy as np
import pytest

from aggregator.http.errors import RequestError
from aggregator.http.parameters import duration, moment
from aggregator.store.executor import StoreExecutor
from aggregator.store.protocol import Batch, HistorySeries
from api.fleet import StoredEvent
from telemetry.devices import Event
from telemetry.errors import StoreError
from tests.aggregator.fake_view import START, FakeView, MemoryStore, inventory, readings
from tests.aggregator.http_client import door, small_cluster

NOW = 1_785_578_400_000_000_000  # 2026-08-01T10:00:00Z


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", NOW),
        ("-1h", NOW - 3600 * 10**9),
        ("-1h30m", NOW - 5400 * 10**9),
        ("-90", NOW - 90 * 10**9),
        ("2026-08-01T10:00:00Z", NOW),
        ("2026-08-01T12:00:00+02:00", NOW),
        ("2026-08-01T12:00:00 02:00", NOW),  # a '+' that was not escaped
        ("2026-08-01T10:00:00.250Z", NOW + 250_000_000),
        ("1785578400", NOW),
        ("1785578400.5", NOW + 500_000_000),
    ],
)
def test_a_time_may_be_written_in_four_ways(text: str, expected: int) -> None:
    """RFC 3339, seconds, relative, now."""
    assert moment("from", text, NOW) == expected


@pytest.mark.parametrize("text", ["yesterday", "2026-08-01T10:00:00", "1785578400000", "-1y", "", "-", "nan", "1e9"])
def test_what_is_no_time_is_refused(text: str) -> None:
    """A time without a zone, milliseconds by mistake, words."""
    with pytest.raises(RequestError) as caught:
        moment("from", text, NOW)
    assert caught.value.fault.where == "from"


@pytest.mark.parametrize(
    ("text", "seconds"), [("10", 10), ("10s", 10), ("1h30m", 5400), ("2d", 172800), ("250ms", 0.25)]
)
def test_a_duration_has_units_or_is_seconds(text: str, seconds: float) -> None:
    """Largest unit first, or a plain number."""
    assert duration("step", text) == seconds


async def ten_seconds() -> FakeView:
    """One node, ten frames at 1 Hz."""
    view = FakeView()
    view.add(inventory("n1"))
    for tick in range(10):
        await view.tick(tick)
    return view


async def test_history_holds_every_reading_or_buckets() -> None:
    """Step 0 gives all; 5 s gives mean, lowest and highest."""
    async with door(await ten_seconds()) as client:
        base = "/api/v1/history?gpu=GPU-n1-0&metric=gpu_power_watts&from=-1m&to=now"
        _, body = await client.json(base.replace("now", str(START // 10**9 + 11)) + "&step=0")
        assert body["mean"] == [300.25 + tick for tick in range(10)]
        assert body["at"] == [START + (1 + tick) * 10**9 for tick in range(10)]
        assert (body["unit"], body["kind"], body["device"]) == ("watts", "gauge", "GPU-n1-0")
        _, body = await client.json(base + "&step=5s")
        assert body["step"] == 5
        assert body["low"][1] == 304.25
        assert body["high"][1] == 308.25
        assert body["mean"][1] == 306.25


async def test_a_gauge_is_as_short_in_history_as_elsewhere_and_a_counter_exact() -> None:
    """0.67, not 0.6700000166893005."""
    async with door(await ten_seconds()) as client:
        _, body = await client.json("/api/v1/history?gpu=GPU-n1-0&metric=gpu_utilization_ratio&step=0&to=now")
        assert set(body["mean"]) == {0.67}
        _, body = await client.json("/api/v1/history?gpu=GPU-n1-0&metric=gpu_energy_joules_total&step=0&to=now")
        assert body["high"][0] == 123456789.125


async def test_history_of_nodes_and_links_and_of_what_nobody_has() -> None:
    """An unsupported metric is a list of nulls."""
    async with door(await ten_seconds()) as client:
        _, body = await client.json("/api/v1/history?node=n1&metric=node_wall_power_watts&step=0&to=now")
        assert set(body["mean"]) == {5123.5}
        _, body = await client.json("/api/v1/history?link=GPU-n1-0/1&metric=link_state&step=0&to=now")
        assert set(body["mean"]) == {1}
        _, body = await client.json("/api/v1/history?gpu=GPU-n1-0&metric=gpu_fan_speed_ratio&step=0&to=now")
        assert set(body["mean"]) == {None}


async def test_a_step_that_was_not_named_makes_a_readable_picture() -> None:
    """300 points at most; where that is hardly more than the interval, every reading."""
    async with door(await ten_seconds()) as client:
        base = "/api/v1/history?gpu=GPU-n1-0&metric="
        for metric, start, step in (
            ("gpu_power_watts", "-1h", 12),
            ("gpu_power_watts", "-30s", 0),
            ("gpu_power_watts", "-301s", 2),
            ("gpu_power_limit_watts", "-30s", 0),
            ("gpu_power_limit_watts", "-2h", 0),
            ("gpu_power_limit_watts", "-3h", 36),
            ("gpu_power_watts", "-7d", 2016),
        ):
            _, body = await client.json(f"{base}{metric}&from={start}")
            assert body["step"] == step


async def test_readings_a_little_early_or_late_leave_no_empty_bucket() -> None:
    """A node that reads just before each full second, and now and then just after it."""
    view = FakeView()
    view.add(inventory("n1"))
    view.monotonic = 1000.985
    late = [0.0, 0.03, 0.0, 0.0, 0.02, 0.03] * 9
    for seq, more in enumerate(late):
        view.monotonic = 1000.985 + seq + more
        view.put("n1", readings(view.fleet.nodes["n1"].inventory, seq), seq)
    view.monotonic += 0.1
    async with door(view) as client:
        _, body = await client.json("/api/v1/history?gpu=GPU-n1-0&metric=gpu_power_watts&from=-1m")
        assert len(body["mean"]) == len(late)
        assert None not in body["mean"]
        gaps = np.diff(body["at"]) / 1e9
        assert gaps.max() < 1.5, "the chart joins what is so near"
        _, coarse = await client.json("/api/v1/history?gpu=GPU-n1-0&metric=gpu_power_watts&from=-1m&step=1")
        seconds = [at // 10**9 for at in coarse["at"]]
        assert seconds[-1] - seconds[0] + 1 > len(seconds), "which buckets of a second would not"


@pytest.mark.parametrize(
    ("query", "status", "where"),
    [
        ("metric=gpu_power_watts", 400, "gpu"),
        ("gpu=GPU-n1-0&node=n1&metric=gpu_power_watts", 400, "gpu"),
        ("gpu=GPU-n1-0", 400, "metric"),
        ("gpu=GPU-n1-0&metric=gpu_powr_watts", 400, "metric"),
        ("gpu=GPU-n1-0&metric=node_load_1m", 400, "metric"),
        ("gpu=GPU-n1-0&metric=gpu_power_watts&from=-30d&step=1", 400, "step"),
        ("gpu=GPU-n1-0&metric=gpu_power_watts&from=-30d&step=0", 400, "step"),
        ("gpu=GPU-n1-0&metric=gpu_power_watts&step=soon", 400, "step"),
        ("gpu=GPU-n1-0&metric=gpu_power_watts&from=now&to=-1h", 400, "from"),
        ("gpu=GPU-n1-0&metric=gpu_power_watts&from=then", 400, "from"),
        ("gpu=GPU-n1-9&metric=gpu_power_watts", 404, "gpu"),
        ("link=GPU-n1-0/9&metric=link_state", 404, "link"),
        ("node=n9&metric=node_load_1m", 404, "node"),
    ],
)
async def test_a_question_that_history_can_not_answer_says_why(query: str, status: int, where: str) -> None:
    """Before the store is asked, if it can be known."""
    async with door(await small_cluster()) as client:
        got, body = await client.json(f"/api/v1/history?{query}")
    assert (got, body["error"]["where"]) == (status, where)


async def test_a_device_that_left_still_has_its_history() -> None:
    """The history in the store is returned, though the fleet has no such device."""
    view = await ten_seconds()
    view.fleet.remove("n1")
    async with door(view) as client:
        status, body = await client.json("/api/v1/history?gpu=GPU-n1-0&metric=gpu_power_watts&to=now&step=0")
    assert status == 200
    assert len(body["at"]) == 9  # `to` is now, and excluded


async def test_events_are_told_newest_first() -> None:
    """For a time, a node and a kind; a full page says that there is more."""
    view = await small_cluster()
    events = [
        Event(id=f"7-{n}", node=f"n{n % 2 + 1}", at=START - n * 10**9, kind="xid", data={"xid": 79}) for n in range(6)
    ]
    view.memory.write(Batch(events=[StoredEvent(event, event.at) for event in events]))
    async with door(view) as client:
        _, body = await client.json("/api/v1/events")
        assert [each["event"]["id"] for each in body["events"]] == [f"7-{n}" for n in range(6)]
        assert not body["more"]
        _, body = await client.json("/api/v1/events?node=n1&kind=xid&limit=2")
        assert [each["event"]["id"] for each in body["events"]] == ["7-0", "7-2"]
        assert body["more"]
        _, body = await client.json("/api/v1/events?from=-3500ms")
        assert [each["event"]["id"] for each in body["events"]] == ["7-0", "7-1", "7-2"]
        for limit in ("0", "100000", "ten"):
            status, body = await client.json(f"/api/v1/events?limit={limit}")
            assert (status, body["error"]["where"]) == (400, "limit")


async def test_a_store_that_can_never_answer_says_what_helps() -> None:
    """VictoriaMetrics has no InfluxQL: another try would end alike."""

    class Mute(MemoryStore):
        def history(self, *_: object) -> HistorySeries:
            raise StoreError("http://vm: it answers no InfluxQL", "Query it in PromQL.")

    view = FakeView()
    view.store = StoreExecutor(Mute(), view.stats)
    view.add(inventory("n1"))
    async with door(view) as client:
        status, body = await client.json("/api/v1/history?node=n1&metric=node_load_1m")
    assert (status, body["error"]) == (
        503,
        {"where": "store", "what": "http://vm: it answers no InfluxQL", "cure": "Query it in PromQL."},
    )


async def test_a_store_that_fails_is_503_with_its_words() -> None:
    """History is gone for a while; the rest goes on."""

    class Failing(MemoryStore):
        def history(self, *_: object) -> HistorySeries:
            raise StoreError("disk full")

        def events(self, *_: object) -> list[StoredEvent]:
            raise StoreError("disk full")

    view = FakeView()
    view.store = StoreExecutor(Failing(), view.stats)
    view.add(inventory("n1"))
    async with door(view) as client:
        for path in ("history?node=n1&metric=node_load_1m", "events"):
            status, body = await client.json(f"/api/v1/{path}")
            assert (status, body["error"]["where"]) == (503, "store")
            assert "disk full" in body["error"]["what"]
        assert (await client.json("/api/v1/nodes"))[0] == 200


@pytest.mark.parametrize("text", ["-99999999999h", "0001-01-01T00:00:00Z", "-" + "9" * 400 + "d"])
def test_before_1970_is_1970(text: str) -> None:
    """A range from the beginning of time is a range."""
    assert moment("from", text, 10**18) == 0


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59Z", "4102444801", "9" * 400])
def test_beyond_2100_is_a_mistake(text: str) -> None:
    """Milliseconds, most likely."""
    with pytest.raises(RequestError, match="2100"):
        moment("to", text, 10**18)


@pytest.mark.parametrize("text", ["9" * 400, "9" * 41, "9" * 400 + "d", "99999d"])
def test_no_step_is_longer_than_a_century(text: str) -> None:
    """Nor too long to be counted in nanoseconds."""
    with pytest.raises(RequestError, match="more than a century"):
        duration("step", text)


async def test_numbers_without_an_end_are_a_fault_of_the_request() -> None:
    """Wherever a time or a step is asked for."""
    much = "9" * 400
    async with door(await ten_seconds()) as client:
        for path, where in (
            (f"fleet?at={much}", "at"),
            (f"fleet/frames?from=-1m&step={much}", "step"),
            (f"history?gpu=GPU-n1-0&metric=gpu_power_watts&step={much}", "step"),
            (f"events?from=-1h&to={much}", "to"),
            (f"incidents?to={much}s", "to"),
        ):
            status, body = await client.json(f"/api/v1/{path}")
            assert (status, body["error"]["where"]) == (400, where), path
