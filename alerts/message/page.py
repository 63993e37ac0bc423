"""The content of a page: subject, place and onset, what to do, what it means, jobs hit, evidence, and commands.

The person who is woken reads this first, and perhaps nothing else. Unknown facts are left out, and
text from the bus is cleaned, so that it cannot do harm at a receiver.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar
from urllib.parse import quote

from alerts.message.commands import acknowledge_of, gpu_condition, recover_of, silence_of
from alerts.message.evidence_text import facts_of
from alerts.message.picture_link import PictureSigner
from alerts.message.text import clean
from alerts.notice import Notice
from api.alerts import Action, Alert, AlertState, Incident, Subject
from api.evidence import EvidenceReply
from present.alert.incident import acknowledged, all_firing, inhibited_row, place_of, value_row
from present.alert.timeline import reason_words
from present.device.gpu import slot_text
from telemetry.text import counted, duration, moment, timestamp

T = TypeVar("T")
LeftOut = Callable[[str, Exception], None]
"""Told which part of a page can't be made, and why."""
_SECOND = 1_000_000_000
_AROUND = 1800
"""Seconds before and after an incident that a dashboard shows."""
_OTHERS = 5
"""Further alerts of an incident that are listed."""
_FACT = 300
_LATER = 2
"""Seconds from which on the time between onset and alert is said."""
_TITLE = 2000
ADVICE = 2000


@dataclass(frozen=True, slots=True)
class Links:
    """Targets of the links in pages; "" for none."""

    cluster: str = ""
    external: str = ""
    runbook: str = ""
    dashboard: str = ""
    """A template, see `alerts.config.DASHBOARD_FIELDS`."""
    pictures: PictureSigner | None = None
    """Signs links to pictures; None where no channel has any."""

    def runbook_of(self, rule: str, anchor: str) -> str:
        """Return the URL of a rule's runbook: below the base that is set, else the page that the
        aggregator serves; "" where no URL is known."""
        if not anchor:
            return ""
        if self.runbook:
            return f"{self.runbook}#{quote(anchor, safe='-._~')}"
        return f"{self.external.rstrip('/')}/runbook/{quote(rule, safe='')}" if self.external else ""

    def incident_of(self, key: str) -> str:
        """Return the URL of the page of an incident, by its key or that of an alert, with its evidence and
        what was sent; "" where no URL is known."""
        path = f"/incidents/{quote(key, safe='')}"
        return f"{self.external.rstrip('/')}{path}" if self.external else ""

    def evidence_of(self, key: str) -> str:
        """Return the URL of the evidence of an incident, by its key or that of an alert; "" where no
        URL is known."""
        path = f"/api/v1/incidents/{quote(key, safe='')}/evidence"
        return f"{self.external.rstrip('/')}{path}" if self.external else ""


