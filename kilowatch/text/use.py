"""Use of the GPUs in a month as text."""

from __future__ import annotations

from api.jobs import PARTIAL_BELOW
from api.use import UseReply, UseRow
from kilowatch.text.table import columns
from telemetry.text import counted

_WIDTH = 160
UNKNOWN = "not known"
UNREPORTED = "(not reported)"
"""Name of the row of GPUs whose holder is not reported."""
PARTIAL = "~"
"""Mark of a figure that covers less than 90 % of the GPU hours."""


def use_lines(reply: UseReply) -> list[str]:
    """Return a line a user, account or job, and what the figures leave out."""
    title = f"{reply.month}, time zone {reply.timezone}"
    others = [
        (name, row)
        for name, row in (("nobody", reply.unheld), (UNREPORTED, reply.unreported))
        if row is not None
    ]
    if not reply.rows and not others:
        return [title, "no job is known that had a GPU in that month"]
    head = (reply.by.upper(), "JOBS", "GPU HOURS", "USE", "KWH", "KWH AT THE WALL", f"COST {reply.currency}".strip())  # fmt: skip
    body = [_cells(row, getattr(row, reply.by) or UNKNOWN) for row in reply.rows]
    body += [_cells(row, name) for name, row in others]
    lines = [title, *columns([head, *body], width=_WIDTH)]
    if any(cell.endswith(PARTIAL) for cells in body for cell in cells[1:]):
        lines.append(f"{PARTIAL} partial: known for less than 90 % of the GPU hours")
    if split := sum(row.split_by_time for row in reply.rows):
        lines.append(f"{counted(split, 'job')} over an edge of the month: split by time")
    if reply.unheld is None:
        lines.append("GPUs that no job held were not counted in that month, and are in no row")
    if reply.unreported is not None:
        lines.append(f"{UNREPORTED}: GPUs of nodes that do not say who holds them")
    return lines


def _cells(row: UseRow, name: str) -> tuple[str, ...]:
    def cell(value: float | None, coverage: float | None, form: str, per: float = 1.0) -> str:
        if value is None:
            return UNKNOWN
        mark = PARTIAL if coverage is None or coverage < PARTIAL_BELOW else ""
        return format(value / per, form) + mark

    return (
        name,
        str(row.jobs),
        cell(row.gpu_hours, row.hours_coverage, ".2f"),
        cell(row.utilization_ratio, row.utilization_coverage, ".0%"),
        cell(row.energy_joules, row.energy_coverage, ".3f", 3.6e6),
        cell(row.wall_joules, row.wall_coverage, ".3f", 3.6e6),
        cell(row.cost, row.cost_coverage, ".2f"),
    )
