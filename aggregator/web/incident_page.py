"""The page of an incident: what a pager links to. What is wrong, what to do, its evidence, and what rang
when; kept as long as the incident is in the journal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from aggregator.web.headline_part import headline_part
from aggregator.web.icons import badge
from aggregator.web.markup import clock_time, fact, facts, link, moment, prose, section, table, text
from alerts.message.evidence_text import shown_columns
from api.alerts import Alert, Incident, TimelineReply
from api.evidence import Evidence, EvidenceReply, PastFault
from api.ports import port_of
from api.power import CircuitState
from present.alert.evidence import NEARBY, NO_JOB, card_place, history_rows, job_text, nearby_what
from present.alert.incident import (
    acknowledged,
    all_firing,
    inhibited_row,
    marked_false,
    place_of,
    state_row,
    value_row,
    value_words,
)
from present.alert.timeline import timeline_entries
from present.device.reading import metric_text, plain, reading_text
from present.fleet.headline import incident_headline
from telemetry.text import counted, duration, timestamp

MOST_ALERTS = 100
JobLinks = Mapping[str, str]
"""Links to pages of jobs, HTML by id."""


def incident_body(
    incident: Incident,
    timeline: TimelineReply | None,
    evidence: EvidenceReply | None,
    now: int,
    jobs: JobLinks | None = None,
    circuit: CircuitState | None = None,
) -> str:
    """Return the page's content. `circuit`: the one that it is about, as it is now; `timeline`: None where the incident is too old for one; `jobs`: links to the
    pages of the jobs that it names, as far as there are any."""
    lead = incident.alerts[0] if incident.alerts else None
    cards = () if evidence is None else evidence.cards
    left = (
        section("What to do", _steps(cards, lead), "steps")
        + section("What it means", "" if circuit is None else _meaning(lead), "meaning")
        + section("About it", facts(_facts(incident, lead, now, jobs or {})), "about")
        + section("Commands", _commands(cards), "commands")
    )
    right = (
        _evidence(evidence, now, jobs or {})
        + section("What happened", _timeline(timeline, now), "timeline")
        + section("Its alerts", _alerts(incident, now), "alerts")
    )
    return (
        f"{headline_part(incident_headline(incident, circuit))}{_head(incident, now)}{_actions(incident)}"
        f'<div class="stack w10">{left}</div><div class="stack w14">{right}</div>'
    )


def _head(incident: Incident, now: int) -> str:
    if incident.ended is not None:
        length = duration(max(0, incident.ended - incident.onset) / 1e9)
        state = f'<span class="badge over">over</span> {moment(incident.ended, now)}, after {length}'
    else:
        words = acknowledged(incident.acknowledged, timestamp)
        mark, name = ("open", words) if incident.acknowledged is None else ("ack", "acknowledged")
        state = f'<span class="badge {mark}">{name}</span> {text(words.removeprefix(name))}'
    marked = "" if incident.false is None else f' <span class="badge">{text(marked_false(incident.false))}</span>'
    return f"<p>{badge(incident.severity, incident.severity)} {state}{marked}</p>"


def _actions(incident: Incident) -> str:
    """Return the buttons; the script shows them, since each needs a token."""
    if incident.ended is not None:
        return ""
    key, what = text(incident.key), "unacknowledge" if incident.acknowledged else "acknowledge"
    return (
        f'<p class="actions" data-incident="{key}" hidden>'
        f'<button type="button" data-act="{what}">{"Withdraw the acknowledgement" if incident.acknowledged else "Acknowledge"}</button> '
        f'<button type="button" data-act="silence" data-matchers="{text(" ".join(_matchers(incident)))}">Silence</button>'
        "</p>"
    )


def _matchers(incident: Incident) -> Iterator[str]:
    """Yield matchers that cover the lead's rule at its place."""
    if not incident.alerts:
        return
    lead = incident.alerts[0]
    yield f"rule={lead.rule}"
    yield f"node={lead.node}" if lead.node else f"name={lead.name}"


def subject_link(alert: Alert) -> str:
    """Return the place of an alert with a link to its page."""
    if alert.gpu:
        return link(place_of(alert), "gpus", alert.gpu)
    if alert.node:
        port = port_of(alert)
        if port:
            return link(place_of(alert), "ports", port)
        return link(place_of(alert), "nodes", alert.node)
    if alert.subject.value == "circuit":
        return link(place_of(alert), "circuits", alert.name)
    return text(place_of(alert))


