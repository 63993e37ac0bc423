"""One node, over InfluxDB."""

from __future__ import annotations

from grafana.dashboard import Dashboard
from grafana.influx.queries import CLUSTER, NODE, WHO, changes, chosen, each, over, rate
from grafana.panels import GREEN, GREY, RED, YELLOW, PanelRow, lines, number, states
from grafana.sources import INFLUXDB

N = chosen("cluster", "node")

DASHBOARD = Dashboard(
    uid="kilowatch-influx-node",
    title="kilowatch / Node (InfluxDB)",
    text="The GPUs of one or a few nodes, side by side, with links and host.",
    variables=(CLUSTER, NODE),
    source=INFLUXDB,
    parts=(
        number("GPUs answering", "GPUs that the driver can read.", over("sum", "node_gpus_answering", N, inner="last"), decimals=0, width=6),
        number("GPUs expected", "GPUs that are or were there.", over("sum", "node_gpus_expected", N, inner="last"), decimals=0, width=6),
        number("Power of the GPUs", "Sum over the GPUs that report it.", over("sum", "gpu_power_watts", N), unit="watt", width=6),
        number("Hottest GPU", "Highest mean of ten seconds.", over("max", "gpu_temperature_celsius", N), unit="celsius", steps=((None, GREEN), (80, YELLOW), (88, RED)), width=6),
        PanelRow("GPUs"),
        lines("Power", "Each GPU.", each("gpu_power_watts", N), unit="watt", low=0),
        lines("Temperature", "Each GPU's core.", each("gpu_temperature_celsius", N), unit="celsius"),
        lines("Utilisation", "Part of the time in which a kernel ran.", each("gpu_utilization_ratio", N), unit="percentunit", low=0, high=1),
        lines("Memory used", "Each GPU.", each("gpu_memory_used_bytes", N), unit="bytes", low=0),
        lines("SM clock", "Each GPU.", each("gpu_sm_clock_hertz", N), unit="hertz", low=0),
        lines("Clocks cut", "Part of the time that heat or the power brake has cut the clocks.",
              *(each(f"gpu_clocks_event_{name}", N, f"{WHO} {word}") for name, word in (("sw_thermal_slowdown", "heat (software)"), ("hw_thermal_slowdown", "heat (hardware)"), ("hw_power_brake_slowdown", "power brake"))),
              unit="percentunit", low=0, high=1),
        PanelRow("NVLink"),
        states("Links", "State of each link, at each change.", changes("link_state", N, "GPU {{gpu}} link {{link}}"),
               words={0: ("inactive", RED), 1: ("active", GREEN), 2: ("sleep", GREY), 3: ("traffic disabled", YELLOW)}),
        lines("NVLink traffic", "Each link, both directions.",
              rate("link_transmit_bytes_total", N, "GPU {{gpu}} link {{link}} out"), rate("link_receive_bytes_total", N, "GPU {{gpu}} link {{link}} in"), unit="Bps", low=0, legend=False),
        PanelRow("Network ports"),
        states("Ports", "State of each port.", each("port_state", N, "{{node}} {{port}}", function="last"),
               words={1: ("down", RED), 2: ("initialising", YELLOW), 3: ("armed", YELLOW), 4: ("active", GREEN), 5: ("deferred", YELLOW)}),
        lines("Traffic of ports", "Bytes a second of each port.",
              rate("port_transmit_bytes_total", N, "{{node}} {{port}} out"), rate("port_receive_bytes_total", N, "{{node}} {{port}} in"), unit="Bps", low=0, legend=False),
        PanelRow("Host"),
        lines("CPU", "Part of the CPUs in use.", each("node_cpu_utilization_ratio", N), unit="percentunit", low=0, high=1),
        lines("Network", "All interfaces together.", rate("node_network_receive_bytes_total", N, "{{node}} in"), rate("node_network_transmit_bytes_total", N, "{{node}} out"), unit="Bps", low=0),
    ),
)  # fmt: skip
