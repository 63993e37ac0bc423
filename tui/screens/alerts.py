"""What is wrong, by cause: acknowledge, silence, and what the runbook says."""

from __future__ import annotations

from typing import Any, ClassVar
from urllib.parse import quote

import numpy as np

from tui.board import INCIDENTS, SILENCES, Board
from tui.client import ActionError, Ask, Wants
from tui.columns import Column
from tui.fields import alert_fields
from tui.filter import Filter
from tui.kit.flow import wrapped
from tui.kit.surface import Drawing
from tui.listing import Listing
from tui.messages import Incident, Silences
from tui.screens.forms import AckForm, SilenceForm
from tui.screens.lists import ListView
from tui.screens.page import PageView
from tui.text import DASH, clean, clock_of, fit, number, span
from tui.theme import Line, Piece

_MARKS: dict[str, Piece] = {"page": ("▲ CRIT", "crit"), "ticket": ("! WARN", "warn")}
_RUNBOOK = "docs/runbook.md#"


class Rows:
    """What the cells are drawn from."""

    def __init__(self, board: Board, incidents: list[Incident]) -> None:
        self.board, self.incidents = board, incidents


def _state(source: Rows, row: int, width: int) -> Piece:
    incident = source.incidents[row]
    if incident.ended is not None:
        return f"ended {span((source.board.at - incident.ended) / 1e9)}", "dim"
    taken = incident.acknowledged
    return (
        ("firing", "")
        if taken is None
        else (f"✓ {clean(taken.who)} {span((source.board.at - taken.at) / 1e9)}", "good")
    )


def where(incident: Incident) -> str:
    """What an incident is about."""
    group = incident.group
    for key in ("circuit", "budget", "ups", "node", "rack"):
        if group.get(key):
            return clean(group[key])
    return clean(next((a.node or a.name for a in incident.alerts), "") or DASH)


def _title(source: Rows, row: int, width: int) -> Piece:
    incident = source.incidents[row]
    more = f" (+{number(incident.hidden)} hidden)" if incident.hidden else ""
    return f"{clean(incident.title)}{more}", "dim" if incident.acknowledged else "strong"


COLUMNS: tuple[Column[Rows], ...] = (
    Column("sev", 6, lambda s, row, _: _MARKS.get(s.incidents[row].severity, ("· INFO", "dim"))),
    Column("age", 5, lambda s, row, _: (span((s.board.at - s.incidents[row].began) / 1e9).replace(" ", ""), "dim"), right=True),
    Column("what", 24, _title, grow=4),
    Column("#", 4, lambda s, row, _: (number(s.incidents[row].firing), "dim"), right=True),
    Column("where", 12, lambda s, row, _: (where(s.incidents[row]), ""), tail=True, grow=1, most=24),
    Column("state", 12, _state, grow=1, most=20),
)  # fmt: skip


class AlertsView(ListView):
    """View 5."""

    NAME, TITLE, KIND = "alerts", "Alerts", "incident"
    SORTS = ("", "age", "where")

    def wants(self) -> Wants:
        """Silences beside what the header has."""
        return Wants(nodes=(), asks=(Ask(SILENCES, Silences, 2.0),))

    def listing(self, wanted: Filter) -> Listing[Any]:
        """Open incidents, worst first."""
        board = self.top.shown
        incidents = list(board.incidents)
        if self.sort == "age":
            incidents.sort(key=lambda each: -each.began)
        elif self.sort == "where":
            incidents.sort(key=where)
        if self.reverse:
            incidents.reverse()
        mask = wanted.mask(alert_fields(incidents, board.at), len(incidents))
        if self.top.faults:
            mask &= np.array([i.severity == "page" for i in incidents], bool).reshape(len(mask))
        quiet = len([s for s in board.silences if s.starts <= board.at < s.ends])
        nothing = "no alerts" + (f"; {quiet} silences in force" if quiet else "")
        resolved = max(
            (a for a in board.alerts if a.state == "resolved"),
            key=lambda a: a.changed,
            default=None,
        )
        if resolved is not None:
            nothing += f"; the last one resolved at {clock_of(resolved.changed, utc=self.top.utc)}"
        return Listing(Rows(board, incidents), COLUMNS, np.flatnonzero(mask), [i.key for i in incidents],
                       len(incidents), self.sort, nothing)  # fmt: skip

    def detail(self, key: str) -> Drawing:
        """The incident's page."""
        top = self.top
        return lambda width, height: incident_lines(top.shown, key, width, height, utc=top.utc)

    @property
    def incident(self) -> Incident | None:
        """The one under the cursor."""
        return next((i for i in self.top.shown.incidents if i.key == self.rows.key), None)

    def do_ack(self) -> None:
        """Take care of the incident under the cursor."""
        acknowledge(self, self.incident)

    def do_silence(self) -> None:
        """Tell nobody of what it is about for a while."""
        silence(self, self.incident)

    def do_unsilence(self) -> None:
        """End the newest silence in force."""
        unsilence(self)

    def do_runbook(self) -> None:
        """Say where the runbook is, and copy it."""
        runbook(self, self.incident)

    def do_next_ill(self) -> None:
        """The next one."""
        self.rows.action_move(1)

    def do_previous_ill(self) -> None:
        """The one before."""
        self.rows.action_move(-1)

    def record(self) -> Any:
        """The incident under the cursor."""
        return self.incident


