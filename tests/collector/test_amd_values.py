"""What the AMD source reads from a fake node: real files, real processes, a scripted library."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from collector.amd import AmdSource
from collector.amd.driver import AmdDriver
from collector.amd.gpu_metrics import LAYOUTS, GpuMetrics
from collector.amd.throttle import WRAP, ThrottleTimes
from collector.probe.protocol import FAST, SLOW, ProbeDescription
from collector.probed.source import Shape, assemble, pools, with_peers
from collector.source import Rows
from power.devices.catalogue import find_card
from telemetry.catalogue import CATALOGUE
from telemetry.devices import Gpu
from telemetry.gap import Gap, reason_of
from telemetry.metric import Table
from telemetry.wire.schema import GPU_FAST, GPU_SLOW, LINK_FAST, LINK_SLOW, SCHEMA
from tests.collector.nvml_ticks import BOTH, Ticks
from tests.fake_amd import BLOCKS, GIB, FakeAmd

TABLES = Path(__file__).with_name("gpu_metrics.c")


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeAmd]:
    """Two MI300X."""
    with FakeAmd(tmp_path, gpus=2) as driver:
        yield driver


@asynccontextmanager
async def ticking(fake: FakeAmd) -> AsyncIterator[Ticks]:
    """Read a fake node by hand."""
    source = AmdSource(fake.root, environment=fake.environment, open_wait=20.0, retry=(0.05, 0.2), scout=(0.05, 0.2))
    async with Ticks(fake, source) as ticks:
        yield ticks


class Unhindered:
    """Turn of a worker that nobody abandons."""

    abandoned = False


class Direct:
    """The driver of the probe process, called in this one: as fast as a test of many values must be."""

    def __init__(self, fake: FakeAmd) -> None:
        self.driver = AmdDriver(str(fake.root))
        self.devices = self.driver.open().devices
        self.described: dict[int, ProbeDescription] = {}
        self.rows: Rows = {}
        self.tick()

    def tick(self) -> None:
        """Read all GPUs on both lanes."""
        turn = Unhindered()
        readings = []
        for device in range(self.devices):
            description = self.driver.describe(device, turn)
            if description is not None:
                self.described[device] = description
            readings.append(self.driver.read(device, FAST | SLOW, turn))
        shape = tuple((len(self.described[each].links), 0) for each in range(self.devices))
        self.rows = assemble(Shape(shape, BOTH), readings, Gap.DEVICE_LOST)

    def value(self, metric: str, gpu: int = 0) -> float:
        """Return a reading."""
        for block in (GPU_FAST, GPU_SLOW):
            names = SCHEMA.blocks[block].names
            if metric in names:
                return self.rows[block][gpu][names.index(metric)]
        raise KeyError(metric)

    def gap(self, metric: str, gpu: int = 0) -> Gap | None:
        """Return why a reading is absent."""
        return reason_of(self.value(metric, gpu))

    @property
    def gpus(self) -> list[Gpu]:
        """Descriptions of the GPUs."""
        return [self.described[each].gpu for each in range(self.devices)]


@contextmanager
def direct(fake: FakeAmd) -> Iterator[Direct]:
    """Read a fake node without a process of its own and without the library."""
    found = Direct(fake)
    try:
        yield found
    finally:
        found.driver.close()


async def test_a_healthy_mi300x_is_read_by_the_names_of_the_catalogue(fake: FakeAmd) -> None:
    fake.table(0, xcd_busy=[99, 98, 97, 96, 95, 94, 93, 12])
    fake.process(4711, gpu=0, memory=5 * GIB)
    async with ticking(fake) as ticks:
        ticks.source.list_processes(1.0)
        await ticks.until(lambda: ticks.gap("gpu_retired_pages_limit") is None)
        expected = {
            "gpu_power_watts": 612, "gpu_energy_joules_total": 1000, "gpu_temperature_celsius": 52,
            "gpu_memory_temperature_celsius": 47, "gpu_power_limit_watts": 750,
            "gpu_temperature_slowdown_celsius": 100, "gpu_sm_clock_hertz": 2075e6,
            "gpu_sm_clock_max_hertz": 2100e6, "gpu_xcd_clock_min_hertz": 1900e6,
            "gpu_memory_clock_hertz": 1300e6, "gpu_utilization_ratio": 0.97,
            "gpu_memory_utilization_ratio": 0.41, "gpu_xcd_utilization_min_ratio": 0.12,
            "gpu_xcd_utilization_max_ratio": 0.99, "gpu_memory_used_bytes": 96 * GIB,
            "gpu_memory_free_bytes": 96 * GIB, "gpu_memory_total_bytes": 192 * GIB,
            "gpu_pcie_link_generation": 5, "gpu_pcie_link_width": 16, "gpu_pcie_replays_total": 2,
            "gpu_pcie_naks_sent_total": 1, "gpu_ecc_mode": 1, "gpu_ecc_volatile_corrected_total": 0,
            "gpu_processes": 1, "gpu_compute_partition": 1, "gpu_memory_partition": 1,
            "gpu_retired_pages_double_bit": 0, "gpu_retired_pages_limit": 128,
        }  # fmt: skip
        assert {name: ticks.value(name) for name in expected} == pytest.approx(expected)
        await ticks.until(lambda: bool(ticks.source.inventory.gpus[0].capabilities))
        inventory = ticks.source.inventory
        gpu = inventory.gpus[0]
        assert (gpu.uuid, gpu.pci, gpu.name) == (fake.uuid(0), fake.pci(0), "AMD Instinct MI300X")
        assert (gpu.architecture, gpu.memory_bytes, gpu.power_limit_watts) == ("CDNA 3", 192 * GIB, 750)
        assert find_card("test", gpu.name).tdp_watts == 750
        assert inventory.driver_version == "of Linux 6.14.0-test"
        assert gpu.capabilities["gpu_fan_speed_ratio"] == "not_supported"
        assert "gpu_fabric_state" not in gpu.capabilities  # no GPU of AMD has it
        (found,) = ticks.source.listed_processes()[fake.uuid(0)].processes
        assert (found.pid, found.type, found.memory_bytes) == (4711, "compute", 5 * GIB)


def test_xgmi_links_have_their_peers_states_and_traffic(tmp_path: Path) -> None:
    with FakeAmd(tmp_path, gpus=4) as fake:
        fake.table(1, xgmi_link_status=[1, 1, 0, 1, 1, 1, 1, 1])
        with direct(fake) as ticks:
            links = [link for one in ticks.described.values() for link in one.links]
            links = list(with_peers(links, ticks.gpus))
            of_second = [link for link in links if link.gpu == fake.uuid(1)]
            assert [link.peer for link in of_second] == [fake.uuid(0), fake.uuid(2), fake.uuid(3)]
            assert {link.peer_kind for link in of_second} == {"gpu"}
            (pool,) = pools(ticks.gpus, links, "xgmi")
            assert (len(pool.gpus), pool.bytes, pool.over) == (4, 4 * 192 * GIB, "xgmi")
            states = [row[0] for row in ticks.rows[LINK_FAST][3:6]]
            assert states == [1.0, 0.0, 1.0]
            names = SCHEMA.blocks[LINK_SLOW].names
            row = dict(zip(names, ticks.rows[LINK_SLOW][4], strict=True))  # of GPU 1 to GPU 2
            assert row["link_speed_bytes_per_second"] == 64e9
            assert row["link_receive_bytes_total"] == 3000 * 1024
            assert row["link_transmit_bytes_total"] == 6000 * 1024


async def test_every_sentinel_is_a_gap_and_no_number(fake: FakeAmd) -> None:
    """0xFFFF in the table, and the widest number of each width from the library, are nobody's watts."""
    fake.table(0, **dict.fromkeys(("current_socket_power", "average_socket_power"), 0xFFFF))
    for name in ("temperature_hotspot", "temperature_mem", "average_gfx_activity", "uclk"):
        fake.table(0, **{name: 0xFFFF})
    fake.table(0, gfxclk=[0xFFFF] * 8, vclk0=[0xFFFF] * 4, energy_accumulator=2**64 - 1)
    for path in (
        "hwmon/hwmon3/power1_input",
        "hwmon/hwmon3/temp2_input",
        "hwmon/hwmon3/temp3_input",
        "gpu_busy_percent",
        "pp_dpm_sclk",
        "pp_dpm_mclk",
        "pp_dpm_vclk",
    ):
        fake.file(0, path, None)
    fake.library("amdsmi_get_gpu_total_ecc_count", 2**64 - 1, 2**64 - 1, 2**64 - 1)
    for block in BLOCKS:
        fake.file(0, f"ras/{block}_err_count", None)
    fake.library("amdsmi_get_gpu_bad_page_threshold", 0xFFFF_FFFF)
    fake.file(0, "current_link_width", "255\n")
    fake.file(0, "current_link_speed", "Unknown\n")
    async with ticking(fake) as ticks:
        await ticks.until(lambda: ticks.gap("gpu_retired_pages_limit") is not Gap.NOT_READ)
        for name in (
            "gpu_power_watts",
            "gpu_power_instant_watts",
            "gpu_temperature_celsius",
            "gpu_memory_temperature_celsius",
            "gpu_utilization_ratio",
            "gpu_memory_clock_hertz",
            "gpu_sm_clock_hertz",
            "gpu_video_clock_hertz",
            "gpu_energy_joules_total",
            "gpu_retired_pages_limit",
            "gpu_pcie_link_width",
            "gpu_pcie_link_generation",
            "gpu_ecc_volatile_corrected_total",
            "gpu_ecc_volatile_deferred_total",
        ):
            assert ticks.gap(name) is Gap.NOT_SUPPORTED, name
        assert ticks.gap("gpu_power_watts", 1) is None


