"""Energy and cost: today, this month, idle GPUs, and power by job and rack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from api.bill import MonthBill
from api.power import RowsReply
from api.report import Report, Upkeep
from present.bill import UNKNOWN, demand_row, energy_rows, hours_row, total_rows, upkeep_rows
from present.units import money, number, percent, watts
from tui.feed.wants import DocumentRequest, Wants
from tui.kit.bars import Bar, bar_list
from tui.kit.flow import flow
from tui.kit.text import DASH, clean
from tui.kit.theme import Line
from tui.screens.page import PageView
from tui.state.dashboard_state import DashboardState
from tui.state.documents import BUDGETS, LOADING, TODAY

MONTH = "api/v1/report?days=30"
BILL = "api/v1/bill"


def _labelled(word: str, parts: Sequence[Line], width: int) -> list[Line]:
    """Draw parts behind a word, and what does not fit below them."""
    first, *rest = flow(parts, max(24, width - 14))
    return [[(f"{word:<14}", "dim"), *first], *([(" " * 14, ""), *line] for line in rest)]


def _energy(word: str, found: Upkeep | None, currency: str | None, width: int) -> list[Line]:
    if found is None or found.kwh is None:
        return [[(f"{word:<14}", "dim"), (DASH, "")]]
    energy, cost, *rest = upkeep_rows(found, currency or "")
    words = f"{energy.value:>12}  {cost.value or DASH:>10}"
    parts: list[Line] = [[(words, energy.tone)]]
    parts += [[(f"  {row.value}", row.tone)] for row in rest if row.value]
    return _labelled(word, parts, width)


def _bill(bill: MonthBill, width: int) -> list[Line]:
    """Draw this month up to now, and at its end."""
    rows = (*energy_rows(bill), *total_rows(bill), hours_row(bill), demand_row(bill))
    parts: list[Line] = [
        [(f"{row.label} ", "dim"), (f"{clean(row.value)}  ", "strong")] for row in rows if row.value != UNKNOWN
    ]
    return _labelled("month so far", parts, width)


def energy_lines(state: DashboardState, width: int, height: int) -> list[Line]:
    """Draw the page."""
    today, month = state.today, state.doc(MONTH, Report)
    if today is None:
        return [[(state.fault(TODAY) or "loading …", "dim")]]
    bill = state.doc(BILL, MonthBill)
    _, limit, ratio = state.budget_power
    none = "none configured" if state.doc(BUDGETS, RowsReply) else state.fault(BUDGETS) or LOADING
    wall = state.at_the_wall.watts
    lines: list[Line] = [
        [("Energy and cost", "head")],
        *_energy("today", today.measured, today.currency, width),
        *_energy("last 30 days", None if month is None else month.measured, today.currency, width),
        *(
            _energy("month forecast", today.month, today.currency, width)
            if bill is None
            else _bill(bill, width)
        ),
        [],
        [("Draw", "head")],
        [(f"{'at the wall':<14}", "dim"), (f"{watts(wall):>12}", "strong"), ("  sustained ", "dim"),
         (watts(today.sustained_watts), ""), ("  peak ", "dim"), (watts(today.peak_watts), "")],
        [(f"{'commitment':<14}", "dim"), (f"{watts(today.committed_watts):>12}", ""), ("  the sum of all power limits in force", "dim")],
        [(f"{'budget':<14}", "dim"), (f"{percent(ratio)} of {watts(limit)}" if limit else clean(none), "" if limit else "dim")],
        [(f"{'PUE':<14}", "dim"), (number(today.pue, 2), ""), ("  used for cost and CO2", "dim")],
        [],
        [("Idle", "head")],
    ]  # fmt: skip
    idle = today.idle
    share = None if idle is None else idle.ratio
    lines.append([(f"{'GPUs idle':<14}", "dim"), (percent(share), "strong"), ("  of their time today", "dim"),
                  *([(f", {number(idle.gpu_hours, 1)} GPU hours, {money(idle.cost, today.currency)}", "")] if idle and idle.gpu_hours is not None else [])])  # fmt: skip
    lines.append(
        [(f"{'use':<14}", "dim"), (percent(today.utilisation), "strong"), ("  of the GPUs, mean of today", "dim")]
    )
    for word, names in (
        ("job", [line.job or "no job" for line in state.nodes]),
        ("rack", [line.rack or "no rack" for line in state.nodes]),
        ("node", [line.node for line in state.nodes]),
    ):
        bars, room = _bars(names, state), height - len(lines) - 2
        if len(bars) > 1 and room >= 2:
            most = room if word == "node" else max(2, room // 2)
            lines += [[], [(f"Draw by {word}", "head")], *bar_list(bars, width, most)]
    return lines


def _bars(names: Sequence[str], state: DashboardState) -> list[Bar]:
    """Return bars of wall power by name, highest first, of nodes that measure it."""
    sums: dict[str, float] = {}
    for name, line in zip(names, state.nodes, strict=True):
        value = state.wall.get(line.node)
        if value is not None:
            sums[name] = sums.get(name, 0.0) + value
    most = max(sums.values(), default=1.0)
    return [
        Bar(name, value / most, "bar", [(f"{watts(value):>10}", "")])
        for name, value in sorted(sums.items(), key=lambda pair: -pair[1])
    ]


class EnergyView(PageView):
    """View 7: energy and cost."""

    NAME: ClassVar[str] = "energy"
    TITLE: ClassVar[str] = "Energy"

    def wants(self) -> Wants:
        """Return the report of thirty days."""
        return Wants(nodes=(), documents=(DocumentRequest(MONTH, Report, 30.0), DocumentRequest(BILL, MonthBill, 60.0)))

    def lines(self, width: int, height: int) -> list[Line]:
        """Draw the page."""
        return energy_lines(self.context.shown, width, height)

    def record(self) -> Any:
        """Return the report of today."""
        return self.context.shown.today
