"""The levels at which the electrical rules speak, each in one place.

`alerts/rules/circuit_rules.toml` repeats them as numbers, because a rule file is read on its own; a test
compares the two. `plan` judges by these alone.
"""

from __future__ import annotations

LOAD = 0.90
"""E01: of the continuous limit."""
LOAD_CLEAR = 0.85
CONTINUOUS = 1.0
"""E02: of the continuous limit."""
CONTINUOUS_CLEAR = 0.95
CONTINUOUS_HOURS = 10_800.0
"""E02, the second level: seconds above the limit that the rule of 0.8 is made for."""
OVERLOAD = 1.0
"""E03: of the rating that heat and grouping leave."""
OVERLOAD_CLEAR = 0.95
HEAT_WARM, HEAT_HOT, HEAT_CLEAR = 0.70, 0.90, 0.60
"""E04: heat over what trips the earliest edge, where the load would trip it: hours at 0.94 of the
rating end at 0.81, and never trip."""
TRIP_SOON, TRIP_NOW = 300.0, 60.0
"""E04: seconds to the earliest trip."""
MAGNETIC = 1.0
"""E05: of the lowest peak that trips at once."""
FORECAST_CONTINUOUS, FORECAST_RATED = 900.0, 300.0
"""E06: seconds until the trend meets the limit."""
COMMITTED = 1.0
"""E07: of the continuous limit, and of the rating."""
SURVIVOR = 1.0
"""E08: of the continuous limit, and of the rating."""
FEED_GONE, FEED_THERE = 0.02, 0.10
"""E09: of the rating; the first for the feed that is lost, the second for its partner."""
CORDS = 0.20
"""E10: difference over sum."""
PHASES = (0.10, 0.15, 0.20)
"""E11: largest difference from the mean, over the mean."""
PHASES_FROM = 0.30
"""E11: of the rating, on average; below it a difference means nothing."""
NEUTRAL, NEUTRAL_FULL = 0.80, 1.0
"""E12: of the neutral's rating."""
VOLTS_LOW, VOLTS_VERY_LOW, VOLTS_HIGH = 0.95, 0.90, 1.06
"""E13: of the nominal voltage."""
UPS_LOAD, UPS_OVER, UPS_CLEAR = 0.80, 1.0, 0.75
"""E14: of watts or volt-amperes."""
RUNTIME_LOW, RUNTIME_VERY_LOW = 600.0, 300.0
"""E14: seconds."""
SUPPLY, SUPPLY_OVER, SUPPLY_CLEAR = 0.85, 1.0, 0.80
"""E15: of the supplies that must carry all."""
SPIKE = 1.0
"""E15: of the supplies' rating."""
PLUG, PLUG_CLEAR = 0.90, 0.85
"""E16: of the plug's own limit."""
DEVIATION = 1.0
"""E18: of what may be."""
DEVIATION_RATIO, DEVIATION_WATTS = 0.15, 100.0
"""E18: what may be, the larger of the two."""
SWING, SWING_CYCLES = 0.30, 5
"""E21: of the rating, and how often in a minute."""
BUDGET, BUDGET_NEAR, BUDGET_FULL, BUDGET_CLEAR = 0.90, 0.97, 1.0, 0.85
"""E22: of the budget's kW."""
MONTH, MONTH_FULL = 0.9, 1.0
"""E22: of the month's kWh or money."""