def test_a_die_that_counts_no_power_says_nothing_and_not_zero(fake: FakeAmd) -> None:
    """MI250 counts both dies on one of them."""
    fake.table(0, current_socket_power=0, average_socket_power=0)
    fake.file(0, "hwmon/hwmon3/power1_input", None)
    with direct(fake) as ticks:
        assert ticks.gap("gpu_power_watts") is Gap.NOT_SUPPORTED


def test_a_number_that_no_gpu_has_is_an_error(fake: FakeAmd) -> None:
    fake.table(0, current_socket_power=64000, average_gfx_activity=180)
    fake.file(0, "hwmon/hwmon3/power1_input", "64000000000\n")
    fake.file(0, "gpu_busy_percent", "180\n")
    with direct(fake) as ticks:
        ticks.tick()
        assert ticks.gap("gpu_power_watts") is Gap.ERROR
        assert ticks.gap("gpu_utilization_ratio") is Gap.ERROR


@pytest.mark.parametrize("revision", sorted(LAYOUTS), ids=lambda one: f"{one[0]}.{one[1]}")
def test_each_revision_of_the_table_is_read(tmp_path: Path, revision: tuple[int, int]) -> None:
    with FakeAmd(tmp_path, gpus=1, revision=revision) as fake:
        fake.file(0, "hwmon/hwmon3/power1_input", None)
        with direct(fake) as ticks:
            assert ticks.value("gpu_power_watts") == (290 if revision == (1, 3) else 612)
            assert ticks.value("gpu_temperature_celsius") == 52
            assert ticks.value("gpu_energy_joules_total") == 1000
            assert ticks.value("gpu_memory_clock_hertz") == 1300e6
            naks = 1.0 if revision >= (1, 5) else None
            assert (ticks.value("gpu_pcie_naks_sent_total") == naks) is (naks is not None)


