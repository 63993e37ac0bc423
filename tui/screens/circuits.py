"""The circuits as a tree, what each could lose, and what would relieve it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec
import numpy as np
from textual.app import ComposeResult
from textual.containers import Horizontal

from tui.board import POWER_PAGE, Board, Standing
from tui.circuits import (
    Now,
    bar_tone,
    countdown,
    headroom,
    members,
    most,
    relief,
    tone_of,
    tree,
)
from tui.client import ActionError, Wants
from tui.columns import Column
from tui.fields import circuit_fields
from tui.filter import Filter
from tui.kit.bars import over
from tui.kit.chart import Mark, bridge, chart, resample
from tui.kit.flow import flow, wrapped
from tui.kit.surface import Drawing, Surface
from tui.listing import MARKS, Listing
from tui.messages import Circuit, Plan
from tui.screens.history import say_watts
from tui.screens.lists import ListView
from tui.screens.page import PageView
from tui.table import VirtualTable
from tui.text import DASH, clean, clock, clock_of, fit, number, percent, span, watts
from tui.theme import Line, Piece


class Rows:
    """What the cells of the table are drawn from."""

    def __init__(
        self, board: Board, rows: Sequence[tuple[int, Circuit]], now: Now, folded: frozenset[str]
    ) -> None:
        self.board, self.rows, self.now, self.folded = board, rows, now, folded
        self.parents = {circuit.parent for circuit in board.circuits}

    def circuit(self, row: int) -> Circuit:
        """The circuit of a row."""
        return self.rows[row][1]

    def standing(self, row: int) -> Standing:
        """What fires on it."""
        return self.board.circuit_standing.get(self.circuit(row).id, Standing.OK)


def _name(source: Rows, row: int, width: int) -> Piece:
    depth, circuit = source.rows[row]
    fold = "▶ " if circuit.id in source.folded else "▼ " if circuit.id in source.parents else "  "
    return f"{'  ' * depth}{fold}{clean(circuit.id)}", "strong" if fold != "  " else ""


def _countdown(source: Rows, row: int, width: int) -> Piece:
    return countdown(source.circuit(row), source.standing(row), source.now, short=True)


COLUMNS: tuple[Column[Rows], ...] = (
    Column("STATE", 7, lambda s, row, _: MARKS[s.standing(row)]),
    Column("circuit", 14, _name, grow=2, most=34),
    Column("load", 8, lambda s, row, _: (watts(s.circuit(row).watts), ""), right=True),
    Column("all day", 8, lambda s, row, _: (watts(most(s.circuit(row))), "dim"), right=True),
    Column("%", 4, lambda s, row, _: (percent(s.circuit(row).load_ratio), tone_of(s.standing(row))), right=True),
    Column("", 8, lambda s, row, width: (over(s.circuit(row).load_ratio, width), bar_tone(s.standing(row))), grow=3, most=30),
    Column("what next", 15, _countdown, grow=1, most=28),
    Column("headroom", 9, lambda s, row, _: (headroom(s.circuit(row)), "dim"), right=True),
)  # fmt: skip


class CircuitsView(ListView):
    """View 4."""

    NAME, TITLE, KIND = "circuits", "Circuits", "circuit"
    SORTS = ("", "what next", "%")
    folded: frozenset[str] = frozenset()

    def compose(self) -> ComposeResult:
        """The table, its side, and below what would happen."""
        with Horizontal():
            yield VirtualTable(self.top.tones, id="circuits-table")
            yield Surface(self.top.tones, id="circuits-side")
        yield Surface(self.top.tones, id="circuits-below")

    _answer: Sequence[Line] = ()

    @property
    def below(self) -> Surface:
        """Under the table: what would relieve a circuit, or the answer to a what-if."""
        return self.query_one("#circuits-below", Surface)

    def wants(self) -> Wants:
        """What the header has already."""
        return Wants(nodes=())

    def listing(self, wanted: Filter) -> Listing[Any]:
        """The tree; sorted or filtered, a list."""
        board = self.top.shown
        if self.sort == "":
            rows = tree(board.circuits, self.folded)
        else:
            by_load = sorted(board.circuits, key=lambda c: -(c.load_ratio or 0.0))
            rows = [
                (0, circuit) for circuit in (board.urgent if self.sort == "what next" else by_load)
            ]
        circuits = [circuit for _, circuit in rows]
        mask = wanted.mask(circuit_fields(board, circuits), len(circuits))
        if self.top.faults:
            mask &= np.array(
                [board.circuit_standing.get(c.id, 0) > 0 for c in circuits], bool
            ).reshape(len(mask))
        order = np.flatnonzero(mask)
        nothing = "no circuits configured: write [power.circuits.NAME] in the aggregator's settings, see docs/power.md"
        if board.came(POWER_PAGE) == 0:
            nothing = "loading …"
        return Listing(Rows(board, rows, self.top.since, self.folded), COLUMNS,
                       order[::-1] if self.reverse else order, [c.id for c in circuits],
                       len(circuits), self.sort, nothing)  # fmt: skip

    def detail(self, key: str) -> Drawing:
        """The circuit's page."""
        top = self.top
        return lambda width, height: circuit_lines(
            top.shown, key, top.circuit_past(key), top.since, width, height, utc=top.utc
        )

    def draw(self) -> None:
        """Show the board, and the last answer to a what-if."""
        super().draw()
        answer = self._answer or self._hint()
        self.below.styles.height = min(len(answer), max(3, self.size.height // 3))
        self.below.show(lambda _w, _h: answer, faded=self.top.faded)

    def _hint(self) -> list[Line]:
        """On a narrow screen: what would relieve the circuit under the cursor."""
        if self.rows.key is None:
            return []
        circuit = next((c for c in self.top.shown.circuits if c.id == self.rows.key), None)
        if circuit is None or self.beside is not None:
            return []
        said, command = relief(circuit)
        if not said:
            return []
        width = max(20, self.size.width - 2)
        text = f"relief: {said}" + ("   [y] copies the command" if command else "")
        return [[(line, "")] for line in wrapped(text, width)[:4]]

    def do_fold(self) -> None:
        """Hide what the circuit under the cursor feeds."""
        if self.rows.key is not None:
            self.folded |= {self.rows.key}
            self.top.redraw()

    def do_unfold(self) -> None:
        """Show it."""
        if self.rows.key is not None:
            self.folded -= {self.rows.key}
            self.top.redraw()

    def do_what_if(self) -> None:
        """Ask what happens when the circuit under the cursor is lost."""
        if self.rows.key is not None:
            name = self.rows.key
            self._answer = [[(f"what if {clean(name)} is lost: asking …", "dim")]]
            self.top.redraw()
            self.run_worker(self._ask(name), exclusive=True, group="what-if")

    async def _ask(self, name: str) -> None:
        try:
            raw = await self.top.feed.act("POST", "api/v1/power/plan", {"lose": [name]})
            plan = msgspec.json.decode(raw, type=Plan)
            self._answer = what_if_lines(name, plan, self.top.shown)
        except (ActionError, msgspec.DecodeError) as error:
            self._answer = [[(f"what if {clean(name)} is lost: {clean(str(error))}", "warn")]]
        self.top.redraw()

    def do_back(self) -> bool:
        """Take the answer away first."""
        had, self._answer = bool(self._answer), ()
        return had

    def do_copy(self) -> None:
        """Copy the command that relieves the circuit, else its name."""
        circuit = next((c for c in self.top.shown.circuits if c.id == self.rows.key), None)
        command = relief(circuit)[1] if circuit is not None else ""
        self.top.copy(command or (self.rows.key or ""))

    def record(self) -> Any:
        """The circuit under the cursor."""
        return next((c for c in self.top.shown.circuits if c.id == self.rows.key), None)


def what_if_lines(name: str, plan: Plan, board: Board) -> list[Line]:
    """Say what a loss does to the others, worst first."""
    before = {circuit.id: circuit.load_ratio or 0.0 for circuit in board.circuits}
    others = [c for c in (*plan.panels, *plan.circuits) if c.id != name and c.load_ratio is not None
              and c.load_ratio > before.get(c.id, 0.0) + 0.005]  # fmt: skip
    others.sort(
        key=lambda c: ((c.trip_seconds or {}).get("earliest") or 1e12, -(c.load_ratio or 0))
    )
    title = f"what if {clean(name)} is lost"
    if not others:
        return [
            [(f"{title}: no other circuit takes its load; what hangs on it goes dark", "strong")]
        ]
    over_ = sum((c.load_ratio or 0) > 1 for c in others)
    lines: list[Line] = [
        [(f"{title}: {len(others)} take more, {over_} of them over 100%", "strong")]
    ]
    for circuit in others[:5]:
        trip = (circuit.trip_seconds or {}).get("earliest")
        said = "does not trip" if trip is None else f"may trip in {clock(trip)}"
        lines.append([(f"  {clean(circuit.id):<20} ", ""), (f"{percent(before.get(circuit.id))} → {percent(circuit.load_ratio)}  ", ""),
                      (said, "crit" if trip is not None else "dim")])  # fmt: skip
    if len(others) > 5:
        lines.append([(f"  and {number(len(others) - 5)} more", "dim")])
    return lines


def circuit_lines(board: Board, name: str, past: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]], since: Now,
                  width: int, height: int, *, utc: bool) -> list[Line]:  # fmt: skip
    """Draw the page of a circuit."""
    circuit = next((each for each in board.circuits if each.id == name), None)
    if circuit is None:
        return [
            [
                (
                    f"there is no circuit {clean(name)} any more"
                    if board.circuits
                    else "loading …",
                    "dim",
                )
            ]
        ]
    standing = board.circuit_standing.get(name, Standing.OK)
    facts = circuit.facts
    said, tone = countdown(circuit, standing, since)
    trip = circuit.trip_seconds
    edges = (
        f"  typically {clock(trip.nominal) if trip.nominal is not None else 'never'},"
        f" at the latest {clock(trip.latest) if trip.latest is not None else 'never'} (an estimate)"
    )
    heat = circuit.heat_ratio
    amps = "  ".join(f"{pole} {number(value, 1)}" for pole, value in circuit.amps.items())
    head: list[list[Piece]] = [
        [(clean(name), "strong"), (f"  {circuit.kind}", "dim")],
        [(f"  {clean(facts.get('breaker', ''))}", "")],
        [(f"  fed by {clean(circuit.parent)}", "dim")] if circuit.parent else [],
    ]
    next_: list[list[Piece]] = [
        [(said if said != DASH else "does not trip at this load", tone)],
        [(edges, "dim")] if trip.earliest is not None else [],
    ]
    load: list[list[Piece]] = [
        [("load  ", "dim"), (watts(circuit.watts), "strong"),
         (f" ± {watts(circuit.sigma_watts)}" if circuit.sigma_watts else "", "dim"),
         (f" by {clean(circuit.source or DASH)}", "dim")],
        [(f"  {percent(circuit.load_ratio)} of {number(circuit.rated_amps)} A", "")],
        [(f"  {percent(circuit.continuous_ratio)} of what it may carry all day", tone_of(standing))],
        [("  headroom ", "dim"), (headroom(circuit), "")],
    ]  # fmt: skip
    flows: list[list[Piece]] = [
        [("amps  ", "dim"), (amps, "")],
        [("  committed ", "dim"), (watts(circuit.committed_watts), ""),
         (f" {percent(circuit.committed_continuous_ratio)}", "dim")],
    ]  # fmt: skip
    lines: list[Line] = [
        *flow(head, width), *flow(next_, width), *flow(load, width), *flow(flows, width),
        [("heat  ", "dim"), (over(heat, min(30, max(8, width - 40))), "bar_crit" if (heat or 0) > 0.9 else "bar"),
         (f" {percent(heat)} of what trips it", "")],
    ]  # fmt: skip
    if circuit.survivor_continuous_ratio is not None:
        lines.append([("if the other feed goes  ", "dim"),
                      (f"{percent(circuit.survivor_continuous_ratio)} of what it may carry all day",
                       "warn" if circuit.survivor_continuous_ratio > 1 else "")])  # fmt: skip
    if circuit.forecast_continuous_seconds is not None:
        lines.append(
            [
                ("trend ", "dim"),
                (f"all-day limit in {span(circuit.forecast_continuous_seconds)}", ""),
            ]
        )
    text, command = relief(circuit)
    if text:
        lines += [
            [("relief ", "dim") if n == 0 else ("       ", ""), (line, "")]
            for n, line in enumerate(wrapped(text, max(20, width - 8))[:5])
        ]
        if command:
            lines.append([("       [y] copies ", "dim"), (command, "key")])
    nodes = members(board, name)
    tail = _members(board, nodes, width)
    room = height - len(lines) - len(tail)
    if room >= 6:
        lines += past_lines(circuit, past, width, min(room, 14), utc=utc)
    return [*lines, *tail]


