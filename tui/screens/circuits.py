"""The list of circuits as a tree, with the relief of each, and what its loss would do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from textual.app import ComposeResult
from textual.containers import Horizontal

from api.decoding import decode
from api.power import CircuitState, LossPlan, PlanRequest, PlanResult
from present.circuit.figures import continuous_watts, share, tree
from present.circuit.losses import limit_share, planned_trip, survivor_words
from present.circuit.rows import headroom_row, load_row, relief_command, relief_row, share_row, state_row
from present.circuit.rules import NO_CIRCUITS
from present.row import Tone
from present.units import number, percent, watts
from telemetry.text import counted, short_duration
from tui.feed.requests import ActionError
from tui.feed.wants import Wants
from tui.kit.bars import over
from tui.kit.flow import wrapped
from tui.kit.surface import Drawing, Surface
from tui.kit.text import clean
from tui.kit.theme import Line, Piece
from tui.screens.circuit import circuit_documents, circuit_lines
from tui.screens.lists import ListView
from tui.state.circuits import Now, bar_tone, countdown, tone_of
from tui.state.dashboard_state import DashboardState
from tui.state.row_status import RowStatus
from tui.tables.columns import TableColumn
from tui.tables.fields import CIRCUIT_KEYS, circuit_fields
from tui.tables.filter import Filter
from tui.tables.listing import MARKS, Listing


def what_if_lines(name: str, plan: PlanResult, state: DashboardState) -> list[Line]:
    """Draw what a loss does to the other circuits, worst first."""
    before = {circuit.id: circuit.load_ratio or 0.0 for circuit in state.circuits}
    others = [
        c for c in (*plan.panels, *plan.circuits) if c.id != name and c.load_ratio > before.get(c.id, 0.0) + 0.005
    ]
    others.sort(key=lambda c: (c.trip_seconds.get("earliest") or 1e12, -c.load_ratio))
    title = f"what if {clean(name)} is lost"
    if not others:
        return [
            [(f"{title}: no other circuit takes its load; what hangs on it goes dark", "strong")],
            *_second_losses(plan),
        ]
    over_ = sum(c.load_ratio > 1 for c in others)
    lines: list[Line] = [[(f"{title}: {len(others)} take more, {over_} of them over 100%", "strong")]]
    for circuit in others[:5]:
        trip = planned_trip(circuit)
        lines.append(
            [
                (f"  {clean(circuit.id):<20} ", ""),
                (f"{percent(before.get(circuit.id))} → {percent(circuit.load_ratio)}  ", ""),
                (trip.brief, trip.tone),
            ]
        )
    if len(others) > 5:
        lines.append([(f"  and {number(len(others) - 5)} more", "dim")])
    return [*lines, *_second_losses(plan)]


def uncomputed_lines(state: DashboardState, width: int) -> list[Line]:
    """Draw the parts that alone can't be computed: the first, and how many more."""
    found = state.circuits_set_aside
    more = f" (and {counted(len(found) - 1, 'more part')})" if len(found) > 1 else ""
    text = "".join(f"{clean(line)}{more}" for line in found[:1])
    return [[(line, "warn")] for line in wrapped(text, max(20, width - 2))[:3] if line]


SECOND = 4
"""Second losses that are listed."""


def _second_losses(plan: PlanResult) -> list[Line]:
    """Draw what another loss on top does: nodes that go dark first, then the worst overload."""
    found = sorted(plan.losses, key=lambda loss: (-len(loss.unfed), -_worst_ratio(loss)))
    lines: list[Line] = [[("and if another is lost as well:", "strong")]] if found else []
    for loss in found[:SECOND]:
        worst = max(loss.overloaded, key=limit_share, default=None)
        parts: list[Piece] = [(f"  {clean(' + '.join(loss.lost)):<20} ", "")]
        if loss.unfed:
            parts.append((f"{counted(len(loss.unfed), 'node')} without power  ", "crit"))
        if worst is not None:
            rest = len(loss.overloaded) - 1
            more = f" and {number(rest)} more" if rest else ""
            parts.append((f"{clean(worst.id)} {survivor_words(worst)}{more}", "warn"))
        lines.append(parts)
    if len(found) > SECOND:
        lines.append([(f"  and {number(len(found) - SECOND)} more losses", "dim")])
    return lines


