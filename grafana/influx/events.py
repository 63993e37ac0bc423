"""Events and holes in the record, over InfluxDB."""

from __future__ import annotations

from grafana.dashboard import Dashboard
from grafana.influx.queries import CLUSTER, NODE, chosen
from grafana.panels import PanelRow, lines, table
from grafana.sources import INFLUXDB, PanelQuery

N = chosen("cluster", "node")
_EVENTS = '"events"."events"'

DASHBOARD = Dashboard(
    uid="kilowatch-influx-events",
    title="kilowatch / Events (InfluxDB)",
    text="Events of the nodes: XIDs, starts, lost and returned devices.",
    variables=(CLUSTER, NODE),
    source=INFLUXDB,
    parts=(
        lines("Events", "How many, by kind.", PanelQuery(f'SELECT sum("count") FROM {_EVENTS} WHERE $timeFilter{N} GROUP BY time($__interval), "kind" fill(none)', "{{kind}}"), low=0, decimals=0, width=24),  # noqa: S608
        PanelRow("One by one"),
        table("XIDs", "Errors that the driver wrote into the kernel's log.", PanelQuery(f"SELECT \"text\", \"node\", \"gpu\", \"code\" FROM {_EVENTS} WHERE $timeFilter{N} AND \"kind\" = 'xid' ORDER BY time DESC LIMIT 200", table=True), width=24, height=9),  # noqa: S608
        table("All", "The newest 200.", PanelQuery(f'SELECT "kind", "node", "gpu", "text" FROM {_EVENTS} WHERE $timeFilter{N} ORDER BY time DESC LIMIT 200', table=True), width=24, height=9),  # noqa: S608
    ),
)  # fmt: skip