class Fact(NamedTuple):
    """A named value."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Page:
    """The content of a notice, in the order in which it is read."""

    tag: str
    """`PAGE`, `TICKET`, `INFO`, `TEST`, `RESOLVED`, `ACKNOWLEDGED`, `UPDATE`."""
    title: str
    facts: tuple[Fact, ...]
    act: str
    """The act that is asked for, the gentlest first."""
    owner: str
    """Person or team that it belongs to."""
    meaning: str
    others: tuple[str, ...]
    """Further alerts of the same incident, a line each."""
    links: tuple[Fact, ...]
    """Name and URL."""
    commands: tuple[Fact, ...]
    """Shell commands to acknowledge, silence or recover."""
    evidence: tuple[Fact, ...] = ()
    """Short form of the evidence: log lines, readings, what else happened, earlier faults."""

    @property
    def head(self) -> tuple[str, ...]:
        """Lines below the headline: what to do, who owns it, and what it means."""
        owner = f"Owner: {self.owner}" if self.owner else ""
        meaning = f"Meaning: {self.meaning}" if self.meaning else ""
        return tuple(filter(None, (self.act, owner, meaning)))

    @property
    def headline(self) -> str:
        """Tag and title in one line."""
        return f"[{self.tag}] {self.title}"


def page_of(
    notice: Notice, links: Links, now: int, evidence: EvidenceReply | None = None, left_out: LeftOut | None = None
) -> Page:
    """Return the content of a notice at a wall time, ns since 1970. `left_out`: a part that can't be made costs what
    is behind it in that part alone; without it, the page."""
    incident = notice.incident
    lead = incident.alerts[0] if incident.alerts else None
    over = notice.action is Action.RESOLVE
    act, meaning = ("", "") if lead is None or over else _advice(incident, lead)
    return Page(
        _tag(notice),
        clean(_title(notice, lead, now), _TITLE),
        _part("facts", _known(_facts(notice, links, now)), left_out),
        clean(act, ADVICE),
        "" if over else clean(incident.owner or "", _FACT),
        clean(meaning, ADVICE),
        () if over else _part("other alerts", _others(incident, left_out), left_out),
        _part("links", _links(notice, lead, links, now), left_out),
        () if over or notice.reason == "test" else _part("commands", _commands(incident, lead), left_out),
        () if over or evidence is None else _part("evidence", _evidence(evidence, lead), left_out),
    )


def _is_storm(incident: Incident) -> bool:
    return incident.group.get("rule") == "storm"


def _title(notice: Notice, lead: Alert | None, now: int) -> str:
    """Return the problem, its place, and since when. A part of kilowatch itself is placed by its cluster."""
    incident = notice.incident
    cluster = "" if lead is None or lead.node or lead.subject is not Subject.NODE else _named("cluster", lead.labels)
    over = incident.ended is not None or notice.action is Action.RESOLVE or notice.reason == "test"
    since = "" if over else f"since {moment(incident.onset, now)}"
    return ", ".join(filter(None, (incident.title or incident.key, cluster, since)))


def _advice(incident: Incident, lead: Alert) -> tuple[str, str]:
    """Return what to do, and what it means: of a storm no remedy of one GPU or node; a rule that names no act has
    it in its meaning."""
    if not _is_storm(incident):
        return (lead.act, lead.description) if lead.act else (lead.description, "")
    first = (
        f"Look at what they share first: {', '.join(incident.shared)}"
        if incident.shared
        else (
            "Look first for what they share: a feed, the cooling, a switch, a file server, a change that was rolled out"
        )
    )
    starts = [one.since for one in incident.alerts if one.since]
    within = duration(max(1, -(-(max(starts) - min(starts)) // _SECOND))) if starts else ""
    seconds = f" Those listed began within {within}." if within else ""
    return (
        f"{first}. Don't repair GPU by GPU or node by node before that is known.",
        f"Many faults of one kind came within a minute and have one cause.{seconds}",
    )


def _part(name: str, made: Iterable[T], left_out: LeftOut | None) -> tuple[T, ...]:
    """Return a part of a page, up to what can't be made."""
    found: list[T] = []
    try:
        for one in made:
            found.append(one)  # noqa: PERF402 - what came before an exception stays
    except Exception as error:
        if left_out is None:
            raise
        left_out(name, error)
    return tuple(found)


def plain_page(notice: Notice) -> Page:
    """Return the content of a notice whose page can't be made: severity, title and reason."""
    incident = notice.incident
    title = " ".join(str(incident.title or incident.key).split())[:_TITLE]
    return Page(incident.severity.value.upper(), title, (), "", "", "", (), (), ())


def _tag(notice: Notice) -> str:
    if notice.reason == "test":
        return "TEST"
    match notice.action:
        case Action.RESOLVE:
            return "FORGOTTEN" if notice.reason == "forgotten" else "RESOLVED"
        case Action.ACKNOWLEDGE:
            return "ACKNOWLEDGED"
        case Action.UPDATE:
            return "UPDATE"
        case Action.TRIGGER:
            return notice.incident.severity.value.upper()