def _worst_ratio(loss: LossPlan) -> float:
    return max(map(limit_share, loss.overloaded), default=0.0)


class CircuitSource:
    """The data of the cells."""

    def __init__(
        self, state: DashboardState, rows: Sequence[tuple[int, CircuitState]], now: Now, folded: frozenset[str]
    ) -> None:
        self.state, self.rows, self.now, self.folded = state, rows, now, folded
        self.parents = {circuit.parent for circuit in state.circuits}

    def circuit(self, row: int) -> CircuitState:
        """Return the circuit of a row."""
        return self.rows[row][1]

    def status(self, row: int) -> RowStatus:
        """Return the status of a row, by its alerts."""
        return self.state.circuit_status.get(self.circuit(row).id, RowStatus.OK)


def _name(source: CircuitSource, row: int, width: int) -> Piece:
    depth, circuit = source.rows[row]
    fold = "▶ " if circuit.id in source.folded else "▼ " if circuit.id in source.parents else "  "
    return f"{'  ' * depth}{fold}{clean(circuit.id)}", "strong" if fold != "  " else ""


def _countdown(source: CircuitSource, row: int, width: int) -> Piece:
    return countdown(source.circuit(row), source.status(row), source.now, short=True)


def _known(circuit: CircuitState) -> Piece:
    """Return how the load is known; of one that nobody reports now, since when."""
    row = state_row(circuit)
    held = row.tone is Tone.STALE and row.since is not None
    return f"{row.value}{f' {short_duration(row.since)}' if held else ''}", row.tone


def _load(circuit: CircuitState) -> Piece:
    row = load_row(circuit)
    return row.short or row.value, row.tone if row.tone is Tone.STALE else ""


COLUMNS: tuple[TableColumn[CircuitSource], ...] = (
    TableColumn("STATE", 6, lambda s, row, _: MARKS[s.status(row)]),
    TableColumn("circuit", 14, _name, grow=2, most=34),
    TableColumn("load 10s", 8, lambda s, row, _: _load(s.circuit(row)), right=True),
    TableColumn("load is", 10, lambda s, row, _: _known(s.circuit(row)), grow=1, most=16),
    TableColumn("breaker", 7, lambda s, row, _: (share_row(s.circuit(row)).short, tone_of(s.status(row))), right=True),
    TableColumn("", 4, lambda s, row, width: (over(share(s.circuit(row)), width), bar_tone(s.status(row))), grow=3, most=30),
    TableColumn("what next", 14, _countdown, grow=1, most=28),
    TableColumn("continuous", 10, lambda s, row, _: (watts(continuous_watts(s.circuit(row))), "dim"), right=True, need=92),
    TableColumn("headroom", 10, lambda s, row, _: (headroom_row(s.circuit(row)).value, "dim"), right=True),
)  # fmt: skip