def past_lines(circuit: Circuit, past: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]], width: int, height: int, *,
          utc: bool) -> list[Line]:  # fmt: skip
    at, values = past
    limit = most(circuit)
    rated = (
        None
        if limit is None or not circuit.continuous_amps or not circuit.rated_amps
        else limit * circuit.rated_amps / circuit.continuous_amps
    )
    if len(at) < 5:
        return [[(f"{clean(circuit.id)} load W", "strong"), ("  under five samples yet", "dim")]]
    start, end = float(at[0]), float(at[-1])
    ahead = (end - start) * 0.25
    points = 2 * max(1, width - 7)
    spaced = resample(at.astype(np.float64), values.astype(np.float64), start, end + ahead, points)
    apart = float(np.median(np.diff(at))) * points / (end + ahead - start)
    spaced = bridge(spaced, int(np.ceil(apart * 1.5)))
    top = 1.15 * max(filter(None, [rated, limit, float(np.nanmax(values))]))
    marks = [Mark(level, word, tone) for level, word, tone in
             ((limit, "all day", "warn"), (rated, "breaker", "crit")) if level is not None]  # fmt: skip
    title: Line = [
        (f"{clean(circuit.id)} load W", "strong"),
        (f"  seen since {clock_of(int(start), utc=utc)}, and where the trend goes", "dim"),
    ]
    drawn = chart(_with_trend(spaced, points), (0.0, top), width, height - 2, say_watts, marks)
    return [title, *drawn, _axis(clock_of(int(start), utc=utc)[:8], span(ahead / 1e9), width - 7)]