def jobs_named(incident: Incident, evidence: EvidenceReply | None) -> set[str]:
    """Return the ids of the jobs that an incident and its evidence name."""
    cards = () if evidence is None else evidence.cards
    texts = [alert.labels.get("job", "") for alert in incident.alerts[:MOST_ALERTS]]
    for card in cards:
        texts += [card.job, *(one.job for one in card.nearby)]
    return {word for words in texts for word in words.split(",")} - {""}


def _jobs(names: str, jobs: JobLinks) -> str:
    """Return jobs with links; `names`: their ids, joined by commas."""
    return ", ".join(jobs.get(name) or text(name) for name in names.split(",") if name)


def _facts(incident: Incident, lead: Alert | None, now: int, jobs: JobLinks) -> Iterator[tuple[str, str]]:
    yield "began", moment(incident.onset, now)
    yield "alerts", text(all_firing(incident.firing, incident.total))
    if lead is not None:
        yield "where", subject_link(lead)
        yield "value", text(value_words(lead))
        yield "rule", link(lead.rule, "runbook", lead.rule)
        yield "owner", text(lead.owner)
        yield "remedy", "" if lead.remediation is None else text(lead.remediation.text)
        circuits = filter(None, lead.labels.get("circuits", "").split(","))
        yield "circuits", ", ".join(link(name, "circuits", name) for name in circuits)
        yield "rack", text(lead.labels.get("rack", ""))
        yield "job", _jobs(lead.labels.get("job", ""), jobs)
        for name in ("user", "account", "process", "model", "serial", "pci", "slot"):
            yield name, text(lead.labels.get(name, ""))
    inhibited = inhibited_row(incident)
    yield inhibited.label, fact(inhibited) if inhibited.value else ""
    yield "key", f"<code>{text(incident.key)}</code>"


def _meaning(lead: Alert | None) -> str:
    return "" if lead is None or not lead.description else f"<p>{prose(lead.description)}</p>"


def _steps(cards: Sequence[Evidence], lead: Alert | None) -> str:
    remedy = cards[0].remedy if cards else None
    runbook = "" if lead is None else f"<p>The whole runbook: {link(lead.rule, 'runbook', lead.rule)}.</p>"
    if remedy is None or not remedy.steps:
        return runbook
    steps = "".join(f"<li>{prose(step)}</li>" for step in remedy.steps)
    until = f"<p>Act: {text(remedy.until)}.</p>" if remedy.until else ""
    replace = f"<p>When to replace it: {prose(remedy.replace)}</p>" if remedy.replace else ""
    return f"{until}<ol>{steps}</ol>{replace}{runbook}"


def _evidence(evidence: EvidenceReply | None, now: int, jobs: JobLinks) -> str:
    if evidence is None:
        return ""
    if not evidence.cards:
        problem = evidence.problem or "none was collected"
        return section("Evidence", f"<p>{text(problem)}</p>", "evidence")
    found = "".join(_card(number, card, now, jobs) for number, card in enumerate(evidence.cards))
    return section("Evidence", found, "evidence")


def _card(number: int, card: Evidence, now: int, jobs: JobLinks) -> str:
    def clock(at: int) -> str:
        return clock_time(at, card.collected)

    lines = "".join(f"<li>{clock(one.at)} <code>{text(one.line)}</code></li>" for one in card.lines)
    nearby = "".join(
        f"<li>{clock(one.at)} {text(nearby_what(one))} {text(one.text or one.line)}{f' (job {_jobs(one.job, jobs)})' if one.job else ''}</li>"
        for one in card.nearby
    )
    more = card.nearby_total - len(card.nearby)
    missing = "".join(f"<li>{text(part)}: {text(why)}</li>" for part, why in card.missing.items())
    return (
        f'<article class="card" aria-labelledby="card-{number}"><h3 id="card-{number}">{text(card_place(card))}: {text(card.summary)}</h3>'
        f"<p>as it was when it was notified: collected {moment(card.collected, now)}, "
        f"{duration(max(0, card.collected - card.moment) / 1e9)} after it began</p>"
        f"{_hit(card, jobs)}"
        f"{_part('Log', f'<ol class=log>{lines}</ol>' if lines else '')}"
        f"{_part('Readings around the moment', readings(card))}"
        f"{_part(NEARBY.capitalize(), f'<ul>{nearby}</ul>' if nearby else '')}"
        f"{f'<p>and {more} more</p>' if more > 0 else ''}"
        f"{_past(card)}"
        f"{_part('Missing', f'<ul>{missing}</ul>' if missing else '')}</article>"
    )