def test_a_table_of_an_unknown_revision_or_another_size_is_not_read(fake: FakeAmd) -> None:
    good = (fake.root / "sys/bus/pci/devices" / fake.pci(0) / "gpu_metrics").read_bytes()
    assert GpuMetrics(good).known
    assert not GpuMetrics(good[:-1]).known
    assert not GpuMetrics(b"").known
    fake.content(0, "gpu_metrics", good[:2] + bytes((1, 9)) + good[4:])
    fake.content(1, "gpu_metrics", bytes((8, 0)) + good[2:])
    with direct(fake) as ticks:
        ticks.tick()
        for gpu in range(2):
            assert ticks.gap("gpu_energy_joules_total", gpu) is Gap.NOT_SUPPORTED
            assert ticks.value("gpu_power_watts", gpu) == 612  # by hwmon
            assert ticks.value("gpu_temperature_celsius", gpu) == 52
            assert ticks.value("gpu_sm_clock_hertz", gpu) == 2100e6


def test_the_layouts_are_those_of_a_c_compiler(tmp_path: Path) -> None:
    """Sizes and offsets of the kernel's structs, as a compiler lays them out."""
    program = tmp_path / "layouts"
    subprocess.run(["gcc", "-o", str(program), str(TABLES)], check=True)
    out = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
    for line in out.splitlines():
        revision, field, number = line.split()
        layout = LAYOUTS[1, int(revision)]
        if field == "size":
            assert layout.size == int(number), line
        elif field == "partition":
            assert layout.partition is not None, line
            assert layout.partition[0] == int(number), line
        elif field == "record":
            assert layout.partition is not None, line
            assert layout.partition[1] == int(number), line
        else:
            assert layout.fields[field][1] == int(number), line
    assert {int(line.split()[0]) for line in out.splitlines()} == {each[1] for each in LAYOUTS}


