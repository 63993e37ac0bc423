"""Use of the GPUs in a month as text, as CSV and as an HTML page."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from typing import NamedTuple

from alerts.message.text import clean
from api.use import UseReply, UseRow
from kilowatch.text.jobs import lacking_lines
from kilowatch.text.page import html_page, html_table, note, text
from kilowatch.text.table import columns
from present.units import JOULES_PER_KWH, is_partial, number, percent, roughly
from telemetry.text import counted

_WIDTH = 160
UNKNOWN = "not known"
NOBODY = "nobody"
"""Name of the row of GPUs that no job held."""
UNREPORTED = "(not reported)"
"""Name of the row of GPUs whose holder is not reported."""
PARTIAL = "~"
"""Mark of a figure that covers less than 90 % of the GPU hours."""
CSV_COLUMNS = (
    "month", "row", "name", "scheduler", "cluster", "jobs", "gpu_hours", "hours_coverage", "utilization_ratio",
    "utilization_coverage", "energy_joules", "energy_coverage", "wall_joules", "wall_coverage", "cost", "cost_coverage",
    "currency", "co2_kg", "split_by_time", "idle_gpu_hours", "idle_coverage", "idle_cost",
    "asked_gpu_hours", "asked_used_ratio", "asked_coverage", "gpus_held", "gpus_idle", "gpus_coverage", "memory_peak_ratio",
    "memory_coverage",
)  # fmt: skip
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Begins of a cell that a spreadsheet computes."""


def use_lines(reply: UseReply) -> list[str]:
    """Return a line a user, account or job, and what the figures leave out."""
    tables = _tables(reply)
    if not tables:
        return [_title(reply), "no job is known that had a GPU in that month", *lacking_lines(reply.missing)]
    lines = [line for table in tables for line in ("", *columns(table, width=_WIDTH))]
    return [_title(reply), *lines[1:], *_notes(reply, tables)]


def use_html(reply: UseReply) -> str:
    """Return the use of a month as one self-contained page."""
    tables = _tables(reply)
    parts = [f"<p>By {text(reply.by)}. Time zone: {text(reply.timezone)}.</p>"]
    parts += [html_table([[name.lower() for name in head], *rows]) for head, *rows in tables]
    if not tables:
        parts.append("<p>No job is known that had a GPU in that month.</p>")
    return html_page(f"Use of the GPUs {reply.month}", [*parts, *map(note, _notes(reply, tables))])