def acknowledge(view: AlertsView | IncidentView, incident: Incident | None) -> None:
    """Ask who and why, then tell the aggregator."""
    top = view.top
    if incident is None:
        return
    path = f"api/v1/incidents/{quote(incident.key, safe='')}/ack"
    if incident.acknowledged is not None:
        view.run_worker(
            _tell(view, "DELETE", path, {"who": top.who}, "it is nobody's again"), group="act"
        )
        return

    def answered(answer: dict[str, str] | None) -> None:
        if answer is not None:
            view.run_worker(
                _tell(view, "POST", path, answer, f"acknowledged as {answer['who']}"), group="act"
            )

    top.push_screen(AckForm(top.tones, clean(incident.title), top.who), answered)


def silence(view: AlertsView | IncidentView, incident: Incident | None) -> None:
    """Ask for what, how long and why, then tell the aggregator."""
    top = view.top
    if incident is None:
        return

    def answered(answer: dict[str, Any] | None) -> None:
        if answer is not None:
            done = f"silenced {', '.join(answer['matchers'])} for {answer['for']}"
            view.run_worker(_tell(view, "POST", "api/v1/silences", answer, done), group="act")

    top.push_screen(SilenceForm(top.tones, incident, top.shown, top.who), answered)


def unsilence(view: AlertsView | IncidentView) -> None:
    """End the newest silence in force."""
    board = view.top.shown
    running = sorted(
        (s for s in board.silences if s.starts <= board.at < s.ends), key=lambda s: s.starts
    )
    if not running:
        view.top.notify("no silence is in force", timeout=3)
        return
    newest = running[-1]
    words = ", ".join(map(str, newest.matchers))
    view.run_worker(
        _tell(view, "DELETE", f"api/v1/silences/{quote(newest.id, safe='')}", {"who": view.top.who},
              f"silence of {words} ended"), group="act"
    )  # fmt: skip


def runbook(view: AlertsView | IncidentView, incident: Incident | None) -> None:
    """Say where the runbook is, and copy it."""
    named = (
        next((a.runbook for a in incident.alerts if a.runbook), "") if incident is not None else ""
    )
    if named:
        view.top.copy(named if "://" in named else f"{_RUNBOOK}{named}")


async def _tell(
    view: AlertsView | IncidentView, method: str, path: str, body: object, done: str
) -> None:
    top = view.top
    try:
        await top.feed.act(method, path, body)
    except ActionError as error:
        top.notify(clean(str(error)), severity="error", timeout=8, markup=False)
    else:
        top.notify(clean(done), timeout=4, markup=False)
    top.feed.hurry(INCIDENTS, SILENCES)


