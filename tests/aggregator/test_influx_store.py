"""InfluxDB as a store: means, changes, roll-ups; nothing lost, nothing twice, whoever is killed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from aggregator.assembly.store_choice import open_store
from aggregator.config import AggregatorConfig
from aggregator.influx.spool import Spool
from aggregator.influx.store import InfluxStore
from aggregator.store.protocol import Batch, Hole
from api.fleet import StoredEvent
from telemetry.devices import Event
from telemetry.errors import StoreError
from telemetry.gap import DEVICE_LOST, NOT_SUPPORTED, TIMED_OUT
from telemetry.wire import frame as frames
from telemetry.wire.intervals import IntervalSet
from telemetry.wire.schema import GPU_FAST, NODE_FAST, SCHEMA
from telemetry.wire.topics import Topic
from tests.aggregator.feed import ARRIVAL
from tests.aggregator.influx_feed import InfluxFeed, influx_config, prepared, store_config
from tests.aggregator.node import START, expected, gpu_rows, node_rows, sampled_at
from tests.brokers import free_port
from tests.influxes import Influxd, VictoriaMetrics
from tests.kit.waiting import end_of_patience

BLOCK = SCHEMA.blocks[GPU_FAST]
POWER = BLOCK.names.index("gpu_power_watts")
ENERGY = BLOCK.names.index("gpu_energy_joules_total")


def feed_of(folder: Path, server: Influxd, **more: object) -> InfluxFeed:
    feed = InfluxFeed(folder / "data", prepared(server.url, **more))
    feed.hello("a")
    return feed


@pytest.fixture
def feed(tmp_path: Path, influxd: Influxd) -> Iterator[InfluxFeed]:
    """A node of two GPUs, means of ten seconds, a server that has nothing yet."""
    feed = feed_of(tmp_path, influxd)
    yield feed
    feed.store.close()


def rows(server: Influxd, feed: InfluxFeed, text: str) -> list[list[object]]:
    return server.rows(text, feed.config.store.influxdb.database)


def test_ten_readings_are_one_mean_with_its_last_counter(feed: InfluxFeed, influxd: Influxd) -> None:
    for seq in range(20):
        feed.second("a", seq=seq)
    feed.later()
    feed.deliver()
    values = expected("a", 0, range(20))
    assert rows(
        influxd, feed, "select gpu_power_watts, gpu_energy_joules_total, readings from gpu where gpu = '0'"
    ) == [
        [sampled_at(0) // 10**6, values[:10, POWER].mean(), values[9, ENERGY], 10],
        [sampled_at(10) // 10**6, values[10:, POWER].mean(), values[19, ENERGY], 10],
    ]
    series = influxd.query("show series from gpu", feed.config.store.influxdb.database)
    assert series[0]["values"][0] == ["gpu,cluster=default,gpu=0,model=NVIDIA\\ Test\\ 80GB,node=a,uuid=GPU-a-0"]


def test_gauges_are_floats_counters_integers_and_joules_floats(feed: InfluxFeed, influxd: Influxd) -> None:
    for seq in range(10):
        feed.second("a", seq=seq)
    feed.later()
    feed.deliver()
    found = rows(influxd, feed, "show field keys from node")
    found += rows(influxd, feed, "show field keys from gpu")
    kinds = {str(name): kind for name, kind in found}
    assert kinds["node_disk_read_bytes_total"] == "integer"
    assert kinds["node_ticks_skipped_total"] == "integer"
    assert kinds["gpu_energy_joules_total"] == "float"
    assert kinds["gpu_power_watts"] == "float"
    assert BLOCK.gauges[2] not in kinds  # always a gap: no field at all


def test_history_of_means_has_no_buckets_shorter_than_they_are(feed: InfluxFeed) -> None:
    for seq in range(100):
        feed.second("a", seq=seq)
    feed.later()
    feed.deliver()
    end = START + 100 * 10**9
    means = expected("a", 0, range(100))[:, POWER].reshape(-1, 10).mean(axis=1).tolist()
    fine = feed.store.history("GPU-a-0", "gpu_power_watts", START, end, 1)
    assert (fine.step, fine.mean) == (10, means)
    assert feed.store.history("GPU-a-0", "gpu_power_watts", START, end, 0).mean == means
    minute = feed.store.history("GPU-a-0", "gpu_power_watts", START, end, 60)
    power = expected("a", 0, range(100))[:, POWER]
    assert minute.mean == [power[:60].mean(), power[60:].mean()]
    assert (minute.low[0], minute.high[0]) == (power[:60].min(), power[:60].max())


def test_minutes_have_the_lowest_and_highest_reading_not_the_lowest_mean(feed: InfluxFeed, influxd: Influxd) -> None:
    for seq in range(65):
        feed.second("a", seq=seq)
    feed.later()
    feed.deliver()
    power = expected("a", 1, range(60))[:, POWER]
    found = rows(
        influxd,
        feed,
        "select gpu_power_watts, gpu_power_watts__low, gpu_power_watts__high, gpu_power_watts__n "
        "from rollup_1m.gpu_1m where gpu = '1'",
    )
    assert found[0][1:] == [power.mean(), power.min(), power.max(), 60]
    ends = [row[0] for row in found]
    assert ends == [START // 10**6, START // 10**6 + 60_000]


def test_hours_go_on_over_a_restart(tmp_path: Path, influxd: Influxd) -> None:
    feed = feed_of(tmp_path, influxd)
    for seq in range(0, 3600, 60):
        feed.send("a", seq)
        feed.wall += 60 * 10**9
        feed.commit()
        if seq == 1800:
            feed.reopen()
            feed.hello("a")
    feed.later(400, 20)
    feed.deliver()
    first = START // 10**9 % 3600  # the nodes' clocks begin within an hour
    held = [seq for seq in range(0, 3600, 60) if first + seq < 3600]
    power = expected("a", 0, held)[:, POWER]
    found = rows(
        influxd,
        feed,
        "select gpu_power_watts, gpu_power_watts__low, gpu_power_watts__high, gpu_power_watts__n "
        "from rollup_1h.gpu_1h where gpu = '0'",
    )
    assert found[0][1:] == [np.float32(power.mean()), power.min(), power.max(), len(held)]
    assert sum(int(str(row[4])) for row in found) == 60
    feed.store.close()


def payload(seq: int, gpu: list[list[float]]) -> bytes:
    return frames.encode(frames.build(1, seq, sampled_at(seq), {GPU_FAST: gpu, NODE_FAST: node_rows("a", seq)}, ()))


def test_a_gap_is_no_number_and_its_reason_is_counted(feed: InfluxFeed, influxd: Influxd) -> None:
    for seq in range(10):
        table = gpu_rows("a", 2, seq)
        table[0] = [DEVICE_LOST] * len(table[0])
        table[1][POWER] = TIMED_OUT if seq < 4 else 100.0
        feed.publish("a", Topic.FRAME, payload(seq, table))
        feed.wall += 10**9
        feed.commit()
    feed.later()
    feed.deliver()
    lost, late = rows(influxd, feed, "select gpu_power_watts, readings, gap_device_lost, gap_timed_out from gpu")
    assert lost[1:] == [None, 10, 10 * len(BLOCK.names), None]
    assert late[1:] == [100.0, 10, None, 4]


def test_a_change_of_state_is_written_at_its_own_second(feed: InfluxFeed, influxd: Influxd) -> None:
    place = BLOCK.names.index("gpu_performance_state")
    states = [0, 0, 0, 8, 8, 0, NOT_SUPPORTED, 0, 2, 2]
    for seq, state in enumerate(states):
        table = [[1.0] * len(row) for row in gpu_rows("a", 2, seq)]
        table[0][place] = state
        feed.publish("a", Topic.FRAME, payload(seq, table))
        feed.wall += 10**9
        feed.commit()
    feed.later()
    feed.deliver()
    found = rows(influxd, feed, "select gpu_performance_state from gpu_changes where gpu = '0'")
    assert found == [[sampled_at(seq) // 10**6, state] for seq, state in ((0, 0), (3, 8), (5, 0), (8, 2))]
    last = rows(influxd, feed, "select gpu_performance_state from gpu where gpu = '0'")
    assert last == [[sampled_at(0) // 10**6, 2]]


def test_events_and_holes_are_announced(feed: InfluxFeed, influxd: Influxd) -> None:
    feed.second("a", seq=0)
    event = Event(
        id="1-7",
        node="a",
        at=START,
        kind="xid",
        gpu="GPU-a-0",
        message='Xid 79, "fell off\nthe bus"',
        data={"code": 79},
    )
    feed.store.write(
        Batch(events=[StoredEvent(event, ARRIVAL)], holes=[Hole("a", 1, 3, 9, "ring_overflow")], at=ARRIVAL)
    )
    feed.deliver()
    assert rows(influxd, feed, 'select code, kind, text, "count" from events.events') == [
        [START // 10**6, "79", "xid", 'Xid 79, "fell off the bus"', 1]
    ]
    assert rows(influxd, feed, "select reason, frames, first, last from events.holes") == [
        [ARRIVAL // 10**6, "ring_overflow", 7, 3, 9]
    ]
    assert feed.store.events(START, START + 1, None, None, 5)[0].event == event


def test_a_late_frame_makes_a_part_of_its_own_and_nothing_is_overwritten(feed: InfluxFeed, influxd: Influxd) -> None:
    for seq in (0, 1, 2, 3, 4, 7, 8, 9, 10):
        feed.second("a", seq=seq)
    feed.later()
    feed.send("a", 5, 6)
    feed.commit()
    feed.later()
    feed.deliver()
    found = rows(influxd, feed, "select gpu_power_watts, readings from gpu where gpu = '0'")
    values = expected("a", 0, range(11))[:, POWER]
    assert found[:2] == [
        [sampled_at(0) // 10**6, np.float32(np.delete(values[:10], (5, 6)).mean()), 8],
        [sampled_at(5) // 10**6, values[5:7].mean(), 2],
    ]


# -- Whoever is killed ---------------------------------------------------------------------------


def test_a_kill_of_the_aggregator_costs_nothing_that_is_not_asked_for_again(feed: InfluxFeed, influxd: Influxd) -> None:
    for seq in range(75):
        feed.second("a", seq=seq)
    spooled = feed.influx.spool.points
    assert spooled > 0
    feed.crash()
    assert feed.influx.spool.points == spooled  # what waited waits on
    stored = feed.store.accounted()[("a", 1)]
    assert stored == IntervalSet([(0, 59)])  # the open minute is missing, and so it is asked for
    feed.hello("a")
    feed.send("a", *range(60, 80))
    feed.commit()
    feed.later()
    feed.deliver()
    found = rows(influxd, feed, "select gpu_power_watts, readings from gpu where gpu = '0'")
    values = expected("a", 0, range(80))[:, POWER]
    assert found == [[sampled_at(seq) // 10**6, values[seq : seq + 10].mean(), 10] for seq in range(0, 80, 10)]
    minutes = rows(influxd, feed, "select gpu_power_watts__n from rollup_1m.gpu_1m where gpu = '0'")
    assert [row[1] for row in minutes] == [60, 20]


def test_ten_minutes_without_a_server_lose_nothing_that_the_spool_holds(tmp_path: Path) -> None:
    server = Influxd(tmp_path / "influxd")
    server.start()
    feed = feed_of(tmp_path, server)
    feed.hello("b")
    try:
        for seq in range(60):
            feed.second("a", "b", seq=seq)
        feed.deliver()
        server.kill()
        for seq in range(60, 660, 5):
            feed.send("a", *range(seq, seq + 5))
            feed.send("b", *range(seq, seq + 5))
            feed.wall += 5 * 10**9
            feed.commit()
            assert seq % 60 or feed.influx.sender.step() > 0
        assert "nothing listens there" in feed.influx.sender.problem
        assert not feed.influx.sender.metrics.connected
        server.start()
        feed.later()
        feed.deliver()
        assert feed.influx.spool.points == 0
        for node in ("a", "b"):
            found = rows(server, feed, f"select gpu_power_watts, readings from gpu where uuid = 'GPU-{node}-1'")
            values = expected(node, 1, range(660))[:, POWER].reshape(-1, 10).mean(axis=1)
            assert [row[1] for row in found] == values.tolist()
            assert {row[2] for row in found} == {10}
        assert rows(server, feed, "select * from events.holes") == []
    finally:
        feed.store.close()
        server.kill()


def test_what_the_spool_can_not_hold_is_announced_to_the_point(tmp_path: Path, influxd: Influxd) -> None:
    away = f"http://127.0.0.1:{free_port()}"
    feed = InfluxFeed(
        tmp_path / "data", influx_config(away, every_seconds=0.0, rollup_seconds=(), rollup_age_seconds=())
    )
    feed.influx.spool._most = 100_000
    feed.influx.spool._longest = 20_000
    feed.hello("a", gpus=8)
    made = 0
    for seq in range(120):
        feed.send("a", seq, gpus=8)
        feed.wall += 10**9
        feed.commit()
        made += 9  # eight GPUs and the node
        if seq % 50 == 0:
            assert feed.influx.sender.step() > 0
        assert feed.influx.spool.bytes <= 100_000 + 20_000
    feed.second(seq=0)
    dropped = feed.influx.dropped["spool_full"]
    assert dropped > 0
    assert feed.influx.spool.points == made - dropped + announcements(feed.influx.spool)
    feed.store.close()
    config = prepared(influxd.url, every_seconds=0.0, rollup_seconds=(), rollup_age_seconds=())
    store = InfluxStore(AggregatorConfig(data_dir=tmp_path / "data", store=store_config(config)), deliver=False)
    while store.spool.points:
        assert store.sender.step() == 0.0
    store.close()
    count = sum(influxd.rows(f"select count(readings) from {name}", config.database)[0][1] for name in ("gpu", "node"))
    assert count == made - dropped
    holes = influxd.rows("select points, reason, from_ms from events.holes", config.database)
    assert sum(row[1] for row in holes) == dropped
    assert {row[2] for row in holes} == {"spool_full"}
    assert holes[0][3] == START // 10**6


def announcements(spool: Spool) -> int:
    """Points that wait and are not readings: the losses themselves, which are announced too."""
    found = 0
    skip = 0
    while (head := spool.head(skip)) is not None:
        found += head[1].points if head[1].policy == "events" else 0
        skip += 1
    spool.free()
    return found


def test_the_thread_delivers_by_itself_through_kills_of_the_server(tmp_path: Path) -> None:
    server = Influxd(tmp_path / "influxd")
    server.start()
    config = prepared(server.url, every_seconds=0.0)
    feed = InfluxFeed(tmp_path / "data", config)
    feed.hello("a")
    try:
        feed.influx.sender.start()
        for seq in range(30):
            feed.second("a", seq=seq)
            if seq == 10:
                server.kill()
            if seq == 20:
                server.start()
        deadline = end_of_patience()
        while feed.influx.spool.points and time.monotonic() < deadline:
            time.sleep(0.02)
        found = rows(server, feed, "select gpu_power_watts from gpu where gpu = '0'")
        assert [row[1] for row in found] == expected("a", 0, range(30))[:, POWER].tolist()
    finally:
        feed.store.close()
        server.kill()


def test_a_database_that_someone_dropped_is_made_again(feed: InfluxFeed, influxd: Influxd) -> None:
    for seq in range(10):
        feed.second("a", seq=seq)
    influxd.post("/query", q=f'drop database "{feed.config.store.influxdb.database}"')
    feed.later()
    feed.deliver()
    assert feed.influx.spool.points == 0
    assert len(rows(influxd, feed, "select gpu_power_watts from gpu where gpu = '0'")) == 1


def test_victoria_metrics_gets_the_same_readings(tmp_path: Path, victoria: VictoriaMetrics) -> None:
    config = influx_config(victoria.url, every_seconds=0.0)
    feed = InfluxFeed(tmp_path / "data", config)
    feed.hello("a")
    for seq in range(20):
        feed.second("a", seq=seq)
    feed.deliver()
    deadline = end_of_patience()
    found: list[dict[str, object]] = []
    match = f'gpu_gpu_power_watts{{db="{config.database}",gpu="1"}}'
    while time.monotonic() < deadline and not found:
        found = victoria.series(match)
    assert found[0]["values"] == expected("a", 1, range(20))[:, POWER].tolist()
    with pytest.raises(StoreError, match="answers no InfluxQL") as caught:
        feed.store.history("GPU-a-1", "gpu_power_watts", START, START + 10**9, 0)
    assert caught.value.cure == "Query it in PromQL, or use the embedded store."
    feed.store.close()


def test_a_batch_that_could_not_be_spooled_is_counted_once_when_it_can(
    feed: InfluxFeed, influxd: Influxd, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed.send("a", *range(12))
    feed.wall += 30 * 10**9
    feed.flush()
    batch = feed.ingest.drain_batch(feed.wall)
    append = feed.influx.spool.append

    def full(_: object) -> None:
        raise StoreError("no space left")

    monkeypatch.setattr(feed.influx.spool, "append", full)
    for _ in range(3):
        with pytest.raises(StoreError, match="no space"):
            feed.store.write(batch)
    monkeypatch.setattr(feed.influx.spool, "append", append)
    assert feed.store.write(batch) == 12
    feed.later(60)
    feed.deliver()
    found = rows(influxd, feed, "select readings from gpu where gpu = '0'")
    assert [row[1] for row in found] == [10, 2]


def test_a_spool_that_is_left_behind_is_told(feed: InfluxFeed, caplog: pytest.LogCaptureFixture) -> None:
    for seq in range(15):
        feed.second("a", seq=seq)
    feed.store.close()
    kept = open_store(AggregatorConfig(data_dir=feed.config.data_dir))
    assert "wait in" in caplog.text
    assert "which is no longer the store" in caplog.text
    assert [run.node for run in kept.known().runs] == ["a"]
    kept.close()
    feed.open()


def test_open_store_opens_it_and_history_comes_from_the_server(tmp_path: Path, influxd: Influxd) -> None:
    (tmp_path / "data").mkdir()
    config = prepared(influxd.url)
    store = open_store(AggregatorConfig(data_dir=tmp_path / "data", store=store_config(config)))
    assert isinstance(store, InfluxStore)
    assert store.history("nobody", "gpu_power_watts", START, START + 3600 * 10**9, 60).at == []
    assert store.size()["spool"] == 0
    store.close()
