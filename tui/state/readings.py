"""The metrics that the screen shows, by name."""

from __future__ import annotations

POWER = "gpu_power_watts"
LIMIT = "gpu_power_limit_watts"
TEMPERATURE = "gpu_temperature_celsius"
UTILIZATION = "gpu_utilization_ratio"
MEMORY_USED = "gpu_memory_used_bytes"
MEMORY_TOTAL = "gpu_memory_total_bytes"
CLOCK = "gpu_sm_clock_hertz"
WALL = "node_wall_power_watts"
REASONS = (
    ("gpu_clocks_event_hw_power_brake_slowdown", "power brake"),
    ("gpu_clocks_event_hw_thermal_slowdown", "heat (hw)"),
    ("gpu_clocks_event_sw_thermal_slowdown", "heat (sw)"),
    ("gpu_clocks_event_hw_slowdown", "hw slowdown"),
    ("gpu_clocks_event_sw_power_cap", "power cap"),
)
"""Clock limit reasons, worst first: only the first active one is shown."""
COLUMNS = (
    POWER, LIMIT, TEMPERATURE, UTILIZATION, MEMORY_USED, MEMORY_TOTAL, CLOCK,
    *(metric for metric, _ in REASONS),
)  # fmt: skip
"""Columns that the screen shows: no others are requested."""

LIVELY = (POWER, TEMPERATURE, UTILIZATION, CLOCK, *(metric for metric, _ in REASONS))
"""Metrics that are read at every tick: limits and sizes are read seldom, and outlive the last reading of
a silent GPU."""
