"""Tables of a device's page: its readings, and its alerts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aggregator.http.alerts import row_of
from aggregator.web.markup import link, moment, table, text
from alerts.incidents.manager import IncidentManager
from api.alerts import Alert, AlertState
from present.device.reading import metric_text, plain, reading_text
from telemetry.catalogue import BY_NAME
from telemetry.text import ABSENT, counted


def reading_cell(readings: Mapping[str, float], gaps: Mapping[str, str], name: str) -> str:
    """Return a reading, or the reason of its gap."""
    if name in readings:
        return text(reading_text(name, readings[name]))
    return f'<span class="dim">{text(plain(gaps.get(name, ""))) or ABSENT}</span>'


def readings_table(readings: Mapping[str, float], gaps: Mapping[str, str]) -> str:
    """Return all readings of a device; a gap with its reason, but for what the device lacks."""
    shown = [name for name in (*readings, *gaps) if gaps.get(name) not in {"not_supported", "not_read"}]
    order = {name: place for place, name in enumerate(BY_NAME)}
    shown.sort(key=lambda name: order.get(name, len(order)))
    rows = [(text(metric_text(name)), reading_cell(readings, gaps, name)) for name in shown]
    return table(counted(len(rows), "reading"), ("metric", "now"), rows, (1,))


def alert_table(manager: IncidentManager, alerts: Sequence[Alert], now: int) -> str:
    """Return the alerts of a device that fire or are pending, with links to their incidents."""

    def summary(one: Alert) -> str:
        key = row_of(manager, one).incident
        return text(one.summary) if key is None else link(one.summary or one.rule, "incidents", key)

    rows = [
        (f'<span class="badge {text(one.severity)}">{text(one.severity)}</span>',
         summary(one),
         text(one.state), moment(one.since, now))
        for one in alerts
        if one.state is not AlertState.RESOLVED
    ]  # fmt: skip
    return table(counted(len(rows), "alert"), ("severity", "what", "state", "since"), rows)
