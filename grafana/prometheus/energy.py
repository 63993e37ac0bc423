"""Energy and its cost."""

from __future__ import annotations

from grafana.dashboard import CLUSTER, Dashboard, Entry
from grafana.panels import PanelRow, bars, lines, number
from grafana.sources import PanelQuery

C = 'cluster=~"$cluster"'
_KWH = "/ 3.6e6"

_WALL = f"kilowatch_circuit_energy_joules_total{{{C}}}"
_TOP = f'unless on (cluster, circuit) kilowatch_circuit_info{{{C},parent!=""}}'
"""Leaves out circuits behind another circuit, which would count twice."""

DASHBOARD = Dashboard(
    uid="kilowatch-energy",
    title="kilowatch / Energy and cost",
    text="Energy of GPUs and circuits from their own counters, which miss nothing between two scrapes, and its cost at the price above.",
    variables=(CLUSTER,),
    entries=(Entry("price", "Price of a kWh", "0.15"),),
    since="now-24h",
    refresh="1m",
    parts=(
        number("GPUs, last 24 h", "From the GPUs' energy counters.", PanelQuery(f"sum(increase(kilowatch_gpu_energy_joules_total{{{C}}}[24h])) {_KWH}"), unit="kwatth"),
        number("Circuits, last 24 h", "At the wall, of circuits behind no other.", PanelQuery(f"sum(increase({_WALL}[24h]) {_TOP}) {_KWH}"), unit="kwatth"),
        number("Cost, last 24 h", "Of that, at the price above.", PanelQuery(f"sum(increase({_WALL}[24h]) {_TOP}) {_KWH} * $price"), decimals=2),
        number("Cost of a month", "At the mean power of the last hour and the price above.", PanelQuery(f"sum(rate({_WALL}[1h]) {_TOP}) * 730 * 3600 {_KWH} * $price"), decimals=0),
        number("Mean power", "Of all GPUs over the time shown.", PanelQuery(f"sum(rate(kilowatch_gpu_energy_joules_total{{{C}}}[$__rate_interval]))"), unit="watt"),
        number("Idle GPUs", "GPUs whose memory is used and that compute nothing.", PanelQuery(f"count(kilowatch_gpu_utilization_ratio{{{C}}} < 0.05 and kilowatch_gpu_memory_used_bytes{{{C}}} > 1e9) or vector(0)"), decimals=0),
        PanelRow("Where it goes"),
        lines("Power by node", "From energy counters; the GPUs alone.", PanelQuery(f"sum by (node) (rate(kilowatch_gpu_energy_joules_total{{{C}}}[$__rate_interval]))", "{{node}}"), unit="watt", low=0),
        bars("Energy by node, last 24 h", "The GPUs alone.", PanelQuery(f"topk(20, sum by (node) (increase(kilowatch_gpu_energy_joules_total{{{C}}}[24h])) {_KWH})", "{{node}}"), unit="kwatth"),
        lines("At the wall and in the GPUs", "Power of nodes at the wall by their best source, and the part of their GPUs.", PanelQuery(f"sum(kilowatch_supply_wall_watts{{{C}}})", "at the wall"), PanelQuery(f"sum(kilowatch_gpu_power_watts{{{C}}})", "GPUs"), unit="watt", low=0),
        lines("Power of idle GPUs", "Power of GPUs whose utilisation is below 5 %.", PanelQuery(f"sum(kilowatch_gpu_power_watts{{{C}}} and on (node, gpu) kilowatch_gpu_utilization_ratio{{{C}}} < 0.05) or vector(0)", "idle"), PanelQuery(f"sum(kilowatch_gpu_power_watts{{{C}}})", "all"), unit="watt", low=0),
        lines("Cap", "Sum of the limits in force over the sum of the highest that could be set.", PanelQuery(f"sum(kilowatch_gpu_power_limit_watts{{{C}}}) / sum(kilowatch_gpu_power_limit_max_watts{{{C}}})", "cap"), unit="percentunit", low=0, high=1, legend=False),
        lines("Budgets of the month", "Energy projected for the end of the month over the budget; known after an hour.", PanelQuery(f"kilowatch_budget_energy_ratio{{{C}}}", "{{budget}}"), unit="percentunit", low=0),
        lines("Demand of the bill", "What the running interval will have been if the power stays, and the month's highest.", PanelQuery(f'kilowatch_budget_demand_watts{{{C},budget="bill"}}', "running"), PanelQuery(f'kilowatch_budget_peak_watts{{{C},budget="bill"}}', "highest"), unit="watt", low=0),
    ),
)  # fmt: skip
