"""The headline of the cluster as lines: the worst true thing, why it is so, and what helps. Pure."""

from __future__ import annotations

from dataclasses import replace

from api.fleet import StatusReply
from present.circuit.rows import gentlest
from present.fleet.headline import IN_THE_KNOWN, Headline, Heard, Urgency, headline
from present.fleet.trend import power_words, trend_line
from tui.kit.text import clean, fit
from tui.kit.theme import Line
from tui.state.dashboard_state import DashboardState
from tui.state.documents import LOADING

_MARKS = {
    Urgency.PAGE: ("▲", "crit"), Urgency.TICKET: ("!", "warn"), Urgency.UNKNOWN: ("▒", "stale"), Urgency.WELL: ("●", "good"),
}  # fmt: skip

_WORDS = len("  . What helps: .")
"""Characters of the line below the headline beside why it is so and what helps."""


def verdict_lines(state: DashboardState, width: int) -> list[Line]:
    """Return the headline, and below it why and what helps; nothing before all that it speaks of has come."""
    found = _headline(state)
    if found is None:
        return []
    mark, tone = _MARKS[found.urgency]
    first: Line = [(f"{mark} ", tone), (fit(clean(found.text), width - 2).rstrip(), "strong")]
    why, ways = clean(found.why), clean(found.act)
    if len(why) + len(ways) + _WORDS > width:
        ways = gentlest(ways)  # rather than cut when a breaker trips
    act = f"What helps: {ways.rstrip('.')}." if ways else ""
    if act and why and not why.endswith("."):
        why += "."
    room = max(0, width - 2 - len(act) - 1)  # what helps is cut last
    below: Line = [
        ("  ", ""),
        (f"{fit(why, room).rstrip()} ", "dim") if why and room > 8 else ("", ""),
        (fit(act, width - 2).rstrip(), "strong"),
    ]
    return [first, below] if why or act else [first]


def trend_lines(state: DashboardState, width: int) -> list[Line]:
    """Return whether it is better or worse than before, as a line; nothing where the aggregator does not say."""
    status = state.status
    if status is None or status.trends is None:
        return []
    wall, gpus = power_words(state.at_the_wall, state.summary, _heard(status))
    line = trend_line(status.trends, wall, gpus, circuits=bool(state.circuits)).removesuffix(".")
    return [[("  ", ""), (fit(line, width - 2).rstrip(), "dim")]]


def _heard(status: StatusReply) -> Heard:
    """Return the known part of the cluster."""
    known = sum(model.power_known for model in status.summary.models)
    return Heard(
        nodes=status.nodes,
        silent=status.nodes - status.summary.nodes.get("online", 0),
        gpus=status.gpus,
        unread=max(0, status.gpus - known),
    )


def _headline(state: DashboardState) -> Headline | None:
    status = state.status
    if status is None or LOADING in {state.incidents_unknown, state.circuits_unknown}:
        return None
    if state.incidents_unknown:
        return Headline(Urgency.UNKNOWN, "Whether anything is wrong is not known.", state.incidents_unknown)
    found = headline(state.incidents, state.urgent, _heard(status))
    if found.urgency is Urgency.WELL and state.circuits_unknown:
        return replace(found, urgency=Urgency.UNKNOWN, text=IN_THE_KNOWN, why=state.circuits_unknown)
    return found