def _hit(card: Evidence, jobs: JobLinks) -> str:
    """Return the jobs that the evidence has, and whose they are."""
    if card.jobs_total is None:
        named = f"<p>Job {_jobs(card.job, jobs)}{f' of {text(card.user)}' if card.user else ''}.</p>"
        return named if card.job else ""
    links = _jobs(",".join(one.job for one in card.jobs), jobs)
    more = card.jobs_total - len(card.jobs)
    held = [*(text(job_text(one)) for one in card.jobs), *([f"and {more:,} more"] if more > 0 else [])]
    shown = "; ".join(held) or NO_JOB
    return f"<p>Jobs at the moment: {shown}{f' ({links})' if links else ''}.</p>"


def _part(title: str, body: str) -> str:
    return f"<h4>{title}</h4>{body}" if body else ""


def readings(card: Evidence) -> str:
    """Return a chart a metric that changed, and the readings at the moment for the others."""
    found, at = card.readings, card.readings.at
    if not at:
        return ""
    charts, rows = [], []
    for name in shown_columns(found):
        values = found.columns[name]
        present = [value for value in values if value is not None]
        last = plain(found.gaps.get(name, "")) if values[-1] is None else reading_text(name, values[-1])
        if len(present) >= 2 and min(present) < max(present):
            low, high = reading_text(name, min(present)), reading_text(name, max(present))
            words = f"{metric_text(name)}: {low} to {high}, last {last or 'none'}"
            charts.append(f"<figure>{spark(at, values, card.moment)}<figcaption>{text(words)}</figcaption></figure>")
        else:
            rows.append((text(metric_text(name)), text(last or "none")))
    table_ = table("Readings that did not change", ("metric", "last"), rows, (1,))
    first, last_at, began = (clock_time(when, card.collected) for when in (at[0], at[-1], card.moment))
    axis = f"<p class=dim>{first} to {last_at}; the line is {began}, when it began</p>"
    return f'<div class="sparks">{"".join(charts)}</div>{axis if charts else ""}{table_}'


_WIDTH, _HEIGHT = 300.0, 60.0


def spark(at: Sequence[int], values: Sequence[float | None], at_moment: int) -> str:
    """Return a small chart that needs no script: a gap is empty, the moment is a line."""
    present = [value for value in values if value is not None]
    low, high = min(present), max(present)
    length, span = max(1, at[-1] - at[0]), high - low or 1.0

    def across(when: int) -> float:
        return _WIDTH * min(1.0, max(0.0, (when - at[0]) / length))

    way, drawing = [], False
    for when, value in zip(at, values, strict=True):
        if value is None:
            drawing = False
            continue
        height = 4 + (_HEIGHT - 8) * (1 - (value - low) / span)
        way.append(f"{'L' if drawing else 'M'}{across(when):.1f} {height:.1f}")
        drawing = True
    line = f'<line class="moment" x1="{across(at_moment):.1f}" x2="{across(at_moment):.1f}" y1="0" y2="{_HEIGHT:.0f}"/>'
    return (
        f'<svg class="spark" viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}" preserveAspectRatio="none" aria-hidden="true">'
        f'{line}<path d="{" ".join(way)}"/></svg>'
    )


def _past(card: Evidence) -> str:
    parts = []
    for row, known in history_rows(card):
        head = text(f"{row.label.capitalize()}: {row.value}")
        parts.append(_part(head, f"<ul>{''.join(map(_fault, known))}</ul>" if known else "<p>none</p>"))
    return "".join(parts)


def _fault(fault: PastFault) -> str:
    words = link(f"{fault.rule} ({fault.severity})", "incidents", fault.incident)
    return f"<li>{moment(fault.at)} {words} on {link(fault.node, 'nodes', fault.node)} {text(fault.place)}, board {text(fault.serial)}</li>"


def _timeline(timeline: TimelineReply | None, now: int) -> str:
    if timeline is None:
        return "<p>Its timeline is kept for an hour after its end.</p>"
    entries = timeline_entries(timeline)
    shown = "".join(f"<li>{moment(at, now)} {text(words)}</li>" for at, words in entries)
    return f'<ol class="timeline">{shown}</ol>'


def _alerts(incident: Incident, now: int) -> str:
    rows = [
        (
            subject_link(alert),
            text(alert.summary),
            text(state_row(alert).whole),
            moment(alert.since, now),
            text(value_row(alert).value),
        )
        for alert in incident.alerts[:MOST_ALERTS]
    ]
    heads = ("where", "what", "state", "since", "value")
    return table(counted(incident.total, "alert"), heads, rows, (4,))


def _commands(cards: Sequence[Evidence]) -> str:
    if not cards:
        return ""
    rows = "".join(f"<dt>{text(one.name)}</dt><dd><code>{text(one.command)}</code></dd>" for one in cards[0].commands)
    return f'<dl class="facts">{rows}</dl>' if rows else ""
