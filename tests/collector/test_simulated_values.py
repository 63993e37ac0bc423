"""Simulated readings: pure, within their limits, and consistent with each other."""

from __future__ import annotations

import itertools
import math
import statistics
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.simulated import (
    KINDS,
    LACKED,
    SELF,
    Scenario,
    SimulatedSource,
    expected_bytes,
    expected_rows,
    scenario,
    value,
)
from telemetry.gap import Gap, reason_of
from telemetry.metric import Lane
from telemetry.wire.schema import GPU_FAST, GPU_SLOW, LINK_SLOW, NODE_FAST, NODE_SLOW, PORT_SLOW, SCHEMA

BOTH = frozenset(Lane)
NAMES = sorted(KINDS)


def calm(name: str, **options: int) -> Scenario:
    """A scenario in which nothing goes wrong."""
    return scenario(name, faults="", **options)  # type: ignore[arg-type]


def series(scene: Scenario, node: str, gpu: int | None, metric: str, seconds: range) -> list[float]:
    return [value(scene, node, gpu, metric, scene.start_tick + second) for second in seconds]


def bits(rows: list[list[float]]) -> list[bytes]:
    return [struct.pack(f"<{len(row)}d", *row) for row in rows]


_PRINT = """
import sys
from collector.simulated import scenario, expected_bytes
from telemetry.wire.schema import SCHEMA
scene = scenario(sys.argv[1], seed=7)
for offset in reversed(range(25, 700, 75)):
    for node in reversed(scene.nodes[:3]):
        for block in range(len(SCHEMA.blocks)):
            try:
                packed = expected_bytes(scene, node, block, scene.start_tick + offset)
            except KeyError:
                continue
            print(node, offset, block, packed.gauges.hex(), packed.counters.hex())
"""


