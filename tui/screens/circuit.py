"""A circuit's page: load, time to trip, relief, and its nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from api.jobs import JobsReply
from api.power import CircuitReply, CircuitState
from present.circuit.outlook import outlook
from present.circuit.rows import (
    amps_row,
    assumed_row,
    commitment_row,
    headroom_row,
    heat_row,
    limits_row,
    load_row,
    loss_row,
    minute_row,
    now_row,
    relief_command,
    relief_row,
    share_row,
    state_row,
    trend_row,
)
from present.row import FactRow, Tone
from present.units import number, watts
from telemetry.text import counted, timer
from tui.feed.wants import DocumentRequest, Wants
from tui.kit.bars import over
from tui.kit.flow import flow, wrapped
from tui.kit.text import DASH, clean, fit
from tui.kit.theme import Line, Piece
from tui.screens.job_text import circuit_job_lines
from tui.screens.load_history import Past, past_lines
from tui.screens.page import PageView
from tui.state.circuit_columns import page_of
from tui.state.circuits import Now, countdown, members, tone_of
from tui.state.dashboard_state import DashboardState
from tui.state.documents import JOBS
from tui.state.row_status import RowStatus


def circuit_documents(name: str) -> tuple[DocumentRequest, ...]:
    """Return the documents of its page."""
    return (DocumentRequest(page_of(name), CircuitReply, 1.0), DocumentRequest(JOBS, JobsReply, 5.0))


def circuit_lines(
    state: DashboardState,
    name: str,
    past: Past,
    since: Now,
    width: int,
    height: int,
    *,
    utc: bool,
    within: int | None = None,
) -> list[Line]:
    """Draw the page of a circuit. `within`: seconds of its past, all without."""
    circuit = state.circuit(name)
    if circuit is None:
        gone = f"there is no circuit {clean(name)} any more"
        return [[(clean(state.circuits_unknown) or gone, "dim")]]
    status = state.circuit_status.get(name, RowStatus.OK)
    lines: list[Line] = [
        *flow(_what(circuit), width),
        *flow(_next(circuit, status, since), width),
        *(line for rows in _facts(circuit, tone_of(status)) for line in flow(_rows(*rows), width)),
        *_heat(circuit, width),
        *_relief(circuit, status, width),
    ]
    nodes = members(state, name)
    tail = [*_members(state, nodes, width), *circuit_job_lines(state.jobs, nodes, state.jobs_unknown, width)]
    room = height - len(lines) - len(tail)
    if room >= 6:
        lines += past_lines(circuit, past, width, min(room, 18), utc=utc, within=within)
    return [*lines, *tail]


def _what(circuit: CircuitState) -> list[list[Piece]]:
    parts: list[list[Piece]] = [
        [(clean(circuit.id), "strong"), (f"  {circuit.kind}", "dim")],
        [(f"  {clean(circuit.facts.get('breaker', ''))}", "")],
    ]
    return [*parts, [(f"  fed by {clean(circuit.parent)}", "dim")]] if circuit.parent else parts


def _next(circuit: CircuitState, status: RowStatus, since: Now) -> list[list[Piece]]:
    """Draw what happens next, and when it trips if the load stays: earliest, typical and latest."""
    row = outlook(circuit, tone_of(status), since.elapsed, timer)
    words, tone = countdown(circuit, status, since)
    first = (clean(row.value), row.tone) if words == DASH else (words, tone)
    return [[first], *[[(f"  {part}", "dim")] for part in clean(row.note).split("; ") if part]]


def _facts(circuit: CircuitState, alert: Tone) -> Iterator[tuple[FactRow, ...]]:
    """Yield the facts of each line: the windows of the load, of what it is made, and what it may become."""
    yield load_row(circuit), share_row(circuit), headroom_row(circuit)
    state = state_row(circuit)
    yield (now_row(circuit), *([state] if state.tone is Tone.STALE else []), amps_row(circuit), assumed_row(circuit))
    yield limits_row(circuit), minute_row(circuit, alert)
    yield commitment_row(circuit), loss_row(circuit), trend_row(circuit)


def _row(row: FactRow) -> list[Piece]:
    """Draw a fact with its label; nothing where there is nothing to say."""
    note = f", {row.note}" if row.note else ""
    return [(f"{row.label}  ", "dim"), (clean(row.brief), row.tone), (clean(note), "dim")] if row.value else []


def _rows(*rows: FactRow) -> list[list[Piece]]:
    """Draw facts behind each other."""
    drawn = [pieces for pieces in map(_row, rows) if pieces]
    return [[("" if n == 0 else "  ", ""), *pieces] for n, pieces in enumerate(drawn)]


def _heat(circuit: CircuitState, width: int) -> list[Line]:
    row, heat = heat_row(circuit), circuit.heat_ratio
    if heat is None:
        return [_row(row)]
    bar = over(heat, min(30, max(4, width - 38)))
    tone = "bar_crit" if heat > 0.9 else "bar"
    return flow([[(f"{row.label}  ", "dim"), (bar, tone)], [(f" {row.value}", "")]], width)


def _relief(circuit: CircuitState, status: RowStatus, width: int) -> list[Line]:
    text = clean(relief_row(circuit, tone_of(status)).value)
    if not text:
        return []
    lines: list[Line] = [
        [("relief ", "dim") if n == 0 else ("       ", ""), (line, "")]
        for n, line in enumerate(wrapped(text, max(20, width - 8))[:5])
    ]
    command = relief_command(text)
    return [*lines, [("       [y] copies ", "dim"), (command, "key")]] if command else lines


def _members(state: DashboardState, nodes: Sequence[str], width: int) -> list[Line]:
    if not nodes:
        return []
    lines: list[Line] = [[(f"{counted(len(nodes), 'node')} on it", "head")]]
    heaviest = sorted(nodes, key=lambda n: -(state.wall.get(n) or 0.0))[:6]
    lines += [[(f"  {fit(clean(node), 24)} ", ""), (f"{watts(state.wall.get(node)):>9}", "")] for node in heaviest]
    if len(nodes) > 6:
        lines.append([(f"  and {number(len(nodes) - 6)} more", "dim")])
    return lines


class CircuitView(PageView):
    """The page of a circuit."""

    NAME: ClassVar[str] = "circuit"
    TITLE: ClassVar[str] = "Circuit"

    def wants(self) -> Wants:
        """Return the circuit with all its fields."""
        return Wants(nodes=(), documents=circuit_documents(self.subject))

    def lines(self, width: int, height: int) -> list[Line]:
        """Draw the page."""
        context = self.context
        return circuit_lines(
            context.shown,
            self.subject,
            context.circuit_load(self.subject),
            context.since,
            width,
            height,
            utc=context.utc,
            within=context.span,
        )

    def neighbours(self) -> list[str]:
        """Return all circuits."""
        return [circuit.id for circuit in self.context.shown.circuits]

    def do_copy(self) -> None:
        """Copy the command that relieves it, else its name."""
        circuit = self.record()
        alert = tone_of(self.context.shown.circuit_status.get(self.subject, RowStatus.OK))
        words = "" if circuit is None else relief_row(circuit, alert).value
        self.context.frame.copy(relief_command(clean(words)) or self.subject)

    def record(self) -> Any:
        """Return the circuit with all its fields."""
        return self.context.shown.circuit(self.subject)
