"""Grafana dashboards and provisioning, generated from the catalogue and checked in.

`python -m grafana.build` writes `dashboards/`; a test fails when a file there has drifted.
"""
