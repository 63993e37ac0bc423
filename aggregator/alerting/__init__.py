"""Alerts in a running aggregator: rules over fleet and power snapshots, the desk, the journal, the channels.

What is decided is decided in `alerts/`, which is pure; here are the loops, the threads and the clocks.
"""
