"""Alerts and their delivery."""

from __future__ import annotations

from grafana.board import CLUSTER, Board
from grafana.panels import GREEN, ORANGE, RED, YELLOW, Row, cell, lines, number, states, table
from grafana.sources import Query

C = 'cluster=~"$cluster"'
_CHANNEL = "{{channel}}"
_SEEN = "kilowatch_heartbeat_last_timestamp_seconds"

BOARD = Board(
    uid="kilowatch-alerts",
    title="kilowatch / Alerts",
    text="What fires, and whether people are told. Details, acknowledgement and silences: `kilowatch alerts`.",
    variables=(CLUSTER,),
    parts=(
        number("Pages", "Alerts that fire and wake somebody.", Query(f'sum(kilowatch_cluster_alerts{{{C},state="firing",severity="page"}})'), steps=((None, GREEN), (1, RED)), decimals=0),
        number("Tickets", "Alerts that fire and wait for working hours.", Query(f'sum(kilowatch_cluster_alerts{{{C},state="firing",severity="ticket"}})'), decimals=0),
        number("Pending", "Bad, but not yet for long enough.", Query(f'sum(kilowatch_cluster_alerts{{{C},state="pending"}})'), decimals=0),
        number("Nobody has taken", "Incidents of pages that nobody has acknowledged.", Query(f'sum(kilowatch_incidents_open{{{C},severity="page",acknowledged="false"}})'), steps=((None, GREEN), (1, RED)), decimals=0),
        number("Not yet delivered", "Messages that wait for a channel.", Query("sum(kilowatch_deliveries_waiting) or vector(0)"), steps=((None, GREEN), (1, ORANGE)), decimals=0),
        number("Silences", "In force, maintenance too.", Query(f"sum(kilowatch_silences_active{{{C}}})"), decimals=0),
        Row("What fires"),
        table("By rule", "Rules that fire or are pending, with how many devices.", Query(f"sum by (rule, severity, state) (kilowatch_alerts{{{C}}})", table=True), names={"Value": "devices"}, sort="devices", overrides=(cell("devices", "none"),), height=9),
        lines("Alerts that fire", "By rule.", Query(f'sum by (rule) (kilowatch_alerts{{{C},state="firing"}})', "{{rule}}"), low=0, decimals=0, height=9),
        lines("By severity", "All that fire, those too of which nobody is told.", Query(f'sum by (severity) (kilowatch_cluster_alerts{{{C},state="firing"}})', "{{severity}}"), low=0, decimals=0),
        lines("Who hears of them", "Told, a consequence of another alert, silenced and so on.", Query(f"sum by (standing) (kilowatch_alerts_standing{{{C}}})", "{{standing}}"), low=0, decimals=0),
        lines("Incidents open", "One for each cause, taken by somebody or not.", Query(f"sum by (severity, acknowledged) (kilowatch_incidents_open{{{C}}})", "{{severity}}, acknowledged {{acknowledged}}"), low=0, decimals=0),
        lines("What happened", "Events of the driver's log in the last five minutes, by what is broken.", Query(f"count by (fault) (time() - kilowatch_event_timestamp_seconds{{{C},kind=~'xid|sxid'}} < 300)", "{{fault}}"), low=0, decimals=0),
        Row("Whether people are told"),
        states("Channels", "Whether anything gets through.", Query("kilowatch_channel_failing", _CHANNEL), words={0: ("works", GREEN), 1: ("failing", RED)}),
        lines("Deliveries", "By channel and what became of them; a failed try is made again.", Query("sum by (channel, outcome) (rate(kilowatch_deliveries_total[$__rate_interval]))", "{{channel}} {{outcome}}"), low=0),
        lines("Last delivery", "Time since a channel last took a message.", Query("time() - kilowatch_deliveries_last_timestamp_seconds", _CHANNEL), unit="s", low=0),
        number("Journal", "Whether all that was decided is on disk.", Query("min(kilowatch_aggregator_journal_ok)"), steps=((None, RED), (1, GREEN)), graph="none"),
        number("Dead-man switch", "Time since it last heard us. Empty where none is set up.", Query(f"time() - max({_SEEN})"), unit="s", steps=((None, GREEN), (120, YELLOW), (300, RED)), graph="none"),
        number("Time to write the journal", "Mean of a commit.", Query("sum(rate(kilowatch_aggregator_journal_commit_seconds_sum[5m])) / sum(rate(kilowatch_aggregator_journal_commit_seconds_count[5m]))"), unit="s"),
    ),
)  # fmt: skip
