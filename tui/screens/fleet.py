"""The fleet as a whole: is it fit for work, what is it made of, what of its fabric is not well, who differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from api.drift import DriftReply
from api.fitness import Fitness, FitnessReply, FitnessSample, NodeFitness
from api.fleet import NodeStatus
from api.ports import PortsReply
from present.fleet.drift import deviation_cells, group_row, mixed_values
from present.fleet.fitness import NO_HISTORY, fitness_row
from telemetry.text import counted, short_duration, time_of_day
from tui.feed.wants import RARE, SELDOM, DocumentRequest, Wants
from tui.kit.chart import chart, held
from tui.kit.flow import flow
from tui.kit.text import clean, fit
from tui.kit.theme import Line, Piece
from tui.screens.history import beside
from tui.screens.page import PageView
from tui.screens.port_text import fabric_lines
from tui.state.dashboard_state import DashboardState
from tui.state.fitness import fitness_line

FITNESS, DRIFT, PORTS = "api/v1/fitness", "api/v1/drift", "api/v1/ports?limit=100"
TWO_COLUMNS = 160
"""Width from which on fabric and drift stand beside the nodes."""
_SAMPLE = 300e9
"""ns between two samples of the history."""
_TONES = {Fitness.FIT: "ok", Fitness.DEGRADED: "warn", Fitness.OUT: "crit", Fitness.UNKNOWN: "stale"}


def role_pieces(state: DashboardState, *, all_roles: bool) -> list[list[Piece]]:
    """Return the nodes by role, and how many of each are not online; without `all_roles` those that have no GPUs."""
    nodes = [node for node in state.nodes if all_roles or not node.gpus]
    counts = Counter(node.role for node in nodes)
    silent = Counter(node.role for node in nodes if node.state is not NodeStatus.ONLINE)
    parts: list[list[Piece]] = []
    for role, count in sorted(counts.items(), key=lambda item: (item[0] == "", item[0])):
        parts.append([(f"{clean(role) or 'no role'} ", "dim"), (f"{count:,}", "strong")])
        if silent[role]:
            parts[-1].append((f" ({silent[role]:,} silent)", "stale"))
        parts[-1].append(("  ", ""))
    return parts


def fleet_lines(state: DashboardState, width: int, height: int, *, utc: bool) -> list[Line]:
    """Draw the page."""
    found = state.doc(FITNESS, FitnessReply)
    ports, why = state.doc(PORTS, PortsReply), state.fault(PORTS)
    lines: list[Line] = []
    if found is None:
        lines.append([(state.fault(FITNESS) or "loading …", "dim")])
    else:
        words = fitness_line(found.fleet) or "fitness: not known yet"
        tone = fitness_row(found.fleet).tone or "ok"
        lines += flow([[(word + " ", tone if n < 2 else "")] for n, word in enumerate(words.split(" "))], width)
    lines += flow([[("nodes by role  ", "dim")], *role_pieces(state, all_roles=True)], width)
    if found is not None:
        lines += history_lines(found.history, width, 5 if height < 40 else 10, utc=utc)
    wide = width >= TWO_COLUMNS
    half = (width - 4) // 2 if wide else width
    room = max(6, height - len(lines) - 2)
    share = room if wide else max(6, room // 2)
    fabric = fabric_lines(ports, why, half, share)
    rest = [] if found is None else _nodes(found.nodes, half, max(4, share // 2))
    rest += [[], *_drift(state.doc(DRIFT, DriftReply), state.fault(DRIFT), half)]
    lines.append([])
    return [*lines, *(beside(rest, fabric, half, 4) if wide else [*fabric, [], *rest])]


def history_lines(history: Sequence[FitnessSample], width: int, tall: int, *, utc: bool) -> list[Line]:
    """Draw the score of the fleet over time; nothing before it has two samples."""
    known = [sample for sample in history if sample.score is not None]
    if len(known) < 2:
        return [[(NO_HISTORY, "dim")]]
    start, end = float(known[0].at), float(known[-1].at)
    at = np.array([sample.at for sample in history], np.float64)
    values = np.array([np.nan if sample.score is None else sample.score for sample in history], np.float64)
    points = held(at, values, start, end, 2 * max(1, width - 7), 1.5 * _SAMPLE)
    low = min(90.0, 10.0 * np.floor(float(np.nanmin(values)) / 10.0))
    times = [time_of_day(int(start + (end - start) * part), utc=utc)[:8] for part in (0, 0.5, 1)]
    title: Line = [("Fitness", "strong"), (f"  {short_duration((end - start) / 1e9)}", "dim")]
    return [title, *chart(points, (low, 100.0), width, tall, lambda v: f"{v:.0f}", (), times)]


def _nodes(nodes: Sequence[NodeFitness], width: int, most: int) -> list[Line]:
    wanting = [one for one in nodes if one.score < 100]
    title: Line = [("Nodes that are not fit", "head")]
    if not nodes:
        return [title, [("not known yet", "dim")]]
    if not wanting:
        return [title, [(f"· all of the {counted(len(nodes), 'node')} are fit", "ok")]]
    lines: list[Line] = [title]
    for one in wanting[:most]:
        why = "; ".join(clean(each.text) for each in one.reasons)
        lines.append(
            [(fit(clean(one.node), 16, tail=True) + " ", "strong"), (f"{one.score:>3} ", ""),
             (fit(str(one.state), 10), _TONES.get(one.state, "")), (fit(why, max(8, width - 31)).rstrip(), "dim")]
        )  # fmt: skip
    if len(wanting) > most:
        lines.append([(f"and {len(wanting) - most:,} more", "dim")])
    return lines


def _drift(found: DriftReply | None, why: str, width: int) -> list[Line]:
    title: Line = [("Drift: who differs from its kind", "head")]
    if found is None:
        return [title, [(why or "loading …", "dim")]]
    lines: list[Line] = [title]
    for group in found.groups:
        its = group_row(group)
        lines.append(
            [(fit(clean(its.label), min(44, width - 30)), ""), (f" {its.note}, ", "dim"), (its.value, its.tone or "ok")]
        )
        for one in group.deviations:
            node, fact, has, wanted, _ = map(clean, deviation_cells(one))
            text = fit(f"{fact}: {has}, should be {wanted}", max(8, width - 19)).rstrip()
            lines.append([(f"  {fit(node, 16, tail=True)} ", "strong"), (text, "")])
        for each in group.mixed:
            mixed = f"  mixed: {clean(each.fact)}: {clean(mixed_values(each))}"
            lines.append([(fit(mixed, width).rstrip(), "dim")])
    return lines


class FleetView(PageView):
    """View 9: the fleet as a whole."""

    NAME: ClassVar[str] = "fleet"
    TITLE: ClassVar[str] = "Fleet"

    def wants(self) -> Wants:
        """Return score, deviations and ports."""
        return Wants(
            nodes=(),
            documents=(
                DocumentRequest(FITNESS, FitnessReply, SELDOM),
                DocumentRequest(DRIFT, DriftReply, RARE / 10),
                DocumentRequest(PORTS, PortsReply, SELDOM),
            ),
        )

    def lines(self, width: int, height: int) -> list[Line]:
        """Draw the page."""
        return fleet_lines(self.context.shown, width, height, utc=self.context.utc)

    def record(self) -> Any:
        """Return the score with its reasons."""
        return self.context.shown.doc(FITNESS, FitnessReply)
