"""Alerting in a running aggregator: rules, incidents, journal and channels, with loops and threads.

Decisions are made in `alerts/`, which is pure.
"""
