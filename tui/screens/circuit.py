"""A circuit's page: load, time to trip, relief, and its nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from api.jobs import JobsReply
from api.power import CircuitReply, CircuitState, LoadState
from present.circuit.figures import about, assumed, headroom_text, load, share
from present.units import number, percent, watts
from telemetry.text import counted, short_duration, timer
from tui.feed.wants import DocumentRequest, Wants
from tui.kit.bars import over
from tui.kit.flow import flow, wrapped
from tui.kit.text import DASH, clean, fit
from tui.screens.job_text import circuit_job_lines
from tui.screens.load_history import Past, past_lines
from tui.screens.page import PageView
from tui.state.circuit_columns import page_of
from tui.state.circuits import Now, countdown, members, relief, tone_of
from tui.state.dashboard_state import DashboardState
from tui.state.documents import JOBS
from tui.state.row_status import RowStatus
from tui.theme import Line, Piece


def circuit_documents(name: str) -> tuple[DocumentRequest, ...]:
    """Return the documents of its page."""
    return (
        DocumentRequest(page_of(name), CircuitReply, 1.0),
        DocumentRequest(JOBS, JobsReply, 5.0),
    )


def circuit_lines(
    state: DashboardState, name: str, past: Past, since: Now, width: int, height: int, *, utc: bool,
    within: int | None = None,
) -> list[Line]:  # fmt: skip
    """Draw the page of a circuit. `within`: seconds of its past, all without."""
    circuit = state.circuit(name)
    if circuit is None:
        gone = f"there is no circuit {clean(name)} any more"
        return [[(clean(state.circuits_unknown) or gone, "dim")]]
    status = state.circuit_status.get(name, RowStatus.OK)
    lines: list[Line] = [
        *flow(_what(circuit), width), *flow(_next(circuit, status, since), width),
        *flow(_carries(circuit), width), _heat(circuit, width), *flow(_now(circuit), width),
        *flow(_minute(circuit, status), width), *flow(_could(circuit), width), *_relief(circuit, status, width),
    ]  # fmt: skip
    nodes = members(state, name)
    tail = [
        *_members(state, nodes, width),
        *circuit_job_lines(state.jobs, nodes, state.jobs_unknown, width),
    ]
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
    """Draw when it trips if the load stays: earliest, typical and latest."""
    words, tone = countdown(circuit, status, since)
    if circuit.trip_seconds.earliest is None:
        if words == DASH:
            band = clean(circuit.facts.get("band", "")) or DASH
            words = "does not trip at this load" if circuit.trip_known else f"trip: {band}"
        return [[(words, tone)]]
    typical, latest = (
        None if edge is None else timer(max(0.0, edge - since.elapsed))
        for edge in (circuit.trip_seconds.nominal, circuit.trip_seconds.latest)
    )
    end = "perhaps never" if latest is None else f"at the latest {latest}"
    usual = "the most sensitive of its kind; a typical one holds"
    return [
        [(words, tone)],
        [(f"  {usual if typical is None else f'typically {typical}, {end}'}", "dim")],
        [("  (an estimate, if the load of the last 10 s stays)", "dim")],
    ]


def _carries(circuit: CircuitState) -> list[list[Piece]]:
    """Draw the load of about the last ten seconds, with which countdowns are computed."""
    word = "load" if circuit.sustained_ratio is None else "last 10 s"
    return [
        [(f"{word}  ", "dim"), (about(circuit, watts(load(circuit))), "strong")],
        [(f"  {about(circuit, percent(share(circuit)))} of {number(circuit.rated_amps)} A", "")],
        [("  headroom ", "dim"), (headroom_text(circuit), "")],
    ]


def _heat(circuit: CircuitState, width: int) -> Line:
    heat = circuit.heat_ratio
    if heat is None:
        return [("heat  ", "dim"), ("not known", "")]
    tone = "bar_crit" if heat > 0.9 else "bar"
    return [("heat  ", "dim"), (over(heat, min(30, max(4, width - 31))), tone),
            (f" {percent(heat)} of what trips it", "")]  # fmt: skip


_SOURCES = {"committed": "power commitment"}


def _now(circuit: CircuitState) -> list[list[Piece]]:
    """Draw the load of this second."""
    amps = "  ".join(f"{pole} {number(value, 1)}" for pole, value in circuit.amps.items())
    source = _SOURCES.get(circuit.source or "", clean(circuit.source or DASH))
    sigma = f" ± {watts(circuit.sigma_watts)}" if circuit.sigma_watts else ""
    return [
        [("now  ", "dim"), (about(circuit, watts(circuit.watts)), ""), (f"{sigma} by {source}", "dim")],
        *_known(circuit),
        *([[(f"  {clean(circuit.facts.get('assumed', 'part of it is the assumed power of silent nodes'))}", "stale")]] if assumed(circuit) else []),
        [(f"  {percent(circuit.load_ratio)}", "")],
        [(f"  {amps} A", "")],
    ]  # fmt: skip


def _known(circuit: CircuitState) -> list[list[Piece]]:
    """Draw how the load is known and since when, where nobody reports all of it."""
    if circuit.load_state in {None, LoadState.MEASURED, LoadState.MODELLED}:
        return []
    since = circuit.load_state_seconds
    words = "" if since is None else f" for {short_duration(since)}"
    return [[(f"  {circuit.load_state}{words}", "stale")]]


def _minute(circuit: CircuitState, status: RowStatus) -> list[list[Piece]]:
    """Draw the mean of the last minute, to which the continuous limit applies."""
    above = circuit.above_continuous_seconds
    tone = tone_of(status) if (circuit.continuous_ratio or 0) > 1 else ""
    return [
        [("last minute  ", "dim"), (percent(circuit.continuous_ratio), tone)],
        [(" of the continuous limit", tone)],
        [(f", over it for {short_duration(above)}" if above else "", "dim")],
    ]


def _could(circuit: CircuitState) -> list[list[Piece]]:
    """Draw the load that power limits, the loss of the other feed, and the trend may lead to."""
    survivor, ahead = circuit.survivor_continuous_ratio, circuit.forecast_continuous_seconds
    parts: list[list[Piece]] = [
        [("power commitment ", "dim"), (watts(circuit.committed_watts), ""),
         (f" {percent(circuit.committed_continuous_ratio)} of the continuous limit", "dim")],
    ]  # fmt: skip
    if survivor is not None:
        parts.append([("  if the other feed goes ", "dim"),
                      (f"{percent(survivor)} of the continuous limit", "warn" if survivor > 1 else "")])  # fmt: skip
    if ahead is not None:
        parts.append([("  trend ", "dim"), (f"continuous limit in {short_duration(ahead)}", "")])
    return parts


def pressed(circuit: CircuitState, status: RowStatus) -> bool:
    """Return whether a limit is passed or forecast to be: only then is its relief shown."""
    return status is not RowStatus.OK or countdown(circuit, status, Now(0.0))[0] != DASH


def _relief(circuit: CircuitState, status: RowStatus, width: int) -> list[Line]:
    text, command = relief(circuit)
    if not text or not pressed(circuit, status):
        return []
    lines: list[Line] = [
        [("relief ", "dim") if n == 0 else ("       ", ""), (line, "")]
        for n, line in enumerate(wrapped(text, max(20, width - 8))[:5])
    ]
    return [*lines, [("       [y] copies ", "dim"), (command, "key")]] if command else lines


def _members(state: DashboardState, nodes: Sequence[str], width: int) -> list[Line]:
    if not nodes:
        return []
    lines: list[Line] = [[(f"{counted(len(nodes), 'node')} on it", "head")]]
    heaviest = sorted(nodes, key=lambda n: -(state.wall.get(n) or 0.0))[:6]
    lines += [
        [(f"  {fit(clean(node), 24)} ", ""), (f"{watts(state.wall.get(node)):>9}", "")]
        for node in heaviest
    ]
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
        status = self.context.shown.circuit_status.get(self.subject, RowStatus.OK)
        shown = circuit is not None and pressed(circuit, status)
        self.context.frame.copy((relief(circuit)[1] if shown else "") or self.subject)

    def record(self) -> Any:
        """Return the circuit with all its fields."""
        return self.context.shown.circuit(self.subject)
