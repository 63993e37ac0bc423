"""One GPU, over InfluxDB."""

from __future__ import annotations

from grafana.dashboard import Dashboard
from grafana.influx.queries import CLUSTER, GPU, NODE, WHO, changes, chosen, each, newest, rate
from grafana.panels import GREEN, ORANGE, RED, PanelRow, lines, states, table
from grafana.sources import INFLUXDB
from telemetry.catalogue import BY_NAME

G = chosen("cluster", "node", "uuid")
_COLOURS = {0: GREEN, 4: ORANGE}

DASHBOARD = Dashboard(
    uid="kilowatch-influx-gpu",
    title="kilowatch / GPU (InfluxDB)",
    text="One GPU: power and its limits, heat, clocks and clock limit reasons, memory errors.",
    variables=(CLUSTER, NODE, GPU),
    source=INFLUXDB,
    parts=(
        table("Now", "The newest values of the main metrics.",
              newest({"gpu_power_watts": "watts", "gpu_temperature_celsius": "celsius", "gpu_utilization_ratio": "utilisation", "gpu_memory_used_bytes": "memory"}, G, ("node", "gpu", "uuid", "model")), width=24, height=4),
        PanelRow("Power and heat"),
        lines("Power", "With the limit in force.", each("gpu_power_watts", G, f"{WHO} power"), each("gpu_power_limit_watts", G, f"{WHO} limit", function="last"), unit="watt", low=0),
        lines("Temperatures", "Core and memory.", each("gpu_temperature_celsius", G, f"{WHO} core"), each("gpu_memory_temperature_celsius", G, f"{WHO} memory"), unit="celsius"),
        lines("Clocks", "SM and memory.", each("gpu_sm_clock_hertz", G, f"{WHO} SM"), each("gpu_memory_clock_hertz", G, f"{WHO} memory"), unit="hertz", low=0),
        lines("Why the clocks are cut", "Part of the time for each cause.",
              *(each(f"gpu_clocks_event_{name}", G, word) for name, word in (("sw_power_cap", "power limit"), ("sw_thermal_slowdown", "heat (software)"), ("hw_thermal_slowdown", "heat (hardware)"), ("hw_power_brake_slowdown", "power brake"))),
              unit="percentunit", low=0, high=1),
        PanelRow("Work"),
        lines("Utilisation", "GPU and memory controller.", each("gpu_utilization_ratio", G, "GPU"), each("gpu_memory_utilization_ratio", G, "memory"), unit="percentunit", low=0, high=1),
        lines("Memory", "Used.", each("gpu_memory_used_bytes", G), unit="bytes", low=0),
        PanelRow("Health"),
        states("Power brake", "Whether the supply requests the GPU to slow down, at each change.", changes("gpu_clocks_event_hw_power_brake_slowdown", G), words={0: ("no", GREEN), 1: ("brakes", RED)}),
        states("Recovery action", "Action that the driver requests.", each("gpu_recovery_action", G, function="last"),
               words={value: (word, _COLOURS.get(value, RED)) for value, word in BY_NAME["gpu_recovery_action"].states}),
        lines("Memory errors", "A second.", rate("gpu_ecc_volatile_corrected_total", G, "corrected"), rate("gpu_ecc_volatile_uncorrected_total", G, "uncorrected"), low=0),
        lines("PCIe replays", "A second.", rate("gpu_pcie_replays_total", G, "replays"), low=0),
    ),
)  # fmt: skip
