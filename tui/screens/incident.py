"""An incident's page: title, age, acknowledgement, timeline, alerts and silences."""

from __future__ import annotations

from typing import Any, ClassVar

from api.alerts import Incident, SilencesReply, TimelineReply
from api.evidence import EvidenceReply
from present.alert.incident import (
    acknowledged,
    all_firing,
    inhibited_row,
    matchers_words,
    state_row,
    value_words,
    where_row,
)
from present.units import number
from telemetry.text import short_duration, time_of_day
from tui.feed.wants import DocumentRequest, Wants
from tui.kit.flow import flow, wrapped
from tui.kit.text import clean
from tui.kit.theme import Line
from tui.screens.actions import acknowledge, runbook, runbook_place, silence, unsilence
from tui.screens.incident_evidence import evidence_drawn, evidence_path, evidence_request
from tui.screens.incident_timeline import path_of, timeline_lines, timeline_request
from tui.screens.page import PageView
from tui.state.dashboard_state import DashboardState
from tui.state.documents import SILENCES
from tui.state.incidents import severity_mark


def incident_lines(
    state: DashboardState,
    key: str,
    width: int,
    height: int,
    *,
    utc: bool,
    timeline: TimelineReply | None = None,
    evidence: EvidenceReply | None = None,
) -> list[Line]:
    """Draw the page of an incident; `timeline` and `evidence`: once they are loaded."""
    incident = next((i for i in state.incidents if i.key == key), None)
    timeline_drawn = [] if timeline is None else [[], *timeline_lines(timeline, state.at, width, utc=utc)]
    if incident is None:
        early = timeline is not None and state.at < timeline.began
        gone = "it has not begun yet" if early else "it is over"
        return [[(clean(state.incidents_unknown) or gone, "dim")], *timeline_drawn]
    mark, tone = severity_mark(incident.severity)
    lines: list[Line] = [
        [(f"{mark} ", tone), (line, "strong")] if n == 0 else [(f"       {line}", "strong")]
        for n, line in enumerate(wrapped(clean(incident.title), max(20, width - 8)))
    ]
    lines += [*_since(state, incident, width, utc=utc), _acknowledged(incident, utc=utc), *_lead(incident, width)]
    tail = _silences(state, utc=utc)
    lines += evidence_drawn(evidence, width, utc=utc)
    lines += [*timeline_drawn, [], [("its alerts", "head")]]
    room = max(3, height - len(lines) - len(tail) - 1)
    return [*lines, *_alerts(incident, room, width, utc=utc), *tail]


def _since(state: DashboardState, incident: Incident, width: int, *, utc: bool) -> list[Line]:
    inhibited = inhibited_row(incident)
    hidden = f"  {inhibited.value} {inhibited.label}" if inhibited.value else ""
    began: Line = [("began ", "dim"), (time_of_day(incident.onset, utc=utc), ""),
                   (f"  {short_duration((state.at - incident.onset) / 1e9)} ago  ", "dim"),
                   (all_firing(incident.firing, incident.total), "")]  # fmt: skip
    return flow([began, [(hidden, "dim")]] if hidden else [began], width)


def _acknowledged(incident: Incident, *, utc: bool) -> Line:
    words = acknowledged(incident.acknowledged, lambda at: time_of_day(at, utc=utc))
    if incident.acknowledged is None:
        return [(words, "dim")]
    return [("✓ ", "good"), (clean(words), "")]


