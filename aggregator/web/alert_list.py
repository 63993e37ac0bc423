"""The page of alerts: open incidents worst first, past ones, single alerts, and silences; every filter is
in the URL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aggregator.web.icons import badge
from aggregator.web.incident_page import subject_link
from aggregator.web.markup import facts, link, moment, path, section, table, text
from api.alerts import AlertRow, Incident, Severity, Silence
from present.alert.incident import all_firing, matchers_words, notified_row, silence_kind, silence_row, value_row
from present.fleet.headline import WELL
from telemetry.text import ABSENT, counted, duration

VIEWS = {"open": "Open", "past": "Past 30 days", "alerts": "Single alerts", "silences": "Silences"}
"""Views of the page, the first when none is named."""
FILTERS = ("severity", "node", "rule")


def alerts_page(asked: Mapping[str, str], counts: Mapping[str, int], body: str) -> str:
    """Return the content: views with their counts, the filter, and what was found."""
    view = asked.get("view", "open")
    keep: dict[str, str | None] = {name: asked.get(name) for name in FILTERS}
    tabs = "".join(
        f'<li><a href="{path("alerts", view=None if name == "open" else name, **keep)}"'
        f"{' aria-current=page' if name == view else ''}>{words}{_count(counts.get(name))}</a></li>"
        for name, words in VIEWS.items()
    )
    return f'<nav aria-label="Alerts"><ul class="tabs">{tabs}</ul></nav>{_filter(asked, view)}{body}'


def _count(number: int | None) -> str:
    return "" if number is None else f' <span class="count">{number:,}</span>'


def _filter(asked: Mapping[str, str], view: str) -> str:
    if view == "silences":
        return ""
    choices = "".join(
        f'<option value="{one.value}"{" selected" if asked.get("severity") == one.value else ""}>{one.value}</option>'
        for one in (Severity.PAGE, Severity.TICKET, Severity.INFO)
    )
    hidden = "" if view == "open" else f'<input type="hidden" name="view" value="{text(view)}">'
    fields = "".join(
        f'<label>{name} <input name="{name}" value="{text(asked.get(name, ""))}"></label> ' for name in ("node", "rule")
    )
    return (
        f'<form class="filter" role="search" aria-label="Filter" method="get">{hidden}<label>severity '
        f'<select name="severity"><option value="">all</option>{choices}</select></label> {fields}'
        f'<button>Filter</button> <a href="{path("alerts", view=None if view == "open" else view)}">all</a></form>'
    )


def incidents_body(incidents: Sequence[Incident], now: int, *, past: bool, filtered: bool = False) -> str:
    """Return a table of incidents. `filtered`: whether only some were asked for."""
    heads = ("severity", "incident", "since", "lasts", "alerts", "taken by")
    rows = [_incident(one, now) for one in incidents]
    caption = counted(len(rows), "incident")
    if not rows:
        none = "None of these in the last 30 days." if past else "None of these is open."
        every = "None in the last 30 days." if past else WELL
        return f"<p>{none if filtered else every}</p>"
    return table(caption, heads, rows, (4,), "incidents")


def _incident(one: Incident, now: int) -> tuple[str, ...]:
    taken = one.acknowledged
    length = duration(max(0, (one.ended or now) - one.onset) / 1e9)
    state = ' <span class="badge over">over</span>' if one.ended is not None else ""
    false = ' <span class="badge">false</span>' if one.false is not None else ""
    return (
        f"{badge(one.severity, one.severity)}{state}{false}",
        link(one.title or one.key, "incidents", one.key),
        moment(one.onset, now),
        length,
        f"{one.firing:,} of {one.total:,}",
        "not acknowledged" if taken is None else f"{text(taken.who)}",
    )


def incidents_part(incidents: Sequence[Incident], now: int) -> str:
    """Return the worst of the open incidents as a short list."""
    if not incidents:
        return '<p class="no-incident">No incident is open.</p>'
    rows = "".join(
        f"<li>{badge(one.severity, one.severity)}{link(one.title or one.key, 'incidents', one.key)}"
        f'<span class="ago">{duration(max(0, now - one.onset) / 1e9)}</span>'
        f'<span class="m">{text(_taken(one))}</span></li>'
        for one in incidents
    )
    return f'<ul class="incidents">{rows}</ul>'


def _taken(one: Incident) -> str:
    fire = all_firing(one.firing, one.total)
    return f"{fire}; {'not acknowledged' if one.acknowledged is None else f'acknowledged by {one.acknowledged.who}'}"


def alert_rows_body(alerts: Sequence[AlertRow], now: int) -> str:
    """Return a table of single alerts with who is notified of each."""
    if not alerts:
        return "<p>No alert fires.</p>"
    rows = [
        (
            f"{badge(one.severity, one.severity)} {text(one.state)}",
            text(one.summary or one.rule)
            if one.incident is None
            else link(one.summary or one.rule, "incidents", one.incident),
            subject_link(one),
            link(one.rule, "runbook", one.rule),
            text(value_row(one).value) or ABSENT,
            moment(one.since, now),
            text(notified_row(one).whole),
        )
        for one in alerts
    ]
    heads = ("state", "alert", "where", "rule", "value", "since", "notified")
    return table(counted(len(rows), "alert"), heads, rows, (4,))


def silences_body(silences: Sequence[Silence], now: int) -> str:
    """Return silences and maintenance windows, with a button that ends each."""
    found = "".join(_silence(one, now) for one in sorted(silences, key=lambda one: one.ends < now))
    new = '<p class="actions" hidden><button type="button" data-act="silence" data-matchers="">New silence</button></p>'
    none = "<p>Nothing is silenced.</p>"
    return new + (section("Silences and maintenance", found, "silences") or none)


def _silence(one: Silence, now: int) -> str:
    end = (
        ""
        if one.ends <= now
        else (
            f'<p class="actions" hidden><button type="button" data-act="unsilence" data-silence="{text(one.id)}">End it</button></p>'
        )
    )
    shown = facts(
        (
            ("kind", silence_kind(one)),
            ("from", moment(one.starts)),
            ("until", moment(one.ends)),
            ("by", text(one.who)),
            ("why", text(one.why)),
        )
    )
    return f'<article class="card"><h3><span class="badge">{silence_row(one, now).short}</span> <code>{text(matchers_words(one))}</code></h3>{shown}{end}</article>'
