"""The aggregator's HTTP server: pages for Prometheus, JSON, a stream, all made of `AggregatorView`."""
