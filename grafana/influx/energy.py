"""Energy, over InfluxDB."""

from __future__ import annotations

from grafana.dashboard import Dashboard
from grafana.influx.queries import CLUSTER, chosen, over
from grafana.panels import PanelRow, lines, number
from grafana.sources import INFLUXDB, PanelQuery

C = chosen("cluster")
_GROWTH = (
    'SELECT non_negative_difference(last("gpu_energy_joules_total")) AS "joules" FROM "gpu" '  # noqa: S608
    f'WHERE $timeFilter{C} GROUP BY time($__interval), "node", "uuid" fill(none)'
)
_KWH = 'sum("joules") / 3600000'

DASHBOARD = Dashboard(
    uid="kilowatch-influx-energy",
    title="kilowatch / Energy (InfluxDB)",
    text="Energy of the GPUs from their own counters, which miss nothing between two readings.",
    variables=(CLUSTER,),
    source=INFLUXDB,
    since="now-24h",
    refresh="1m",
    parts=(
        number("Energy", "Of all GPUs over the time shown.", PanelQuery(f"SELECT {_KWH} FROM ({_GROWTH})", table=True), unit="kwatth", width=12),  # noqa: S608
        number("Mean power", "Of all GPUs, over the time shown.", over("sum", "gpu_power_watts", C), unit="watt", width=12),
        PanelRow("Where it goes"),
        lines("Power by node", "The GPUs alone.", over("sum", "gpu_power_watts", C, "{{node}}", by=("node",)), unit="watt", low=0),
        lines("Energy by node", "The GPUs alone, in each interval.", PanelQuery(f'SELECT {_KWH} FROM ({_GROWTH}) WHERE $timeFilter GROUP BY time($__interval), "node" fill(none)', "{{node}}"), unit="kwatth", low=0),  # noqa: S608
        lines("Cap", "Sum of the limits in force.", over("sum", "gpu_power_limit_watts", C, "limits", inner="last"), unit="watt", low=0, legend=False),
    ),
)  # fmt: skip
