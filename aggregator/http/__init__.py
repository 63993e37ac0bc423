"""What the aggregator shows over HTTP: pages for Prometheus, JSON, a stream. All views of `View`."""
