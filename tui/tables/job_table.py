"""The table of jobs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlencode

import numpy as np

from api.alerts import Severity
from api.jobs import JobPhase, JobRow
from present.job import UNKNOWN, use_row
from present.units import number, watts
from telemetry.text import counted, short_duration
from telemetry.wire.jobs import OF_A_NODE
from tui.kit.text import CROSS, DASH, clean
from tui.kit.theme import Piece
from tui.state.gpus import Floats
from tui.state.row_status import RowStatus
from tui.tables.columns import TableColumn
from tui.tables.fields import job_fields
from tui.tables.filter import ALL, Filter
from tui.tables.listing import MARKS, Listing, highest_first

_MARKED = {Severity.PAGE: RowStatus.CRIT, Severity.TICKET: RowStatus.WARN}
_ENDED_WELL = {"", "COMPLETED", "ended", "Succeeded"}
"""Words of schedulers for a job that did what it should, or of which nobody says."""


def page_of(row: JobRow) -> str:
    """Return the path of a job's page, by which it is told from all others."""
    asked = {"scheduler": row.scheduler, "restart": row.restart}
    if row.scheduler in OF_A_NODE and row.nodes:
        asked["node"] = row.nodes[0]
    return f"api/v1/jobs/{quote(row.id, safe='')}?{urlencode(asked)}"


def job_mark(row: JobRow) -> Piece:
    """Return sign and word of a job's state: the worst alert of one that runs, the end of another."""
    if row.phase is JobPhase.SILENT:
        return "▒ SILENT", "stale"
    if row.phase is JobPhase.LOST:
        return f"{CROSS} LOST", "down"
    if row.phase is JobPhase.ENDED:
        if row.exit_code or row.state not in _ENDED_WELL:
            return f"! {clean(row.state).upper() or 'FAILED'}", "warn"
        return "· ended", "dim"
    status = RowStatus.OK if row.severity is None else _MARKED.get(row.severity, RowStatus.OK)
    return MARKS[status]


def job_name(row: JobRow) -> str:
    """Return id and name."""
    name = f"{row.id}#{row.restart}" if row.restart else row.id
    return clean(f"{name} {row.job_name}" if row.job_name not in {"", row.id} else name)


@dataclass(frozen=True)
class JobTable:
    """The data of the cells."""

    jobs: Sequence[JobRow]
    at: int
    """ns since 1970."""

    def urgency(self) -> Floats:
        """Return how urgently each job needs a look: its alerts, then that nobody reports of it, its end,
        its hints."""
        return np.array([_urgency(row) for row in self.jobs], np.float64)

    def numbers(self, get: Callable[[JobRow], float | None]) -> Floats:
        """Return a number of each job, NaN for what is not known."""
        return np.array([get(row) for row in self.jobs], np.float64)


def _urgency(row: JobRow) -> float:
    tones = {"crit": 5.0, "down": 4.0, "warn": 3.0, "stale": 2.0, "dim": -1.0}
    return tones.get(job_mark(row)[1], 0.0) + (0.5 if row.hints else 0.0)


def _since(source: JobTable, row: int, width: int) -> Piece:
    job = source.jobs[row]
    seconds = None if not job.begin else ((job.end or source.at) - job.begin) / 1e9
    return short_duration(seconds), ""


def _use(source: JobTable, row: int, width: int) -> Piece:
    use = use_row(source.jobs[row].summary)
    return (DASH, "dim") if use.value == UNKNOWN else (use.value, "")


def _nodes(source: JobTable, row: int, width: int) -> Piece:
    nodes = source.jobs[row].nodes
    return (clean(nodes[0]) if len(nodes) == 1 else counted(len(nodes), "node")), ""


def _hints(source: JobTable, row: int, width: int) -> Piece:
    found = source.jobs[row].hints
    more = f" +{len(found) - 1}" if len(found) > 1 else ""
    return (f"{clean(found[0])}{more}" if found else ""), "warn"


JOB_COLUMNS: tuple[TableColumn[JobTable], ...] = (
    TableColumn("JOBS", 9, lambda s, row, _: job_mark(s.jobs[row])),
    TableColumn("user", 7, lambda s, row, _: (clean(s.jobs[row].user) or DASH, ""), grow=1, most=20),
    TableColumn("job", 12, lambda s, row, _: (job_name(s.jobs[row]), "strong"), grow=2, most=36),
    TableColumn("GPUs", 4, lambda s, row, _: (number(s.jobs[row].gpus), ""), right=True),
    TableColumn("nodes", 8, _nodes, tail=True, grow=1, most=20),
    TableColumn("for", 5, _since, right=True),
    TableColumn("use", 5, _use, right=True),
    TableColumn("power", 7, lambda s, row, _: (watts(s.jobs[row].power_watts), ""), right=True),
    TableColumn("hints", 10, _hints, grow=3),
)
JOB_SORTS: dict[str, Callable[[JobTable], Floats]] = {
    "": JobTable.urgency,
    "GPUs": lambda s: s.numbers(lambda row: row.gpus),
    "for": lambda s: s.numbers(lambda row: -row.begin),
    "use": lambda s: s.numbers(lambda j: None if j.summary is None else j.summary.utilization_ratio),
    "power": lambda s: s.numbers(lambda row: row.power_watts),
}


def job_listing(
    jobs: Sequence[JobRow],
    at: int,
    sort: str = "",
    wanted: Filter = ALL,
    *,
    reverse: bool = False,
    faults: bool = False,
    nothing: str = "no job holds a GPU",
) -> Listing[JobTable]:
    """List the jobs that fit a filter, the worst first where `sort` is empty. `nothing`: why there is none."""
    source = JobTable(jobs, at)
    mask = wanted.mask(job_fields(jobs), len(jobs))
    if faults:
        mask &= source.urgency() >= 1
    rows = highest_first(np.flatnonzero(mask), JOB_SORTS[sort](source), reverse=reverse)
    keys = [page_of(row) for row in jobs]
    return Listing(source, JOB_COLUMNS, rows, keys, len(jobs), sort, nothing)