def test_errors_are_counted_by_block_and_in_sum(fake: FakeAmd) -> None:
    fake.errors(0, "umc", ue=1, ce=40, de=3)
    fake.errors(0, "gfx", ue=2, ce=5)
    fake.errors(0, "xgmi_wafl", ue=4)
    fake.file(0, "ras/gpu_vram_bad_pages", "0x1 : 0x1000 : R\n0x2 : 0x1000 : R\n0x3 : 0x1000 : P\n")
    with direct(fake) as ticks:
        ticks.tick()
        expected = {
            "gpu_ecc_volatile_corrected_total": 45, "gpu_ecc_volatile_uncorrected_total": 7,
            "gpu_ecc_volatile_deferred_total": 3, "gpu_ecc_volatile_uncorrected_dram_total": 1,
            "gpu_ecc_volatile_corrected_dram_total": 40, "gpu_ecc_volatile_uncorrected_gfx_total": 2,
            "gpu_ecc_volatile_uncorrected_xgmi_wafl_total": 4, "gpu_retired_pages_double_bit": 2,
            "gpu_retired_pages_pending": 1, "gpu_retired_pages_failed": 0,
        }  # fmt: skip
        assert {name: ticks.value(name) for name in expected} == expected


def test_the_counts_of_a_known_fault_of_the_driver_are_left_out(fake: FakeAmd) -> None:
    """Some releases add exactly 0xFFFF0 to a count at each query."""
    fake.errors(0, "umc", ce=7)
    with direct(fake) as ticks:
        ticks.tick()
        for turn in (1, 2):
            fake.errors(0, "umc", ce=7 + turn * 0xFFFF0)
            ticks.tick()
            assert ticks.value("gpu_ecc_volatile_corrected_total") == 7
        fake.errors(0, "umc", ce=7 + 5 * 0xFFFF0)  # another program asked in between
        ticks.tick()
        assert ticks.value("gpu_ecc_volatile_corrected_total") == 7
        fake.errors(0, "umc", ce=9 + 5 * 0xFFFF0)
        ticks.tick()
        assert ticks.value("gpu_ecc_volatile_corrected_total") == 9


async def test_a_board_without_ras_files_is_read_by_the_library(fake: FakeAmd) -> None:
    for block in BLOCKS:
        fake.file(0, f"ras/{block}_err_count", None)
    fake.file(0, "ras/gpu_vram_bad_pages", None)
    fake.library("amdsmi_get_gpu_total_ecc_count", 11, 2, 1, gpu=0)
    fake.library("amdsmi_get_gpu_bad_page_info", 0, 0, 0, 1, gpu=0)
    async with ticking(fake) as ticks:
        await ticks.until(lambda: ticks.gap("gpu_retired_pages_limit") is None)
        assert ticks.value("gpu_ecc_volatile_corrected_total") == 11
        assert ticks.value("gpu_ecc_volatile_uncorrected_total") == 2
        assert ticks.value("gpu_retired_pages_double_bit") == 3
        assert ticks.value("gpu_retired_pages_pending") == 1


async def test_a_node_without_the_library_is_read_by_sysfs_alone(tmp_path: Path) -> None:
    with FakeAmd(tmp_path, gpus=1, library=False) as fake:
        async with ticking(fake) as ticks:
            await ticks.until(lambda: ticks.gap("gpu_retired_pages_limit") is Gap.NOT_SUPPORTED)
            assert ticks.value("gpu_power_watts") == 612
            assert ticks.state == "up"
            assert ticks.events == []


async def test_a_missing_symbol_is_a_gap_and_the_others_answer(tmp_path: Path) -> None:
    """AMD's own binding dies at its import when one of 184 symbols is missing. Structs of a release of the library
    that was not compared with its header are not read either."""
    lacking = ["amdsmi_get_gpu_bad_page_threshold"]
    with FakeAmd(tmp_path, gpus=1, without=lacking, revision=(1, 4)) as fake:
        fake.library("amdsmi_get_lib_version", 27, 0, 0)
        fake.file(0, "ras/gpu_vram_bad_pages", None)
        fake.library("amdsmi_get_gpu_bad_page_info", 0, gpu=0)
        async with ticking(fake) as ticks:
            await ticks.until(lambda: ticks.gap("gpu_retired_pages_double_bit") is None)
            assert ticks.value("gpu_retired_pages_double_bit") == 1
            assert ticks.gap("gpu_retired_pages_limit") is Gap.NOT_SUPPORTED
            assert ticks.gap("gpu_pcie_naks_sent_total") is Gap.NOT_SUPPORTED
            assert "amdsmi_get_pcie_info" not in fake.calls()


