"""Rates of counters, and what of a GPU is made of its links: real nvidia-ml-py in a real process, scripted library."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from collector.nvml.growth import SHORTEST, Growth
from telemetry.catalogue.nvml import NO_LINK, LinkGpm
from telemetry.gap import NOT_READ, Gap, reason_of
from telemetry.wire.schema import GPU_SLOW, LINK_SLOW, SCHEMA
from tests.collector.nvml_ticks import FAST, Ticks
from tests.fake_nvml import GB300, GEFORCE, FakeDriver

SENT, RECEIVED = "gpu_pcie_transmit_bytes_per_second", "gpu_pcie_receive_bytes_per_second"
WORST = "gpu_c2c_worst_link"
C2C = {231: "gpu_c2c_crc_errors_total", 232: "gpu_c2c_replays_total", 233: "gpu_c2c_replays_back_to_back_total"}


@pytest.mark.parametrize(
    ("readings", "rates"),
    [
        pytest.param([(0, 0), (500, 1), (500, 2)], [None, 500, 0], id="steady, then nothing"),
        pytest.param([(0, 0), (900, 3)], [None, 300], id="two ticks without a reading"),
        pytest.param([(900, 0), (10, 1), (40, 2)], [None, None, 30], id="reset"),
        pytest.param([(900, 0), (10, 0.05), (40, 1.05)], [None, None, 30], id="reset at once"),
        pytest.param([(0, 0), (500, 1), (900, 1.01), (900, 2)], [None, 500, 500, 400], id="read twice in a tick"),
        pytest.param([(7, 0), (9, 0)], [None, None], id="no time between"),
        pytest.param([(0, 0), (2**53, 1)], [None, 2**53], id="large"),
    ],
)
def test_a_rate_is_the_growth_by_the_time_between_the_readings(
    readings: list[tuple[float, float]], rates: list[float | None]
) -> None:
    growth = Growth()
    found = [growth.read(number, at) for number, at in readings]
    assert [None if rate != rate else rate for rate in found] == rates  # noqa: PLR0124 - NaN
    assert all(reason_of(rate) in {None, Gap.NOT_READ} for rate in found)
    assert reason_of(NOT_READ) is Gap.NOT_READ
    assert SHORTEST < 1


@pytest.fixture
def older(tmp_path: Path) -> Iterator[FakeDriver]:
    """Two boards without GPM, whose counters of PCI Express stand at a number."""
    with FakeDriver(tmp_path, gpus=2, profile=GEFORCE) as driver:
        for number in (197, 198):
            driver.field(number, 10**12)
        yield driver


async def pause(ticks: Ticks) -> None:
    """Tick until a counter is read anew."""
    end = time.monotonic() + 1.5 * SHORTEST
    while time.monotonic() < end:
        await ticks.tick(frozenset())


async def rate_of(ticks: Ticks, fake: FakeDriver, start: int, more: int, failed: int = 0) -> None:
    """Check the rate of a counter that grows from a number, over ticks whose readings fail, against the clock."""
    await pause(ticks)
    fake.field(197, start, gpu=0)
    begin = time.monotonic()
    await ticks.tick(FAST)
    begun = time.monotonic()
    for _ in range(failed):
        fake.field(197, gpu=0, error=999)
        await ticks.until(lambda: ticks.gap(SENT) is Gap.ERROR, FAST)
    await pause(ticks)
    fake.field(197, start + more, gpu=0)
    ending = time.monotonic()
    await ticks.tick(FAST)
    end = time.monotonic()
    assert more / (end - begin) <= ticks.value(SENT) <= more / (ending - begun)


async def test_a_board_without_gpm_has_the_growth_of_its_counters(older: FakeDriver) -> None:
    async with Ticks(older) as ticks:
        await ticks.tick()
        assert ticks.gap(SENT) is Gap.NOT_READ
        await rate_of(ticks, older, 10**12, 10**9)
        assert ticks.gap("gpu_nvlink_transmit_bytes_per_second") is Gap.NOT_SUPPORTED
        assert ticks.gap("gpu_sm_active_ratio") is Gap.NOT_SUPPORTED


async def test_a_rate_spans_ticks_without_a_reading(older: FakeDriver) -> None:
    async with Ticks(older) as ticks:
        await ticks.tick()
        await rate_of(ticks, older, 10**12, 10**9, failed=2)
        assert ticks.gap(SENT, 1) is None


async def test_a_counter_that_was_reset_has_no_rate_once(older: FakeDriver) -> None:
    async with Ticks(older) as ticks:
        await ticks.tick()
        await ticks.until(lambda: ticks.gap(SENT) is None, FAST)
        older.field(197, 5, gpu=0)
        await ticks.tick(FAST)
        assert ticks.gap(SENT) is Gap.NOT_READ
        assert ticks.value(RECEIVED) == 0
        await ticks.until(lambda: ticks.gap(SENT) is None, FAST)
        assert ticks.value(SENT) == 0


async def test_counters_of_32_bits_make_no_rates(older: FakeDriver) -> None:
    """Such a counter wraps many times a second at the speed of a slot of today."""
    for number in (197, 198):
        older.field(number, 10**9, kind="u", gpu=1)
    async with Ticks(older) as ticks:
        await ticks.tick()
        await ticks.until(lambda: ticks.gap(SENT) is None)
        assert {ticks.gap(SENT, 1), ticks.gap(RECEIVED, 1)} == {Gap.NOT_SUPPORTED}
        assert ticks.source.inventory.gpus[1].capabilities[SENT] == "not_supported"
        assert SENT not in ticks.source.inventory.gpus[0].capabilities


def test_ids_of_links_are_those_of_the_header() -> None:
    for link in range(72):
        for way, receive in (("RX", True), ("TX", False)):
            name = f"NVML_GPM_METRIC_NVLINK_L{link}_{way}_PER_SEC"
            assert LinkGpm(receive).of(link).id == getattr(pynvml, name), name


LINK_SENT, LINK_RECEIVED = "link_transmit_bytes_per_second", "link_receive_bytes_per_second"


def of_links(ticks: Ticks, name: str) -> list[float]:
    """Return a reading of all links, those of the first GPU first."""
    column = SCHEMA.blocks[LINK_SLOW].names.index(name)
    return [row[column] for row in ticks.rows[LINK_SLOW]]


async def test_each_link_has_its_traffic_both_ways(tmp_path: Path) -> None:
    with FakeDriver(tmp_path, gpus=2, links=18) as fake:
        for link in range(18):
            fake.gpm(getattr(pynvml, f"NVML_GPM_METRIC_NVLINK_L{link}_TX_PER_SEC"), 100 + link, gpu=0)
            fake.gpm(getattr(pynvml, f"NVML_GPM_METRIC_NVLINK_L{link}_RX_PER_SEC"), 200 + link, gpu=0)
        async with Ticks(fake) as ticks:
            await ticks.tick()
            assert {reason_of(value) for value in of_links(ticks, LINK_SENT)} == {Gap.NOT_READ}
            before = fake.calls()
            # Ticks closer than that may read one GPU in each, and never both in the same.
            await ticks.until(lambda: {*map(reason_of, of_links(ticks, LINK_SENT))} == {None}, apart=1.5 * SHORTEST)
            assert of_links(ticks, LINK_SENT) == [(100 + link) * 2**20 for link in range(18)] + [7222 * 2**20] * 18
            assert of_links(ticks, LINK_RECEIVED) == [(200 + link) * 2**20 for link in range(18)] + [6666 * 2**20] * 18
            asked = fake.calls()["nvmlGpmMetricsGet"] - before.get("nvmlGpmMetricsGet", 0)
            assert asked <= fake.calls()["nvmlGpmSampleGet"] - before["nvmlGpmSampleGet"], "one call for all links"
            assert ticks.gap("gpu_nvlink_least_link") is None


async def test_links_of_a_board_without_gpm_have_the_growth_of_their_counters(tmp_path: Path) -> None:
    with FakeDriver(tmp_path, gpus=1, links=3, profile=H100_WITHOUT_GPM) as fake:
        for link in range(3):
            fake.field(140, 1000 * link, scope=link)
            fake.field(141, 1000 * link, scope=link)
        async with Ticks(fake) as ticks:
            await ticks.tick()
            await ticks.until(lambda: of_links(ticks, LINK_SENT) == [0, 0, 0])
            await pause(ticks)
            begin = time.monotonic()
            await ticks.tick()
            begun = time.monotonic()
            await pause(ticks)
            for link in range(3):
                fake.field(140, 10**6 * (link + 1) + 1000 * link, scope=link)
            ending = time.monotonic()
            await ticks.tick()
            end = time.monotonic()
            for link, rate in enumerate(of_links(ticks, LINK_SENT)):
                more = 10**6 * (link + 1) * 1024
                assert more / (end - begin) <= rate <= more / (ending - begun)
            assert of_links(ticks, LINK_RECEIVED) == [0, 0, 0]
            assert ticks.value("gpu_nvlink_least_link") == 0


async def test_the_least_used_of_the_active_links_is_named(tmp_path: Path) -> None:
    bytes_name, link_name = "gpu_nvlink_least_bytes_per_second", "gpu_nvlink_least_link"
    with FakeDriver(tmp_path, gpus=2, links=4) as fake:
        fake.gpm(pynvml.NVML_GPM_METRIC_NVLINK_L2_RX_PER_SEC, 100, gpu=0)
        fake.gpm(pynvml.NVML_GPM_METRIC_NVLINK_L3_TX_PER_SEC, 0, gpu=0)
        fake.gpm(pynvml.NVML_GPM_METRIC_NVLINK_L3_RX_PER_SEC, 0, gpu=0)
        fake.link(0, 3, state=0)
        async with Ticks(fake) as ticks:
            await ticks.tick()
            assert ticks.gap(link_name) is Gap.NOT_READ
            await ticks.sampled()
            assert (ticks.value(bytes_name), ticks.value(link_name)) == ((100 + 7222) * 2**20, 2)
            assert (ticks.value(bytes_name, 1), ticks.value(link_name, 1)) == ((6666 + 7222) * 2**20, 0)
            assert len(ticks.rows[GPU_SLOW][0]) == len(ticks.rows[GPU_SLOW][1])
            fake.link(0, 3, state=1)
            await ticks.until(lambda: ticks.value(link_name) == 3)
            assert ticks.value(bytes_name) == 0
            for link in range(4):
                fake.link(0, link, state=0)
            await ticks.until(lambda: ticks.gap(link_name) is Gap.NOT_READ)
            fake.field(165, error=999, gpu=0, scope=1)
            await ticks.until(lambda: ticks.gap(link_name) is Gap.ERROR)


async def test_links_without_gpm_and_counters_have_no_traffic(tmp_path: Path) -> None:
    with FakeDriver(tmp_path, gpus=1, links=4, profile=H100_WITHOUT_GPM) as fake:
        async with Ticks(fake) as ticks:
            await ticks.tick()
            for name in ("gpu_nvlink_least_bytes_per_second", "gpu_nvlink_least_link"):
                assert ticks.gap(name) is Gap.NOT_SUPPORTED
            assert {reason_of(value) for value in of_links(ticks, LINK_SENT)} == {Gap.NOT_SUPPORTED}
            await ticks.tick()
            assert "gpu_nvlink_least_link" in ticks.source.inventory.gpus[0].capabilities


H100_WITHOUT_GPM = {key: fact for key, fact in GB300.items() if not key.startswith("gpm")}


@pytest.fixture
def grace(tmp_path: Path) -> Iterator[FakeDriver]:
    """Two GPUs, of which the first has three links to its CPU, the second none."""
    with FakeDriver(tmp_path, gpus=2, links=2, profile=GB300) as driver:
        driver.field(170, 3, gpu=0, kind="u")
        for link, counts in enumerate(((1, 2, 0), (0, 9, 4), (0, 0, 0))):
            driver.field(171, int(link != 2), gpu=0, scope=link, kind="u")
            for field, count in zip(C2C, counts, strict=True):
                driver.field(field, count, gpu=0, scope=link)
        yield driver


async def test_errors_of_links_to_the_cpu_are_added_up_and_the_worst_is_named(grace: FakeDriver) -> None:
    async with Ticks(grace) as ticks:
        await ticks.tick()
        assert [ticks.value(name) for name in C2C.values()] == [1, 11, 4]
        assert (ticks.value("gpu_c2c_links_active"), ticks.value(WORST)) == (2, 1)
        for name in (*C2C.values(), "gpu_c2c_links_active", WORST):
            assert ticks.gap(name, 1) is Gap.NOT_SUPPORTED, name
        await ticks.tick()
        absent = [gpu.capabilities for gpu in ticks.source.inventory.gpus]
        assert [WORST in each for each in absent] == [False, True]


async def test_a_link_that_fails_leaves_no_sum(grace: FakeDriver) -> None:
    """The sum of the others would fall, which is a reset to all who take its growth."""
    async with Ticks(grace) as ticks:
        await ticks.tick()
        grace.field(232, gpu=0, scope=1, error=999)
        await ticks.tick()
        assert {ticks.gap(C2C[232]), ticks.gap(WORST)} == {Gap.ERROR}
        assert ticks.value(C2C[231]) == 1
        grace.field(232, 12, gpu=0, scope=1)
        await ticks.tick()
        assert ticks.value(C2C[232]) == 14


async def test_links_without_errors_have_no_worst(grace: FakeDriver) -> None:
    """Links that lack a count are left out of its sum."""
    for link in range(3):
        for field in C2C:
            grace.field(field, 0, gpu=0, scope=link)
    grace.field(233, gpu=0, scope=2, error=3)
    async with Ticks(grace) as ticks:
        await ticks.tick()
        assert ticks.value(WORST) == NO_LINK
        assert ticks.value(C2C[233]) == 0


async def test_capabilities_are_probed_again_without_a_gap(tmp_path: Path) -> None:
    """A tick that skips what is not supported reads again, and has the activity and the rates of its first reading."""
    with FakeDriver(tmp_path, gpus=1, links=2) as fake:
        async with Ticks(fake) as ticks:
            await ticks.until(lambda: ticks.gap("gpu_sm_active_ratio") is None)
            fake.mig(0, {"instance": 7, "profile": "1g.10gb"})
            await ticks.until(lambda: ticks.value("gpu_mig_mode") == 1)
            await pause(ticks)
            await ticks.tick(FAST)
            assert ticks.gap("gpu_module_power_watts") is Gap.NOT_SUPPORTED
            assert ticks.gap("gpu_sm_active_ratio") is None
            assert ticks.value(SENT) == 1500 * 2**20