class CircuitsView(ListView):
    """View 4: circuits."""

    NAME, TITLE, KIND = "circuits", "Circuits", "circuit"
    FILTERED_BY = CIRCUIT_KEYS
    SORTS = ("", "what next", "breaker")
    folded: frozenset[str] = frozenset()

    def compose(self) -> ComposeResult:
        """Yield the table, the detail, and the line below."""
        with Horizontal():
            yield from self.columns()
        yield Surface(self.context.tones, id="circuits-below")

    _answer: Sequence[Line] = ()

    @property
    def below(self) -> Surface:
        """The lines under the table: relief of a circuit, or the answer to a what-if."""
        return self.query_one("#circuits-below", Surface)

    def wants(self) -> Wants:
        """Return the page of the circuit under the cursor; for the others the header's documents suffice."""
        page = () if self.rows.key is None else circuit_documents(self.rows.key)
        return Wants(nodes=(), documents=(*page, *self.also()))

    @property
    def _chosen(self) -> CircuitState | None:
        """The circuit under the cursor."""
        return None if self.rows.key is None else self.context.shown.circuit(self.rows.key)

    def listing(self, wanted: Filter) -> Listing[Any]:
        """Return the tree; when sorted or filtered, a flat list."""
        state = self.context.shown
        if self.sort == "":
            rows = tree(state.circuits, self.folded)
        else:
            by_load = sorted(state.circuits, key=lambda c: -(share(c) or 0.0))
            rows = [(0, circuit) for circuit in (state.urgent if self.sort == "what next" else by_load)]
        circuits = [circuit for _, circuit in rows]
        mask = wanted.mask(circuit_fields(state, circuits), len(circuits))
        if self.context.faults:
            mask &= np.array([state.circuit_status.get(c.id, 0) > 0 for c in circuits], bool).reshape(len(mask))
        order = np.flatnonzero(mask)
        nothing = state.circuits_unknown or NO_CIRCUITS
        return Listing(
            CircuitSource(state, rows, self.context.since, self.folded),
            COLUMNS,
            order[::-1] if self.reverse else order,
            [c.id for c in circuits],
            len(circuits),
            self.sort,
            nothing,
        )

    def detail(self, key: str) -> Drawing:
        """Return the circuit's page."""
        context = self.context
        return lambda width, height: circuit_lines(
            context.shown,
            key,
            context.circuit_load(key),
            context.since,
            width,
            height,
            utc=context.utc,
            within=context.span,
        )

    _opened = False

    def draw(self) -> None:
        """Draw the table, and the last answer to a what-if."""
        if not self._opened and self.context.shown.circuits:
            self._opened = True
            self._to_worst()
        super().draw()
        answer = [*uncomputed_lines(self.context.shown, self.size.width), *(self._answer or self._hint())]
        self.below.styles.height = min(len(answer), max(3, self.size.height // (2 if self._answer else 3)))
        self.below.show(lambda _w, _h: answer, faded=self.faded)

    def _to_worst(self) -> None:
        """Select the most urgent circuit, if it has an alert."""
        state = self.context.shown
        fires = state.circuit_status
        worst = max(state.urgent, key=lambda circuit: fires.get(circuit.id, RowStatus.OK))
        if self.rows.key is None and fires.get(worst.id, RowStatus.OK) > RowStatus.OK:
            self.rows.select(worst.id)

    def _hint(self) -> list[Line]:
        """Return the relief of the circuit under the cursor, on a narrow screen."""
        if self.rows.key is None:
            return []
        circuit = self._chosen
        if circuit is None or self.beside is not None:
            return []
        words, command = self._relief(circuit)
        if not words:
            return []
        width = max(20, self.size.width - 2)
        text = f"relief: {words}" + ("   [y] copies the command" if command else "")
        return [[(line, "")] for line in wrapped(text, width)[:4]]

    def _relief(self, circuit: CircuitState) -> tuple[str, str]:
        """Return what relieves a circuit, and the command in it; empty where no limit is near."""
        alert = tone_of(self.context.shown.circuit_status.get(circuit.id, RowStatus.OK))
        words = clean(relief_row(circuit, alert).value)
        return words, relief_command(words)

    def do_fold(self) -> None:
        """Hide the children of the circuit under the cursor."""
        if self.rows.key is not None:
            self.folded |= {self.rows.key}
            self.context.frame.redraw()

    def do_unfold(self) -> None:
        """Show the children of the circuit under the cursor."""
        if self.rows.key is not None:
            self.folded -= {self.rows.key}
            self.context.frame.redraw()

    def do_what_if(self) -> None:
        """Ask what happens when the circuit under the cursor is lost."""
        if self.rows.key is not None:
            name = self.rows.key
            self._answer = [[(f"what if {clean(name)} is lost: computing …", "dim")]]
            self.context.frame.redraw()
            self.run_worker(self._ask(name), exclusive=True, group="what-if")

    async def _ask(self, name: str) -> None:
        try:
            raw = await self.context.feed.act("POST", "api/v1/power/plan", PlanRequest(lose=(name,)))
            plan = decode(raw, PlanResult)
            self._answer = what_if_lines(name, plan, self.context.shown)
        except (ActionError, msgspec.DecodeError) as error:
            self._answer = [[(f"what if {clean(name)} is lost: {clean(str(error))}", "warn")]]
        self.context.frame.redraw()

    def do_back(self) -> bool:
        """Remove the answer to a what-if, if there is one."""
        had, self._answer = bool(self._answer), ()
        return had

    def do_copy(self) -> None:
        """Copy the command that relieves the circuit, else its name."""
        circuit = self._chosen
        command = self._relief(circuit)[1] if circuit is not None else ""
        self.context.frame.copy(command or (self.rows.key or ""))

    def record(self) -> Any:
        """Return the circuit under the cursor."""
        return self._chosen
