"""The collector on the bus, and its page for Prometheus."""
