"""Faults on a script: each does what it says, for as long as it says, and nothing else."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.simulated import (
    FaultKind,
    Scenario,
    SimulatedFault,
    SimulatedSource,
    expected_rows,
    parse,
    scenario,
    silent,
    value,
)
from collector.source import DeviceEvent
from telemetry.gap import Gap, reason_of
from telemetry.metric import Lane
from telemetry.wire.schema import GPU_FAST, GPU_SLOW, LINK_FAST, LINK_SLOW, SCHEMA

BOTH = frozenset(Lane)


def dgx(faults: str) -> Scenario:
    return scenario("two-dgx-h100", faults=faults, start_tick=1_800_000_000)


def at(scene: Scenario, second: int, gpu: int | None, metric: str, node: str = "dgx-01") -> float:
    return value(scene, node, gpu, metric, scene.start_tick + second)


def reasons(scene: Scenario, second: int, gpu: int, block: int) -> set[Gap | None]:
    row = expected_rows(scene, "dgx-01", block, scene.start_tick + second)
    count = 18 if block in {LINK_FAST, LINK_SLOW} else 1
    return {reason_of(reading) for entry in row[gpu * count : (gpu + 1) * count] for reading in entry}


async def events_of(scene: Scenario, node: str, seconds: range) -> list[DeviceEvent]:
    """Return the events of a source over these seconds."""
    source = SimulatedSource(scene, node)
    events: list[DeviceEvent] = []
    for second in seconds:
        await source.read(BOTH, scene.start_tick + second, now_ns=0, deadline=1.0)
        events += source.drain_events()
    return events


def test_a_script_is_read_as_it_is_written() -> None:
    text = "xid79@dgx-01/3+30s, thermal@dgx-02/0+2m:90s power_brake@rack-01+1h:5"
    assert parse(text) == (
        SimulatedFault(FaultKind.XID79, "dgx-01", 3, 30, None),
        SimulatedFault(FaultKind.THERMAL, "dgx-02", 0, 120, 90),
        SimulatedFault(FaultKind.POWER_BRAKE, "rack-01", None, 3600, 5),
    )
    assert parse("") == parse("none") == ()


@given(
    st.lists(
        st.builds(
            SimulatedFault,
            st.sampled_from(FaultKind),
            st.from_regex(r"[a-z][a-z0-9-]{0,9}", fullmatch=True),
            st.none() | st.integers(0, 71),
            st.integers(0, 10**6),
            st.integers(1, 10**6),
        ),
        max_size=5,
    )
)
def test_a_script_survives_being_written_and_read(faults: list[SimulatedFault]) -> None:
    assert list(parse(", ".join(map(str, faults)))) == faults


async def test_xid79_is_all_gaps_an_event_and_a_gpu_lost() -> None:
    scene = dgx("xid79@dgx-01/3+30s:60s")
    for block in (GPU_FAST, GPU_SLOW, LINK_FAST, LINK_SLOW):
        assert reasons(scene, 30, 3, block) == reasons(scene, 89, 3, block) == {Gap.DEVICE_LOST}
        assert None in reasons(scene, 29, 3, block) & reasons(scene, 90, 3, block)
        assert Gap.DEVICE_LOST not in reasons(scene, 30, 2, block)
    events = await events_of(scene, "dgx-01", range(0, 120, 7))
    assert [(one.kind, one.at // 10**9 - scene.start_tick) for one in events] == [
        ("fault", 30),
        ("xid", 30),
        ("gpu_lost", 30),
        ("gpu_back", 90),
    ]
    stock = SimulatedSource(scene, "dgx-01").inventory
    assert {(one.gpu, one.pci) for one in events} == {(stock.gpus[3].uuid, stock.gpus[3].pci)}
    assert events[1].data["xid"] == 79


async def test_a_lost_gpu_leaves_the_inventory_and_comes_back() -> None:
    scene = dgx("xid79@dgx-01/3+10s:10s")
    source = SimulatedSource(scene, "dgx-01")
    before = source.inventory
    present = []
    for second in (9, 10, 19, 20):
        await source.read(BOTH, scene.start_tick + second, now_ns=0, deadline=1.0)
        present.append(source.inventory.gpus[3].present)
    assert present == [True, False, False, True]
    assert source.inventory == before
    assert all(gpu.present for gpu in before.gpus)


def test_a_job_stalls_when_it_loses_a_gpu_and_then_goes_on() -> None:
    scene, calm = dgx("xid79@dgx-01/3+30s"), dgx("")
    for node, gpu in (("dgx-01", 0), ("dgx-02", 7)):
        pair = [
            (at(scene, second, gpu, "gpu_power_watts", node), at(calm, second, gpu, "gpu_power_watts", node))
            for second in (29, 31, 149, 150)
        ]
        assert pair[0][0] == pair[0][1]
        assert pair[1][0] < 0.5 * pair[1][1]
        assert pair[2][0] < 0.5 * pair[2][1]
        assert pair[3][0] == pair[3][1]


def test_an_ecc_storm_rages_under_load_only() -> None:
    scene = dgx("ecc_storm@dgx-01/2+100s:400s")
    for metric in ("gpu_ecc_volatile_corrected_dram_total", "gpu_ecc_volatile_corrected_total"):
        count = [at(scene, second, 2, metric) for second in (50, 99, 109, 200, 291, 300, 499, 900)]
        assert count[1] - count[0] <= 1
        assert (count[3] - count[2]) / 91 > 1000
        assert (count[5] - count[4]) / 9 < 0.5 * (count[3] - count[2]) / 91  # a checkpoint: no load
        assert count[7] - count[6] <= 1
        assert all(reading == int(reading) for reading in count)
    assert at(scene, 150, 1, "gpu_ecc_volatile_corrected_total") <= 600
    assert at(scene, 150, 2, "gpu_ecc_volatile_uncorrected_total") == 0
    assert at(scene, 150, 2, "gpu_driver_latency_seconds") > 0.1
    assert at(scene, 150, 1, "gpu_driver_latency_seconds") < 0.01


async def test_a_row_waits_for_its_replacement() -> None:
    scene = dgx("remap_pending@dgx-01/4+60s:600s")
    flags = [at(scene, second, 4, "gpu_remapped_rows_pending") for second in (59, 60, 659, 660)]
    assert flags == [0, 1, 1, 0]
    rows = [at(scene, second, 4, "gpu_remapped_rows_correctable") for second in (59, 60, 660)]
    assert rows[1] == rows[2] == rows[0] + 1
    assert at(scene, 60, 4, "gpu_remap_banks_high") == rows[1]
    assert at(scene, 60, 4, "gpu_remap_banks_max") == 2560 - rows[1]
    events = await events_of(scene, "dgx-01", range(50, 70))
    assert [(one.kind, one.data.get("xid")) for one in events] == [("fault", None), ("xid", 63)]


@pytest.mark.parametrize(("name", "node", "gpu"), [("two-dgx-h100", "dgx-01", 1), ("desktop-4x5090", "desktop", 1)])
async def test_a_hot_gpu_is_slowed_down_by_hardware(name: str, node: str, gpu: int) -> None:
    scene = scenario(name, faults=f"thermal@{node}/{gpu}+60s:3m")

    def series(metric: str, seconds: range) -> list[float]:
        return [at(scene, second, gpu, metric, node) for second in seconds]

    warm = series("gpu_temperature_celsius", range(60, 120))
    assert all(b - a <= 3 for a, b in itertools.pairwise(warm))
    assert warm[-1] > warm[0] + 10
    slowdown = at(scene, 0, gpu, "gpu_thermal_margin_slowdown_celsius", node)
    assert at(scene, 150, gpu, "gpu_thermal_margin_celsius", node) <= slowdown
    assert at(scene, 150, gpu, "gpu_thermal_margin_celsius", node) > at(
        scene, 150, gpu, "gpu_thermal_margin_shutdown_celsius", node
    )
    for metric in ("gpu_clocks_event_hw_thermal_slowdown", "gpu_clocks_event_hw_slowdown"):
        assert set(series(metric, range(120, 240))) == {1}
        assert set(series(metric, range(110, 120))) == set(series(metric, range(240, 300))) == {0}
    seconds = series("gpu_clocks_event_hw_thermal_slowdown_seconds_total", range(115, 300))
    assert seconds[-1] - seconds[0] == 120
    slow = at(scene, 125, gpu, "gpu_sm_clock_hertz", node)
    assert slow < 0.65 * at(scene, 115, gpu, "gpu_sm_clock_hertz", node)
    later = at(scene, 420, gpu, "gpu_temperature_celsius", node)
    assert abs(later - at(scene, 60, gpu, "gpu_temperature_celsius", node)) <= 6
    events = [(one.kind, one.at // 10**9 - scene.start_tick) for one in await events_of(scene, node, range(300))]
    assert events == [("fault", 60), ("clocks_down", 120), ("clocks_free", 240)]


async def test_a_power_brake_slows_all_gpus_of_its_node() -> None:
    scene, calm = dgx("power_brake@dgx-02+100s:30s"), dgx("")
    for gpu in range(8):
        flag = [
            at(scene, second, gpu, "gpu_clocks_event_hw_power_brake_slowdown", "dgx-02")
            for second in (99, 100, 129, 130)
        ]
        assert flag == [0, 1, 1, 0]
        counter = "gpu_clocks_event_hw_power_brake_slowdown_seconds_total"
        assert at(scene, 200, gpu, counter, "dgx-02") - at(scene, 99, gpu, counter, "dgx-02") == 30
        assert at(scene, 110, gpu, "gpu_power_watts", "dgx-02") < 400
        assert at(scene, 110, gpu, "gpu_power_watts") == at(calm, 110, gpu, "gpu_power_watts")
    assert at(scene, 110, None, "node_wall_power_watts", "dgx-02") < 7000
    events = await events_of(scene, "dgx-02", range(90, 140))
    assert [one.kind for one in events] == ["fault", *["clocks_down"] * 8, *["clocks_free"] * 8]
    assert len({one.gpu for one in events if one.kind == "clocks_down"}) == 8


async def test_a_hung_gpu_times_out_and_costs_the_others_nothing() -> None:
    scene, calm = dgx("hung@dgx-01/5+20s:60s"), dgx("")
    for block in (GPU_FAST, GPU_SLOW, LINK_FAST, LINK_SLOW):
        assert reasons(scene, 20, 5, block) == reasons(scene, 79, 5, block) == {Gap.TIMED_OUT}
        assert Gap.TIMED_OUT not in reasons(scene, 19, 5, block) | reasons(scene, 80, 5, block)
    for metric in SCHEMA.blocks[GPU_FAST].counters:
        assert at(scene, 40, 4, metric) == at(calm, 40, 4, metric)
        assert at(scene, 90, 5, metric) == at(calm, 90, 5, metric)
    assert at(scene, 40, None, "node_processes_uninterruptible") > 0
    assert at(calm, 40, None, "node_processes_uninterruptible") == 0
    events = await events_of(scene, "dgx-01", range(100))
    assert [one.kind for one in events] == ["fault", "gpu_hung", "gpu_answers"]


async def test_a_node_reports_its_loss_when_it_is_back() -> None:
    scene = dgx("node_loss@dgx-01+50s:100s, hung@dgx-01/1+60s:10s")
    source = SimulatedSource(scene, "dgx-01")
    for second in (49, 150):  # the sampler takes no frame in between
        await source.read(BOTH, scene.start_tick + second, now_ns=0, deadline=1.0)
    assert [(one.kind, one.gpu, one.data) for one in source.drain_events()] == [("fault", None, {"fault": "node_loss"})]


def test_a_lost_node_is_silent_and_has_booted_when_it_is_back() -> None:
    scene, calm = dgx("node_loss@dgx-01+50s:100s"), dgx("")
    ticks = [scene.start_tick + second for second in (49, 50, 149, 150)]
    assert [silent(scene, "dgx-01", tick) for tick in ticks] == [False, True, True, False]
    assert [SimulatedSource(scene, "dgx-01").silent(tick) for tick in ticks] == [False, True, True, False]
    assert not any(silent(scene, "dgx-02", tick) for tick in ticks)
    for metric in ("gpu_energy_joules_total", "gpu_nvlink_transmit_bytes_total"):
        assert at(scene, 49, 0, metric) == at(calm, 49, 0, metric)
        assert 0 <= at(scene, 150, 0, metric) < at(scene, 160, 0, metric) < at(scene, 49, 0, metric)
    watts = sum(at(scene, second, 0, "gpu_power_watts") for second in range(150, 200))
    assert at(scene, 199, 0, "gpu_energy_joules_total") == pytest.approx(watts, rel=0.02)
    assert at(scene, 150, None, "node_uptime_seconds") < 300
    assert at(scene, 150, None, "node_disk_written_bytes_total") < 10**9
    # what the board itself remembers outlives the boot
    aggregate = "gpu_ecc_aggregate_corrected_total"
    assert at(scene, 150, 0, aggregate) >= at(scene, 49, 0, aggregate)


def test_a_feed_takes_several_nodes_down_at_once() -> None:
    scene = scenario("fleet", nodes=10, faults="feed_loss@rack-002+1m:90s, feed_loss@node-0001*+9m")
    down = {
        second: [node for node in scene.nodes if silent(scene, node, scene.start_tick + second)]
        for second in (59, 60, 149, 150, 540)
    }
    rack = [f"node-{number:05d}" for number in (5, 6, 7, 8)]
    assert down == {59: [], 60: rack, 149: rack, 150: [], 540: ["node-00010"]}


def test_a_straggler_is_slower_at_the_same_utilisation() -> None:
    scene, calm = dgx("straggler@dgx-01/5+10s:5m"), dgx("")
    for second in (12, 100, 309):
        for metric, low, high in (
            ("gpu_sm_clock_hertz", 0.84, 0.86),
            ("gpu_utilization_ratio", 1, 1),
            ("gpu_power_watts", 0.9, 0.95),
        ):
            share = at(scene, second, 5, metric) / at(calm, second, 5, metric)
            assert low - 0.01 <= share <= high + 0.01
    assert at(scene, 320, 5, "gpu_sm_clock_hertz") == at(calm, 320, 5, "gpu_sm_clock_hertz")


async def test_events_come_once_however_the_ticks_fall() -> None:
    scene = dgx("hung@dgx-01/5+20s:10s, xid79@dgx-01/1+25s:50s")
    every = await events_of(scene, "dgx-01", range(100))
    seldom = await events_of(scene, "dgx-01", range(0, 101, 20))
    assert every == seldom
    assert [one.at for one in every] == sorted(one.at for one in every)


async def test_a_released_driver_is_gaps_and_a_state() -> None:
    source = SimulatedSource(dgx(""), "dgx-01")
    await source.release()
    rows = await source.read(BOTH, source.scenario.start_tick, now_ns=0, deadline=1.0)
    assert {reason_of(reading) for row in rows[GPU_FAST] for reading in row} == {Gap.NOT_READ}
    assert source.inventory.driver_state == "released"
    await source.resume()
    rows = await source.read(BOTH, source.scenario.start_tick, now_ns=0, deadline=1.0)
    assert reason_of(rows[GPU_FAST][0][0]) is None
    assert source.inventory.driver_state == "up"


@settings(deadline=None, max_examples=30)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["xid79", "thermal", "hung", "straggler", "ecc_storm", "remap_pending"]),
            st.integers(0, 2),
            st.integers(0, 200),
            st.integers(1, 200),
        ),
        max_size=5,
    )
)
def test_counters_add_up_under_any_script(script: list[tuple[str, int, int, int]]) -> None:
    """Energy is the sum of power, and no counter falls, also where faults overlap."""
    scene = dgx(", ".join(f"{kind}@dgx-01/{gpu}+{start}s:{last}s" for kind, gpu, start, last in script))
    ticks = range(scene.start_tick - 2, scene.start_tick + 420, 6)
    for gpu in range(3):
        before: list[float] | None = None
        for tick in ticks:
            if reason_of(value(scene, "dgx-01", gpu, "gpu_energy_joules_total", tick)) is not None:
                continue
            row = expected_rows(scene, "dgx-01", GPU_FAST, tick)[gpu]
            counters = row[len(SCHEMA.blocks[GPU_FAST].gauges) :]
            assert before is None or all(a <= b for a, b in zip(before, counters, strict=True))
            before = counters
            joules = value(scene, "dgx-01", gpu, "gpu_energy_joules_total", tick + 1)
            if reason_of(joules) is None:
                watts = value(scene, "dgx-01", gpu, "gpu_power_watts", tick + 1)
                assert joules - counters[0] == pytest.approx(watts, abs=1e-3)
