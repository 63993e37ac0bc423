"""Rules for Prometheus, made from the same `rules.toml` that kilowatch evaluates.

`kilowatch rules prometheus` prints them; `deploy/prometheus` has the shipped ones.
"""
