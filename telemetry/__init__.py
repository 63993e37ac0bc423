"""The language every part of kilowatch speaks: metrics, frames, gaps, topics, inventory, fleet.

Nothing here does I/O or reads a clock (but `telemetry.mqtt`, the door to the bus), so a
collector, an aggregator, a test and a benchmark all share one meaning of every word.
"""
