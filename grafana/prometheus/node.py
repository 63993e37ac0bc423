"""A node: its GPUs side by side, its links, its host."""

from __future__ import annotations

from grafana.dashboard import CLUSTER, NODE, Dashboard
from grafana.panels import GREEN, GREY, RED, YELLOW, PanelRow, lines, number, states, table
from grafana.sources import PanelQuery
from telemetry.catalogue import CATALOGUE

N = 'cluster=~"$cluster",node=~"$node"'
WHO = "{{node}} GPU {{gpu}}"

DASHBOARD = Dashboard(
    uid="kilowatch-node",
    title="kilowatch / Node",
    text="The GPUs of one or a few nodes, side by side, with links and host.",
    variables=(CLUSTER, NODE),
    parts=(
        number("Node", "Whether frames of the node arrive.", PanelQuery(f"min(kilowatch_node_up{{{N}}})"),
               steps=((None, RED), (1, GREEN)), graph="none",
               mappings=({"type": "value", "options": {"0": {"text": "silent", "index": 0}, "1": {"text": "online", "index": 1}}},)),
        number("GPUs answering", "GPUs that the driver can read.", PanelQuery(f"sum(kilowatch_node_gpus_answering{{{N}}})"), decimals=0),
        number("GPUs expected", "GPUs that are or were there.", PanelQuery(f"sum(kilowatch_node_gpus_expected{{{N}}})"), decimals=0),
        number("Power of the GPUs", "Sum over the GPUs that report it.", PanelQuery(f"sum(kilowatch_gpu_power_watts{{{N}}})"), unit="watt"),
        number("Power at the wall", "By the node's own meter, where it has one.", PanelQuery(f"sum(kilowatch_node_wall_power_watts{{{N}}})"), unit="watt"),
        number("Hottest GPU", "Highest temperature.", PanelQuery(f"max(kilowatch_gpu_temperature_celsius{{{N}}})"), unit="celsius",
               steps=((None, GREEN), (80, YELLOW), (88, RED))),
        PanelRow("GPUs"),
        lines("Power", "Each GPU, with its limit as a dashed line.",
              PanelQuery(f"kilowatch_gpu_power_watts{{{N}}}", WHO), PanelQuery(f"max by (node) (kilowatch_gpu_power_limit_watts{{{N}}})", "limit {{node}}"),
              unit="watt", low=0,
              overrides=({"matcher": {"id": "byRegexp", "options": "limit .*"}, "properties": [{"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [6, 6]}}, {"id": "custom.fillOpacity", "value": 0}]},)),
        lines("Temperature", "Each GPU's core.", PanelQuery(f"kilowatch_gpu_temperature_celsius{{{N}}}", WHO), unit="celsius"),
        lines("Memory temperature", "Each GPU's memory, where it has a sensor.", PanelQuery(f"kilowatch_gpu_memory_temperature_celsius{{{N}}}", WHO), unit="celsius"),
        lines("Utilisation", "Part of the time in which a kernel ran.", PanelQuery(f"kilowatch_gpu_utilization_ratio{{{N}}}", WHO), unit="percentunit", low=0, high=1),
        lines("SM clock", "Each GPU.", PanelQuery(f"kilowatch_gpu_sm_clock_hertz{{{N}}}", WHO), unit="hertz", low=0),
        lines("Memory used", "Each GPU.", PanelQuery(f"kilowatch_gpu_memory_used_bytes{{{N}}}", WHO), unit="bytes", low=0),
        PanelRow("Clock limit reasons"),
        lines("Clocks cut", "Part of the time that each cause has cut the clocks, over 5 min. At the power limit is normal under load; heat and power brake are not.",
              *(PanelQuery(f"max by (node, gpu) (rate(kilowatch_gpu_clocks_event_{name}_seconds_total{{{N}}}[5m]))", f"{WHO} {word}")
                for name, word in (("sw_power_cap", "power limit"), ("sw_thermal_slowdown", "heat (software)"), ("hw_thermal_slowdown", "heat (hardware)"), ("hw_power_brake_slowdown", "power brake"))),
              unit="percentunit", low=0, high=1, width=24),
        PanelRow("NVLink"),
        states("Links", "State of each link.", PanelQuery(f"kilowatch_link_state{{{N}}}", "GPU {{gpu}} link {{link}}"),
               words={0: ("inactive", RED), 1: ("active", GREEN), 2: ("sleep", GREY), 3: ("traffic disabled", YELLOW)}),
        lines("NVLink traffic", "Sum over a GPU's links, both directions.",
              PanelQuery(f"sum by (node, gpu) (rate(kilowatch_link_transmit_bytes_total{{{N}}}[$__rate_interval]))", f"{WHO} out"),
              PanelQuery(f"sum by (node, gpu) (rate(kilowatch_link_receive_bytes_total{{{N}}}[$__rate_interval]))", f"{WHO} in"), unit="Bps", low=0),
        PanelRow("Network ports"),
        states("Ports", "State of each port: InfiniBand, RoCE, Ethernet, bonds.", PanelQuery(f"kilowatch_port_state{{{N}}}", "{{node}} {{port}}"),
               words={1: ("down", RED), 2: ("initialising", YELLOW), 3: ("armed", YELLOW), 4: ("active", GREEN), 5: ("deferred", YELLOW)}),
        lines("Traffic of ports", "Bytes a second of each port.",
              PanelQuery(f"rate(kilowatch_port_transmit_bytes_total{{{N}}}[$__rate_interval])", "{{node}} {{port}} out"),
              PanelQuery(f"rate(kilowatch_port_receive_bytes_total{{{N}}}[$__rate_interval])", "{{node}} {{port}} in"), unit="Bps", low=0),
        lines("Errors of ports", "Faults a second: the counters that lists add up as errors.",
              *(PanelQuery(f"topk(10, rate(kilowatch_{metric.name}{{{N}}}[$__rate_interval]))", f"{{{{node}}}} {{{{port}}}} {metric.name.removeprefix('port_').removesuffix('_total')}")
                for metric in CATALOGUE if metric.is_fault), low=0),
        lines("Pauses", "Part of the time in which the switch held a port back, all priorities added.",
              PanelQuery(f"rate(kilowatch_port_pause_seconds_total{{{N}}}[$__rate_interval])", "{{node}} {{port}}"), unit="percentunit", low=0),
        PanelRow("Host"),
        lines("CPU", "Part of the CPUs in use.", PanelQuery(f"kilowatch_node_cpu_utilization_ratio{{{N}}}", "{{node}}"), unit="percentunit", low=0, high=1),
        lines("Memory", "Free memory.", PanelQuery(f"kilowatch_node_memory_available_bytes{{{N}}}", "{{node}}"), unit="bytes", low=0),
        lines("Network", "All interfaces together.",
              PanelQuery(f"rate(kilowatch_node_network_receive_bytes_total{{{N}}}[$__rate_interval])", "{{node}} in"),
              PanelQuery(f"rate(kilowatch_node_network_transmit_bytes_total{{{N}}}[$__rate_interval])", "{{node}} out"), unit="Bps", low=0),
        table("Node", "Driver, release and where the readings come from.", PanelQuery(f"kilowatch_node_info{{{N}}}", table=True), hide=("Value",)),
    ),
)  # fmt: skip