def _lead(incident: Incident, width: int) -> list[Line]:
    """Draw its worst alert: value, description, remedy, runbook."""
    if not incident.alerts:
        return []
    lead = incident.alerts[0]
    lines: list[Line] = []
    value = value_words(lead)
    if value:
        lines.append([("value ", "dim"), (clean(value), "")])
    if lead.owner:
        lines.append([("owner ", "dim"), (clean(lead.owner), "")])
    lines.append([])
    lines += [[(line, "")] for line in wrapped(clean(lead.advice), max(20, width - 1))]
    for name in ("remedy", "circuits", "rack", "job", "pci", "serial", "slot"):
        if name in lead.labels and lead.labels[name] not in lead.advice:
            words = wrapped(clean(lead.labels[name]), max(20, width - len(name) - 2))
            lines += [
                [(f"{name} " if n == 0 else " " * (len(name) + 1), "dim"), (line, "")] for n, line in enumerate(words)
            ]
    if lead.runbook:
        lines.append([("runbook ", "dim"), (runbook_place(lead), "key"), ("  [o] copies its URL", "dim")])
    return lines


def _alerts(incident: Incident, room: int, width: int, *, utc: bool) -> list[Line]:
    lines: list[Line] = []
    shown = 0
    for alert in incident.alerts:
        state = "" if alert.state == "firing" else f" {state_row(alert).whole}"
        since = f"  {time_of_day(alert.since, utc=utc)} "
        first, *rest = wrapped(clean(alert.summary), max(10, width - len(since) - len(state))) or [""]
        words: list[Line] = [[(since, "dim"), (first, ""), (state, "dim")]]
        words += [[(" " * len(since) + line, "")] for line in rest]
        if shown and len(lines) + len(words) > room:
            break
        lines += words
        shown += 1
    more = max(incident.firing, len(incident.alerts)) - shown
    if more:
        lines.append([(f"  and {number(more)} more", "dim")])
    return lines


def _silences(state: DashboardState, *, utc: bool) -> list[Line]:
    running = [s for s in state.silences if state.at < s.ends]
    lines: list[Line] = [[], [("silences", "head")]] if running else []
    for each in running[:5]:
        words = clean(matchers_words(each))
        until = f"  until {time_of_day(each.ends, utc=utc)} by {clean(each.who)}: {clean(each.why)}"
        lines.append([(f"  {words}", ""), (until, "dim")])
    return lines


class IncidentView(PageView):
    """The page of an incident."""

    NAME: ClassVar[str] = "incident"
    TITLE: ClassVar[str] = "Alert"

    def wants(self) -> Wants:
        """Return silences, and its timeline."""
        return Wants(
            nodes=(),
            documents=(
                DocumentRequest(SILENCES, SilencesReply, 2.0),
                timeline_request(self.subject),
                evidence_request(self.subject),
            ),
        )

    def lines(self, width: int, height: int) -> list[Line]:
        """Draw the page."""
        context = self.context
        timeline = context.newest.doc(path_of(self.subject), TimelineReply)
        evidence = context.newest.doc(evidence_path(self.subject), EvidenceReply)
        return incident_lines(
            context.shown, self.subject, width, height, utc=context.utc, timeline=timeline, evidence=evidence
        )

    def title(self) -> str:
        """Return its subject."""
        incident = self.record()
        return "alert" if incident is None else clean(where_row(incident).short)

    def neighbours(self) -> list[str]:
        """Return all incidents."""
        return [incident.key for incident in self.context.shown.incidents]

    def do_open(self) -> None:
        """Open the page of its subject."""
        incident = self.record()
        if incident is None:
            return
        lead = incident.alerts[0] if incident.alerts else None
        if incident.group.get("circuit"):
            self.context.frame.open("circuit", incident.group["circuit"])
        elif lead is not None and lead.gpu:
            self.context.frame.open("gpu", lead.gpu)
        elif lead is not None and lead.node:
            self.context.frame.open("node", lead.node)

    def do_ack(self) -> None:
        """Acknowledge it."""
        acknowledge(self, self.record())

    def do_silence(self) -> None:
        """Silence it."""
        silence(self, self.record())

    def do_unsilence(self) -> None:
        """End the newest silence in force."""
        unsilence(self)

    def do_runbook(self) -> None:
        """Copy the URL of its runbook page."""
        runbook(self, self.record())

    def record(self) -> Any:
        """Return the incident."""
        return next((i for i in self.context.shown.incidents if i.key == self.subject), None)
