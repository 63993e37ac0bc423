"""One conversion for both forms of log."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.smi.values import convert
from telemetry.catalogue import BY_NAME
from telemetry.gap import reason_of


@pytest.mark.parametrize(
    ("metric", "raw", "expected"),
    [
        ("gpu_power_watts", "29.70 W", 29.7),
        ("gpu_power_watts", "29700 mW", 29.7),
        ("gpu_power_watts", "0.00 W", 0.0),
        ("gpu_temperature_celsius", "43 C", 43.0),
        ("gpu_thermal_margin_celsius", "-8 C", -8.0),
        ("gpu_thermal_margin_celsius", "+9 C", 9.0),
        ("gpu_sm_clock_hertz", "1980 MHz", 1.98e9),
        ("gpu_memory_used_bytes", "81559 MiB", 81559 * 1048576.0),
        ("gpu_memory_used_bytes", "5375 MB", 5375 * 1048576.0),
        ("gpu_memory_used_bytes", "8 GiB", 8.0 * 2**30),
        ("gpu_utilization_ratio", "57 %", 0.57),
        ("gpu_utilization_ratio", "57%", 0.57),
        ("gpu_fan_speed_ratio", "103 %", 1.03),
        ("gpu_clocks_event_sw_power_cap_seconds_total", "7015662857 us", 7015.662857),
        ("gpu_pcie_link_width", "16x", 16.0),
        ("gpu_pcie_replays_total", "150", 150.0),
        ("gpu_pcie_replays_total", "0x10", 16.0),
        ("gpu_remap_banks_max", "3968 bank(s)", 3968.0),
        ("gpu_performance_state", "P0", 0.0),
        ("gpu_performance_state", "P12", 12.0),
        ("gpu_clocks_event_idle", "Active", 1.0),
        ("gpu_clocks_event_idle", "Not Active", 0.0),
        ("gpu_ecc_mode", "Enabled", 1.0),
        ("gpu_ecc_mode", "Disabled", 0.0),
        ("gpu_remapped_rows_pending", "Yes", 1.0),
        ("gpu_remapped_rows_pending", "No", 0.0),
        ("gpu_fabric_route_unhealthy", "False", 0.0),
        ("gpu_fabric_route_unhealthy", "True", 1.0),
        ("gpu_fabric_bandwidth_degraded", "Full", 0.0),
        ("gpu_fabric_bandwidth_degraded", "Degraded", 1.0),
        ("gpu_fabric_state", "Completed", 3.0),
        ("gpu_fabric_state", "In Progress", 2.0),
        ("gpu_fabric_health", "Healthy", 1.0),
        ("gpu_fabric_health", "Limited Capacity", 3.0),
        ("gpu_recovery_action", "None", 0.0),
        ("gpu_recovery_action", "Reset", 1.0),
        ("gpu_recovery_action", "GPU Reset", 1.0),
        ("gpu_recovery_action", "PF FLR", 1.0),
        ("gpu_recovery_action", "Reboot", 2.0),
        ("gpu_recovery_action", "OS Reboot", 2.0),
        ("gpu_recovery_action", "Node Reboot", 2.0),
        ("gpu_recovery_action", "Drain P2P", 3.0),
        ("gpu_recovery_action", "Drain and Reset", 4.0),
        ("gpu_recovery_action", "Recover IMEX Domain", 5.0),
        ("gpu_recovery_action", "Bus Reset", 6.0),
        ("gpu_recovery_action", "System Reboot", 7.0),
        ("gpu_recovery_action", "0x4 (Drain and Reset)", 4.0),
    ],
)
def test_words_become_base_units_to_the_last_bit(metric: str, raw: str, expected: float) -> None:
    """Decimal arithmetic: no 0.5700000000000001."""
    assert convert(raw, BY_NAME[metric]) == expected


@pytest.mark.parametrize(
    ("metric", "raw", "reason"),
    [
        ("gpu_power_watts", "N/A", "not_supported"),
        ("gpu_power_watts", "[N/A]", "not_supported"),
        ("gpu_power_watts", "", "not_supported"),
        ("gpu_power_watts", "Not Supported", "not_supported"),
        ("gpu_power_watts", "[Not Supported]", "not_supported"),
        ("gpu_sm_clock_hertz", "Requested functionality has been deprecated", "not_supported"),
        ("gpu_performance_state", "Requested functionality has been deprecated", "not_supported"),
        ("gpu_fabric_state", "Not Supported", "not_supported"),
        ("gpu_power_watts", "Insufficient Permissions", "no_permission"),
        ("gpu_power_watts", "[Insufficient Permissions]", "no_permission"),
        ("gpu_power_watts", "GPU is lost", "device_lost"),
        ("gpu_power_watts", "[GPU is lost]", "device_lost"),
        ("gpu_power_watts", "[GPU requires reset]", "device_lost"),
        ("gpu_recovery_action", "GPU requires reset", "device_lost"),
        ("gpu_power_watts", "Unknown Error", "error"),
        ("gpu_fan_speed_ratio", "[Unknown Error]", "error"),
        ("gpu_fan_speed_ratio", "ERR!", "error"),
        ("gpu_power_watts", "29.70", "error"),  # half a line: the unit is missing
        ("gpu_power_watts", "29.70 C", "error"),
        ("gpu_power_watts", "nan W", "error"),
        ("gpu_memory_used_bytes", "46068 Mi", "error"),
        ("gpu_performance_state", "P99", "error"),
        ("gpu_recovery_action", "Replace The Board", "error"),
        ("gpu_ecc_mode", "Perhaps", "error"),
        ("gpu_ecc_volatile_corrected_total", "1e5", "error"),
        ("gpu_ecc_volatile_corrected_total", "9" * 40, "error"),
    ],
)
def test_what_is_no_value_is_a_gap_with_its_reason(metric: str, raw: str, reason: str) -> None:
    """Never 0."""
    found = reason_of(convert(raw, BY_NAME[metric]))
    assert found is not None
    assert found.word == reason


@given(st.text(max_size=60), st.sampled_from(sorted(BY_NAME)))
def test_no_word_makes_the_conversion_fail(raw: str, metric: str) -> None:
    """Any text is a number or a gap."""
    value = convert(raw, BY_NAME[metric])
    assert reason_of(value) is not None or math.isfinite(value)
