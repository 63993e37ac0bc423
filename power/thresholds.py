"""Levels that rules and live state share, each defined once.

`alerts/rules/circuit_rules.toml` refers to the upper group by name (`level = "OVERLOAD"`), because the
live state masks readings that exceed such a level only by assumed power. Every other level of a rule is
a number in that file and nowhere else; `kilowatch plan` evaluates the rules themselves.
"""

from __future__ import annotations

LOAD_CLEAR = 0.85
"""E01: of the continuous limit."""
CONTINUOUS, CONTINUOUS_CLEAR = 1.0001, 0.95
"""E02: of the continuous limit. A rule fires at its level, and the limit itself is allowed."""
OVERLOAD, OVERLOAD_CLEAR = 1.0001, 0.95
"""E03: of the rating that heat and grouping leave."""
SURVIVOR, SURVIVOR_CLEAR = 1.0001, 0.95
"""E08: of the continuous limit, and of the rating."""
UPS_OVER, UPS_CLEAR = 1.0, 0.75
"""E14: of watts or volt-amperes."""
SUPPLY_OVER, SUPPLY_CLEAR = 1.0, 0.80
"""E15: of the supplies that must carry all."""
PLUG, PLUG_CLEAR = 0.90, 0.85
"""E16: of the plug's own limit."""
BUDGET, BUDGET_NEAR, BUDGET_FULL, BUDGET_CLEAR = 0.90, 0.97, 1.0, 0.85
"""E22: of the budget's kW, and the defaults of a budget's own levels."""

# Definitions of quantities that rules compare with levels of their own.

FEED_GONE, FEED_THERE = 0.02, 0.10
"""Part of the rating below which a feed of a group is lost while another carries more than the second
(`circuit_feed_lost`)."""
PHASES_FROM = 0.30
"""Mean load over rating from which poles are compared (`circuit_phase_imbalance_ratio`)."""
DEVIATION_RATIO, DEVIATION_WATTS = 0.15, 100.0
"""Allowed difference between a meter and the sum below it, the larger of the two
(`circuit_deviation_ratio`)."""
SWING_CYCLES = 5
"""Swings in a minute from which they count (`circuit_swing_ratio`)."""
