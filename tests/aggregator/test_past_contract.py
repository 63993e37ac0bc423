"""The fleet's past, the same from every store: the embedded one, and InfluxDB on a real server."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from aggregator.config import StoreConfig
from aggregator.influx.client import InfluxClient
from aggregator.settings.influx import DAY
from aggregator.store.protocol import FleetPast, PastInstants
from telemetry.gap import DEVICE_LOST, TIMED_OUT
from telemetry.metric import Lane, Table
from telemetry.wire import frame as frames
from telemetry.wire.schema import GPU_FAST, SCHEMA
from telemetry.wire.topics import Topic
from tests.aggregator.feed import HOUR, Feed
from tests.aggregator.influx_feed import InfluxFeed, prepared
from tests.aggregator.node import START, expected, gpu_rows, sampled_at
from tests.influxes import Influxd

SECOND = 10**9
NAMES = SCHEMA.blocks[GPU_FAST].names
POWER, ENERGY = (NAMES.index(name) for name in ("gpu_power_watts", "gpu_energy_joules_total"))
COLUMNS = ("gpu_power_watts", "gpu_energy_joules_total", "gpu_temperature_celsius")
REACH = {Lane.FAST: 3 * SECOND, Lane.SLOW: 45 * SECOND}
FAR = {Lane.FAST: 3600 * SECOND, Lane.SLOW: 3600 * SECOND}
"""The reach of a fleet in which one node reads every twenty minutes."""
ROLLUPS = (60, 3600)


@pytest.fixture(params=["embedded", "influxdb"])
def feed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Feed]:
    """A store with one node of two GPUs that said hello; every reading is kept."""
    if request.param == "embedded":
        kept = StoreConfig(raw_age_seconds=DAY / 4, rollup_seconds=ROLLUPS, rollup_age_seconds=(DAY, 30 * DAY))
        feed = Feed(tmp_path / "data", kept)
    else:
        server: Influxd = request.getfixturevalue("influxd")
        every = prepared(server.url, every_seconds=0.0, rollup_seconds=ROLLUPS)
        feed = InfluxFeed(tmp_path / "data", every)
    feed.hello("a")
    yield feed
    feed.store.close()


def look(feed: Feed, when: PastInstants, reach: dict[Lane, int] = REACH, columns: Sequence[str] = COLUMNS) -> FleetPast:
    """The past, when all is delivered."""
    if isinstance(feed, InfluxFeed):
        feed.deliver()
    return feed.store.past(Table.GPU, columns, when, reach, None)


def at(second: float) -> PastInstants:
    """One instant."""
    return PastInstants(START + round(second * SECOND), SECOND, 1)


def shown(past: FleetPast, key: str, metric: str) -> list[float | None]:
    """One metric of one device at each instant."""
    keys = [device.key for device in past.devices]
    if key not in keys:
        return [None] * len(past.columns[metric])
    column = past.columns[metric][:, keys.index(key)]
    return [None if np.isnan(x) else float(x) for x in column]


def lose(feed: Feed, seq: int) -> None:
    """A frame in which one GPU is lost, and the other did not answer for its power."""
    rows = gpu_rows("a", 2, seq)
    rows[0] = [DEVICE_LOST] * len(NAMES)
    rows[1][POWER] = TIMED_OUT
    body = frames.encode(frames.build(1, seq, sampled_at(seq), {GPU_FAST: rows}, ()))
    feed.publish("a", Topic.FRAME, body)


@pytest.mark.parametrize("step", [1, 2, 7], ids="every {}s".format)
def test_what_had_become_a_gap_is_one_and_not_its_last_number(feed: Feed, step: int) -> None:
    """A GPU is lost, the other's power times out; the rest of it is still read."""
    feed.send("a", *range(30))
    for seq in range(30, 60):
        lose(feed, seq)
    feed.send("a", *range(60, 70))
    feed.commit()
    seqs = range(20, 70, step)
    past = look(feed, PastInstants(sampled_at(20), step * SECOND, len(seqs)))
    for row in range(2):
        for name in COLUMNS:
            table = expected("a", row, seqs)[:, NAMES.index(name)].tolist()
            lost = row == 0 or name == "gpu_power_watts"
            wanted = [None if lost and 30 <= seq < 60 else number for seq, number in zip(seqs, table, strict=True)]
            assert shown(past, f"GPU-a-{row}", name) == wanted
            alone = look(feed, at(31.5), FAR, [name])
            assert shown(alone, f"GPU-a-{row}", name) == (
                [None] if lost else [expected("a", row, [31])[0, NAMES.index(name)]]
            )


