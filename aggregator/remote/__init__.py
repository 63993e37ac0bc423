"""Prometheus' remote write, for receivers that nobody scrapes for: VictoriaMetrics, Mimir, Thanos,
Prometheus itself. An extra: who can scrape should scrape (docs/prometheus.md)."""