def _known(facts: Iterator[tuple[str, str]]) -> Iterator[Fact]:
    for name, value in facts:
        if value:
            yield Fact(name, clean(value, _FACT))


def _facts(notice: Notice, links: Links, now: int) -> Iterator[tuple[str, str]]:
    incident = notice.incident
    if _is_storm(incident):
        yield "Shared", ", ".join(incident.shared)
    elif incident.alerts:
        lead = incident.alerts[0]
        labels = lead.labels
        yield ("Runs there", _joined(*(_named(name, labels) for name in ("job", "user", "account", "process"))))
        yield "What", "" if clean(incident.title).startswith(clean(lead.summary)) else lead.summary
        yield "Rule", " ".join(filter(None, (lead.rule, lead.id and f"({lead.id})")))
        yield "Remedy", "" if lead.remediation is None else lead.remediation.text
        if lead.node:
            yield "Node", _joined(lead.node, _named("rack", labels), _named("cluster", labels))
        else:
            yield (
                _SUBJECTS.get(lead.subject, lead.subject.value.capitalize()),
                _joined(lead.name, _named("cluster", labels)),
            )
        yield "GPU", _gpu(lead)
        yield "Link", labels.get("link", "")
        yield "Unit", labels.get("unit", "")
        yield "Circuits", labels.get("circuits", "")
        its = value_row(lead)
        shown = its.value in {"yes", "no", its.short} or (
            not its.short and re.search(rf"(?<![\w-]){re.escape(its.value)}(?![\w-])", clean(lead.summary))
        )
        yield "Value", "" if shown else its.value
        yield "Limit", "" if its.value == its.short else its.short
    end = incident.ended if incident.ended is not None else now
    onset = incident.onset
    length = duration(max(0, (end - onset) // _SECOND))
    if incident.ended is None:
        later = (incident.began - onset) // _SECOND
        seen = f", seen {duration(later)} later" if later >= _LATER else ""
        yield "Since", f"{timestamp(onset)} ({length}{seen})"
    else:
        yield "From", timestamp(onset)
        yield "Until", f"{timestamp(incident.ended)} ({length})"
    yield "Alike", _alike(incident)
    yield "Inhibited", inhibited_row(incident).whole
    if incident.acknowledged is not None:
        words = acknowledged(incident.acknowledged, timestamp)
        yield "Acknowledged", words.removeprefix("acknowledged ")
    if notice.reason in _EXPLAINED:
        yield "Sent because", reason_words(notice.reason, whole=True)
    if incident.alerts and not (links.runbook or links.external):
        anchor = incident.alerts[0].runbook
        yield "Runbook", f"docs/runbook.md#{anchor}" if anchor else ""


_SUBJECTS = {Subject.NODE: "Part", Subject.UPS: "UPS"}
"""Names of what belongs to no node, where they are other words than the subject: of a node's, a part of kilowatch."""
_EXPLAINED = {"worse", "repeat", "escalated", "storm", "flapping", "forgotten", "new_channel"}
"""Reasons that a page says; others are plain from what it is."""


def _gpu(alert: Alert) -> str:
    labels = alert.labels
    uuid = alert.gpu or labels.get("uuid", "")
    return _joined(
        labels.get("gpu", ""),
        labels.get("model", ""),
        uuid,
        _named("serial", labels),
        labels.get("pci") and f"PCI {labels['pci']}",
        slot_text(labels.get("slot", "")),
    )


def _alike(incident: Incident) -> str:
    firing = [alert for alert in incident.alerts if alert.state is AlertState.FIRING]
    if max(incident.firing, incident.total) <= 1:
        return ""
    nodes = len({alert.node for alert in firing if alert.node})
    least = "at least " if incident.firing > len(firing) else ""
    where = f" on {least}{counted(nodes, 'node')}" if nodes else ""
    return f"{all_firing(incident.firing, incident.total)}{where}"


def _others(incident: Incident, left_out: LeftOut | None) -> Iterator[str]:
    """Yield the alerts that neither the title nor the facts name: of a storm all."""
    storm = _is_storm(incident)
    lead = clean(incident.alerts[0].summary) if incident.alerts and not storm else ""
    rest = [one for one in incident.alerts[not storm :] if one.state is AlertState.FIRING]
    rest = [one for one in rest if clean(one.summary) != lead]
    for alert in rest[:_OTHERS]:
        yield from _part(alert.key, map(_line, (alert,)), left_out)
    if len(rest) > _OTHERS:
        yield f"and {len(rest) - _OTHERS} more"


def _line(alert: Alert) -> str:
    return clean(alert.summary or f"{alert.rule}: {place_of(alert)}", _FACT)


def _links(notice: Notice, lead: Alert | None, links: Links, now: int) -> Iterator[Fact]:
    if lead is None:
        return
    page = links.incident_of(notice.incident.key)
    if page and notice.reason != "test":
        yield Fact("Incident", page)
    runbook = links.runbook_of(lead.rule, lead.runbook)
    if runbook:
        yield Fact("Runbook", runbook)
    if links.dashboard:
        incident = notice.incident
        end = min(now, (incident.ended or now) + _AROUND * _SECOND)
        yield Fact("Dashboard", dashboard_of(lead, links, incident.began, end))


def dashboard_of(alert: Alert, links: Links, began: int, end: int) -> str:
    """Return the link to the dashboard of what an alert is about; from and to in ns since 1970."""
    values = {
        "cluster": alert.labels.get("cluster", links.cluster),
        "node": alert.node,
        "gpu": alert.labels.get("gpu", ""),
        "uuid": alert.gpu or alert.labels.get("uuid", ""),
        "circuit": alert.name or alert.labels.get("circuits", "").partition(",")[0],
        "from": str((began - _AROUND * _SECOND) // 1_000_000),
        "to": str(end // 1_000_000),
    }
    filled = {name: quote(value, safe="") for name, value in values.items()}
    return links.dashboard.format_map(filled)


def _commands(incident: Incident, lead: Alert | None) -> Iterator[Fact]:
    yield Fact("Acknowledge", acknowledge_of(incident.key))
    if lead is not None and not _is_storm(incident):
        yield Fact("Silence", silence_of(_silencing(incident, lead)))
        if recover := recover_of(lead):
            yield Fact("Recover", recover)


def _silencing(incident: Incident, lead: Alert) -> Iterator[str]:
    """Yield matchers that cover the lead and alerts like it, and no more than the incident does."""
    yield f"rule={lead.rule}"
    if not lead.node:
        if lead.name:
            yield f"name={lead.name}"
        return
    like = [alert for alert in incident.alerts if alert.rule == lead.rule]
    if all(alert.node == lead.node for alert in like):
        yield f"node={lead.node}"
        yield from gpu_condition(like)
        return
    rack = lead.labels.get("rack")
    if rack and all(alert.labels.get("rack") == rack for alert in like):
        yield f"rack={rack}"


def _evidence(evidence: EvidenceReply, lead: Alert | None) -> Iterator[Fact]:
    """Yield the short form of the evidence of an incident: that of its newest fault, which may be
    another than its worst."""
    if evidence.cards and lead is not None and evidence.cards[0].alert != clean(lead.key):
        yield Fact("Evidence of", clean(evidence.cards[0].summary, _FACT))
    for name, value in facts_of(evidence):
        if value:
            yield Fact(name, clean(value, _FACT))


def _named(name: str, labels: dict[str, str]) -> str:
    return f"{name} {labels[name]}" if labels.get(name) else ""


def _joined(*parts: str | None) -> str:
    return " · ".join(part for part in parts if part)
