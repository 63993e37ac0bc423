"""The node's own page, for Prometheus and probes."""