def incident_lines(board: Board, key: str, width: int, height: int, *, utc: bool) -> list[Line]:
    """Draw the page of an incident."""
    incident = next((i for i in board.incidents if i.key == key), None)
    if incident is None:
        return [[("it is over" if board.came(INCIDENTS) else "loading …", "dim")]]
    mark, tone = _MARKS.get(incident.severity, ("· INFO", "dim"))
    lines: list[Line] = [[(f"{mark} ", tone), (line, "strong")] if n == 0 else [(f"       {line}", "strong")]
                         for n, line in enumerate(wrapped(clean(incident.title), max(20, width - 8)))]  # fmt: skip
    taken = incident.acknowledged
    lines.append([("began ", "dim"), (clock_of(incident.began, utc=utc), ""),
                  (f"  {span((board.at - incident.began) / 1e9)} ago  ", "dim"),
                  (f"{number(incident.firing)} fire of {number(incident.total)} since", ""),
                  (f"  {number(incident.hidden)} consequences hidden" if incident.hidden else "", "dim")])  # fmt: skip
    if taken is not None:
        until = f" until {clock_of(taken.until, utc=utc)}" if taken.until else ""
        lines.append(
            [
                ("✓ ", "good"),
                (f"{clean(taken.who)} takes care of it{until}: {clean(taken.why) or DASH}", ""),
            ]
        )
    else:
        lines.append([("nobody has taken it yet", "dim")])
    lead = incident.alerts[0] if incident.alerts else None
    if lead is not None:
        if lead.value_text:
            limit = f" (limit {clean(lead.limit_text)})" if lead.limit_text else ""
            lines.append([("value ", "dim"), (f"{clean(lead.value_text)}{limit}", "")])
        lines += [[]] + [
            [(line, "")] for line in wrapped(clean(lead.description), max(20, width - 1))
        ]
        labels = {
            k: v
            for k, v in lead.labels.items()
            if k in {"remedy", "circuits", "rack", "job", "pci", "serial", "slot"}
        }
        for name, value in labels.items():
            lines += [[(f"{name} " if n == 0 else " " * (len(name) + 1), "dim"), (line, "")]
                      for n, line in enumerate(wrapped(clean(value), max(20, width - len(name) - 2)))]  # fmt: skip
        if lead.runbook:
            lines.append(
                [
                    ("runbook ", "dim"),
                    (f"{_RUNBOOK}{clean(lead.runbook)}", "key"),
                    ("  [o] copies", "dim"),
                ]
            )
    lines += [[], [("its alerts", "head")]]
    room = max(1, height - len(lines) - 1)
    for alert in incident.alerts[:room]:
        state = "" if alert.state == "firing" else f" {alert.state}"
        lines.append(
            [
                (f"  {clock_of(alert.since, utc=utc)} ", "dim"),
                (fit(clean(alert.summary), max(10, width - 22)).rstrip(), ""),
                (state, "dim"),
            ]
        )
    if len(incident.alerts) > room or incident.firing > len(incident.alerts):
        lines.append(
            [(f"  and {number(max(incident.firing, len(incident.alerts)) - room)} more", "dim")]
        )
    running = [s for s in board.silences if board.at < s.ends]
    if running:
        lines += [[], [("silences", "head")]]
        for each in running[:5]:
            words = clean(", ".join(map(str, each.matchers)))
            lines.append(
                [
                    (f"  {words}", ""),
                    (
                        f"  until {clock_of(each.ends, utc=utc)} by {clean(each.who)}: {clean(each.why)}",
                        "dim",
                    ),
                ]
            )
    return lines


class IncidentView(PageView):
    """An incident's page."""

    NAME: ClassVar[str] = "incident"
    TITLE: ClassVar[str] = "Alert"

    def wants(self) -> Wants:
        """Silences beside what the header has."""
        return Wants(nodes=(), asks=(Ask(SILENCES, Silences, 2.0),))

    def lines(self, width: int, height: int) -> list[Line]:
        """Draw it."""
        return incident_lines(self.top.shown, self.subject, width, height, utc=self.top.utc)

    def title(self) -> str:
        """What it is about."""
        incident = self.record()
        return "alert" if incident is None else where(incident)

    def neighbours(self) -> list[str]:
        """All incidents."""
        return [incident.key for incident in self.top.shown.incidents]

    def chosen(self) -> tuple[str, str]:
        """Itself."""
        return "incident", self.subject

    def do_open(self) -> None:
        """Go to what it is about."""
        incident = self.record()
        if incident is None:
            return
        lead = incident.alerts[0] if incident.alerts else None
        if incident.group.get("circuit"):
            self.top.open("circuit", incident.group["circuit"])
        elif lead is not None and lead.gpu:
            self.top.open("gpu", lead.gpu)
        elif lead is not None and lead.node:
            self.top.open("node", lead.node)

    def do_ack(self) -> None:
        """Take care of it."""
        acknowledge(self, self.record())

    def do_silence(self) -> None:
        """Tell nobody for a while."""
        silence(self, self.record())

    def do_unsilence(self) -> None:
        """End the newest silence in force."""
        unsilence(self)

    def do_runbook(self) -> None:
        """Copy where its runbook is."""
        runbook(self, self.record())

    def record(self) -> Any:
        """All that is known of it."""
        return next((i for i in self.top.shown.incidents if i.key == self.subject), None)
