"""Alerts and their delivery."""

from __future__ import annotations

from grafana.dashboard import CLUSTER, Dashboard
from grafana.panels import GREEN, ORANGE, RED, YELLOW, PanelRow, cell, lines, number, states, table
from grafana.sources import PanelQuery

C = 'cluster=~"$cluster"'
_CHANNEL = "{{channel}}"
_SEEN = "kilowatch_heartbeat_last_timestamp_seconds"

DASHBOARD = Dashboard(
    uid="kilowatch-alerts",
    title="kilowatch / Alerts",
    text="Firing alerts, and whether notifications are delivered. Details, acknowledgement and silences: `kilowatch alerts`.",
    variables=(CLUSTER,),
    parts=(
        number("Pages", "Firing alerts that page a person.", PanelQuery(f'sum(kilowatch_cluster_alerts{{{C},state="firing",severity="page"}})'), steps=((None, GREEN), (1, RED)), decimals=0),
        number("Tickets", "Alerts that fire and wait for working hours.", PanelQuery(f'sum(kilowatch_cluster_alerts{{{C},state="firing",severity="ticket"}})'), decimals=0),
        number("Pending", "Bad, but not yet for long enough.", PanelQuery(f'sum(kilowatch_cluster_alerts{{{C},state="pending"}})'), decimals=0),
        number("Unacknowledged", "Incidents of pages that are not acknowledged.", PanelQuery(f'sum(kilowatch_incidents_open{{{C},severity="page",acknowledged="false"}})'), steps=((None, GREEN), (1, RED)), decimals=0),
        number("Not yet delivered", "Messages that wait for a channel.", PanelQuery("sum(kilowatch_deliveries_waiting) or vector(0)"), steps=((None, GREEN), (1, ORANGE)), decimals=0),
        number("Silences", "In force, maintenance too.", PanelQuery(f"sum(kilowatch_silences_active{{{C}}})"), decimals=0),
        PanelRow("Firing"),
        table("By rule", "Rules that fire or are pending, with how many devices.", PanelQuery(f"sum by (rule, severity, state) (kilowatch_alerts{{{C}}})", table=True), names={"Value": "devices"}, sort="devices", overrides=(cell("devices", "none"),), height=9),
        lines("Alerts that fire", "By rule.", PanelQuery(f'sum by (rule) (kilowatch_alerts{{{C},state="firing"}})', "{{rule}}"), low=0, decimals=0, height=9),
        lines("By severity", "All firing alerts, also those that are not notified.", PanelQuery(f'sum by (severity) (kilowatch_cluster_alerts{{{C},state="firing"}})', "{{severity}}"), low=0, decimals=0),
        lines("Notification status", "Notified, inhibited by another alert, silenced and so on.", PanelQuery(f"sum by (standing) (kilowatch_alerts_standing{{{C}}})", "{{standing}}"), low=0, decimals=0),
        lines("Incidents open", "One for each cause, acknowledged or not.", PanelQuery(f"sum by (severity, acknowledged) (kilowatch_incidents_open{{{C}}})", "{{severity}}, acknowledged {{acknowledged}}"), low=0, decimals=0),
        lines("Driver events", "Events of the driver's log in the last five minutes, by fault.", PanelQuery(f"count by (fault) (time() - kilowatch_event_timestamp_seconds{{{C},kind=~'xid|sxid'}} < 300)", "{{fault}}"), low=0, decimals=0),
        PanelRow("Quality"),
        table("Pages and tickets by rule", "New notifications of the last day, without reminders. A rule that is absent sent none.", PanelQuery(f"sum by (rule, severity) (increase(kilowatch_alerts_sent_total{{{C}}}[24h])) > 0", table=True), names={"Value": "sent"}, sort="sent", overrides=(cell("sent", "none"),), height=9),
        table("What came of them", "Acknowledged, resolved by themselves within five minutes, silenced, flapping, marked as false, within the last day. Median times and precision: `kilowatch alerts quality`.", PanelQuery(f"sum by (rule, outcome) (increase(kilowatch_alerts_outcomes_total{{{C}}}[24h])) > 0", table=True), names={"Value": "count"}, sort="count", overrides=(cell("count", "none"),), height=9),
        lines("Outcomes", "Of all rules, an hour.", PanelQuery(f"sum by (outcome) (increase(kilowatch_alerts_outcomes_total{{{C}}}[1h]))", "{{outcome}}"), low=0, decimals=0),
        PanelRow("Delivery"),
        states("Channels", "Whether messages are delivered.", PanelQuery("kilowatch_channel_failing", _CHANNEL), words={0: ("works", GREEN), 1: ("failing", RED)}),
        lines("Deliveries", "By channel and outcome; a failed try is repeated.", PanelQuery("sum by (channel, outcome) (rate(kilowatch_deliveries_total[$__rate_interval]))", "{{channel}} {{outcome}}"), low=0),
        lines("Last delivery", "Time since a channel last delivered a message.", PanelQuery("time() - kilowatch_deliveries_last_timestamp_seconds", _CHANNEL), unit="s", low=0),
        number("Journal", "Whether all changes are on disk.", PanelQuery("min(kilowatch_aggregator_journal_ok)"), steps=((None, RED), (1, GREEN)), graph="none"),
        number("Dead-man switch", "Time since it last received a heartbeat. Empty where none is configured.", PanelQuery(f"time() - max({_SEEN})"), unit="s", steps=((None, GREEN), (120, YELLOW), (300, RED)), graph="none"),
        number("Time to write the journal", "Mean of a commit.", PanelQuery("sum(rate(kilowatch_aggregator_journal_commit_seconds_sum[5m])) / sum(rate(kilowatch_aggregator_journal_commit_seconds_count[5m]))"), unit="s"),
    ),
)  # fmt: skip
