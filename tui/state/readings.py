"""The metrics that the screen shows, by name."""

from __future__ import annotations

from present.device.gpu import CLOCK_LIMITS

POWER = "gpu_power_watts"
LIMIT = "gpu_power_limit_watts"
TEMPERATURE = "gpu_temperature_celsius"
UTILIZATION = "gpu_utilization_ratio"
MEMORY_USED = "gpu_memory_used_bytes"
MEMORY_TOTAL = "gpu_memory_total_bytes"
CLOCK = "gpu_sm_clock_hertz"
WALL = "node_wall_power_watts"
COLUMNS = (POWER, LIMIT, TEMPERATURE, UTILIZATION, MEMORY_USED, MEMORY_TOTAL, CLOCK, *CLOCK_LIMITS)
"""Columns that the screen shows: no others are requested."""

LIVELY = (POWER, TEMPERATURE, UTILIZATION, CLOCK, *CLOCK_LIMITS)
"""Metrics that are read at every tick: limits and sizes are read seldom, and outlive the last reading of
a silent GPU."""
