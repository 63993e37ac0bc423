"""What only InfluxDB has of the past: means that begin before their time, late parts, other servers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from aggregator.influx import client, past
from aggregator.influx.past import rows_of
from aggregator.store.protocol import FleetPast, PastInstants
from telemetry.errors import StoreError
from telemetry.gap import TIMED_OUT
from telemetry.metric import Lane, Table
from telemetry.wire import frame as frames
from telemetry.wire.schema import GPU_FAST, SCHEMA
from telemetry.wire.topics import Topic
from tests.aggregator.influx_feed import InfluxFeed, prepared
from tests.aggregator.node import START, expected, gpu_rows, inventory, sampled_at
from tests.influxes import Influxd

SECOND = 10**9
NAMES = SCHEMA.blocks[GPU_FAST].names
POWER, ENERGY = (NAMES.index(name) for name in ("gpu_power_watts", "gpu_energy_joules_total"))
COLUMNS = ("gpu_power_watts", "gpu_energy_joules_total")
REACH = {Lane.FAST: 3 * SECOND, Lane.SLOW: 45 * SECOND}


@pytest.fixture
def feed(tmp_path: Path, influxd: Influxd) -> Iterator[InfluxFeed]:
    """A node of two GPUs, means of ten seconds."""
    feed = InfluxFeed(tmp_path / "data", prepared(influxd.url))
    feed.wall = sampled_at(0)
    feed.hello("a")
    yield feed
    feed.store.close()


def look(feed: InfluxFeed, second: float, columns: Sequence[str] = COLUMNS) -> FleetPast:
    """One instant."""
    feed.later()
    feed.deliver()
    when = PastInstants(START + round(second * SECOND), SECOND, 1)
    return feed.store.past(Table.GPU, columns, when, REACH, None)


def shown(found: FleetPast, key: str = "GPU-a-0") -> tuple[float | None, float | None]:
    """Power and energy of one GPU."""
    keys = [device.key for device in found.devices]
    row = [float(found.columns[name][0, keys.index(key)]) for name in COLUMNS]
    return (None if np.isnan(row[0]) else row[0], None if np.isnan(row[1]) else row[1])


def test_a_mean_counts_from_its_end_until_the_next_one_does(feed: InfluxFeed) -> None:
    """It shows nothing of the future; what is dead is gone after the span that would have followed."""
    for seq in range(34):
        feed.second("a", seq=seq)
    table = expected("a", 0, range(34))
    for second in (10, 14.5, 19.9):
        found = look(feed, second)
        assert shown(found) == (table[:10, POWER].mean(), table[9, ENERGY])
        assert found.seen[Lane.FAST].tolist() == [[sampled_at(0)] * 2]
    assert look(feed, 9.9).devices == []
    assert shown(look(feed, 45)) == (table[30:, POWER].mean(), table[33, ENERGY])
    assert look(feed, 53.1).devices == []


def test_a_span_without_a_reading_is_a_gap_although_one_before_had_some(feed: InfluxFeed) -> None:
    for seq in range(10):
        feed.second("a", seq=seq)
    for seq in range(10, 30):
        rows = gpu_rows("a", 2, seq)
        rows[0][POWER] = TIMED_OUT
        body = frames.encode(frames.build(1, seq, sampled_at(seq), {GPU_FAST: rows}, ()))
        feed.publish("a", Topic.FRAME, body)
        feed.wall += SECOND
        feed.commit()
    found = look(feed, 25)
    assert shown(found) == (None, expected("a", 0, [19])[0, ENERGY])
    assert shown(found, "GPU-a-1")[0] == expected("a", 1, range(10, 20))[:, POWER].mean()


def test_a_late_part_of_a_mean_is_joined_with_it(feed: InfluxFeed) -> None:
    """By the number of their readings; the counter is that of the later."""
    for seq in (0, 1, 2, 3, 4, 5, 6, 7):
        feed.second("a", seq=seq)
    feed.later()
    feed.second("a", seq=9)
    table = expected("a", 0, [0, 1, 2, 3, 4, 5, 6, 7, 9])
    assert shown(look(feed, 12)) == (pytest.approx(table[:, POWER].mean()), table[-1, ENERGY])


def test_a_gpu_in_another_slot_is_one_device(feed: InfluxFeed) -> None:
    """Its tags are others then, and so is its series."""
    for seq in range(10):
        feed.second("a", seq=seq)
    feed.later()
    feed.reopen()
    moved = inventory("a", 2, session=1, version=1)
    other = tuple(reversed([gpu.uuid for gpu in moved.gpus]))
    body = inventory("a", 2, version=1)
    gpus = tuple(
        type(gpu)(uuid=uuid, index=gpu.index, name=gpu.name) for gpu, uuid in zip(body.gpus, other, strict=True)
    )
    feed.inventory(type(body)(node="a", session=1, version=1, taken_at=START, gpus=gpus))
    for seq in range(10, 20):
        feed.second("a", seq=seq)
    for second in (12, 22):
        found = look(feed, second)
        assert sorted(device.key for device in found.devices) == ["GPU-a-0", "GPU-a-1"]
        row = second // 20  # it sits where the other one did
        seqs = range(10) if second == 12 else range(10, 20)
        assert shown(found)[0] == expected("a", row, seqs)[:, POWER].mean()


def test_an_outage_is_not_filled_from_a_roll_up(tmp_path: Path, influxd: Influxd) -> None:
    """While readings are kept they alone say what was, also when all of them are missing."""
    feed = InfluxFeed(tmp_path / "data", prepared(influxd.url, every_seconds=0.0))
    feed.hello("a")
    for seq in (*range(100), *range(150, 200)):
        feed.second("a", seq=seq)
    feed.later(70)
    assert shown(look(feed, 99))[0] is not None
    found = look(feed, 130)
    assert (found.devices, found.slack) == ([], {Lane.FAST: 0})
    feed.store.close()


def test_a_question_of_many_instants_is_divided(feed: InfluxFeed, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the parts of its answer put together again."""
    monkeypatch.setattr(past, "LONGEST", 1)
    for seq in range(60):
        feed.second("a", seq=seq)
    feed.later()
    feed.deliver()
    for step, count in ((5, 10), (1, 40), (70, 1)):
        when = PastInstants(sampled_at(10), step * SECOND, count)
        found = feed.store.past(Table.GPU, COLUMNS, when, REACH, ["a"])
        wanted = [
            expected("a", 1, range(end - 10, end))[:, POWER].mean()
            for end in (second // 10 * 10 for second in range(10, 10 + step * count, step))
        ]
        keys = [device.key for device in found.devices]
        got = found.columns["gpu_power_watts"][:, keys.index("GPU-a-1")]
        np.testing.assert_allclose(got, wanted)


def test_who_asks_too_much_is_told_so_and_no_thread_goes_on(feed: InfluxFeed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "QUERY_SECONDS", -1.0)
    with pytest.raises(StoreError, match=r"it takes more than .* fewer instants"):
        look(feed, 10)


def test_half_an_answer_is_no_answer(feed: InfluxFeed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one that is too long for us, nor one that the server cuts."""
    for seq in range(60):
        feed.second("a", seq=seq)
    look(feed, 30)
    with monkeypatch.context() as patch:
        patch.setattr(client, "MOST_ANSWER", 300)
        with pytest.raises(StoreError, match="no complete answer"):
            look(feed, 30)
        with pytest.raises(StoreError, match="no complete answer"):
            feed.store.history("GPU-a-0", "gpu_power_watts", START, START + 60 * SECOND, 0)
    server = Influxd(tmp_path / "cutting", http="max-row-limit = 2")
    server.start()
    try:
        cut = InfluxFeed(tmp_path / "cut", prepared(server.url, every_seconds=0.0))
        cut.hello("a")
        for seq in range(10):
            cut.second("a", seq=seq)
        cut.deliver()
        with pytest.raises(StoreError, match="max-row-limit"):
            cut.store.history("GPU-a-0", "gpu_power_watts", START, START + 60 * SECOND, 0)
        cut.store.close()
    finally:
        server.kill()


def test_parts_without_a_number_weigh_nothing() -> None:
    """Of three parts one has none; a state is that of the last that has one."""
    when = PastInstants(20 * SECOND, SECOND, 1)
    names = ("gpu_power_watts", "gpu_energy_joules_total")
    points = [
        (0, [10 * SECOND, 4, 100.0, 7.0]),
        (0, [15 * SECOND, 2, 400.0, None]),
        (0, [18 * SECOND, 9, None, None]),
        (1, [12 * SECOND, 3, None, 5.0]),
        (1, [20 * SECOND, 3, 1.0, 6.0]),
    ]
    found = rows_of(points, names, when, 10 * SECOND)
    np.testing.assert_array_equal(found["gpu_power_watts"], np.array([200, np.nan], np.float32))
    np.testing.assert_array_equal(found["gpu_energy_joules_total"], [7.0, 5.0])
    assert found["ts"].tolist() == [18 * SECOND, 12 * SECOND]
    assert found["k"].tolist() == [0, 0]
