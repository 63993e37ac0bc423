"""The dashboards over InfluxDB: queries in InfluxQL, which 1.x, 2.x and 3.x understand.

Circuits, alerts and kilowatch itself are no readings and are not written there: their dashboards ask
Prometheus.
"""

from __future__ import annotations

from grafana.dashboard import Dashboard
from grafana.influx import energy, events, fleet, gpu, node

DASHBOARDS: tuple[Dashboard, ...] = (fleet.DASHBOARD, node.DASHBOARD, gpu.DASHBOARD, energy.DASHBOARD, events.DASHBOARD)
