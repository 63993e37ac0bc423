"""The catalogue: all metrics of kilowatch, a row each.

`CATALOGUE` has the rows in the order of a frame; everything else is derived from it.
To add a metric, add one row to `gpu_power`, `gpu_clocks`, `gpu_memory`, `gpu_health`, `link`,
`port`, `instance` or `node`; the frame, the store, the metrics page, the dashboard and `docs/metrics.md` follow.
"""

from __future__ import annotations

from telemetry.catalogue import gpu_clocks, gpu_health, gpu_memory, gpu_power, instance, link, node, port
from telemetry.metric import Metric

CATALOGUE: tuple[Metric, ...] = (
    *gpu_power.METRICS,
    *gpu_clocks.METRICS,
    *gpu_memory.METRICS,
    *gpu_health.METRICS,
    *link.METRICS,
    *node.METRICS,
    *port.METRICS,
    *instance.METRICS,
)

BY_NAME: dict[str, Metric] = {metric.name: metric for metric in CATALOGUE}
