"""Prometheus' remote write, for receivers that can't scrape: VictoriaMetrics, Mimir, Thanos, Prometheus
itself. Scraping is better where it is possible (docs/prometheus.md)."""
