"""Recordings of real GPUs: values read by hand, and a second, independent reading of every file."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from collector.smi.file import load
from collector.smi.inventory import inventory_of
from collector.smi.readings import gpu_readings
from telemetry.gap import reason_of
from tests.collector.smi_logs import CAPTURES, FILES, capture, logs, needs_captures, words

pytestmark = [needs_captures, pytest.mark.captures]
MIB = 1048576.0


@pytest.mark.parametrize(
    ("name", "log", "gpu", "expected"),
    [
        ("A40x10", 0, 0, {
            "gpu_power_watts": 29.7, "gpu_temperature_celsius": 29.0, "gpu_fan_speed_ratio": 0.0,
            "gpu_memory_total_bytes": 46068 * MIB, "gpu_memory_reserved_bytes": 665 * MIB,
            "gpu_clocks_event_sw_power_cap": 1.0, "gpu_clocks_event_idle": 0.0,
            "gpu_ecc_aggregate_corrected_dram_total": 10.0, "gpu_remapped_rows_correctable": 2.0,
            "gpu_remap_banks_max": 192.0, "gpu_pcie_link_generation": 1.0,
            "gpu_pcie_link_width": 16.0, "gpu_performance_state": 8.0, "gpu_processes": 0.0,
            "gpu_memory_temperature_celsius": "not_supported", "gpu_mig_mode": "not_supported",
            "gpu_thermal_margin_celsius": "not_supported", "gpu_recovery_action": "not_supported",
            "gpu_temperature_shutdown_celsius": 98.0, "gpu_fabric_state": "not_supported",
            "gpu_retired_pages_single_bit": "not_supported", "gpu_ecc_mode": 1.0,
            "gpu_ecc_volatile_corrected_total": "not_supported",
            "gpu_energy_joules_total": "not_supported",
            "gpu_module_power_watts": "not_supported",
            "gpu_clocks_event_sw_power_cap_seconds_total": "not_supported",
        }),
        ("A40x10", 0, 6, {
            "gpu_ecc_aggregate_corrected_dram_total": 10289.0, "gpu_remapped_rows_correctable": 1.0,
        }),
        ("A40x10", 0, 9, {"gpu_ecc_aggregate_corrected_dram_total": 198.0}),
        ("RTX4090", 0, 0, {
            "gpu_power_watts": 20.0, "gpu_thermal_margin_celsius": 56.0,
            "gpu_thermal_margin_shutdown_celsius": -7.0, "gpu_temperature_target_celsius": 84.0,
            "gpu_temperature_shutdown_celsius": "not_supported", "gpu_ecc_mode": 0.0,
            "gpu_remapped_rows_pending": 0.0,
        }),
        ("h100-80gb", 0, 0, {
            "gpu_power_watts": 69.85, "gpu_power_instant_watts": 69.62,
            "gpu_memory_power_watts": 43.19, "gpu_fan_speed_ratio": "not_supported",
            "gpu_memory_temperature_celsius": 48.0, "gpu_pcie_replays_total": 9.0,
            "gpu_fabric_state": 3.0, "gpu_fabric_health": "not_supported",
            "gpu_recovery_action": 0.0, "gpu_processes": 0.0, "gpu_utilization_ratio": 0.0,
            "gpu_ecc_sram_threshold_exceeded": 0.0, "gpu_channel_repair_pending": 0.0,
        }),
        ("h100-80gb", 1, 0, {
            "gpu_power_watts": 629.45, "gpu_power_instant_watts": 588.39,
            "gpu_utilization_ratio": 1.0, "gpu_processes": 3.0,
            "gpu_memory_used_bytes": 19818 * MIB,
        }),
        ("rtx-4080-super", 0, 0, {
            "gpu_temperature_shutdown_celsius": 101.0, "gpu_thermal_margin_celsius": "not_supported",
            "gpu_memory_utilization_ratio": 0.23, "gpu_processes": 1.0,  # C+G; the rest is G
        }),
        ("rtx-4080-super", 1, 0, {
            "gpu_encoder_utilization_ratio": 0.72, "gpu_sm_clock_hertz": 2.805e9,
        }),
        ("hw_h100", 0, 0, {
            "gpu_clocks_event_sw_power_cap_seconds_total": 7015.662857,
            "gpu_pcie_replays_total": 150.0, "gpu_power_limit_watts": 700.0,
        }),
        ("hw_gb200", 0, 1, {
            "gpu_module_power_watts": 461.2, "gpu_module_power_limit_watts": 2500.0,
            "gpu_clocks_event_sw_thermal_slowdown_seconds_total": 3.360324,
            "gpu_pcie_link_generation_max": 5.0, "gpu_pcie_link_generation_device_max": 6.0,
            "gpu_fabric_health": 1.0, "gpu_fabric_bandwidth_degraded": 0.0,
            "gpu_remap_banks_max": 3968.0, "gpu_memory_power_watts": 29.16,
        }),
        ("hw_a100", 0, 0, {
            "gpu_power_watts": 49.68, "gpu_power_average_watts": "not_supported",
            "gpu_power_instant_watts": 49.68, "gpu_recovery_action": 0.0,
            "gpu_performance_state": 0.0, "gpu_memory_temperature_celsius": 34.0,
            "gpu_clocks_event_sw_power_cap_seconds_total": "not_supported",
        }),
        ("out_of_order", 0, 0, {
            "gpu_utilization_ratio": 0.99, "gpu_power_watts": 135.72,
            "gpu_ecc_aggregate_corrected_total": 7.0, "gpu_ecc_aggregate_uncorrected_total": 7.0,
            "gpu_ecc_aggregate_corrected_dram_total": 7.0, "gpu_processes": 1.0,
            "gpu_retired_pages_single_bit": 1.0, "gpu_retired_pages_double_bit": 1.0,
            "gpu_retired_pages_pending": 0.0, "gpu_clocks_event_applications_clocks_setting": 1.0,
            "gpu_clocks_event_hw_thermal_slowdown": "not_supported",
            "gpu_memory_reserved_bytes": "not_supported",
        }),
        ("outdated", 0, 0, {
            "gpu_utilization_ratio": "not_supported", "gpu_power_watts": "not_supported",
            "gpu_processes": "not_supported", "gpu_temperature_celsius": "not_supported",
        }),
        ("a100-sxm4-v12", 0, 0, {
            "gpu_mig_mode": 1.0, "gpu_utilization_ratio": "not_supported",
            "gpu_memory_total_bytes": 81920 * MIB, "gpu_power_watts": 67.03,
            "gpu_power_limit_watts": 500.0, "gpu_ecc_volatile_uncorrected_sram_total": 0.0,
        }),
        ("a10g", 0, 0, {"gpu_pcie_link_width": 8.0, "gpu_pcie_link_width_max": 16.0}),
        ("gtx-1660", 0, 0, {"gpu_memory_utilization_ratio": 0.01, "gpu_ecc_mode": "not_supported"}),
        ("3080-v13", 0, 0, {"gpu_power_watts": 139.62, "gpu_utilization_ratio": 0.65}),
        ("3090-v12", 0, 0, {
            "gpu_power_limit_watts": 200.0, "gpu_power_limit_default_watts": 350.0,
        }),
        ("tesla-t4", 0, 0, {
            "gpu_processes": 1.0, "gpu_fan_speed_ratio": "not_supported",
            "gpu_ecc_volatile_uncorrected_sram_total": 0.0,
        }),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_values_read_by_hand(name: str, log: int, gpu: int, expected: dict[str, float | str]) -> None:
    """Numbers exactly, gaps by their reason."""
    found = words(capture(name)[log], gpu)
    assert {metric: found[metric] for metric in expected} == expected


XML_ROWS = (
    ("gpu_temperature_celsius", "temperature/gpu_temp", "C", 1.0),
    ("gpu_memory_temperature_celsius", "temperature/memory_temp", "C", 1.0),
    ("gpu_thermal_margin_celsius", "temperature/gpu_temp_tlimit", "C", 1.0),
    ("gpu_thermal_margin_slowdown_celsius", "temperature/gpu_temp_slow_tlimit_threshold", "C", 1.0),
    ("gpu_temperature_slowdown_celsius", "temperature/gpu_temp_slow_threshold", "C", 1.0),
    ("gpu_fan_speed_ratio", "fan_speed", "%", 0.01),
    ("gpu_utilization_ratio", "utilization/gpu_util", "%", 0.01),
    ("gpu_memory_utilization_ratio", "utilization/memory_util", "%", 0.01),
    ("gpu_sm_clock_hertz", "clocks/sm_clock", "MHz", 1e6),
    ("gpu_memory_clock_hertz", "clocks/mem_clock", "MHz", 1e6),
    ("gpu_memory_clock_max_hertz", "max_clocks/mem_clock", "MHz", 1e6),
    ("gpu_memory_used_bytes", "fb_memory_usage/used", "MiB", MIB),
    ("gpu_memory_reserved_bytes", "fb_memory_usage/reserved", "MiB", MIB),
    ("gpu_bar1_used_bytes", "bar1_memory_usage/used", "MiB", MIB),
    ("gpu_pcie_link_width", "pci/pci_gpu_link_info/link_widths/current_link_width", "x", 1.0),
    ("gpu_pcie_replays_total", "pci/replay_counter", "", 1.0),
    ("gpu_remapped_rows_correctable", "remapped_rows/remapped_row_corr", "", 1.0),
    ("gpu_ecc_aggregate_corrected_sram_total", "ecc_errors/aggregate/sram_correctable", "", 1.0),
    ("gpu_module_power_limit_watts", "module_power_readings/current_power_limit", "W", 1.0),
)
TEXT_ROWS = (
    ("gpu_temperature_celsius", "Temperature", "GPU Current Temp", "C", 1.0),
    ("gpu_memory_temperature_celsius", "Temperature", "Memory Current Temp", "C", 1.0),
    ("gpu_thermal_margin_celsius", "Temperature", "GPU T.Limit Temp", "C", 1.0),
    ("gpu_temperature_slowdown_celsius", "Temperature", "GPU Slowdown Temp", "C", 1.0),
    ("gpu_sm_clock_hertz", "Clocks", "SM", "MHz", 1e6),
    ("gpu_memory_clock_max_hertz", "Max Clocks", "Memory", "MHz", 1e6),
    ("gpu_memory_used_bytes", "FB Memory Usage", "Used", "MiB", MIB),
    ("gpu_bar1_free_bytes", "BAR1 Memory Usage", "Free", "MiB", MIB),
    ("gpu_utilization_ratio", "Utilization", "[Gg][Pp][Uu]", "%", 0.01),
    ("gpu_encoder_utilization_ratio", "Utilization", "Encoder", "%", 0.01),
    ("gpu_power_limit_max_watts", "GPU Power Readings", "Max Power Limit", "W", 1.0),
    ("gpu_remapped_rows_correctable", "Remapped Rows", "Correctable Error", "", 1.0),
)


def _same(value: float, raw: str | None, unit: str, factor: float) -> bool:
    number = re.fullmatch(rf"(-?[\d.]+) ?{re.escape(unit)}", raw or "")
    if number is None:
        assert raw in {None, "N/A"}
        return reason_of(value) is not None
    return value == pytest.approx(float(number[1]) * factor, rel=1e-15)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_second_reading_finds_the_same(path: Path) -> None:
    """An XML parser on the one hand, regular expressions on the slice of each GPU on the other."""
    documents = logs(load(path))
    compared = 0
    if path.suffix == ".xml":
        root = ElementTree.parse(path).getroot()
        for gpu, element in zip(documents[0].gpus, root.findall("gpu"), strict=True):
            values = gpu_readings(gpu)
            for name, tag, unit, factor in XML_ROWS:
                raw = element.findtext(tag)
                assert _same(values[name], raw and raw.strip(), unit, factor), (name, raw)
                compared += 1
    else:
        slices = re.split(r"^GPU [0-9A-F]{8}:.*\n", path.read_text(), flags=re.MULTILINE)[1:]
        gpus = [gpu for document in documents for gpu in document.gpus]
        for gpu, text in zip(gpus, slices, strict=True):
            values = gpu_readings(gpu)
            for name, section, label, unit, factor in TEXT_ROWS:
                found = re.search(
                    rf"^    {section} *\n(?:        .*\n)*?        {label} *: (.*)\n", text, flags=re.MULTILINE
                )
                assert _same(values[name], found and found[1].strip(), unit, factor), name
                compared += 1
    assert compared >= 12


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_gpu_has_a_key_of_its_own(path: Path) -> None:
    """Masked recordings give all GPUs one UUID, and still none is lost."""
    for document in logs(load(path)):
        inventory = inventory_of(document)
        assert len({gpu.uuid for gpu in inventory.gpus}) == len(document.gpus) > 0
        assert [gpu.index for gpu in inventory.gpus] == list(range(len(document.gpus)))
        assert all(gpu.pci is not None and len(gpu.pci) == 12 for gpu in inventory.gpus)
        assert all(gpu.present for gpu in inventory.gpus)


def test_the_inventory_is_that_of_the_file() -> None:
    """Order of the file, PCI in normal form, N/A is None."""
    inventory = inventory_of(capture("out_of_order")[0])
    assert [gpu.pci for gpu in inventory.gpus] == ["1580:00:00.0", "2df7:00:00.0", "4968:00:00.0", "f8d6:00:00.0"]
    assert [gpu.minor for gpu in inventory.gpus] != sorted(gpu.minor or 0 for gpu in inventory.gpus)
    assert inventory.driver_version == "430.26"
    assert inventory.cuda_version is None  # "Not Found"
    gb200 = inventory_of(capture("gb200")[0])
    assert gb200.gpus[0].slot == "slot 14, tray 4, host 1, module 2, chassis 1820000000001"
    assert gb200.gpus[0].architecture == "Blackwell"
    assert gb200.gpus[0].memory_bytes == 189471 * 1048576
    mig = inventory_of(capture("a100-sxm4-v12")[0])
    assert [gpu.mig for gpu in mig.gpus] == [True]
    assert mig.driver_message == "the log announces 4 GPUs and holds 1"
    assert inventory_of(capture("4080")[0]).gpus[0].serial is None


def test_links_stand_in_the_capture_of_several_commands() -> None:
    """`nvidia-smi nvlink -s` beside `nvidia-smi -q`."""
    inventory = inventory_of(capture("h100-80gb")[0])
    assert [link.number for link in inventory.links] == list(range(18))
    assert capture("h100-80gb")[0].links[0][3] == (3, 26.562e9)


def test_the_captures_are_all_there() -> None:
    """A test over no file would pass."""
    assert len(FILES) >= 15, CAPTURES
