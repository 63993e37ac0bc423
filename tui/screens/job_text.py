"""Lines about jobs: a job's page, and the jobs of a GPU, a node and a circuit. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from api.jobs import GpuHolder, GpuUse, JobReply, JobRow, JobSummary
from present.device.use import program_words
from present.job import UNKNOWN, asked_row, energy_row, figure_rows, gpu_use_row, purpose_words, renamed_rows
from present.row import FactRow
from present.units import gibibytes, in_gibibytes, percent, watts
from telemetry.text import counted, short_duration, timestamp
from telemetry.wire.jobs import AllocationKind, GpuProcess
from tui.kit.flow import flow
from tui.kit.text import DASH, STEP, clean, fit
from tui.kit.theme import Line, Piece
from tui.state.incidents import severity_mark
from tui.tables.job_table import job_mark, job_name

MOST_SHOWN = 4
"""Jobs, or processes, of a GPU, node or circuit that are drawn; the others are counted."""
Place = Callable[[str, str], str]
"""Makes the name of a GPU of its node and UUID."""


def by_uuid(node: str, uuid: str) -> str:
    """Return a GPU's name where its number is not known."""
    return clean(f"{node}/{uuid}" if node else uuid)


def numbered(indices: Mapping[str, int]) -> Place:
    """Return what names GPUs by their node and number; `indices`: by UUID, as far as they are known."""

    def place(node: str, uuid: str) -> str:
        index = indices.get(uuid)
        if index is None:
            return by_uuid(node, uuid)
        return clean(f"{node} {STEP} gpu{index}" if node else f"gpu{index}")

    return place


def job_lines(reply: JobReply, width: int, place: Place = by_uuid) -> list[Line]:
    """Draw the page of a job."""
    row, summary = reply.job, reply.job.summary
    mark, tone = job_mark(row)
    ended = "" if row.end is None else f" to {timestamp(row.end)}"
    lines = flow(
        [
            [(job_name(row), "strong"), ("  ", ""), (mark, tone)],
            [("  user ", "dim"), (clean(row.user) or DASH, "strong")],
            [("  account ", "dim"), (clean(row.account) or DASH, "")],
            [("  queue ", "dim"), (clean(row.queue) or DASH, "")],
            [(f"  {clean(row.scheduler)} {clean(row.cluster)}".rstrip(), "dim")],
            [(f"  {clean(row.state)}", "dim")] if row.state else [],
            [(f"  exit code {row.exit_code}", "warn" if row.exit_code else "dim")] if row.exit_code is not None else [],
        ],
        width,
    )
    lines += flow(
        [
            [(f"{counted(row.gpus, 'GPU')} of {', '.join(map(clean, row.nodes[:8]))}", "")],
            [(f" and {len(row.nodes) - 8} more nodes", "dim")] if len(row.nodes) > 8 else [],
            [(f"  from {timestamp(row.begin)}{ended}", "dim")],
        ],
        width,
    )
    for one in (*renamed_rows(row), asked_row(row, reply.at)):
        lines.append([(f"{one.label} ", "dim"), (clean(one.value), "")])
    if declares := purpose_words(row.purpose):
        lines.append([("declares that it ", "dim"), (declares, "")])
    if row.account_of_run is not None:
        account = row.account_of_run
        begin = DASH if account.begin is None else timestamp(account.begin)
        end = DASH if account.end is None else timestamp(account.end)
        lines.append([("in the accounting ", "dim"), (f"{clean(account.state)}, from {begin} to {end}", "")])
    lines += _figures(row, summary, width)
    for alert in reply.alerts[:8]:
        where = place(alert.node, alert.gpu) if alert.gpu else clean(alert.node)
        words = clean(alert.summary) or "it tells of another user"
        mark_of = severity_mark(alert.severity)
        head = f"  {clean(alert.rule)} on {where}  "
        lines.append([mark_of, (head, "strong"), (words, "")])
    if not reply.alerts and row.end is None:
        lines.append([("· nothing fires on what it holds", "dim")])
    lines += [[("! ", "warn"), (clean(hint), "")] for hint in row.hints]
    if summary is not None:
        lines += [[], *_gpus(summary.gpus, summary.energy_coverage, width, place)]
    if row.end is None:
        lines += [[], *process_lines(reply.processes, width, place)]
    return lines


def _figures(row: JobRow, summary: JobSummary | None, width: int) -> list[Line]:
    if summary is None:
        return [[("nothing was measured yet", "dim")]]
    power = FactRow("power", watts(row.power_watts)) if row.end is None else None
    rows = [row for row in (power, *figure_rows(summary)) if row is not None and row.value]
    return flow([_figure(row, first=n == 0) for n, row in enumerate(rows)], width)


def _figure(row: FactRow, *, first: bool) -> list[Piece]:
    note = f", {row.note}" if row.note else ""
    return [(f"{'' if first else '  '}{row.label} ", "dim"), (clean(row.value), row.tone), (clean(note), "dim")]


def _numbered(name: str) -> list[tuple[int, str]]:
    """Return a key by which names are in the order in which people count: gpu9 before gpu10."""
    parts = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdecimal() else (0, part) for part in parts]


def _cell(row: FactRow) -> str:
    """Return a figure for a column: a dash where nobody knows it."""
    return DASH if row.value == UNKNOWN else row.value


