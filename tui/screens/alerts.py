"""What is wrong, by cause: acknowledge, silence, and what the runbook says."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import numpy as np
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.widgets import Input, Label

from api.alerts import Incident, SilencesReply, TimelineReply
from telemetry.text import counted, short_duration, time_of_day
from tui.feed.requests import ActionError
from tui.feed.wants import DocumentRequest, Wants
from tui.kit.surface import Drawing
from tui.kit.text import clean, fit, number
from tui.screens.actions import acknowledge, runbook, silence, unsilence
from tui.screens.forms import AckForm, Dialog, how_long_and_why, usual
from tui.screens.incident import SEVERITY_MARKS, incident_lines, where
from tui.screens.incident_timeline import path_of, story_ask
from tui.screens.lists import ListView
from tui.screens.side_column import VERY_WIDE
from tui.screens.view import View
from tui.state.dashboard_state import DashboardState
from tui.state.documents import INCIDENTS, SILENCES
from tui.state.incidents import MORE, silenced_until
from tui.tables.columns import TableColumn
from tui.tables.fields import alert_fields
from tui.tables.filter import Filter
from tui.tables.listing import Listing
from tui.theme import Piece, Tones

# What a user does about several incidents in one go: take them, or silence what they are about.

AT_ONCE = 8
"""Requests under way together."""
Request = tuple[str, str, object]
"""Method, path and body."""


def acknowledge_marked(view: View, incidents: Sequence[Incident]) -> None:
    """Ask once who and why, then take all that nobody has taken yet."""
    top = view.top
    free = [incident for incident in incidents if incident.acknowledged is None]
    taken = len(incidents) - len(free)
    if not free:
        why = (
            "all that is marked is taken already"
            if taken
            else "nothing is marked: space marks a row"
        )
        top.notify(why, timeout=4)
        return

    def answered(answer: dict[str, str] | None) -> None:
        if answer is not None:
            asked = [
                ("POST", f"api/v1/incidents/{quote(one.key, safe='')}/ack", answer) for one in free
            ]
            also = [f"{number(taken)} taken already"] if taken else []
            done = f"acknowledged as {answer['who']}"
            view.run_worker(_tell_all(view, asked, done, also), group="act")

    what = f"{number(len(free))} marked: {'; '.join(clean(one.title) for one in free[:3])}"
    top.push_screen(AckForm(top.tones, what, top.who), answered)


def silence_marked(view: View, incidents: Sequence[Incident]) -> None:
    """Ask once how long and why, then silence each thing that the incidents are about."""
    top = view.top
    targets = list(dict.fromkeys(tuple(usual(incident)) for incident in incidents))

    def answered(answer: dict[str, str] | None) -> None:
        if answer is not None:
            asked = [
                ("POST", "api/v1/silences", {"matchers": target, **answer}) for target in targets
            ]
            view.run_worker(
                _tell_all(view, asked, f"silenced for {answer['for']}", []), group="act"
            )

    top.push_screen(ManySilenceForm(top.tones, [", ".join(t) for t in targets], top.who), answered)


async def _tell_all(view: View, asked: Sequence[Request], done: str, also: Sequence[str]) -> None:
    """Ask the aggregator for all of it, and say once how it went."""
    top, gate = view.top, asyncio.Semaphore(AT_ONCE)

    async def ask(method: str, path: str, body: object) -> str:
        async with gate:
            try:
                await top.feed.act(method, path, body)
            except ActionError as error:
                return clean(str(error))
        return ""

    answers = await asyncio.gather(*(ask(*one) for one in asked))
    refused = Counter(answer for answer in answers if answer)
    good = len(answers) - refused.total()
    parts = [f"{number(good)} {done}", *also]
    parts += [f"{number(count)} refused: {why}" for why, count in refused.most_common(2)]
    top.notify(
        "; ".join(parts), severity="error" if refused else "information",
        timeout=8 if refused else 4, markup=False,
    )  # fmt: skip
    top.feed.hurry(INCIDENTS, SILENCES)


class ManySilenceForm(Dialog):
    """How long and why, for several things at once."""

    def __init__(self, tones: Tones, what: Sequence[str], who: str) -> None:
        super().__init__(tones, "Silence what is marked: tell nobody of")
        self._what, self._who = what, who

    def compose(self) -> ComposeResult:
        """What it is about, and three lines to write in."""
        shown = self._what[:5]
        more = [f"and {number(len(self._what) - 5)} more"] if len(self._what) > 5 else []
        with self.window():
            for line in (*shown, *more):
                yield Label(Text(fit(clean(line), 70).rstrip()))
            yield from how_long_and_why(self._who)
            yield Label("", id="wrong", classes="fault")
            yield Label("⏎ silence   tab next   esc cancel")

    def on_mount(self) -> None:
        """Begin where something is missing."""
        self.query_one("#why" if self._who else "#who").focus()

    @on(Input.Submitted)
    def _done(self) -> None:
        said = {
            name: self.query_one(f"#{name}", Input).value.strip() for name in ("for", "who", "why")
        }
        missing = [name for name, value in said.items() if not value]
        if missing:
            self.query_one("#wrong", Label).update(
                f"{' and '.join(missing)}: nothing is written there"
            )
            self.query_one(f"#{missing[0]}").focus()
        else:
            self.dismiss(said)


class Rows:
    """What the cells are drawn from."""

    def __init__(
        self, board: DashboardState, incidents: list[Incident], marked: frozenset[str]
    ) -> None:
        self.board, self.incidents, self.marked = board, incidents, marked


def _mark(source: Rows, row: int, width: int) -> Piece:
    return ("*" if source.incidents[row].key in source.marked else "", "key")


def _state(source: Rows, row: int, width: int) -> Piece:
    incident = source.incidents[row]
    if incident.ended is not None:
        return f"ended {short_duration((source.board.at - incident.ended) / 1e9)}", "dim"
    taken, at = incident.acknowledged, source.board.at
    until = silenced_until(incident, source.board.silences, at)
    if taken is not None:
        who = f"✓ {clean(taken.who)}"
        since = f"{who} {short_duration((at - taken.at) / 1e9)}"
        return since if until is None else f"silenced, {who}", "good"
    if until is not None:
        return f"silenced {short_duration((until - at) / 1e9)}", "dim"
    return "firing", ""


def _title(source: Rows, row: int, width: int) -> Piece:
    incident = source.incidents[row]
    more = f" (+{number(incident.hidden)} hidden)" if incident.hidden else ""
    title = MORE.sub("", clean(incident.title))
    return f"{title}{more}", "dim" if incident.acknowledged else "strong"


COLUMNS: tuple[TableColumn[Rows], ...] = (
    TableColumn("", 1, _mark),
    TableColumn("sev", 6, lambda s, row, _: SEVERITY_MARKS.get(s.incidents[row].severity, ("· INFO", "dim"))),
    TableColumn("age", 5, lambda s, row, _: (short_duration((s.board.at - s.incidents[row].began) / 1e9).replace(" ", ""), "dim"), right=True),
    TableColumn("what", 24, _title, grow=12),
    TableColumn("#", 4, lambda s, row, _: (number(s.incidents[row].firing), "dim"), right=True),
    TableColumn("where", 12, lambda s, row, _: (where(s.incidents[row]), ""), tail=True, grow=1, most=24),
    TableColumn("state", 12, _state, grow=1, most=20),
)  # fmt: skip


class AlertsView(ListView):
    """View 5."""

    NAME, TITLE, KIND = "alerts", "Alerts", "incident"
    SORTS = ("", "age", "where")
    marked: frozenset[str] = frozenset()
    """Keys of incidents that a user has marked, wherever they are sorted to."""

    def wants(self) -> Wants:
        """Silences beside what the header has; what happened to the incident beside the table."""
        story = (story_ask(self.beside),) if self.beside is not None else ()
        return Wants(
            nodes=(), asks=(DocumentRequest(SILENCES, SilencesReply, 2.0), *story, *self.also())
        )

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
        quiet = self._quiet
        nothing = "no alerts" + (f"; {quiet} in force" if quiet else "")
        resolved = max(
            (a for a in board.alerts if a.state == "resolved"),
            key=lambda a: a.changed,
            default=None,
        )
        if resolved is not None:
            nothing += (
                f"; the last one resolved at {time_of_day(resolved.changed, utc=self.top.utc)}"
            )
        nothing = clean(board.incidents_unknown) or nothing
        return Listing(Rows(board, incidents, self.marked), COLUMNS, np.flatnonzero(mask), [i.key for i in incidents],
                       len(incidents), self.sort, nothing)  # fmt: skip

    def _table_width(self, width: int) -> int:
        """More than other lists need: what is wrong is a sentence."""
        return max(super()._table_width(width), 99 if 160 <= width < VERY_WIDE else 0)

    def detail(self, key: str) -> Drawing:
        """The incident's page."""
        top = self.top
        story = top.feed.board.doc(path_of(key), TimelineReply)
        return lambda width, height: incident_lines(
            top.shown, key, width, height, utc=top.utc, story=story
        )

    @property
    def _quiet(self) -> str:
        """How many silences are in force; `` for none."""
        board = self.top.shown
        running = sum(each.starts <= board.at < each.ends for each in board.silences)
        return counted(running, "silence") if running else ""

    @property
    def incident(self) -> Incident | None:
        """The one under the cursor."""
        return next((i for i in self.top.shown.incidents if i.key == self.rows.key), None)

    def do_ack(self) -> None:
        """Take care of the incident under the cursor."""
        acknowledge(self, self.incident)

    def chosen_many(self) -> list[Incident]:
        """The marked ones that are still open."""
        return [i for i in self.top.shown.incidents if i.key in self.marked]

    def do_mark(self) -> None:
        """Mark the row under the cursor, or take its mark away, and go on."""
        if self.rows.key is not None:
            self.marked ^= {self.rows.key}
            self.rows.action_move(1)
            self.top.redraw()

    def do_ack_marked(self) -> None:
        """Take care of all that is marked."""
        acknowledge_marked(self, self.chosen_many())

    def do_back(self) -> bool:
        """Take the marks away first."""
        had, self.marked = bool(self.marked), frozenset()
        return had

    def do_silence(self) -> None:
        """Tell nobody for a while of what is marked, else of what is under the cursor."""
        marked = self.chosen_many()
        if marked:
            silence_marked(self, marked)
        else:
            silence(self, self.incident)

    def place(self) -> str:
        """Which row of how many, how many are marked, and how many silences there are."""
        count = len(self.chosen_many())
        said = (f"{count} marked" if count else "", self._quiet, super().place())
        return ", ".join(filter(None, said))

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