def use_csv(reply: UseReply) -> str:
    """Return the use of a month as CSV, in base units; what is not known is an empty cell."""
    found = io.StringIO()
    writer = csv.writer(found, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for row in reply.rows:
        writer.writerow(_values(reply, row, reply.by, getattr(row, reply.by)))
    for name, other in _others(reply):
        writer.writerow(_values(reply, other, name, ""))
    return found.getvalue()


def _values(reply: UseReply, row: UseRow, kind: str, name: str) -> list[object]:
    known = {"month": reply.month, "row": kind, "name": name}
    if row.cost is not None:
        known["currency"] = reply.currency
    values = [known.get(column, getattr(row, column, "")) for column in CSV_COLUMNS]
    return [_cell(value) if isinstance(value, str) else value for value in values]


def _cell(value: str) -> str:
    """Return a text as it stands in a cell: a spreadsheet must not compute the name of a job."""
    shown = clean(value)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown


def _others(reply: UseReply) -> list[tuple[str, UseRow]]:
    rows = ((NOBODY, reply.unheld), (UNREPORTED, reply.unreported))
    return [(name, row) for name, row in rows if row is not None]


def _title(reply: UseReply) -> str:
    return f"{reply.month}, time zone {reply.timezone}"


def _tables(reply: UseReply) -> list[list[tuple[str, ...]]]:
    """Return what was used and what it cost, and what was asked for or held and not used: head and rows, each as wide as a
    terminal. None without rows, and the first alone where an older aggregator knows nothing of the second."""
    named = [(getattr(row, reply.by) or UNKNOWN, row) for row in reply.rows] + _others(reply)
    if not named:
        return []
    used, unused = (
        [
            (reply.by.upper(), *(each.head.format(currency=reply.currency).strip() for each in table)),
            *((name, *(each.cell(row) for each in table)) for name, row in named),
        ]
        for table in (USED, UNUSED)
    )
    known = any(cell != UNKNOWN for _, *cells in unused[1:] for cell in cells)
    return [used, unused] if known else [used]


def _notes(reply: UseReply, tables: Sequence[Sequence[tuple[str, ...]]]) -> list[str]:
    """Return what the figures of some tables leave out."""
    lines = lacking_lines(reply.missing)
    if not tables:
        return lines
    if any(cell.startswith(PARTIAL) for rows in tables for cells in rows for cell in cells[1:]):
        lines.append(f"{PARTIAL} partial: known for less than 90 % of the GPU hours")
    if any(row.idle_gpu_hours is not None for row in reply.rows):
        lines.append("idle: GPU hours below 5 % use, of those that were read, and their part of the cost")
    if any(row.asked_gpu_hours is not None for row in reply.rows):
        lines.append("asked: GPUs times the time limit, of jobs that ended by themselves and had one")
    if any(row.gpus_idle is not None for row in reply.rows):
        lines.append("never worked: of the GPUs that jobs held, those below 1 % use in the mean")
    if any(row.memory_peak_ratio is not None for row in reply.rows):
        lines.append("memory: the highest reading of a GPU of a job, of what the GPU has")
    if reply.g_per_kwh is not None:
        lines.append(f"CO2: of the energy at the wall, at {reply.g_per_kwh:g} g a kWh")
    if split := sum(row.split_by_time for row in reply.rows):
        lines.append(f"{counted(split, 'job')} over an edge of the month: split by time")
    if reply.unheld is None:
        lines.append("GPUs that no job held were not counted in that month, and are in no row")
    if reply.unreported is not None:
        lines.append(f"{UNREPORTED}: GPUs of nodes that do not say who holds them")
    return lines


def _hundredths(value: float) -> str:
    return number(value, 2)


def _thousandths(value: float) -> str:
    return number(value, 3)


def _kilowatt_hours(joules: float) -> str:
    return number(joules / JOULES_PER_KWH, 3)


class UseColumn(NamedTuple):
    """Column of a table of who used the GPUs."""

    head: str
    """`{currency}` stands for that of the reply."""
    value: str
    """Field of a row."""
    coverage: str
    """Field of its coverage; empty of what is always whole."""
    form: Callable[[float], str]

    def cell(self, row: UseRow) -> str:
        """Return the figure of a row, with `~` where it is partial."""
        value = getattr(row, self.value)
        whole = 1.0 if not self.coverage else getattr(row, self.coverage)
        return UNKNOWN if value is None else roughly(self.form(value), partial=is_partial(whole))


USED = (
    UseColumn("JOBS", "jobs", "", str),
    UseColumn("GPU HOURS", "gpu_hours", "hours_coverage", _hundredths),
    UseColumn("USE", "utilization_ratio", "utilization_coverage", percent),
    UseColumn("KWH", "energy_joules", "energy_coverage", _kilowatt_hours),
    UseColumn("KWH AT THE WALL", "wall_joules", "wall_coverage", _kilowatt_hours),
    UseColumn("COST {currency}", "cost", "cost_coverage", _hundredths),
    UseColumn("KG CO2", "co2_kg", "wall_coverage", _thousandths),
)
UNUSED = (
    UseColumn("GPU HOURS ASKED", "asked_gpu_hours", "asked_coverage", _hundredths),
    UseColumn("OF IT USED", "asked_used_ratio", "asked_coverage", percent),
    UseColumn("IDLE HOURS", "idle_gpu_hours", "idle_coverage", _hundredths),
    UseColumn("IDLE COST {currency}", "idle_cost", "idle_coverage", _hundredths),
    UseColumn("GPUS", "gpus_held", "gpus_coverage", number),
    UseColumn("NEVER WORKED", "gpus_idle", "gpus_coverage", number),
    UseColumn("MEMORY", "memory_peak_ratio", "memory_coverage", percent),
)
"""Columns of both tables, beside the name."""
