"""The overview: what is wrong in a sentence, a map of every GPU, alerts by cause, and circuits by urgency."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widget import Widget

from api.chain import ChainKind, ChainReply
from api.fleet import EventsReply
from api.power import CircuitState
from present.circuit.chain import DARK, NO_SHARE, node_row
from present.circuit.figures import assumed_share, bar_marks, share
from present.circuit.rows import headroom_row, share_row
from telemetry.text import ABSENT
from tui.feed.wants import DocumentRequest, Wants
from tui.kit.bars import Bar, Limits, bar_list
from tui.kit.flow import flow
from tui.kit.surface import WIDE, Surface
from tui.kit.text import fit
from tui.kit.theme import Line
from tui.map.cards import FACTS, columns_of
from tui.map.fleetmap import CARDS, FleetMap, cursor_legend, cursor_words
from tui.map.grid import Zoom
from tui.screens.fleet import role_pieces
from tui.screens.history import share_room
from tui.screens.lists import EVENTS, third_lines
from tui.screens.load_history import past_lines
from tui.screens.view import COMPARE_KEYS, COPY_KEYS, FILTER_KEYS, View
from tui.state.chain import ChainRow, chain_rows
from tui.state.circuits import Now, bar_tone, countdown, tone_of
from tui.state.dashboard_state import DashboardState
from tui.state.documents import CHAIN
from tui.state.incidents import alert_lines
from tui.state.metrics import BASE, GROUPS, METRICS, STATE
from tui.state.readings import COLUMNS
from tui.state.row_status import RowStatus
from tui.state.verdict import trend_lines, verdict_lines
from tui.tables.fields import gpu_fields
from tui.tables.filter import ALL, Mask
from tui.tables.listing import gpu_mark

MOST_LOADS, MOST_LINES = 4, 60
"""Circuits whose load is drawn at most, and lines of each."""
CHAIN_TITLE, LIST_TITLE = "Power chain", "Circuits by time to trip"
LEAST_PANES = (4, 7)
"""Lines that the panes keep where the headline takes some of theirs, without and with frames. The map keeps all of its own:
fewer would show several GPUs as one sign."""
ROOM_FOR_SPARE = 64
"""Columns from which on circuits of the tree have their headroom."""
POWER_CHAIN = DocumentRequest(CHAIN, ChainReply, 2.0)
ROOM_FOR_EVENTS = 14
"""Lines of the pane of alerts from which on events are below them."""


def circuit_bars(state: DashboardState, since: Now, most: int) -> list[Bar]:
    """Return bars of the most urgent circuits."""
    return [_circuit_bar(state, one, since) for one in state.urgent[:most]]


def _circuit_bar(
    state: DashboardState, circuit: CircuitState, since: Now, lead: str = "", dark: str = "", *, spare: bool = True
) -> Bar:
    """`dark`: why nothing flows through it, in place of what happens next; `spare`: whether the headroom is shown."""
    status = state.circuit_status.get(circuit.id, RowStatus.OK)
    text, tone = (dark, "crit") if dark else countdown(circuit, status, since, short=True)
    load, room = (ABSENT, ABSENT) if dark else (share_row(circuit).short, headroom_row(circuit).value)
    return Bar(
        circuit.id,
        0.0 if dark else share(circuit),
        bar_tone(status),
        [
            (f"{load:>5} ", tone_of(status)),
            (fit(text, 16), tone),
            *([(fit(room, 10, right=True), "dim")] if spare else []),
        ],
        Limits(bar_marks(circuit), assumed_share(circuit)) if circuit.rated_amps else None,
        lead,
    )


def chain_bars(state: DashboardState, rows: Sequence[ChainRow], since: Now, width: int) -> list[Bar]:
    """Return the power chain as a tree: circuits with their bars, nodes with what they draw at the wall. On a narrow
    screen the headroom makes room for the bars."""
    circuits = {one.id: one for one in state.circuits}
    found: list[Bar] = []
    for row in rows:
        piece = row.piece
        dark = NO_SHARE[piece.state] if piece.state in DARK else ""
        if piece.kind is ChainKind.SOURCE:
            found.append(Bar(piece.label, None, "bar", [(" " * 6, ""), (dark, "crit")], None, row.lead))
        elif piece.kind is ChainKind.NODE:
            its, (mark, tone) = node_row(piece), _SEVERITY.get(piece.severity, ("", ""))
            found.append(Bar(piece.label, None, "bar", [(f"{mark:>5} ", tone), (its.value, its.tone)], None, row.lead))
        else:
            its_state = circuits.get(piece.name) or CircuitState(piece.name)
            found.append(_circuit_bar(state, its_state, since, row.lead, dark, spare=width >= ROOM_FOR_SPARE))
    return found


_SEVERITY = {"page": ("▲", "crit"), "ticket": ("!", "warn")}


class Overview(View):
    """View 1: the map above, alerts and circuits below."""

    NAME: ClassVar[str] = "overview"
    TITLE: ClassVar[str] = "Overview"
    FRAME_KEYS = COPY_KEYS | COMPARE_KEYS | FILTER_KEYS
    DEFAULT_CSS = """
    Overview #panes { height: auto; }
    Overview .pane { width: 1fr; }
    Overview.-boxed FleetMap, Overview.-boxed .pane { border: round $frame; border-title-color: $dim; }
    """

    def compose(self) -> ComposeResult:
        """Yield the headline, the map, and the panes below."""
        tones = self.context.tones
        yield Surface(tones, id="verdict")
        yield FleetMap(tones, id="map")
        with Horizontal(id="panes"):
            yield Surface(tones, id="alerts")
            yield Surface(tones, id="circuits")

    def on_mount(self) -> None:
        """Find the parts."""
        self.verdict = self.query_one("#verdict", Surface)
        self.map = self.query_one("#map", FleetMap)
        self.alerts = self.query_one("#alerts", Surface)
        self.circuits = self.query_one("#circuits", Surface)
        self.alerts.add_class("pane")
        self.circuits.add_class("pane")

    def wants(self) -> Wants:
        """Return the metric that the map shows, and those by which a GPU counts as reporting."""
        status = self.context.shown.status
        if status is not None and columns_of(status.gpus, *self.size):
            return Wants((*COLUMNS, *FACTS), documents=(EVENTS, POWER_CHAIN))
        word = self.map.metric or "power"
        columns = METRICS[word].columns if word in METRICS else ()
        events = (EVENTS, POWER_CHAIN) if self.size.width >= WIDE else (POWER_CHAIN,)
        return Wants(tuple(dict.fromkeys((*BASE, *columns))), documents=events)

    def first(self) -> Widget:
        """Return the map."""
        return self.map

    def place(self) -> str:
        """Return the GPU under the cursor, in words."""
        return cursor_words(self.context.shown, self.map.cursor, self.map.shown_metric)

    def chosen(self) -> tuple[str, str] | None:
        """Return the GPU under the cursor."""
        uuid = self.map.cursor
        return None if uuid is None or uuid not in self.context.shown.gpus.row_of else ("gpu", uuid)

    def draw(self) -> None:
        """Draw the map at the height that it needs, and the panes in the rest."""
        state, (width, height) = self.context.shown, self.size
        if width < 1 or height < 1:
            return
        wide = width >= WIDE and not self.context.tones.ascii_only
        frame = 2 if wide else 0
        few = columns_of(len(state.gpus), width, height) > 0
        least = 3 if not wide else max(6, height // (3 if few else 6))
        need = self.map.need(state, width - frame - (2 if wide else 0), max(1, height - least - 2 * frame))
        rest = height - need - frame
        verdict = verdict_lines(state, width)
        trend = trend_lines(state, width) if verdict else []
        # On a small screen the alerts and circuits of now come before what was an hour ago.
        listed = len(state.incidents) + len(state.circuits) + 2
        if wide or rest - len(verdict) - len(trend) >= listed:
            verdict += trend
        verdict = verdict[: max(0, rest - LEAST_PANES[wide])]
        rest -= len(verdict)
        shape = (wide, width, height, need, len(verdict), len(state.incidents), len(state.circuits))
        if shape != self._shape:  # a style that is set again lays all out again, changed or not
            self._shape = shape
            self.verdict.styles.height = len(verdict)
            self.verdict.display = bool(verdict)
            self._lay_out(wide, need + frame, rest)
        self.verdict.show(lambda _w, _h: verdict, faded=self.faded)
        self._fill(titled=not wide and rest > 4)
        if wide:
            title = f"{self.map.legend()}  {self._keys()}"
            if title != self._title:
                self._title = self.map.border_title = title
            under = cursor_legend(state, self.map.cursor)
            if under != self.map.border_subtitle:
                self.map.border_subtitle = Text(self.context.tones.as_text(under))
            chain = f"{CHAIN_TITLE if chain_rows(state, rest - frame) else LIST_TITLE}  [4]"
            if chain != self.circuits.border_title:
                self.circuits.border_title = chain

    _shape: object = None
    _title = ""

    def _lay_out(self, wide: bool, tall: int, rest: int) -> None:
        state, beside = self.context.shown, self.size.width >= WIDE
        self.set_class(wide, "-boxed")
        self.map.styles.height = tall
        self.map.styles.padding = (0, 1) if wide else 0
        panes = self.query_one("#panes")
        panes.styles.height = rest
        panes.styles.layout = "horizontal" if beside else "vertical"
        for pane in (self.alerts, self.circuits):
            pane.styles.width = "1fr" if beside else "100%"
            pane.styles.height = rest if beside else "1fr"
            pane.styles.padding = (0, 1) if wide else 0
        self.circuits.display = True
        if not beside:
            count = max(1, len(state.incidents)) + (1 if rest > 4 else 0)
            alerts = min(count, max(3, rest - len(state.circuits) - 1))
            alerts = min(alerts, rest) if state.circuits and rest > 4 else rest
            self.alerts.styles.height = alerts
            self.circuits.styles.height = rest - alerts
            self.circuits.display = rest > alerts
        if wide:
            self.alerts.border_title = "Alerts by cause  [5]"

    def _keys(self) -> str:
        return "m metric  z zoom  b group"

    def _fill(self, *, titled: bool) -> None:
        context, state = self.context, self.context.shown
        self.map.present(state, self._dimmed(state), faded=self.faded)
        since = context.since

        def circuits(width: int, height: int) -> list[Line]:
            lines: list[Line] = [[(LIST_TITLE, "head")]] if titled and height > 1 else []
            if not state.circuits:
                why = state.circuits_unknown or "no circuits configured: see docs/power.md"
                return [*lines, [(why, "dim")]]
            room = height - len(lines)
            rows = chain_rows(state, room)
            if rows and lines:
                lines = [[(CHAIN_TITLE, "head")]]
            count = len(rows or state.circuits)
            bars = chain_bars(state, rows, since, width) if rows else circuit_bars(state, since, room)
            drawn = bar_list(bars[: room if count <= room else room - 1], width, room)
            if count > room:
                drawn.append([(f"  and {count - room + 1:,} more", "dim")])
            elif room - count >= 8:
                plots, tall = share_room(state.urgent[:MOST_LOADS], room - count)
                for each in plots:
                    past = context.circuit_load(each.id)
                    height_ = min(MOST_LINES, tall)
                    drawn += [[], *past_lines(each, past, width, height_, utc=context.utc)]
            return [*lines, *drawn]

        def alerts(width: int, height: int) -> list[Line]:
            lines: list[Line] = [[("Alerts by cause", "head")]] if titled and height > 1 else []
            others = role_pieces(state, all_roles=False) if height > 3 else []
            if others:
                lines += flow([[("without GPUs: ", "dim")], *others], width)[:1]
            if height < ROOM_FOR_EVENTS:
                return [*lines, *alert_lines(state, width, height - len(lines))]
            shown = alert_lines(state, width, max(4, height // 2))
            events = third_lines(
                state,
                state.doc(EVENTS.path, EventsReply),
                state.fault(EVENTS.path),
                width,
                height - len(lines) - len(shown) - 1,
                utc=context.utc,
                alerts=False,
            )
            return [*lines, *shown, [], *events]

        self.alerts.show(alerts, faded=self.faded)
        self.circuits.show(circuits, faded=self.faded)

    def _dimmed(self, state: DashboardState) -> Mask | None:
        """Return the GPUs that a filter leaves out: the map shows them without colour."""
        wanted = self.wanted
        if wanted is ALL and not self.context.faults:
            return None
        mask = wanted.mask(gpu_fields(state, state.gpus), len(state.gpus))
        return ~(mask & (state.gpu_status > RowStatus.OK) if self.context.faults else mask)

    @on(FleetMap.GpuSelected)
    def _selected(self) -> None:
        self.do_open()

    def do_open(self) -> None:
        """Open the GPU under the cursor."""
        chosen = self.chosen()
        if chosen is None:
            self.map.action_end(-1)
        else:
            self.context.frame.open(*chosen)

    def do_metric(self) -> None:
        """Show the next metric."""
        words = [*METRICS, STATE]
        self.map.metric = words[(words.index(self.map.shown_metric) + 1) % len(words)]
        self.context.frame.request_data()

    def do_zoom(self) -> None:
        """Show the next zoom that makes sense."""
        count = len(self.context.shown.gpus)
        zooms = [
            *([CARDS] if self.map.fits_cards else []),
            *(z.value for z in Zoom if z is not Zoom.DIGITS or count <= 4 * 400),
        ]
        now = self.map.shown_zoom
        self.map.zoom = zooms[(zooms.index(now) + 1) % len(zooms)] if now in zooms else zooms[0]
        self.context.frame.redraw()

    def do_group(self) -> None:
        """Order the map by the next group."""
        self.map.group = GROUPS[(GROUPS.index(self.map.group) + 1) % len(GROUPS)]
        self.app.notify(f"map by {self.map.group}", timeout=2)
        self.context.frame.redraw()

    def do_next_fault(self) -> None:
        """Go to the next GPU with a fault."""
        self.map.to_fault(1)

    def do_previous_fault(self) -> None:
        """Go to the previous GPU with a fault."""
        self.map.to_fault(-1)

    def record(self) -> Any:
        """Return the GPU under the cursor."""
        rows = self.table()
        chosen = self.chosen()
        return next((row for row in rows if chosen is not None and row["uuid"] == chosen[1]), None)

    def table(self) -> list[dict[str, Any]]:
        """Return every GPU, with the columns of the map."""
        state = self.context.shown
        who = state.gpus.who
        columns = {name: state.gpus.column(name).tolist() for name in state.gpus.columns}
        return [
            {"node": who.node[row], "gpu": who.gpu[row], "uuid": who.uuid[row], "model": who.name[row],
             "state": gpu_mark(state, row)[0].partition(" ")[2].lower(),
             **{name: None if np.isnan(values[row]) else values[row] for name, values in columns.items()}}
            for row in state.gpus.order.tolist()
        ]  # fmt: skip
