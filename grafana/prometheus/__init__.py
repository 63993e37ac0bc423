"""The dashboards, one module each; to add one, write a module with `DASHBOARD` and name it here."""

from __future__ import annotations

from grafana.dashboard import Dashboard
from grafana.prometheus import alerts, circuits, energy, fleet, gpu, itself, jobs, node, users

DASHBOARDS: tuple[Dashboard, ...] = (
    fleet.DASHBOARD,
    node.DASHBOARD,
    gpu.DASHBOARD,
    circuits.DASHBOARD,
    energy.DASHBOARD,
    jobs.DASHBOARD,
    users.DASHBOARD,
    alerts.DASHBOARD,
    itself.DASHBOARD,
)
