"""The packages of the production tree, lowest layer first."""

PACKAGES = ("telemetry", "api", "present", "power", "alerts", "collector", "aggregator", "tui", "kilowatch")