def _gpus(uses: Sequence[GpuUse], energy_read: float | None, width: int, place: Place) -> list[Line]:
    room = max(12, min(44, width - 36))
    head = f"{fit('GPUs', room)}  held    use      energy   GiB"
    lines: list[Line] = [[(head, "head")]]
    for name, each in sorted(
        ((place(each.node, each.gpu), each) for each in uses), key=lambda pair: _numbered(pair[0])
    ):
        figures = (
            f"{short_duration(each.held_seconds):>6}  {_cell(gpu_use_row(each)):>5}"
            f"  {_cell(energy_row('energy', each.energy_joules, energy_read)):>10}  {in_gibibytes(each.memory_peak_bytes):>4}"
        )
        lines.append([(fit(name, room, tail=True), ""), (figures, ""), ("  shared" if each.shared else "", "dim")])
    return lines


def process_lines(
    processes: Collection[GpuProcess], width: int, place: Place | None = None, most: int = 40
) -> list[Line]:
    """Draw processes with owner, program, memory and use; `place`: with their GPUs."""
    if not processes:
        return [[("no process is listed", "dim")]]
    lines: list[Line] = [[(counted(len(processes), "process"), "head")]]
    named = [("" if place is None else place("", each.gpu), each) for each in processes]
    named.sort(key=lambda pair: (_numbered(pair[0]), -(pair[1].memory_bytes or 0)))
    for name, each in named[:most]:
        who, what = clean(each.user) or DASH, clean(program_words(each))
        where = "" if place is None else f"{fit(name, 16, tail=True)} "
        lines.append(
            [(where, ""), (f"{each.pid or DASH:>8} ", "dim"), (f"{fit(who, 12)} ", "strong"),
             (fit(what, max(8, min(28, width - 60))), ""),
             (f" {gibibytes(each.memory_bytes):>9}  {percent(each.sm_ratio):>5}", "")]
        )  # fmt: skip
    if len(processes) > most:
        lines.append([(f"  and {len(processes) - most} more", "dim")])
    return lines


def holder_piece(holder: GpuHolder) -> list[Piece]:
    """Draw a job that holds a GPU, with its user."""
    name = f"{holder.job} {holder.job_name}" if holder.job_name else holder.job
    used = "  uses it" if holder.kind is AllocationKind.USED else ""
    return [(f"job {clean(holder.scheduler)} ", "dim"), (clean(name), "strong"),
            ("  user ", "dim"), (clean(holder.user) or DASH, "strong"), (used, "dim")]  # fmt: skip


def holder_lines(holders: Sequence[GpuHolder] | None, at: int) -> list[Line]:
    """Draw the jobs that hold a GPU; nothing where its node does not say."""
    if holders is None:
        return []
    lines: list[Line] = []
    for each in holders[:MOST_SHOWN]:
        length = short_duration((at - each.begin) / 1e9) if each.begin else DASH
        lines.append([*holder_piece(each), (f"  for {length}", "dim")])
    if len(holders) > MOST_SHOWN:
        lines.append([(f"  and {len(holders) - MOST_SHOWN} more jobs", "dim")])
    return lines or [[("no job holds it", "dim")]]


def node_job_lines(gpus: Iterable[tuple[int, Sequence[GpuHolder] | None]]) -> list[Line]:
    """Draw the jobs on the GPUs of a node, each with the numbers of its GPUs; nothing where the node does
    not say."""
    found: dict[tuple[str, str], tuple[GpuHolder, list[int]]] = {}
    known = False
    for index, holders in gpus:
        known = known or holders is not None
        for each in holders or ():
            found.setdefault((each.scheduler, each.job), (each, []))[1].append(index)
    lines: list[Line] = [
        [*holder_piece(holder), (f"  gpu {', '.join(map(str, its))}", "")]
        for holder, its in list(found.values())[:MOST_SHOWN]
    ]
    if len(found) > MOST_SHOWN:
        lines.append([(f"  and {len(found) - MOST_SHOWN} more jobs", "dim")])
    return lines or ([[("no job holds its GPUs", "dim")]] if known else [])


def circuit_job_lines(jobs: Sequence[JobRow], nodes: Collection[str], unknown: str, width: int) -> list[Line]:
    """Draw the jobs on the nodes of a circuit, those with the highest power first. `unknown`: why they are
    not known, or ``."""
    if not nodes:
        return []
    if unknown:
        return [[(f"jobs: {clean(unknown)}", "dim")]]
    there = set(nodes)
    found = [(len(there.intersection(row.nodes)), row) for row in jobs]
    found = [(count, row) for count, row in found if count]
    found.sort(key=lambda pair: -(pair[1].power_watts or 0.0))
    if not found:
        return [[("no job on it, as far as its nodes say", "dim")]]
    lines: list[Line] = [[(f"{counted(len(found), 'job')} on it", "head")]]
    for count, row in found[:MOST_SHOWN]:
        here = f"{count} of {counted(len(row.nodes), 'node')} here"
        name = fit(job_name(row), max(12, min(28, width - 52)))
        lines.append(
            [(f"  {name} ", ""), (f"{fit(clean(row.user) or DASH, 10)} ", "strong"),
             (f"{watts(row.power_watts):>9}  ", ""), (here, "dim")]
        )  # fmt: skip
    if len(found) > MOST_SHOWN:
        lines.append([(f"  and {len(found) - MOST_SHOWN} more", "dim")])
    return lines
