"""Rules for those who alert in Prometheus, made from the same `rules.toml` that kilowatch judges by.

`kilowatch rules prometheus` prints them; `deploy/prometheus` has them ready made.
"""
