"""The list of incidents: acknowledge, silence, runbook."""

from __future__ import annotations

from typing import Any

import numpy as np

from api.alerts import Incident, SilencesReply, TimelineReply
from present.alert.incident import inhibited_row, short_title, where_row
from present.units import number
from telemetry.text import counted, short_duration, time_of_day
from tui.feed.wants import DocumentRequest, Wants
from tui.kit.surface import Drawing
from tui.kit.text import clean
from tui.kit.theme import Piece
from tui.screens.actions import acknowledge, acknowledge_marked, runbook, silence, silence_marked, unsilence
from tui.screens.incident import incident_lines
from tui.screens.incident_timeline import path_of, timeline_request
from tui.screens.lists import VERY_WIDE, ListView
from tui.state.dashboard_state import DashboardState
from tui.state.documents import SILENCES
from tui.state.incidents import severity_mark, silenced_until
from tui.tables.columns import TableColumn
from tui.tables.fields import ALERT_KEYS, alert_fields
from tui.tables.filter import Filter
from tui.tables.listing import Listing


def where(incident: Incident) -> str:
    """Return the place of an incident for a column."""
    return clean(where_row(incident).short)


class AlertSource:
    """The data of the cells."""

    def __init__(self, state: DashboardState, incidents: list[Incident], marked: frozenset[str]) -> None:
        self.state, self.incidents, self.marked = state, incidents, marked


def _mark(source: AlertSource, row: int, width: int) -> Piece:
    return ("*" if source.incidents[row].key in source.marked else "", "key")


def _state(source: AlertSource, row: int, width: int) -> Piece:
    incident = source.incidents[row]
    if incident.ended is not None:
        return f"ended {short_duration((source.state.at - incident.ended) / 1e9)}", "dim"
    taken, at = incident.acknowledged, source.state.at
    until = silenced_until(incident, source.state.silences, at)
    if taken is not None:
        who = f"✓ {clean(taken.who)}"
        since = f"{who} {short_duration((at - taken.at) / 1e9)}"
        return since if until is None else f"silenced, {who}", "good"
    if until is not None:
        return f"silenced {short_duration((until - at) / 1e9)}", "dim"
    return "firing", ""


def _title(source: AlertSource, row: int, width: int) -> Piece:
    incident = source.incidents[row]
    hidden = inhibited_row(incident).short
    more = f" ({hidden})" if hidden else ""
    title = short_title(clean(incident.title))
    return f"{title}{more}", "dim" if incident.acknowledged else "strong"


COLUMNS: tuple[TableColumn[AlertSource], ...] = (
    TableColumn("", 1, _mark),
    TableColumn("sev", 6, lambda s, row, _: severity_mark(s.incidents[row].severity)),
    TableColumn("age", 5, lambda s, row, _: (short_duration((s.state.at - s.incidents[row].onset) / 1e9).replace(" ", ""), "dim"), right=True),
    TableColumn("what", 24, _title, grow=12),
    TableColumn("#", 4, lambda s, row, _: (number(s.incidents[row].firing), "dim"), right=True),
    TableColumn("where", 12, lambda s, row, _: (where(s.incidents[row]), ""), tail=True, grow=1, most=24),
    TableColumn("state", 12, _state, grow=1, most=20),
)  # fmt: skip


class AlertsView(ListView):
    """View 5: incidents."""

    NAME, TITLE, KIND = "alerts", "Alerts", "incident"
    FILTERED_BY = ALERT_KEYS
    SORTS = ("", "age", "where")
    marked: frozenset[str] = frozenset()
    """Keys of incidents that a user has marked."""

    def wants(self) -> Wants:
        """Return silences, and the timeline of the incident beside the table."""
        timeline = (timeline_request(self.beside),) if self.beside is not None else ()
        return Wants(nodes=(), documents=(DocumentRequest(SILENCES, SilencesReply, 2.0), *timeline, *self.also()))

    def listing(self, wanted: Filter) -> Listing[Any]:
        """Return open incidents, worst first."""
        state = self.context.shown
        incidents = list(state.incidents)
        if self.sort == "age":
            incidents.sort(key=lambda each: -each.began)
        elif self.sort == "where":
            incidents.sort(key=where)
        if self.reverse:
            incidents.reverse()
        mask = wanted.mask(alert_fields(incidents, state.at), len(incidents))
        if self.context.faults:
            mask &= np.array([i.severity == "page" for i in incidents], bool).reshape(len(mask))
        silenced = self._silenced
        nothing = "no alerts" + (f"; {silenced} in force" if silenced else "")
        resolved = max((a for a in state.alerts if a.state == "resolved"), key=lambda a: a.changed, default=None)
        if resolved is not None:
            nothing += f"; the last one resolved at {time_of_day(resolved.changed, utc=self.context.utc)}"
        nothing = clean(state.incidents_unknown) or nothing
        return Listing(
            AlertSource(state, incidents, self.marked),
            COLUMNS,
            np.flatnonzero(mask),
            [i.key for i in incidents],
            len(incidents),
            self.sort,
            nothing,
        )

    def _table_width(self, width: int) -> int:
        """Return a greater width than other lists need: a title is a sentence."""
        return max(super()._table_width(width), 99 if 160 <= width < VERY_WIDE else 0)

    def detail(self, key: str) -> Drawing:
        """Return the incident's page."""
        context = self.context
        timeline = context.newest.doc(path_of(key), TimelineReply)
        return lambda width, height: incident_lines(
            context.shown, key, width, height, utc=context.utc, timeline=timeline
        )

    @property
    def _silenced(self) -> str:
        """The number of silences in force as text; `` for none."""
        state = self.context.shown
        running = sum(each.starts <= state.at < each.ends for each in state.silences)
        return counted(running, "silence") if running else ""

    @property
    def incident(self) -> Incident | None:
        """The incident under the cursor."""
        return next((i for i in self.context.shown.incidents if i.key == self.rows.key), None)

    def do_ack(self) -> None:
        """Acknowledge the incident under the cursor."""
        acknowledge(self, self.incident)

    def chosen_many(self) -> list[Incident]:
        """Return the marked incidents that are still open."""
        return [i for i in self.context.shown.incidents if i.key in self.marked]

    def do_mark(self) -> None:
        """Mark the row under the cursor, or remove its mark, and move on."""
        if self.rows.key is not None:
            self.marked ^= {self.rows.key}
            self.rows.action_move(1)
            self.context.frame.redraw()

    def do_ack_marked(self) -> None:
        """Acknowledge all marked incidents."""
        acknowledge_marked(self, self.chosen_many())

    def do_back(self) -> bool:
        """Remove the marks, if there are any."""
        had, self.marked = bool(self.marked), frozenset()
        return had

    def do_silence(self) -> None:
        """Silence the marked incidents, else the one under the cursor."""
        marked = self.chosen_many()
        if marked:
            silence_marked(self, marked)
        else:
            silence(self, self.incident)

    def place(self) -> str:
        """Return the row of the cursor, and the numbers of marked rows and of silences."""
        count = len(self.chosen_many())
        words = (f"{count} marked" if count else "", self._silenced, super().place())
        return ", ".join(filter(None, words))

    def do_unsilence(self) -> None:
        """End the newest silence in force."""
        unsilence(self)

    def do_runbook(self) -> None:
        """Copy the URL of the runbook page."""
        runbook(self, self.incident)

    def do_next_fault(self) -> None:
        """Go to the next incident."""
        self.rows.action_move(1)

    def do_previous_fault(self) -> None:
        """Go to the previous incident."""
        self.rows.action_move(-1)

    def record(self) -> Any:
        """Return the incident under the cursor."""
        return self.incident