@pytest.mark.parametrize("name", NAMES)
def test_another_process_finds_the_same_bits_in_another_order(name: str) -> None:
    """Published values can be audited anywhere, independently of earlier samples."""
    scene = scenario(name, seed=7)
    there = subprocess.run(
        [sys.executable, "-c", _PRINT, name], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    here = [
        f"{node} {offset} {block} {packed.gauges.hex()} {packed.counters.hex()}"
        for offset in range(25, 700, 75)
        for node in scene.nodes[:3]
        for block in range(len(SCHEMA.blocks))
        if {"link": scene.links, "port": scene.kind.ports, "instance": False}.get(SCHEMA.blocks[block].table, True)
        for packed in [expected_bytes(scene, node, block, scene.start_tick + offset)]
    ]
    assert len(here) >= 36
    assert sorted(there) == sorted(here)


@pytest.mark.parametrize("name", NAMES)
async def test_the_source_publishes_what_is_expected_whichever_ticks_it_takes(name: str) -> None:
    scene = scenario(name, seed=3)
    node = scene.nodes[-1]
    source = SimulatedSource(scene, node)
    await source.open()
    for offset in (0, 1, 2, 600, 601, 4000, 5):
        tick = scene.start_tick + offset
        rows = await source.read(BOTH, tick, now_ns=0, deadline=1.0)
        for block, found in rows.items():
            assert bits(found) == bits(expected_rows(scene, node, block, tick))
            assert {len(row) for row in found} == {len(SCHEMA.blocks[block].names)}
        assert len(rows[GPU_FAST]) == len(rows[GPU_SLOW]) == scene.gpus
        assert len(rows[NODE_FAST]) == len(rows[NODE_SLOW]) == 1
        assert len(rows.get(LINK_SLOW, ())) == len(source.inventory.links)
        assert len(rows.get(PORT_SLOW, ())) == len(source.inventory.ports)
    await source.close()


@settings(deadline=None, max_examples=25)
@given(
    name=st.sampled_from(NAMES), seed=st.integers(0, 2**64), first=st.integers(-100_000, 10**8), gpu=st.integers(0, 3)
)
def test_energy_is_the_sum_of_power_and_power_keeps_its_limits(name: str, seed: int, first: int, gpu: int) -> None:
    scene = calm(name, seed=seed)
    node = scene.nodes[0]
    seconds = range(first, first + 40)
    watts = series(scene, node, gpu, "gpu_power_watts", seconds)
    joules = series(scene, node, gpu, "gpu_energy_joules_total", seconds)
    limit = scene.kind.board.limit
    assert all(0 < reading <= limit for reading in watts)
    assert joules[-1] - joules[0] == pytest.approx(sum(watts[1:]), abs=1e-3)
    assert joules == sorted(joules)
    capped = series(scene, node, gpu, "gpu_clocks_event_sw_power_cap", seconds)
    for reading, cap in zip(watts, capped, strict=True):
        assert (reading >= 0.96 * limit) == (cap == 1.0)
    cap_seconds = series(scene, node, gpu, "gpu_clocks_event_sw_power_cap_seconds_total", seconds)
    assert cap_seconds[-1] - cap_seconds[0] == sum(capped[1:])


@pytest.mark.parametrize(("name", "buses"), [("two-dgx-h100", ("pcie", "nvlink")), ("desktop-4x5090", ("pcie",))])
def test_rates_of_traffic_are_those_of_its_counters(name: str, buses: tuple[str, ...]) -> None:
    scene = calm(name, seed=5)
    node, seconds = scene.nodes[0], range(500, 560)
    for bus, way in itertools.product(("pcie", "nvlink"), ("transmit", "receive")):
        rates = series(scene, node, 1, f"gpu_{bus}_{way}_bytes_per_second", seconds)
        counts = series(scene, node, 1, f"gpu_{bus}_{way}_bytes_total", seconds)
        if bus in buses:
            assert counts[-1] - counts[0] == pytest.approx(sum(rates[1:]), rel=2e-3)
        else:
            assert all(math.isnan(rate) for rate in rates), "it has no such links"


def test_rates_of_a_link_are_those_of_its_counters_and_name_the_least() -> None:
    scene = calm("two-dgx-h100", seed=5)
    node, tick = scene.nodes[0], scene.start_tick + 500
    both = []
    for link in range(18):
        carried = 0.0
        for way in ("transmit", "receive"):
            rates = [value(scene, node, 1, f"link_{way}_bytes_per_second", tick + more, link) for more in range(60)]
            first, last = (value(scene, node, 1, f"link_{way}_bytes_total", tick + more, link) for more in (0, 59))
            assert last - first == pytest.approx(sum(rates[1:]), rel=1e-9)
            carried += rates[-1]
        both.append(carried)
    assert both.index(min(both)) == value(scene, node, 1, "gpu_nvlink_least_link", tick)
    assert min(both) == pytest.approx(value(scene, node, 1, "gpu_nvlink_least_bytes_per_second", tick + 59))


@pytest.mark.parametrize("name", NAMES)
def test_counters_never_fall_and_start_with_the_driver(name: str) -> None:
    scene = calm(name, seed=11)
    node = scene.nodes[0]
    for block in (GPU_FAST, GPU_SLOW, NODE_FAST, LINK_SLOW):
        if block == LINK_SLOW and not scene.links:
            continue
        split = len(SCHEMA.blocks[block].gauges)
        before: list[list[float]] | None = None
        for offset in (0, 1, 7, 60, 3599, 3600, 3601, 90_000, 10**7):
            rows = [row[split:] for row in expected_rows(scene, node, block, scene.start_tick + offset)]
            if before is not None:
                for old, new in zip(before, rows, strict=True):
                    assert all(not b < a for a, b in zip(old, new, strict=True))
            assert all(not reading < 0 for row in rows for reading in row)
            before = rows


@pytest.mark.parametrize(("name", "watts"), [("two-dgx-h100", 17_000.0), ("desktop-4x5090", 2550.0)])
@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_sustained_power_at_the_wall(name: str, watts: float, seed: int) -> None:
    """Any ten minutes of training have the scenario's power, to 2 %."""
    scene = calm(name, seed=seed)
    for first in (0, 777, 123_456):
        seconds = range(first, first + 600)
        total = sum(
            statistics.fmean(series(scene, node, None, "node_wall_power_watts", seconds)) for node in scene.nodes
        )
        assert total == pytest.approx(watts, rel=0.02)


def test_the_wall_draws_more_than_the_gpus() -> None:
    scene = calm("two-dgx-h100")
    for offset in range(0, 400, 3):
        tick = scene.start_tick + offset
        gpus = sum(value(scene, "dgx-01", gpu, "gpu_power_watts", tick) for gpu in range(8))
        assert 1.3 * gpus < value(scene, "dgx-01", None, "node_wall_power_watts", tick) < 10_200


def test_all_gpus_of_a_job_dip_in_the_same_second() -> None:
    scene = calm("two-dgx-h100", seed=5)
    dips = {
        (node, gpu): [
            second
            for second, watts in enumerate(series(scene, node, gpu, "gpu_power_watts", range(120)))
            if watts < 500
        ]
        for node in scene.nodes
        for gpu in range(8)
    }
    assert len(set(map(tuple, dips.values()))) == 1
    assert 5 <= len(dips["dgx-01", 0]) <= 30


def test_temperature_has_inertia() -> None:
    """A checkpoint halves the power within a second; the temperature follows by degrees."""
    scene = calm("two-dgx-h100")
    watts = series(scene, "dgx-01", 2, "gpu_power_watts", range(280, 340))
    warm = series(scene, "dgx-01", 2, "gpu_temperature_celsius", range(280, 340))
    assert max(abs(b - a) for a, b in itertools.pairwise(watts)) > 300
    assert max(abs(b - a) for a, b in itertools.pairwise(warm)) <= 2
    assert max(warm) - min(warm) >= 5
    back = watts.index(min(watts)) + 6  # at work again, and not yet as warm as before
    assert watts[back] > 680
    assert warm[back] < warm[0]


def test_the_desktops_fan_follows_its_temperature() -> None:
    scene = calm("desktop-4x5090")
    pairs = {
        (
            value(scene, "desktop", 2, "gpu_temperature_celsius", tick),
            value(scene, "desktop", 2, "gpu_fan_speed_ratio", tick),
        )
        for tick in range(scene.start_tick, scene.start_tick + 320)
    }
    cold, hot = min(pairs), max(pairs)
    assert hot[0] - cold[0] >= 5
    assert 0 <= cold[1] < hot[1] <= 1


@pytest.mark.parametrize(
    ("name", "absent", "present"),
    [
        (
            "desktop-4x5090",
            "gpu_ecc_mode gpu_ecc_volatile_corrected_dram_total gpu_remap_banks_max gpu_mig_mode"
            " gpu_memory_temperature_celsius gpu_nvlink_transmit_bytes_total gpu_fabric_state"
            " gpu_tensor_active_ratio gpu_temperature_shutdown_celsius",
            "gpu_fan_speed_ratio gpu_thermal_margin_celsius gpu_power_limit_watts",
        ),
        (
            "two-dgx-h100",
            "gpu_fan_speed_ratio gpu_temperature_shutdown_celsius gpu_retired_pages_pending"
            " gpu_fabric_health gpu_module_power_watts gpu_ecc_volatile_corrected_l2_cache_total",
            "gpu_ecc_mode gpu_ecc_volatile_corrected_dram_total gpu_memory_temperature_celsius"
            " gpu_tensor_active_ratio gpu_nvlink_transmit_bytes_total gpu_fabric_state"
            " gpu_thermal_margin_slowdown_celsius link_transmit_bytes_total link_state",
        ),
    ],
)
def test_gaps_are_those_of_the_real_board(name: str, absent: str, present: str) -> None:
    scene = calm(name)
    tick = scene.start_tick + 100
    capabilities = SimulatedSource(scene, scene.nodes[0]).inventory.gpus[0].capabilities
    for metric in absent.split():
        assert reason_of(value(scene, scene.nodes[0], 0, metric, tick)) is Gap.NOT_SUPPORTED
        assert capabilities[metric] == "not_supported"
    for metric in present.split():
        assert reason_of(value(scene, scene.nodes[0], 0, metric, tick)) is None
        assert metric not in capabilities


def test_an_h100_has_all_its_memory_banks_and_limits() -> None:
    scene = calm("two-dgx-h100")
    for gpu in range(8):
        readings = {
            metric: value(scene, "dgx-02", gpu, metric, scene.start_tick) for metric in SCHEMA.blocks[GPU_SLOW].names
        }
        banks = [readings[f"gpu_remap_banks_{word}"] for word in ("max", "high", "partial", "low", "none")]
        assert sum(banks) == 2560
        assert readings["gpu_power_limit_min_watts"] == 200
        assert readings["gpu_power_limit_max_watts"] == readings["gpu_power_limit_watts"] == 700
        assert 140 <= readings["gpu_pcie_replays_total"] <= 160
        assert readings["gpu_ecc_aggregate_uncorrected_total"] == 0


def test_a_fleet_trains_serves_and_idles() -> None:
    scene = calm("fleet", nodes=120, seed=1)
    kinds = {SimulatedSource(scene, node).inventory.host["job"].split("-")[0] for node in scene.nodes}
    assert kinds == {"training", "inference", "evaluation", "mixed", "idle"}
    tick = scene.start_tick + 60
    watts = [value(scene, node, 0, "gpu_power_watts", tick) for node in scene.nodes]
    assert min(watts) < 90
    assert max(watts) > 680
    processes = {value(scene, node, 0, "gpu_processes", tick) for node in scene.nodes}
    assert processes == {0.0, 1.0}


def test_only_what_the_collector_knows_of_itself_is_left_to_it() -> None:
    scene = calm("two-dgx-h100")
    for block in (NODE_FAST, NODE_SLOW):
        names = SCHEMA.blocks[block].names
        row = expected_rows(scene, "dgx-01", block, scene.start_tick)[0]
        for name, reading in zip(names, row, strict=True):
            lacked = Gap.NOT_SUPPORTED if name in LACKED else None
            assert reason_of(reading) is (Gap.NOT_READ if name in SELF else lacked), name
