"""A whole cluster's files from one command: `kilowatch init`.

`files/` links to the units, the Prometheus configuration and the Grafana dashboards of the repository; a wheel has
them as files.
"""
