"""The wire: what crosses the bus and the pages for Prometheus, its topics, its border, and the client of the bus."""
