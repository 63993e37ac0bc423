"""Alerts and their delivery."""

from __future__ import annotations

from grafana.board import CLUSTER, Board
from grafana.panels import GREEN, RED, Query, lines, number

C = 'cluster=~"$cluster"'

BOARD = Board(
    uid="kilowatch-alerts",
    title="kilowatch / Alerts",
    text="What fires, and whether people are told. Details, acknowledgement and silences: `kilowatch alerts`.",
    variables=(CLUSTER,),
    parts=(
        number("Pages", "Alerts that fire and wake somebody.", Query(f'sum(kilowatch_cluster_alerts{{{C},state="firing",severity="page"}})'), steps=((None, GREEN), (1, RED)), decimals=0),
        number("Tickets", "Alerts that fire and wait for working hours.", Query(f'sum(kilowatch_cluster_alerts{{{C},state="firing",severity="ticket"}})'), decimals=0),
        number("Pending", "Bad, but not yet for long enough.", Query(f'sum(kilowatch_cluster_alerts{{{C},state="pending"}})'), decimals=0),
        lines("Alerts that fire", "By severity.", Query(f'sum by (severity) (kilowatch_cluster_alerts{{{C},state="firing"}})', "{{severity}}"), low=0, decimals=0),
    ),
)  # fmt: skip