def _axis(first: str, ahead: str, room: int) -> Line:
    """Times below a chart whose last fifth is to come."""
    room = max(1, room)
    last = f"+{ahead}".replace(" ", "")
    line = f"{first}{'now':>{max(4, room * 4 // 5 - len(first))}}"
    return [(" " * 7 + fit(line, room - len(last)) + last, "dim")]


def _with_trend(values: np.ndarray[Any, Any], points: int) -> np.ndarray[Any, Any]:
    """Go on for the last fifth as the last half went: a dotted continuation, every other point."""
    known = np.flatnonzero(~np.isnan(values))
    if len(known) < 8:
        return values
    half = known[len(known) // 2 :]
    slope, level = np.polyfit(half, values[half], 1)
    result = values.copy()
    future = np.arange(known[-1] + 1, points)
    result[future[::3]] = slope * future[::3] + level
    return result


def _members(board: Board, nodes: Sequence[str], width: int) -> list[Line]:
    if not nodes:
        return []
    lines: list[Line] = [[(f"{number(len(nodes))} nodes on it", "head")]]
    heaviest = sorted(nodes, key=lambda n: -(board.wall.get(n) or 0.0))[:6]
    lines += [
        [(f"  {fit(clean(node), 24)} ", ""), (f"{watts(board.wall.get(node)):>9}", "")]
        for node in heaviest
    ]
    if len(nodes) > 6:
        lines.append([(f"  and {number(len(nodes) - 6)} more", "dim")])
    return lines


class CircuitView(PageView):
    """A circuit's page."""

    NAME: ClassVar[str] = "circuit"
    TITLE: ClassVar[str] = "Circuit"

    def lines(self, width: int, height: int) -> list[Line]:
        """Draw it."""
        top = self.top
        return circuit_lines(
            top.shown,
            self.subject,
            top.circuit_past(self.subject),
            top.since,
            width,
            height,
            utc=top.utc,
        )

    def chosen(self) -> tuple[str, str]:
        """Itself."""
        return "circuit", self.subject

    def neighbours(self) -> list[str]:
        """All circuits."""
        return [circuit.id for circuit in self.top.shown.circuits]

    def title(self) -> str:
        """Its name."""
        return clean(self.subject)

    def do_copy(self) -> None:
        """Copy the command that relieves it, else its name."""
        circuit = self.record()
        self.top.copy((relief(circuit)[1] if circuit is not None else "") or self.subject)

    def record(self) -> Any:
        """All that is known of it."""
        return next((c for c in self.top.shown.circuits if c.id == self.subject), None)
