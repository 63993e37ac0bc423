"""What every store must do, run over the embedded store and InfluxDB on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from aggregator.config import StoreConfig
from aggregator.store.executor import StoreExecutor
from aggregator.store.protocol import Batch, Frames, HistorySeries, Hole, PastInstants
from api.fleet import StoredEvent
from telemetry.devices import Event, Gpu, Link
from telemetry.errors import StoreError
from telemetry.metric import Lane, Table
from telemetry.wire import frame as frames
from telemetry.wire import inventory as messages
from telemetry.wire.intervals import IntervalSet
from telemetry.wire.inventory import Inventory
from telemetry.wire.schema import GPU_FAST, GPU_SLOW, LINK_FAST, LINK_SLOW, NODE_FAST, SCHEMA
from telemetry.wire.topics import Topic
from tests.aggregator.feed import Feed
from tests.aggregator.influx_feed import InfluxFeed, prepared
from tests.aggregator.node import GAP_COLUMN, START, expected, gpu_rows, node_rows, sampled_at
from tests.influxes import Influxd

BLOCK = SCHEMA.blocks[GPU_FAST]
SECOND = 10**9
END = START + 3600 * SECOND


@pytest.fixture(params=["embedded", "influxdb"])
def feed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Feed]:
    """A store with one node of two GPUs that said hello; every reading is kept."""
    if request.param == "embedded":
        feed = Feed(tmp_path / "data", StoreConfig())
    else:
        server: Influxd = request.getfixturevalue("influxd")
        feed = InfluxFeed(tmp_path / "data", prepared(server.url, every_seconds=0.0))
    feed.hello("a")
    yield feed
    feed.store.close()


def ask(feed: Feed, device: str, metric: str, step: float, last: int = 3600) -> HistorySeries:
    """History, when all is delivered."""
    if isinstance(feed, InfluxFeed):
        feed.deliver()
    return feed.store.history(device, metric, START, START + last * SECOND, step)


def test_every_reading_comes_back_and_a_gap_is_none(feed: Feed) -> None:
    feed.send("a", *range(20))
    assert feed.commit() == 20
    for row in range(2):
        table = expected("a", row, range(20))
        for column in (0, 1, GAP_COLUMN, 7, len(BLOCK.gauges), len(BLOCK.names) - 1):
            found = ask(feed, f"GPU-a-{row}", BLOCK.names[column], 0)
            values = table[:, column].tolist()
            wanted = [None if number != number else number for number in values]  # noqa: PLR0124
            assert found.mean == wanted, BLOCK.names[column]
            assert found.low == found.high == wanted
            assert found.at == [sampled_at(seq) for seq in range(20)]


@pytest.mark.parametrize("step", [7, 10, 60, 600])
def test_buckets_have_mean_lowest_and_highest_and_counters_their_last(feed: Feed, step: int) -> None:
    seqs = [seq for seq in range(200) if not 70 <= seq < 95]
    for begin in range(0, len(seqs), 25):
        feed.send("a", *seqs[begin : begin + 25])
        feed.wall += 25 * SECOND
        feed.commit()
    feed.wall += 10 * SECOND
    feed.commit()
    gauge = ask(feed, "GPU-a-1", "gpu_power_watts", step)
    counter = ask(feed, "GPU-a-1", "gpu_energy_joules_total", step)
    table = expected("a", 1, seqs)
    width = step * SECOND
    starts = [sampled_at(seq) - sampled_at(seq) % width for seq in seqs]
    every = list(range(starts[0], starts[-1] + 1, width))
    assert gauge.at == counter.at == every
    power, energy = (BLOCK.names.index(metric) for metric in (gauge.metric, counter.metric))
    for place, start in enumerate(every):
        among = [at for at, each in enumerate(starts) if each == start]
        if not among:
            assert gauge.mean[place] is None
            assert counter.mean[place] is None
            continue
        values = table[among, power]
        assert gauge.mean[place] == pytest.approx(values.mean(), rel=1e-6)
        assert (gauge.low[place], gauge.high[place]) == (values.min(), values.max())
        assert counter.mean[place] == table[among[-1], energy]


def test_links_and_nodes_and_the_slow_lane_have_history_too(feed: Feed) -> None:
    gpus = tuple(Gpu(uuid=f"GPU-b-{n}", index=n, name="Test") for n in range(2))
    links = tuple(Link(gpu=gpu.uuid, number=number) for gpu in gpus for number in range(2))
    body = Inventory(node="b", session=1, version=0, taken_at=START - 1, gpus=gpus, links=links)
    feed.publish("b", Topic.INVENTORY, messages.encode(body))
    width = {at: len(SCHEMA.blocks[at].names) for at in (GPU_SLOW, LINK_FAST, LINK_SLOW)}
    for seq in range(3):
        readings = {
            GPU_FAST: gpu_rows("b", 2, seq),
            GPU_SLOW: [[10.0 * row + seq] * width[GPU_SLOW] for row in range(2)],
            LINK_FAST: [[float(row % 3)] * width[LINK_FAST] for row in range(4)],
            LINK_SLOW: [[100.0 * row + seq] * width[LINK_SLOW] for row in range(4)],
            NODE_FAST: node_rows("b", seq),
        }
        packed = frames.encode(frames.build(1, seq, sampled_at(seq), readings, ()))
        feed.publish("b", Topic.FRAME, packed)
    feed.commit()
    assert ask(feed, "GPU-b-1/0", "link_crc_errors_total", 0).mean == [200.0, 201.0, 202.0]
    assert ask(feed, "GPU-b-1/1", "link_state", 0).mean == [0.0] * 3
    assert ask(feed, "GPU-b-1", "gpu_pcie_replays_total", 0).mean == [10.0, 11.0, 12.0]
    node = SCHEMA.blocks[NODE_FAST].names
    wanted = [node_rows("b", seq)[0][node.index("node_load_1m")] for seq in range(3)]
    assert ask(feed, "b", "node_load_1m", 0).mean == wanted


def test_a_span_of_time_is_half_open(feed: Feed) -> None:
    feed.send("a", *range(10))
    feed.commit()
    assert len(ask(feed, "GPU-a-0", BLOCK.names[0], 0, last=10).at) == 10
    assert ask(feed, "GPU-a-0", BLOCK.names[0], 0, last=3).at == [sampled_at(n) for n in range(3)]
    assert ask(feed, "nobody' or 1=1 --", BLOCK.names[0], 0).at == []


def test_what_is_no_metric_and_too_many_buckets_are_refused(feed: Feed) -> None:
    with pytest.raises(StoreError, match="there is no metric 'nonsense'"):
        feed.store.history("GPU-a-0", "nonsense", START, END, 10)
    with pytest.raises(StoreError, match="choose a longer step"):
        feed.store.history("GPU-a-0", BLOCK.names[0], START, START + 10**16, 1)


def test_a_batch_and_a_frame_come_twice_and_are_stored_once(feed: Feed) -> None:
    feed.send("a", 0, 1, 2)
    feed.flush()
    batch = feed.ingest.drain_batch(feed.wall)
    assert feed.store.write(batch) == 3
    assert feed.store.write(batch) == 0
    frames_ = batch.frames
    batch.frames = Frames(
        frames_.run, np.array([7, 7, 8]), frames_.sampled_at + 7 * SECOND, frames_.received_at, frames_.backfilled
    )
    assert feed.store.write(batch) == 2
    assert len(ask(feed, "GPU-a-0", BLOCK.names[0], 0).at) == 5


async def test_the_executor_answers_what_the_store_holds(feed: Feed) -> None:
    """Each question in its own type, whichever store is behind; and a status that has no fault."""
    feed.send("a", *range(5))
    feed.commit()
    event = Event(id="1-1", node="a", at=START, kind="xid")
    feed.store.write(Batch(events=[StoredEvent(event, START)], at=feed.wall))
    feed.reopen()  # what waits for a minute to be over counts as stored then
    if isinstance(feed, InfluxFeed):
        feed.deliver()
    store = StoreExecutor(feed.store, feed.stats)
    when, reach = PastInstants(START + 4 * SECOND, SECOND, 1), {Lane.FAST: 3 * SECOND}
    known = await store.known()
    assert [(run.node, run.session) for run in known.runs] == [("a", 1)]
    assert await store.accounted() == {("a", 1): IntervalSet([(0, 4)])}
    assert [each.node for each in await store.inventories()] == ["a"]
    series = await store.history("GPU-a-0", "gpu_power_watts", START, END, 0)
    assert (series.device, len(series.at)) == ("GPU-a-0", 5)
    past = await store.past(Table.GPU, ("gpu_power_watts",), when, reach, None)
    assert [each.key for each in past.devices] == ["GPU-a-0", "GPU-a-1"]
    assert [stored.event for stored in await store.events(START, END, "a", None, 10)] == [event]
    assert (await store.size())["hot"] > 0
    status = store.status()
    assert (status.problem, status.warning, status.lost_files) == ("", "", 0)
    prefix = f"kilowatch_{status.name}_"
    assert all(family.name.startswith(prefix) for family in status.families)


def test_a_restart_knows_what_is_stored_and_what_is_lost(feed: Feed) -> None:
    feed.send("a", 0, 1, 5)
    feed.gone("a", 2, 3)
    feed.commit()
    feed.reopen()
    assert feed.store.accounted() == {("a", 1): IntervalSet([(0, 3), (5, 5)])}
    feed.send("a", 0, 4, 5, 3)
    assert feed.commit() == 1
    assert [gpu.uuid for gpu in feed.fleet.nodes["a"].inventory.gpus] == ["GPU-a-0", "GPU-a-1"]


def test_events_are_stored_once_and_found_newest_first(feed: Feed) -> None:
    feed.check_events()


def test_upkeep_seals_an_hour_and_what_is_stored_is_known_after_it(feed: Feed) -> None:
    feed.send("a", *range(30))
    feed.commit()
    feed.store.write(Batch(holes=[Hole("a", 1, 30, 31, "gone")], at=feed.wall))
    for _ in range(3):
        feed.wall += 2 * 3600 * SECOND
        feed.seal()
    assert feed.store.accounted() == {("a", 1): IntervalSet([(0, 31)])}
    feed.reopen()
    assert feed.store.accounted() == {("a", 1): IntervalSet([(0, 31)])}
    assert len(ask(feed, "GPU-a-0", BLOCK.names[0], 0).at) == 30
    assert feed.store.size()["hot"] > 0
    assert feed.store.size()["memory"] > 0


def test_the_past_of_all_devices_holds_until_it_is_too_old(feed: Feed) -> None:
    feed.send("a", *range(20), *range(30, 60))
    feed.hello("b")
    feed.send("b", *range(20), *range(30, 60))
    feed.commit()
    if isinstance(feed, InfluxFeed):
        feed.deliver()
    names = ("gpu_power_watts", BLOCK.names[GAP_COLUMN], "gpu_energy_joules_total")
    reach = {Lane.FAST: 3 * SECOND, Lane.SLOW: 45 * SECOND}
    for seqs in (range(5, 55, 5), range(19, 20), range(24, 25)):
        when = PastInstants(sampled_at(seqs.start), seqs.step * SECOND, len(seqs))
        past = feed.store.past(Table.GPU, names, when, reach, None)
        for node in "ab":
            for row in range(2):
                key = f"GPU-{node}-{row}"
                column = [device.key for device in past.devices].index(key) if past.devices else -1
                for number, seq in enumerate(seqs):
                    fresh, newest = not 22 <= seq < 30, seq if not 20 <= seq < 22 else 19
                    assert bool(past.devices and past.seen[Lane.FAST][number, column]) == fresh
                    for name in names if fresh else ():
                        wanted = expected(node, row, [newest])[0, BLOCK.names.index(name)]
                        got = past.columns[name][number, column]
                        np.testing.assert_equal(float(got), wanted)
        some = feed.store.past(Table.GPU, names, when, reach, ["b"])
        assert {device.node for device in some.devices} <= {"b"}
        assert {device.name for device in past.devices} <= {"NVIDIA Test 80GB"}
    nodes = feed.store.past(Table.NODE, ("node_load_1m",), when, reach, None)
    assert nodes.devices == []
    with pytest.raises(StoreError, match="node_load_1m"):
        feed.store.past(Table.GPU, ("node_load_1m",), when, reach, None)
