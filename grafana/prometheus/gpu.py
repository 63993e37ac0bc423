"""A GPU: all its readings, limits and errors."""

from __future__ import annotations

from grafana.dashboard import CLUSTER, NODE, Dashboard, Variable
from grafana.panels import GREEN, GREY, ORANGE, RED, YELLOW, PanelRow, lines, number, states, table
from grafana.sources import PanelQuery
from telemetry.catalogue import BY_NAME

G = 'cluster=~"$cluster",node=~"$node",uuid=~"$uuid"'
WHO = "{{node}} GPU {{gpu}}"
_COLOURS = {0: GREEN, 4: ORANGE}

DASHBOARD = Dashboard(
    uid="kilowatch-gpu",
    title="kilowatch / GPU",
    text="One GPU: power and its limits, heat, clocks and clock limit reasons, memory errors, links.",
    variables=(CLUSTER, NODE, Variable("uuid", "GPU", "kilowatch_gpu_info", "uuid")),
    parts=(
        table("Device", "Model, serial number, address, firmware.", PanelQuery(f"kilowatch_gpu_info{{{G}}}", table=True), hide=("Value",), width=24, height=4),
        number("Power", "Now.", PanelQuery(f"kilowatch_gpu_power_watts{{{G}}}", WHO), unit="watt"),
        number("Temperature", "Core.", PanelQuery(f"kilowatch_gpu_temperature_celsius{{{G}}}", WHO), unit="celsius", steps=((None, GREEN), (80, YELLOW), (88, RED))),
        number("Thermal margin", "Degrees until the GPU slows down, where it reports its margin.", PanelQuery(f"kilowatch_gpu_thermal_margin_celsius{{{G}}}", WHO), unit="celsius", steps=((None, RED), (0, YELLOW), (10, GREEN))),
        number("Utilisation", "Part of the time in which a kernel ran.", PanelQuery(f"kilowatch_gpu_utilization_ratio{{{G}}}", WHO), unit="percentunit"),
        number("Memory used", "Of all memory.", PanelQuery(f"kilowatch_gpu_memory_used_bytes{{{G}}} / kilowatch_gpu_memory_total_bytes{{{G}}}", WHO), unit="percentunit"),
        number("Uncorrected errors", "In the last 24 h.", PanelQuery(f"increase(kilowatch_gpu_ecc_volatile_uncorrected_total{{{G}}}[24h])", WHO), steps=((None, GREEN), (1, RED)), decimals=0),
        PanelRow("Power and heat"),
        lines("Power", "With the limit in force and the range in which it can be set.",
              PanelQuery(f"kilowatch_gpu_power_watts{{{G}}}", f"{WHO} power"), PanelQuery(f"kilowatch_gpu_power_limit_watts{{{G}}}", "limit"),
              PanelQuery(f"kilowatch_gpu_power_limit_min_watts{{{G}}}", "lowest limit"), PanelQuery(f"kilowatch_gpu_power_limit_max_watts{{{G}}}", "highest limit"), unit="watt", low=0),
        lines("Temperatures", "Core and memory.", PanelQuery(f"kilowatch_gpu_temperature_celsius{{{G}}}", f"{WHO} core"), PanelQuery(f"kilowatch_gpu_memory_temperature_celsius{{{G}}}", f"{WHO} memory"), unit="celsius"),
        lines("Clocks", "SM and memory.", PanelQuery(f"kilowatch_gpu_sm_clock_hertz{{{G}}}", f"{WHO} SM"), PanelQuery(f"kilowatch_gpu_memory_clock_hertz{{{G}}}", f"{WHO} memory"), unit="hertz", low=0),
        lines("Why the clocks are cut", "Part of the time for each cause, over 5 min.",
              *(PanelQuery(f"rate(kilowatch_gpu_clocks_event_{name}_seconds_total{{{G}}}[5m])", word)
                for name, word in (("sw_power_cap", "power limit"), ("sync_boost", "sync boost"), ("sw_thermal_slowdown", "heat (software)"), ("hw_thermal_slowdown", "heat (hardware)"), ("hw_power_brake_slowdown", "power brake"))),
              unit="percentunit", low=0, high=1),
        PanelRow("Work"),
        lines("Utilisation", "GPU, memory controller, encoder and decoder.",
              PanelQuery(f"kilowatch_gpu_utilization_ratio{{{G}}}", "GPU"), PanelQuery(f"kilowatch_gpu_memory_utilization_ratio{{{G}}}", "memory"), PanelQuery(f"kilowatch_gpu_encoder_utilization_ratio{{{G}}}", "encoder"), PanelQuery(f"kilowatch_gpu_decoder_utilization_ratio{{{G}}}", "decoder"), unit="percentunit", low=0, high=1),
        lines("Memory", "Used, of all.", PanelQuery(f"kilowatch_gpu_memory_used_bytes{{{G}}}", "used"), PanelQuery(f"kilowatch_gpu_memory_total_bytes{{{G}}}", "all"), unit="bytes", low=0),
        PanelRow("Health"),
        states("Recovery action", "Action that the driver requests.", PanelQuery(f"kilowatch_gpu_recovery_action{{{G}}}", WHO),
               words={value: (word, _COLOURS.get(value, RED)) for value, word in BY_NAME["gpu_recovery_action"].states}),
        states("On the bus", "Whether the GPU is there.", PanelQuery(f"kilowatch_gpu_present{{{G}}}", WHO), words={0: ("gone", RED), 1: ("there", GREEN)}),
        lines("Memory errors", "Corrected errors a second, and uncorrected ones in the last hour.",
              PanelQuery(f"rate(kilowatch_gpu_ecc_volatile_corrected_total{{{G}}}[$__rate_interval])", "corrected a second"), PanelQuery(f"increase(kilowatch_gpu_ecc_volatile_uncorrected_total{{{G}}}[1h])", "uncorrected in an hour"), low=0),
        lines("Remapped rows", "Rows of the memory that were replaced.", PanelQuery(f"kilowatch_gpu_remapped_rows_correctable{{{G}}}", "correctable"), PanelQuery(f"kilowatch_gpu_remapped_rows_uncorrectable{{{G}}}", "uncorrectable"), PanelQuery(f"kilowatch_gpu_remapped_rows_pending{{{G}}}", "pending"), PanelQuery(f"kilowatch_gpu_remapped_rows_failure{{{G}}}", "failed"), low=0),
        PanelRow("Links"),
        states("NVLink", "State of each link.", PanelQuery(f"kilowatch_link_state{{{G}}}", "link {{link}}"), words={0: ("inactive", RED), 1: ("active", GREEN), 2: ("sleep", GREY), 3: ("traffic disabled", YELLOW)}),
        lines("PCI Express", "Generation and width of the link; both fall when the GPU is idle.", PanelQuery(f"kilowatch_gpu_pcie_link_generation{{{G}}}", "generation"), PanelQuery(f"kilowatch_gpu_pcie_link_width{{{G}}}", "lanes"), low=0, decimals=0),
        lines("NVLink traffic of each link", "Bytes a second both ways together. Links to switches share evenly, so one far below the others deserves a look.",
              PanelQuery(f"kilowatch_link_transmit_bytes_per_second{{{G}}} + kilowatch_link_receive_bytes_per_second{{{G}}}", "link {{link}}"), unit="Bps", low=0, width=24),
        lines("Link errors", "Replays and recoveries a second, all links.", PanelQuery(f"sum(rate(kilowatch_link_replays_total{{{G}}}[$__rate_interval]))", "NVLink replays"), PanelQuery(f"sum(rate(kilowatch_link_recoveries_total{{{G}}}[$__rate_interval]))", "NVLink recoveries"), PanelQuery(f"sum(rate(kilowatch_gpu_pcie_replays_total{{{G}}}[$__rate_interval]))", "PCIe replays"), low=0, width=24),
    ),
)  # fmt: skip
