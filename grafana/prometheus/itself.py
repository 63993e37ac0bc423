"""kilowatch itself: does it get everything, is it quick enough, is it healthy."""

from __future__ import annotations

from grafana.dashboard import Dashboard
from grafana.panels import GREEN, RED, PanelRow, lines, number
from grafana.sources import PanelQuery

_A = "kilowatch_aggregator_"


def _p99(name: str, word: str) -> PanelQuery:
    return PanelQuery(f"histogram_quantile(0.99, sum by (le) (rate({_A}{name}_lag_seconds_bucket[5m])))", word)


DASHBOARD = Dashboard(
    uid="kilowatch-itself",
    title="kilowatch / Itself",
    text="The aggregator: frames received, processing times and losses.",
    variables=(),
    parts=(
        number("Bus", "Whether the broker is connected.", PanelQuery(f"min({_A}bus_connected)"), steps=((None, RED), (1, GREEN)), graph="none"),
        number("Store", "Whether the store works.", PanelQuery(f"min({_A}store_ok)"), steps=((None, RED), (1, GREEN)), graph="none"),
        number("Frames a second", "Received.", PanelQuery(f"sum(rate({_A}frames_received_total[$__rate_interval]))")),
        number("Frames lost", "Recorded as lost in the last day: neither the aggregator nor the node's ring has them.", PanelQuery(f"sum(increase({_A}frames_lost_total[24h]))"), steps=((None, GREEN), (1, RED)), decimals=0),
        number("Missing now", "Missing frames that are requested.", PanelQuery(f"sum({_A}holes_open)"), decimals=0),
        number("CPU", "Cores in use.", PanelQuery('sum(rate(process_cpu_seconds_total{job=~".*kilowatch.*"}[$__rate_interval]))'), decimals=2),
        PanelRow("Flow"),
        lines("Frames", "Received, stored, received twice.", *(PanelQuery(f"sum(rate({_A}frames_{name}_total[$__rate_interval]))", name) for name in ("received", "stored", "backfilled", "duplicate", "lost")), low=0),
        lines("Messages dropped", "By reason.", PanelQuery(f"sum by (reason) (rate({_A}messages_dropped_total[$__rate_interval]))", "{{reason}}"), low=0),
        lines("Lag, p99", "From sampling at the node to shown, evaluated, committed; assumes synchronised clocks.", _p99("shown", "shown"), _p99("judged", "evaluated by the rules"), _p99("committed", "committed"), unit="s", low=0),
        lines("Time for the rules", "Mean of a run.", PanelQuery(f"sum(rate({_A}rules_seconds_sum[$__rate_interval])) / sum(rate({_A}rules_seconds_count[$__rate_interval]))", "rules"), PanelQuery(f"sum(rate({_A}store_seconds_sum[$__rate_interval])) / sum(rate({_A}store_seconds_count[$__rate_interval]))", "commit"), unit="s", low=0),
        lines("Remote write", "Samples that a receiver accepted, and those that were dropped. 0 where none is configured.", PanelQuery(f"sum(rate({_A}remote_write_samples_total[$__rate_interval]))", "accepted"), PanelQuery(f"sum(rate({_A}remote_write_dropped_total[$__rate_interval]))", "dropped"), low=0),
        lines("Memory", "Of the process.", PanelQuery('sum(process_resident_memory_bytes{job=~".*kilowatch.*"})', "resident"), unit="bytes", low=0),
        lines("Size of the store", "By part.", PanelQuery(f"sum by (part) ({_A}store_bytes)", "{{part}}"), unit="bytes", low=0),
    ),
)  # fmt: skip
