"""The types that all parts of kilowatch share: metrics, frames, gaps, topics, inventory, fleet.

Only `telemetry.wire.mqtt` (the client of the bus), `telemetry.files.record_log` (files) and `telemetry.text.settings`
(reading TOML) do I/O, and nothing reads a wall clock.
"""
