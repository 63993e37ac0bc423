"""The fleet on one page, over InfluxDB."""

from __future__ import annotations

from grafana.dashboard import Dashboard
from grafana.influx.queries import CLUSTER, chosen, each, newest, over
from grafana.panels import GREEN, RED, YELLOW, PanelRow, cell, heat, lines, number, table
from grafana.sources import INFLUXDB

C = chosen("cluster")
_HOT = ((None, GREEN), (80, YELLOW), (88, RED))
_TO_GPU = {
    "title": "GPU",
    "url": "/d/kilowatch-influx-gpu?var-uuid=${__data.fields.uuid}&${__url_time_range}&var-datasource=${datasource}",
}
_TO_NODE = {
    "title": "Node",
    "url": "/d/kilowatch-influx-node?var-node=${__data.fields.node}&${__url_time_range}&var-datasource=${datasource}",
}

DASHBOARD = Dashboard(
    uid="kilowatch-influx-fleet",
    title="kilowatch / Fleet (InfluxDB)",
    text="Every GPU of the cluster: how many report, their power and temperature.",
    variables=(CLUSTER,),
    source=INFLUXDB,
    parts=(
        number("GPUs reporting", "GPUs that report their temperature.", over("count", "gpu_temperature_celsius", C), decimals=0, width=6),
        number("Power of the GPUs", "Sum over the GPUs that report their power.", over("sum", "gpu_power_watts", C), unit="watt", width=6),
        number("Hottest GPU", "Highest mean of ten seconds.", over("max", "gpu_temperature_celsius", C), unit="celsius", steps=_HOT, width=6),
        number("Power at the wall", "By the nodes' own meters, where they have one.", over("sum", "node_wall_power_watts", C), unit="watt", width=6),
        PanelRow("Load"),
        lines("Power by model", "Sum of the reporting GPUs of each model.", over("sum", "gpu_power_watts", C, "{{model}}", by=("model",)), unit="watt", low=0),
        lines("Utilisation", "Mean over the GPUs that report it.", over("mean", "gpu_utilization_ratio", C, "mean"), unit="percentunit", low=0, high=1, legend=False),
        heat("Temperatures", "How many GPUs have which temperature.", each("gpu_temperature_celsius", C), unit="celsius"),
        heat("Power", "How many GPUs draw how much.", each("gpu_power_watts", C), unit="watt"),
        PanelRow("To check next"),
        table("GPUs", "The newest of each; a click leads to the GPU.",
              newest({"gpu_temperature_celsius": "temperature", "gpu_power_watts": "power", "gpu_utilization_ratio": "utilisation"}, C, ("node", "gpu", "uuid", "model")), sort="temperature", width=24, height=10,
              overrides=(cell("temperature", "celsius", _HOT, gauge=True, low=20, high=100), cell("power", "watt"), cell("utilisation", "percentunit"), cell("node", "none", link=_TO_NODE), cell("uuid", "none", link=_TO_GPU))),
    ),
)  # fmt: skip
