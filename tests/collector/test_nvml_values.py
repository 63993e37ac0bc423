"""Values and gaps of the NVML source: real nvidia-ml-py in a real process, scripted library."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from collector.nvml.capability import NO_BIT, UNKNOWN_VALUES, bit_error_rate
from collector.nvml.gpu import pci_address
from collector.nvml.readings import decode
from telemetry.catalogue import BY_NAME, CATALOGUE
from telemetry.catalogue.nvml import Call
from telemetry.devices import MemoryPool
from telemetry.gap import Gap
from telemetry.metric import Table
from telemetry.wire.schema import LINK_FAST, LINK_SLOW, SCHEMA
from tests.collector.nvml_ticks import FAST, Ticks
from tests.fake_nvml import GB300, GEFORCE, FakeDriver


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeDriver]:
    """Two H100 with four links each."""
    with FakeDriver(tmp_path, gpus=2, links=4) as driver:
        yield driver


RIGHT = {
    "gpu_power_watts": 412.345,
    "gpu_power_instant_watts": 433.21,
    "gpu_memory_power_watts": 61.0,
    "gpu_energy_joules_total": 123_456_789.012,
    "gpu_temperature_celsius": 61.0,
    "gpu_memory_temperature_celsius": 68.0,
    "gpu_thermal_margin_celsius": 26.0,
    "gpu_thermal_margin_shutdown_celsius": -8.0,
    "gpu_sm_clock_hertz": 1.965e9,
    "gpu_memory_clock_hertz": 2.619e9,
    "gpu_performance_state": 0.0,
    "gpu_clocks_event_sw_power_cap": 1.0,
    "gpu_clocks_event_hw_thermal_slowdown": 0.0,
    "gpu_clocks_event_sw_power_cap_seconds_total": 7015.0,
    "gpu_clocks_event_thermal_seconds_total": 3.0,
    "gpu_utilization_ratio": 0.97,
    "gpu_memory_utilization_ratio": 0.43,
    "gpu_decoder_utilization_ratio": 0.03,
    "gpu_memory_used_bytes": 61_008 * 2**20,
    "gpu_memory_reserved_bytes": 551 * 2**20,
    "gpu_bar1_used_bytes": 72 * 2**20,
    "gpu_power_limit_watts": 700.0,
    "gpu_power_limit_min_watts": 200.0,
    "gpu_power_limit_max_watts": 700.0,
    "gpu_pcie_link_width": 16.0,
    "gpu_pcie_replays_total": 147.0,
    "gpu_nvlink_transmit_bytes_total": 1024e6,
    "gpu_fabric_state": 3.0,
    "gpu_fabric_health": 1.0,
    "gpu_fabric_status": 0.0,
    "gpu_fabric_bandwidth_degraded": 0.0,
    "gpu_fabric_configuration": 1.0,
    "gpu_fabric_partition_assigned": 1.0,
    "gpu_fabric_manager_connected": 1.0,
    "gpu_processes": 2.0,
    "gpu_mig_mode": 0.0,
    "gpu_ecc_mode": 1.0,
    "gpu_ecc_volatile_corrected_sram_total": 5.0,
    "gpu_ecc_aggregate_uncorrected_sram_total": 8.0,
    "gpu_ecc_aggregate_uncorrected_sram_secded_total": 2.0,
    "gpu_ecc_volatile_uncorrected_sram_parity_total": 3.0,
    "gpu_remap_banks_max": 2560.0,
    "gpu_remapped_rows_pending": 0.0,
}


async def test_every_value_arrives_in_base_units(fake: FakeDriver) -> None:
    async with Ticks(fake) as ticks:
        await ticks.tick()
        assert {name: ticks.value(name, 1) for name in RIGHT} == pytest.approx(RIGHT)
        assert 0 < ticks.value("gpu_driver_latency_seconds") < 10
        assert ticks.state == "up"
        assert ticks.events == []


async def test_performance_monitoring_needs_two_samples(fake: FakeDriver) -> None:
    async with Ticks(fake) as ticks:
        await ticks.tick()
        assert ticks.gap("gpu_tensor_active_ratio") is Gap.NOT_READ
        await ticks.sampled()
        assert ticks.value("gpu_tensor_active_ratio") == pytest.approx(0.4325)
        assert ticks.value("gpu_sm_active_ratio") == pytest.approx(0.915)
        assert ticks.value("gpu_graphics_active_ratio") == pytest.approx(0.95)
        assert ticks.value("gpu_pcie_transmit_bytes_per_second") == 1500 * 2**20
        assert ticks.value("gpu_pcie_receive_bytes_per_second") == 2500.5 * 2**20
        assert ticks.value("gpu_nvlink_transmit_bytes_per_second") == 130_000 * 2**20
        assert ticks.value("gpu_nvlink_receive_bytes_per_second") == 120_000 * 2**20
        assert ticks.value("gpu_tensor_hmma_active_ratio") == pytest.approx(0.43)
        assert ticks.value("gpu_tensor_imma_active_ratio") == pytest.approx(0.0025)
        assert ticks.value("gpu_tensor_dfma_active_ratio") == 0


async def test_zeros_after_a_failure_are_not_idleness(fake: FakeDriver) -> None:
    async with Ticks(fake) as ticks:
        await ticks.until(lambda: ticks.gap("gpu_sm_active_ratio") is None)
        for number in (2, 5, 10):
            fake.gpm(number, 0.0, gpu=0)
        await ticks.until(lambda: ticks.value("gpu_sm_active_ratio") == 0)
        fake.call("nvmlGpmSampleGet", error=999, gpu=0)
        await ticks.until(lambda: ticks.gap("gpu_sm_active_ratio") is Gap.ERROR)
        fake.call("nvmlGpmSampleGet", 1, gpu=0)
        for _ in range(5):
            await ticks.tick()
            assert ticks.gap("gpu_sm_active_ratio") in {Gap.ERROR, Gap.NOT_READ}
        fake.gpm(2, 50.0, gpu=0)
        await ticks.until(lambda: ticks.value("gpu_sm_active_ratio") == 0.5)


async def test_traffic_goes_on_where_the_counters_of_activity_have_stopped(fake: FakeDriver) -> None:
    """Traffic is shown, and does not vouch for their zeros."""
    active, sent = "gpu_sm_active_ratio", "gpu_pcie_transmit_bytes_per_second"
    async with Ticks(fake) as ticks:
        await ticks.until(lambda: ticks.gap(active) is None)
        for number in (2, 5, 10):
            fake.gpm(number, 0.0, gpu=0)
        await ticks.until(lambda: ticks.value(active) == 0)
        fake.call("nvmlGpmSampleGet", error=999, gpu=0)
        await ticks.until(lambda: ticks.gap(sent) is Gap.ERROR)
        fake.call("nvmlGpmSampleGet", 1, gpu=0)
        await ticks.until(lambda: ticks.gap(sent) is None)
        assert ticks.gap(active) is Gap.ERROR
        fake.gpm(2, 50.0, gpu=0)
        await ticks.until(lambda: ticks.value(active) == 0.5)


async def test_what_a_desktop_board_lacks_is_not_supported(tmp_path: Path) -> None:
    with FakeDriver(tmp_path, gpus=1, profile=GEFORCE) as fake:
        async with Ticks(fake) as ticks:
            await ticks.tick()
            await ticks.tick()
            for name in (
                "gpu_memory_temperature_celsius",
                "gpu_thermal_margin_celsius",
                "gpu_ecc_mode",
                "gpu_ecc_volatile_corrected_total",
                "gpu_remapped_rows_pending",  # answered with zeros, by a board that can't remap
                "gpu_remap_banks_max",
                "gpu_nvlink_transmit_bytes_total",
                "gpu_fabric_state",
                "gpu_sm_active_ratio",
                "gpu_mig_mode",
            ):
                assert ticks.gap(name) is Gap.NOT_SUPPORTED, name
            assert ticks.value("gpu_fan_speed_ratio") == pytest.approx(1.04)
            assert ticks.value("gpu_temperature_shutdown_celsius") == 98
            assert ticks.source.inventory.links == ()
            absent = ticks.source.inventory.gpus[0].capabilities
            assert absent["gpu_ecc_mode"] == "not_supported"
            assert "gpu_power_watts" not in absent
            assert "gpu_driver_latency_seconds" not in absent


async def test_what_is_not_supported_is_not_asked_again(fake: FakeDriver) -> None:
    fake.call("nvmlDeviceGetFanSpeed", error=3)
    async with Ticks(fake) as ticks:
        for _ in range(5):
            await ticks.tick()
        assert fake.calls()["nvmlDeviceGetFanSpeed"] == 2  # once each GPU


async def test_one_batch_of_fields_and_one_call_each_a_tick(fake: FakeDriver) -> None:
    async with Ticks(fake) as ticks:
        await ticks.tick()
        before = fake.calls()
        for _ in range(10):
            await ticks.tick(FAST)
        after = fake.calls()
        for name in ("nvmlDeviceGetFieldValues", "nvmlDeviceGetUtilizationRates"):
            assert after[name] - before[name] == 20, name
        for name in ("nvmlGpmSampleGet", "nvmlGpmMetricsGet"):
            # all ids of a lane in one call
            assert after.get(name, 0) - before.get(name, 0) <= 20, name
        assert "nvmlDeviceGetPcieThroughput" not in after
        assert after["nvmlDeviceGetFanSpeed"] == before["nvmlDeviceGetFanSpeed"]


async def test_the_next_alternative_is_used_where_the_first_is_unknown(fake: FakeDriver) -> None:
    fake.call("nvmlDeviceGetPowerUsage", error=3, gpu=0)
    fake.call("nvmlDeviceGetCurrentClocksEventReasons", error=13)
    fake.call("nvmlDeviceGetCurrentClocksThrottleReasons", 0x48)
    fake.field(83, gpu=1, error=3)
    fake.field(185, 300_000, gpu=0)
    async with Ticks(fake) as ticks:
        await ticks.tick()
        assert ticks.value("gpu_power_watts", 0) == pytest.approx(300)
        assert ticks.value("gpu_power_watts", 1) == pytest.approx(412.345)
        assert ticks.value("gpu_clocks_event_hw_thermal_slowdown") == 1
        assert ticks.value("gpu_energy_joules_total", 1) == pytest.approx(123_456_789.012)


async def test_older_forms_of_a_call_give_what_they_have(fake: FakeDriver) -> None:
    fake.call("nvmlDeviceGetMemoryInfo_v2", error=13)
    fake.call("nvmlDeviceGetGpuFabricInfoV", 3, 0b01, 1, 2)  # knows version 2: no summary
    async with Ticks(fake) as ticks:
        await ticks.tick()
        assert ticks.value("gpu_memory_free_bytes") == 20_000 * 2**20
        assert ticks.gap("gpu_memory_reserved_bytes") is Gap.NOT_SUPPORTED
        assert ticks.value("gpu_fabric_bandwidth_degraded") == 1
        assert ticks.gap("gpu_fabric_route_unhealthy") is Gap.NOT_SUPPORTED
        assert ticks.gap("gpu_fabric_health") is Gap.NOT_SUPPORTED


async def test_a_fabric_that_is_complete_can_still_lack_resources(fake: FakeDriver) -> None:
    """State completed, links up, summary healthy: only the status and the upper mask bits tell."""
    mask = 0b10_10_10_10 | 5 << 8 | 2 << 12 | 2 << 14
    fake.call("nvmlDeviceGetGpuFabricInfoV", 3, mask, 1, 3, 23, gpu=0)
    async with Ticks(fake) as ticks:
        await ticks.tick()
        assert ticks.value("gpu_fabric_state") == 3
        assert ticks.value("gpu_fabric_status") == 23
        assert ticks.value("gpu_fabric_configuration") == 5
        assert ticks.value("gpu_fabric_partition_assigned") == 0
        assert ticks.value("gpu_fabric_manager_connected") == 0
        assert ticks.value("gpu_fabric_route_unhealthy") == 0
        assert ticks.value("gpu_fabric_status", 1) == 0
        assert ticks.value("gpu_fabric_configuration", 1) == 1


async def test_errors_of_one_metric_are_gaps_of_that_metric(fake: FakeDriver) -> None:
    fake.call("nvmlDeviceGetUtilizationRates", error=999, gpu=0)
    fake.call("nvmlDeviceGetEncoderUtilization", error=4)
    fake.field(186, error=23)
    async with Ticks(fake) as ticks:
        await ticks.tick()
        assert ticks.gap("gpu_utilization_ratio", 0) is Gap.ERROR
        assert ticks.gap("gpu_utilization_ratio", 1) is None
        assert ticks.gap("gpu_encoder_utilization_ratio") is Gap.NO_PERMISSION
        assert ticks.gap("gpu_power_instant_watts") is Gap.ERROR
        fake.field(186, 100_000, kind="u")
        await ticks.until(lambda: ticks.gap("gpu_power_instant_watts") is None)


async def test_values_that_mean_unknown_are_gaps(fake: FakeDriver) -> None:
    fake.call("nvmlDeviceGetPerformanceState", 32)
    fake.field(82, 0, kind="u")
    fake.call("nvmlDeviceGetClockInfo/3", 0xFFFFFFFF)
    fake.field(94, 0xFFFFFFFF, kind="u")
    fake.call("nvmlDeviceGetGpuFabricInfoV", 0, 0, 0, 3)
    async with Ticks(fake) as ticks:
        await ticks.tick()
        for name in (
            "gpu_performance_state",
            "gpu_memory_temperature_celsius",
            "gpu_video_clock_hertz",
            "gpu_pcie_replays_total",
            "gpu_fabric_state",
            "gpu_fabric_health",
            "gpu_fabric_route_recovery",
            "gpu_fabric_configuration",
            "gpu_fabric_manager_connected",
        ):
            assert ticks.gap(name) is Gap.NOT_SUPPORTED, name


async def test_a_driver_that_refuses_large_batches_is_asked_in_small_ones(fake: FakeDriver) -> None:
    fake.call("field_limit", 20)
    async with Ticks(fake) as ticks:
        await ticks.tick()
        assert ticks.value("gpu_power_instant_watts") == pytest.approx(433.21)
        assert ticks.value("gpu_ecc_volatile_corrected_dram_total") == 0
        assert ticks.value("gpu_nvlink_receive_bytes_total") == 2048e6


async def test_every_link_has_its_row(fake: FakeDriver) -> None:
    fake.link(1, 2, state=0)
    fake.field(220, (15 << 8) | 12, scope=3, gpu=1)  # 15e-12
    async with Ticks(fake) as ticks:
        await ticks.tick()
        assert [row[0] for row in ticks.rows[LINK_FAST]] == [1, 1, 1, 1, 1, 1, 0, 1]
        names = SCHEMA.blocks[LINK_SLOW].names
        row = ticks.rows[LINK_SLOW][7]
        assert row[names.index("link_effective_ber")] == pytest.approx(15e-12)
        assert row[names.index("link_transmit_bytes_total")] == 55_555 * 1024
        assert row[names.index("link_speed_bytes_per_second")] == 26_562e6
        links = ticks.source.inventory.links
        assert [(link.gpu, link.number) for link in links] == [
            (fake.uuid(gpu), link) for gpu in (0, 1) for link in range(4)
        ]
        assert {link.peer_kind for link in links} == {"switch"}
        assert links[1].peer_pci == "0000:c2:00.0"


async def test_the_inventory_describes_each_gpu(fake: FakeDriver) -> None:
    async with Ticks(fake) as ticks:
        await ticks.tick()
        inventory = ticks.source.inventory
        gpu = inventory.gpus[1]
        assert (gpu.uuid, gpu.index, gpu.name) == (fake.uuid(1), 1, "NVIDIA H100 80GB HBM3")
        assert gpu.pci == "0000:29:00.0"
        assert (gpu.serial, gpu.vbios, gpu.architecture) == ("1654323000001", "96.00.89.00.01", "Hopper")
        assert (gpu.brand, gpu.inforom) == ("NVIDIA", "G520.0200.00.05")
        assert inventory.nvml_version == "580.95.05"  # the fake has that of its driver
        assert (gpu.memory_bytes, gpu.power_limit_watts, gpu.minor) == (81_559 * 2**20, 700, 1)
        assert (gpu.mig, gpu.present, gpu.slot) == (False, True, "module 2")
        assert (gpu.numa_node, inventory.excluded) == (0, ())
        assert (inventory.driver_version, inventory.cuda_version) == ("580.95.05", "13.0")
        both = (fake.uuid(0), fake.uuid(1))
        assert inventory.pools == (MemoryPool(gpus=both, bytes=2 * 81_559 * 2**20, over="nvswitch"),)


async def test_the_numa_node_of_a_gpu_and_gpus_that_are_left_out(tmp_path: Path) -> None:
    with FakeDriver(tmp_path, gpus=5) as fake:
        fake.exclude("00000000:3B:00.0", "00000001:AF:00.0")
        fake.call("nvmlDeviceGetMemoryAffinity/0", 0, 1 << 3, gpu=1)
        fake.call("nvmlDeviceGetMemoryAffinity/0", 0, gpu=2)
        fake.call("nvmlDeviceGetMemoryAffinity/0", gpu=3, error=3)
        async with Ticks(fake) as ticks:
            await ticks.tick()
            inventory = ticks.source.inventory
            assert [gpu.numa_node for gpu in inventory.gpus] == [0, 67, None, None, 1]
            assert inventory.excluded == ("0000:3b:00.0", "0001:af:00.0")


SERIAL = tuple(b"1820000000002")
GUID = (0,) * 8


@pytest.mark.parametrize(
    ("place", "slot"),
    [
        (None, "slot 7, tray 3, host 1, module 2, chassis 1820000000002"),
        ((*GUID, *SERIAL, 0, 0, 0, 1, 0), "slot 0, tray 0, host 0, module 0, chassis 1820000000002"),
        ((*GUID, *SERIAL, 10, 0xFF, 27, 1, 127), "slot 10, host 27, module 127, chassis 1820000000002"),
        ((*GUID, *([0] * 13), 7, 3, 1, 1, 2), "slot 7, tray 3, host 1, module 2"),
        ((*GUID, *([0xFF] * 13), 7, 3, 1, 1, 2), "slot 7, tray 3, host 1, module 2"),
        ((*GUID, *b"18\x1b[31m\x07\n\r901", 7, 3, 1, 1, 2), "slot 7, tray 3, host 1, module 2"),
        ((*GUID, *([0] * 13), 0, 0, 0, 0, 0), "module 1"),
        ((*GUID, *([0xFF] * 18)), "module 1"),
    ],
)
async def test_the_place_of_a_gpu_in_its_rack(tmp_path: Path, place: tuple[int, ...] | None, slot: str) -> None:
    """Numbers are numbers, a serial is text, what the platform does not know is left out."""
    with FakeDriver(tmp_path, gpus=1, profile=GB300) as fake:
        if place is not None:
            fake.call("nvmlDeviceGetPlatformInfo", *place)
        async with Ticks(fake) as ticks:
            await ticks.tick()
            inventory = ticks.source.inventory
            assert inventory.gpus[0].slot == slot
            assert all(text.isprintable() for text in texts_of(inventory))


async def test_what_moves_power_on_blackwell_and_grace_is_read(tmp_path: Path) -> None:
    """Field ids and units of nvml.h; none of it is there on a board that has none."""
    with FakeDriver(tmp_path, gpus=2, links=2, profile=GB300) as fake:
        for number, value in {
            251: 1,
            254: 1300,
            255: 450,
            264: 2,
            258: 97,
            309: 12_500_000_000,
            274: 85,
            170: 10,
            272: 123_456,
            273: 789,
        }.items():
            fake.field(number, value, gpu=0)
        fake.field(250, 3, gpu=0, scope=1)
        fake.call("nvmlDeviceWorkloadPowerProfileGetCurrentProfiles", 1 << 6 | 1 << 13, 0, gpu=0)
        fake.gpm(100, 1500, gpu=0)
        fake.gpm(101, 2500, gpu=0)
        fake.gpm(102, 1400, gpu=0)
        right = {
            "gpu_power_smoothing_enabled": 1.0, "gpu_power_smoothing_ceiling_watts": 1300.0,
            "gpu_power_smoothing_floor_watts": 450.0, "gpu_power_smoothing_profile": 2.0,
            "gpu_power_smoothing_lifetime_ratio": 0.97, "gpu_power_smoothing_limited_seconds_total": 12.5,
            "gpu_edpp_multiplier_ratio": 0.85, "gpu_c2c_links": 10.0, "gpu_workload_power_profile": 6.0,
            "gpu_power_balancing_frequency_total": 123_456.0, "gpu_power_balancing_activity_total": 789.0,
        }  # fmt: skip
        async with Ticks(fake) as ticks:
            await ticks.tick()
            assert {name: ticks.value(name, 0) for name in right} == pytest.approx(right)
            assert {ticks.gap(name, 1) for name in right} == {Gap.NOT_SUPPORTED}
            bins = SCHEMA.blocks[LINK_SLOW].names.index("link_fec_last_bin_total")
            assert ticks.rows[LINK_SLOW][1][bins] == 3
            await ticks.until(lambda: ticks.gap("gpu_c2c_transmit_bytes_per_second") is None)
            assert ticks.value("gpu_c2c_transmit_bytes_per_second") == 1500 * 2**20
            assert ticks.value("gpu_c2c_receive_bytes_per_second") == 2500 * 2**20
            assert ticks.value("gpu_c2c_transmit_data_bytes_per_second") == 1400 * 2**20
            assert ticks.gap("gpu_c2c_receive_data_bytes_per_second") is Gap.NOT_SUPPORTED
            fake.call("nvmlDeviceWorkloadPowerProfileGetCurrentProfiles", 0, 0, gpu=0)
            await ticks.until(lambda: ticks.value("gpu_workload_power_profile") == NO_BIT)
            fake.call("nvmlDeviceWorkloadPowerProfileGetCurrentProfiles", 0, 4, gpu=0)
            await ticks.until(lambda: ticks.value("gpu_workload_power_profile") == 34)


async def test_a_board_whose_memory_was_never_written_has_no_texts(tmp_path: Path) -> None:
    with FakeDriver(tmp_path, gpus=1, profile=GB300) as fake:
        for name in ("Serial", "VbiosVersion", "BoardPartNumber", "Name"):
            fake.call(f"nvmlDeviceGet{name}", "\x1b[2J\x07\xff\x01", gpu=0)
        async with Ticks(fake) as ticks:
            await ticks.tick()
            gpu = ticks.source.inventory.gpus[0]
            assert (gpu.serial, gpu.vbios, gpu.part_number) == (None, None, None)
            assert gpu.name == "Graphics Device"
            assert all(text.isprintable() for text in texts_of(gpu))


def texts_of(value: object) -> Iterator[str]:
    """Every text in a struct, however deep."""
    match value:
        case str():
            yield value
        case dict():
            for item in value.items():
                yield from texts_of(item)
        case list() | tuple():
            for each in value:
                yield from texts_of(each)
        case msgspec.Struct():
            yield from texts_of(msgspec.to_builtins(value))
        case _:
            pass


async def test_gpus_linked_to_each_other_are_a_pool(tmp_path: Path) -> None:
    with FakeDriver(tmp_path, gpus=4, links=2, profile=GEFORCE) as fake:
        for one, other in ((0, 2), (2, 0)):
            fake.link(one, 0, peer=other)
        async with Ticks(fake) as ticks:
            pools = ticks.source.inventory.pools
            assert [(pool.gpus, pool.over) for pool in pools] == [
                ((fake.uuid(0), fake.uuid(2)), "nvlink"),
                ((fake.uuid(1),), "none"),
                ((fake.uuid(3),), "none"),
            ]
            assert ticks.source.inventory.links[0].peer == fake.uuid(2)


def test_special_values_are_of_metrics_that_exist() -> None:
    assert set(UNKNOWN_VALUES) <= set(BY_NAME)


def test_every_call_of_the_catalogue_is_a_function_of_the_header() -> None:
    from tests.fake_nvml.build import functions

    names = set(functions())
    for metric in CATALOGUE:
        for origin in metric.readers("nvml"):
            if isinstance(origin, Call):
                assert origin.function in names, metric.name
                assert metric.table in {Table.GPU, Table.INSTANCE}


@pytest.mark.parametrize(
    ("kind", "raw", "number"),
    [
        (0, 0x4045_4000_0000_0000, 42.5),
        (1, 0xA5A5_A5A5_0000_0007, 7),
        (2, 1 << 40, 1 << 40),
        (3, 0xFFFF_FFFF_FFFF_FFFE, 0xFFFF_FFFF_FFFF_FFFE),
        (4, 0xFFFF_FFFF_FFFF_FFFE, -2),
        (5, 0xA5A5_A5A5_FFFF_FFFE, -2),
        (6, 0xA5A5_A5A5_A5A5_0003, 3),
        (1, 0xFFFF_FFFF, None),
        (3, 0xFFFF_FFFF_FFFF_FFFF, None),
        (9, 5, None),
    ],
)
def test_a_field_is_read_by_its_type(kind: int, raw: int, number: float | None) -> None:
    assert decode(kind, raw) == number


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("00000000:18:00.0", "0000:18:00.0"),
        ("00000009:01:00.0", "0009:01:00.0"),
        ("10000:9B:00.0", "10000:9b:00.0"),
        ("00000000:00:00.0", None),
        ("", None),
    ],
)
def test_addresses_have_one_form(text: str, normal: str | None) -> None:
    assert pci_address(text) == normal


def test_bit_error_rates_are_plain_numbers() -> None:
    assert bit_error_rate(0) == 0
    assert bit_error_rate((15 << 8) | 255) == pytest.approx(15e-255)
