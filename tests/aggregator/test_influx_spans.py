"""Open spans: whatever order frames come in, every reading stands in exactly one part of its span."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregator.influx.aggregates import SpanAggregates, of_readings
from aggregator.influx.span_ladder import AHEAD, GRACE, OpenSpans, SpanLadder, closed
from aggregator.influx.state_changes import ChangeWatcher, names_of
from aggregator.settings.influx import InfluxConfig
from aggregator.store.protocol import Frames
from telemetry.gap import NOT_SUPPORTED, TIMED_OUT, Gap, bits32
from telemetry.wire.schema import GPU_FAST, SCHEMA

BLOCK = SCHEMA.blocks[GPU_FAST]
GAUGES, COUNTERS = len(BLOCK.gauges), len(BLOCK.counters)
SECOND = 10**9
START = 1_763_700_000 * SECOND


def cells(device: list[int], seconds: list[float], values: list[float]) -> SpanAggregates:
    """Frames whose every gauge and counter has one value."""
    rows = len(device)
    column = np.array(values, np.float64)[:, None]
    return of_readings(
        BLOCK,
        np.array(device, np.int32),
        START + (np.array(seconds) * SECOND).astype(np.int64),
        np.broadcast_to(column, (rows, GAUGES)).astype(np.float32),
        np.broadcast_to(column, (rows, COUNTERS)).copy(),
    )


def frames(seconds: list[float]) -> Frames:
    at = START + (np.array(seconds) * SECOND).astype(np.int64)
    count = len(seconds)
    return Frames(np.zeros(count, np.int32), np.arange(count), at, at, np.zeros(count, np.bool_))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 200), st.integers(-50, 50)),
        min_size=1,
        max_size=80,
        unique_by=lambda item: item[:2],
    ),
    st.integers(1, 9),
)
def test_every_reading_counts_once_in_every_step(readings: list[tuple[int, int, int]], batch: int) -> None:
    spans = SpanLadder(InfluxConfig(rollup_seconds=(60,), rollup_age_seconds=(1.0,)))
    found: dict[int, list[SpanAggregates]] = {0: [], 60: []}
    stored = 0
    at = START

    def take(*, every: bool) -> None:
        nonlocal stored
        for over in spans.due(at, every=every):
            found[over.rollup] += [each for _, each in over.blocks]
            stored += sum(len(each) for each in over.frames)
        stored += sum(len(each) for each in spans.stored)
        spans.stored.clear()

    for begin in range(0, len(readings), batch):
        part = readings[begin : begin + batch]
        at += 7 * SECOND
        device, seconds, values = (list(column) for column in zip(*part, strict=True))
        spans.add(GPU_FAST, cells(device, [float(s) for s in seconds], [float(v) for v in values]), at)
        spans.hold(frames([float(s) for s in seconds]), at)
        take(every=False)
    take(every=True)
    assert stored == len(readings)
    for step, parts in ((10, found[0]), (60, found[60])):
        wanted: dict[tuple[int, int], list[int]] = {}
        for number, second, value in readings:
            wanted.setdefault((number, second // step), []).append(value)
        got: dict[tuple[int, int], list[tuple[float, float, float, int]]] = {}
        for each in parts:
            for row in range(len(each)):
                key = (int(each.device[row]), int((each.first[row] - START) // SECOND // step))
                got.setdefault(key, []).append(
                    (each.total[row, 0], each.low[row, 0], each.high[row, 0], int(each.known[row, 0]))
                )
        assert set(got) == set(wanted)
        for key, values_ in wanted.items():
            assert sum(part[0] for part in got[key]) == sum(values_)
            assert min(part[1] for part in got[key]) == min(values_)
            assert max(part[2] for part in got[key]) == max(values_)
            assert sum(part[3] for part in got[key]) == len(values_)


def test_a_span_waits_for_its_end_and_for_what_still_comes() -> None:
    spans = OpenSpans(10, {})
    spans.add(GPU_FAST, cells([1], [3.0], [5.0]), START + 4 * SECOND)
    assert list(spans.due(START + 10 * SECOND + GRACE - 1, None)) == []
    spans.add(GPU_FAST, cells([1], [9.0], [7.0]), START + 11 * SECOND)
    assert list(spans.due(START + 10 * SECOND + GRACE, None)) == []
    (span,) = spans.due(START + 11 * SECOND + GRACE, None)
    ((block, found),) = closed(span)
    assert (block, found.total[0, 0], found.readings[0]) == (GPU_FAST, 12.0, 2)
    assert spans.open == {}


def test_a_clock_that_is_a_year_ahead_keeps_nothing_open() -> None:
    spans = OpenSpans(10, {})
    ahead = 365 * 86_400.0
    spans.add(GPU_FAST, cells([1], [ahead], [5.0]), START)
    assert ahead * SECOND > AHEAD
    assert len(list(spans.due(START + GRACE, None))) == 1


def test_the_last_of_a_counter_is_the_latest_known_in_time_not_in_arrival() -> None:
    spans = OpenSpans(10, {})
    spans.add(GPU_FAST, cells([1, 1, 1], [5.0, 2.0, 8.0], [50.0, 20.0, np.nan]), START)
    (span,) = spans.due(START, None, every=True)
    ((_, found),) = closed(span)
    assert found.newest[0, -1] == 50.0
    assert found.readings[0] == 3
    assert found.known[0].tolist() == [2] * len(BLOCK.names)


def test_reasons_are_counted_but_what_a_device_never_has_is_silent() -> None:
    gauges = np.ones((2, GAUGES), np.float32)
    counters = np.ones((2, COUNTERS))
    gauges[0, 0] = np.uint32(bits32(Gap.NOT_SUPPORTED)).view(np.float32)
    gauges[1, :3] = np.uint32(bits32(Gap.TIMED_OUT)).view(np.float32)
    counters[1, 0] = TIMED_OUT
    counters[0, 0] = NOT_SUPPORTED
    found = of_readings(BLOCK, np.arange(2, dtype=np.int32), np.full(2, START), gauges, counters)
    assert found.gaps.sum(axis=1).tolist() == [0, 4]


def test_open_hours_are_saved_and_a_file_that_is_broken_begins_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = InfluxConfig(every_seconds=0.0, rollup_seconds=(3600,), rollup_age_seconds=(1.0,))
    spans = SpanLadder(config)
    spans.add(GPU_FAST, cells([1, 2], [1.0, 2.0], [5.0, 6.0]), START)
    spans.save(tmp_path / "open.npz")
    again = SpanLadder(config)
    again.restore(tmp_path / "open.npz")
    again.add(GPU_FAST, cells([2], [3.0], [10.0]), START)
    (over,) = again.due(START + 7200 * SECOND, every=False)
    ((_, found),) = over.blocks
    assert found.total[:, 0].tolist() == [5.0, 16.0]
    (tmp_path / "open.npz").write_bytes(b"PK nonsense")
    SpanLadder(config).restore(tmp_path / "open.npz")
    assert "was renamed to open.npz.damaged-1" in caplog.text


def test_an_old_frame_and_a_gap_are_no_change() -> None:
    watch = ChangeWatcher(GPU_FAST)
    names = names_of(GPU_FAST)
    at = START + np.array([0, 10, 5, 11], np.int64) * SECOND
    gauges = np.zeros((4, GAUGES), np.float32)
    gauges[1:] = 1.0
    gauges[3] = np.nan
    device = np.ones(4, np.int64)
    first = watch.detect(device[:1], at[:1], gauges[:1])
    assert first is not None
    assert first.values.shape == (1, len(names))
    later = watch.detect(device[1:2], at[1:2], gauges[1:2])
    assert later is not None
    assert later.at.tolist() == [START + 10 * SECOND]
    assert watch.detect(device[2:3], at[2:3], np.zeros((1, GAUGES), np.float32)) is None
    assert watch.detect(device[3:], at[3:], gauges[3:]) is None
