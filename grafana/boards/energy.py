"""Energy and what it costs."""

from __future__ import annotations

from grafana.board import CLUSTER, Board
from grafana.panels import Query, Row, bars, lines, number

C = 'cluster=~"$cluster"'
_KWH = "/ 3.6e6"

BOARD = Board(
    uid="kilowatch-energy",
    title="kilowatch / Energy",
    text="Energy of GPUs and circuits from their own counters, which miss nothing between two scrapes.",
    variables=(CLUSTER,),
    since="now-24h",
    refresh="1m",
    parts=(
        number("GPUs, last 24 h", "From the GPUs' energy counters.", Query(f"sum(increase(kilowatch_gpu_energy_joules_total{{{C}}}[24h])) {_KWH}"), unit="kwatth", width=6),
        number("Circuits, last 24 h", "At the wall, of circuits that hang on no other.", Query(f'sum(increase(kilowatch_circuit_energy_joules_total{{{C},parent=""}}[24h])) {_KWH}'), unit="kwatth", width=6),
        number("Mean power", "Of all GPUs over the time shown.", Query(f"sum(rate(kilowatch_gpu_energy_joules_total{{{C}}}[$__rate_interval]))"), unit="watt", width=6),
        number("Idle GPUs", "GPUs that hold memory and do nothing.", Query(f"count(kilowatch_gpu_utilization_ratio{{{C}}} < 0.05 and kilowatch_gpu_memory_used_bytes{{{C}}} > 1e9) or vector(0)"), decimals=0, width=6),
        Row("Where it goes"),
        lines("Power by node", "From energy counters; the GPUs alone.", Query(f"sum by (node) (rate(kilowatch_gpu_energy_joules_total{{{C}}}[$__rate_interval]))", "{{node}}"), unit="watt", low=0),
        bars("Energy by node, last 24 h", "The GPUs alone.", Query(f"topk(20, sum by (node) (increase(kilowatch_gpu_energy_joules_total{{{C}}}[24h])) {_KWH})", "{{node}}"), unit="kwatth"),
        lines("Power of idle GPUs", "What GPUs draw whose utilisation is below 5 %.", Query(f"sum(kilowatch_gpu_power_watts{{{C}}} and on (node, gpu) kilowatch_gpu_utilization_ratio{{{C}}} < 0.05) or vector(0)", "idle"), Query(f"sum(kilowatch_gpu_power_watts{{{C}}})", "all"), unit="watt", low=0),
        lines("Cap", "Sum of the limits in force over the sum of the highest that could be set.", Query(f"sum(kilowatch_gpu_power_limit_watts{{{C}}}) / sum(kilowatch_gpu_power_limit_max_watts{{{C}}})", "cap"), unit="percentunit", low=0, high=1, legend=False),
    ),
)  # fmt: skip