def test_what_is_infinite_is_a_gap_and_spoils_no_mean(feed: Feed) -> None:
    """Not even while it is sealed."""
    for seq in range(10):
        rows = gpu_rows("a", 2, seq)
        if seq % 3 == 0:
            rows[0][POWER], rows[0][ENERGY] = math.inf, -math.inf
        body = frames.encode(frames.build(1, seq, sampled_at(seq), {GPU_FAST: rows}, ()))
        feed.publish("a", Topic.FRAME, body)
    feed.commit()
    kept = expected("a", 0, [seq for seq in range(10) if seq % 3])[:, POWER]
    for _ in range(2):
        past = look(feed, PastInstants(sampled_at(5), SECOND, 3))
        for name in COLUMNS[:2]:
            wanted = expected("a", 0, [5, 6, 7])[:, NAMES.index(name)]
            assert shown(past, "GPU-a-0", name) == [wanted[0], None, wanted[2]]
        found = feed.store.history("GPU-a-0", "gpu_power_watts", START, START + 60 * SECOND, 10)
        assert found.mean == [pytest.approx(kept.mean(), rel=1e-6)]
        assert (found.low, found.high) == ([kept.min()], [kept.max()])
        feed.wall += HOUR
        feed.seal()


def test_a_device_that_is_long_dead_is_as_old_as_it_is(feed: Feed) -> None:
    """Although one node of the fleet is heard so seldom that far older readings are looked for."""
    feed.send("a", *range(10))
    feed.hello("b")
    feed.send("b", *range(300))
    feed.commit()
    for when in (at(200.4), PastInstants(sampled_at(200), 7 * SECOND, 5)):
        past = look(feed, when, FAR)
        keys = [device.key for device in past.devices]
        seen = past.seen[Lane.FAST][0]
        assert seen[keys.index("GPU-a-0")] == sampled_at(9)
        assert seen[keys.index("GPU-b-1")] == sampled_at(200)
        near = look(feed, when, REACH)
        assert shown(near, "GPU-a-0", "gpu_power_watts") == [None] * when.count


def aged(feed: Feed, width: int, seqs: Sequence[int]) -> None:
    """Keep frames as they come, which is so late that the last of each span is a part by itself; and
    then only what is `width` seconds wide."""
    for seq in seqs:
        feed.wall = sampled_at(seq + width // 20)
        feed.seal()
        feed.send("a", seq)
        feed.commit()
    if not isinstance(feed, InfluxFeed):
        for _ in range(10 if width == 60 else 28):
            feed.wall += HOUR
            feed.seal()
        assert feed.store.size()["sealed"] == 0
        assert feed.store.size()["rollups"] > 0
        return
    feed.later(3700)
    feed.deliver()
    gone = {"raw"} if width == 60 else {"raw", "rollup_1m"}
    with InfluxClient(feed.config.store.influxdb) as client:
        shards = json.loads(client.change("SHOW SHARDS").text)["results"][0]["series"]
        for number, database, policy, *_ in (row for each in shards for row in each.get("values", ())):
            if database == feed.config.store.influxdb.database and policy in gone:
                assert client.change(f"DROP SHARD {number}").status == 200


@pytest.mark.parametrize("width", ROLLUPS)
def test_when_the_readings_are_gone_the_finest_roll_up_answers(feed: Feed, width: int) -> None:
    """At any instant the mean of the span that was over last; and nothing of what came later."""
    seqs = range(0, 4 * width, width // 20)
    aged(feed, width, seqs)
    clock = [sampled_at(seq) // SECOND for seq in seqs]
    begin = START // SECOND
    for second in (1.5 * width, 2 * width, 2 * width + 1, 2.2 * width + 1, 2.9 * width):
        end = (begin + second) // width * width
        among = [seq for seq, when in zip(seqs, clock, strict=True) if end - width <= when < end]
        table = expected("a", 1, among)
        for past in (look(feed, at(second)), look(feed, PastInstants(at(second).first, SECOND, 3))):
            assert shown(past, "GPU-a-1", "gpu_power_watts")[0] == pytest.approx(table[:, POWER].mean(), rel=1e-6)
            assert shown(past, "GPU-a-1", "gpu_energy_joules_total")[0] == table[-1, ENERGY]
            assert past.seen[Lane.FAST][0].max() <= sampled_at(among[-1])
    for second in (6 * width, 7.5 * width):
        assert shown(look(feed, at(second)), "GPU-a-1", "gpu_power_watts") == [None]


@pytest.mark.parametrize("step", [0, 12, 60, 90])
def test_history_has_no_shorter_buckets_than_are_kept(feed: Feed, step: int) -> None:
    """Or four of five would look like gaps."""
    seqs = range(0, 240, 3)
    aged(feed, 60, seqs)
    first, end = START, START + 600 * SECOND
    found = feed.store.history("GPU-a-1", "gpu_power_watts", first, end, step)
    width = max(60, step)
    assert found.step == width
    begin = START // SECOND // width * width
    assert found.at == [at * SECOND for at in range(begin, START // SECOND + 181, width)]
    for at_, mean in zip(found.at, found.mean, strict=True):
        parts = {  # minutes count where they begin
            seq for seq in seqs if at_ <= sampled_at(seq // 60 * 60) < at_ + width * SECOND
        }
        table = expected("a", 1, sorted(parts))[:, POWER]
        assert mean == pytest.approx(table.mean(), rel=1e-6)