async def test_clocks_that_are_held_back_are_the_same_reasons_as_on_other_boards(fake: FakeAmd) -> None:
    async with ticking(fake) as ticks:
        await ticks.tick()
        fake.table(0, accumulation_counter=3000, ppt=500, vr_thm=100)
        await ticks.tick()
        assert ticks.value("gpu_clocks_event_sw_power_cap") == 1
        assert ticks.value("gpu_clocks_event_hw_thermal_slowdown") == 1
        assert ticks.value("gpu_clocks_event_sw_thermal_slowdown") == 0
        assert ticks.value("gpu_clocks_event_sw_power_cap_seconds_total") > 0
        assert ticks.value("gpu_clocks_event_sw_thermal_slowdown_seconds_total") == 0
        assert [event.data["reason"] for event in ticks.of("clocks_down")] == ["hw_thermal_slowdown"]


def test_residency_is_a_share_of_the_time_and_survives_a_wrap() -> None:
    times = ThrottleTimes()
    power, heat = frozenset({"ppt"}), frozenset({"socket_thm", "hbm_thm"})
    assert (times.seconds(power), times.seconds(heat)) == (0.0, 0.0)
    times.update(WRAP - 500, {"ppt": WRAP - 10, "hbm_thm": 5}, 100.0)
    assert times.known
    times.update(500, {"ppt": 240, "hbm_thm": 5}, 110.0)
    assert times.share(power) == 0.25
    assert times.seconds(power) == 2.5
    assert times.seconds(heat) == 0.0
    times.update(100, {"ppt": 0, "hbm_thm": 0}, 120.0)  # the firmware began again
    assert times.seconds(power) == 2.5
    times.update(None, {}, 130.0)
    assert not times.known


def test_a_gpu_that_sleeps_is_not_woken(fake: FakeAmd) -> None:
    fake.file(0, "power/runtime_status", "suspended\n")
    with direct(fake) as ticks:
        ticks.tick()
        found = {reason_of(value) for value in ticks.rows[GPU_FAST][0]}
        assert found == {Gap.NOT_READ, None}  # the latency is our own
        assert ticks.gap("gpu_power_watts", 1) is None


async def test_what_may_not_be_read_says_so(fake: FakeAmd) -> None:
    fake.content(0, "mem_info_vram_used", b"nonsense")
    fake.library("amdsmi_get_gpu_bad_page_threshold", error=10)
    async with ticking(fake) as ticks:
        await ticks.until(lambda: ticks.gap("gpu_retired_pages_limit") is Gap.NO_PERMISSION)
        assert ticks.gap("gpu_memory_used_bytes") is Gap.ERROR
        assert ticks.gap("gpu_memory_free_bytes") is Gap.ERROR


async def test_events_of_the_library_are_statements(fake: FakeAmd) -> None:
    async with ticking(fake) as ticks:
        await ticks.until(lambda: "amdsmi_get_gpu_event_notification" in fake.calls())
        fake.event(1, 3, "reset begins")
        await ticks.until(lambda: bool(ticks.of("driver_log")))
        (event,) = ticks.of("driver_log")
        assert (event.gpu, event.data["what"]) == (fake.uuid(1), "amd_reset_begin")


def test_what_amd_has_no_word_for_is_no_reader() -> None:
    """Rules of NVIDIA's own readings stay unknown on AMD: their rows have no reader of it."""
    theirs = {metric.name for metric in CATALOGUE if metric.readers("amd")}
    for name in (
        "gpu_recovery_action",
        "gpu_fabric_state",
        "gpu_remapped_rows_failure",
        "gpu_mig_mode",
        "gpu_thermal_margin_celsius",
        "link_crc_errors_total",
    ):
        assert name not in theirs
    assert all(metric.table in {Table.GPU, Table.LINK} for metric in CATALOGUE if metric.name in theirs)


def test_other_boards_are_known_by_their_number_or_their_own_name(tmp_path: Path) -> None:
    boards = {0x74A5: ("AMD Instinct MI325X", 1000), 0x75A3: ("AMD Instinct MI355X", 1400)}
    for number, (name, watts) in boards.items():
        fake = FakeAmd(tmp_path / name, gpus=1, device=number, watts=watts)
        with fake, direct(fake) as ticks:
            gpu = ticks.gpus[0]
            assert gpu.name == name
            assert find_card("test", gpu.name).tdp_watts == watts == gpu.power_limit_watts
    with FakeAmd(tmp_path / "other", gpus=1, device=0x744C) as fake, direct(fake) as ticks:
        ticks.tick()
        assert ticks.gpus[0].name == "AMD Instinct OAM"
        assert reason_of(ticks.rows[GPU_FAST][0][0]) is None
