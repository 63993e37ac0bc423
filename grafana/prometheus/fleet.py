"""The fleet on one page: GPUs, power, faults, and the devices to check next."""

from __future__ import annotations

from grafana.dashboard import CLUSTER, Dashboard
from grafana.panels import GREEN, ORANGE, RED, YELLOW, PanelRow, bars, cell, heat, lines, number, table
from grafana.sources import PanelQuery

C = 'cluster=~"$cluster"'
_TO_NODE = {
    "title": "Node ${__data.fields.node}",
    "url": "/d/kilowatch-node?var-node=${__data.fields.node}&${__url_time_range}&var-datasource=${datasource}",
}
_TO_GPU = {
    "title": "GPU",
    "url": "/d/kilowatch-gpu?var-uuid=${__data.fields.uuid}&${__url_time_range}&var-datasource=${datasource}",
}

DASHBOARD = Dashboard(
    uid="kilowatch-fleet",
    title="kilowatch / Fleet",
    text="Every GPU of the cluster: how many report, their power and temperature, and which have faults.",
    variables=(CLUSTER,),
    parts=(
        number("GPUs reporting", "GPUs with at least one fresh reading.",
               PanelQuery(f'sum(kilowatch_cluster_gpus{{{C},state="reporting"}})'), decimals=0),
        number("GPUs silent or lost", "GPUs that can't be read now. They are in no sum on this page.",
               PanelQuery(f'sum(kilowatch_cluster_gpus{{{C},state=~"silent|lost"}})'), steps=((None, GREEN), (1, RED)), decimals=0),
        number("Nodes online", "Nodes whose frames arrive.",
               PanelQuery(f'sum(kilowatch_cluster_nodes{{{C},state="online"}})'), decimals=0),
        number("Power of the GPUs", "Sum over the GPUs that report their power.",
               PanelQuery(f"sum(kilowatch_cluster_gpu_power_watts{{{C}}})"), unit="watt"),
        number("Hottest GPU", "Highest temperature of any GPU.",
               PanelQuery(f"max(kilowatch_cluster_gpu_temperature_max_celsius{{{C}}})"), unit="celsius",
               steps=((None, GREEN), (80, YELLOW), (88, RED))),
        number("Pages open", "Alerts of severity page that fire now.",
               PanelQuery(f'sum(kilowatch_cluster_alerts{{{C},state="firing",severity="page"}})'),
               steps=((None, GREEN), (1, RED)), decimals=0, graph="none"),
        PanelRow("Fit for work"),
        number("Fitness", "Score of the fleet, 0 to 100; what is not known is not good.",
               PanelQuery(f"min(kilowatch_cluster_fitness_score{{{C}}})"), steps=((None, RED), (80, YELLOW), (100, GREEN)), decimals=0),
        lines("Fitness over time", "Score of the fleet.",
              PanelQuery(f"min(kilowatch_cluster_fitness_score{{{C}}})", "score"), low=0, high=100, legend=False),
        lines("Nodes by fitness", "Fit, degraded, out, and not known.",
              PanelQuery(f"sum by (state) (kilowatch_cluster_fitness_nodes{{{C}}})", "{{state}}"), low=0, decimals=0),
        table("Nodes that are not fit", "The 20 worst.",
              PanelQuery(f"bottomk(20, kilowatch_node_fitness_score{{{C}}} < 100)", table=True),
              names={"Value": "score"}, sort="score", overrides=(cell("node", "none", link=_TO_NODE),)),
        lines("Nodes that differ", "From what is declared, or from most nodes of their kind.",
              PanelQuery(f"sum by (by) (kilowatch_cluster_nodes_differing{{{C}}})", "{{by}}"), low=0, decimals=0),
        table("Drift", "Nodes with deviations, and how many facts deviate.",
              PanelQuery(f"topk(20, kilowatch_node_deviations{{{C}}})", table=True),
              names={"Value": "facts"}, sort="facts", overrides=(cell("node", "none", link=_TO_NODE),)),
        PanelRow("Load"),
        lines("Power by model", "Sum of the reporting GPUs of each model. A GPU that falls silent leaves the sum.",
              PanelQuery(f"sum by (model) (kilowatch_cluster_gpu_power_watts{{{C}}})", "{{model}}"), unit="watt", low=0),
        lines("Utilisation", "Mean over the GPUs that report it.",
              PanelQuery(f"avg(kilowatch_cluster_gpu_utilization_mean_ratio{{{C}}})", "mean"), unit="percentunit", low=0, high=1, legend=False),
        heat("Temperatures", "How many GPUs have which temperature.",
             PanelQuery(f"kilowatch_gpu_temperature_celsius{{{C}}}"), unit="celsius"),
        heat("Power", "How many GPUs draw how much.", PanelQuery(f"kilowatch_gpu_power_watts{{{C}}}"), unit="watt"),
        PanelRow("To check next"),
        table("Hottest GPUs", "The 20 hottest, with their power; a click leads to the GPU.",
              PanelQuery(f"topk(20, kilowatch_gpu_temperature_celsius{{{C}}})", table=True),
              PanelQuery(f"kilowatch_gpu_power_watts{{{C}}} and on (node, gpu) topk(20, kilowatch_gpu_temperature_celsius{{{C}}})", table=True),
              names={"Value #A": "temperature", "Value #B": "power"}, sort="temperature", height=10,
              overrides=(cell("temperature", "celsius", ((None, GREEN), (80, YELLOW), (88, RED)), gauge=True, low=20, high=100),
                         cell("power", "watt"), cell("node", "none", link=_TO_NODE), cell("uuid", "none", link=_TO_GPU))),
        table("GPUs with a clock limit reason", "GPUs whose clocks are cut for heat or by the power brake now. A cut at the power limit is normal and not listed.",
              PanelQuery(f'kilowatch_gpu_clocks_event_hw_thermal_slowdown{{{C}}} == 1 or kilowatch_gpu_clocks_event_hw_power_brake_slowdown{{{C}}} == 1 or kilowatch_gpu_clocks_event_sw_thermal_slowdown{{{C}}} == 1', table=True),
              hide=("Value",), height=10, overrides=(cell("node", "none", link=_TO_NODE), cell("uuid", "none", link=_TO_GPU))),
        bars("Silent nodes", "Seconds since the newest frame of silent nodes.",
             PanelQuery(f"(time() - kilowatch_node_last_frame_timestamp_seconds{{{C}}}) and on (node) (kilowatch_node_up{{{C}}} == 0)", "{{node}}"),
             unit="s", steps=((None, YELLOW), (60, ORANGE), (300, RED))),
        lines("GPUs by state", "How many report, are silent, are lost.",
              PanelQuery(f"sum by (state) (kilowatch_cluster_gpus{{{C}}})", "{{state}}"), low=0, decimals=0),
    ),
)  # fmt: skip
