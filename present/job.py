"""The figures of a job as rows: what it did, used and cost. A page lists them all; lists and the command take some."""

from __future__ import annotations

from collections.abc import Iterator

from api.jobs import GpuUse, JobRow, JobSummary
from present.device.gpu import limit_word
from present.row import FactRow, Tone
from present.units import (
    ENERGY_FROM,
    NO_COST,
    WALL_FROM,
    energy,
    gibibytes,
    is_partial,
    kilograms,
    money,
    number,
    percent,
    rate_text,
    roughly,
)
from telemetry.notations.purpose import purpose_of
from telemetry.text import counted, duration

UNKNOWN = "not known"


def figure(label: str, words: str, coverage: float | None, note: str = "") -> FactRow:
    """Return a figure, with `~` where it covers too little of the job's time."""
    return FactRow(label, roughly(words, partial=is_partial(coverage)), note=note)


def unknown(label: str, note: str = "") -> FactRow:
    """Return a figure that nobody knows."""
    return FactRow(label, UNKNOWN, Tone.DIM, note=note)


def purpose_words(text: str) -> str:
    """Return what the owner of a job declares of it in words; "" where nothing is declared."""
    found, _ = purpose_of(text)
    return ", ".join(
        filter(
            None,
            (
                f"works with {counted(found.gpus, 'GPU')}" if found.gpus else "",
                f"pauses for up to {duration(found.checkpoint)}" if found.checkpoint else "",
                "may wait" if found.idle else "",
            ),
        )
    )


def renamed_rows(job: JobRow) -> Iterator[FactRow]:
    """Yield how a job was known before its scheduler named it."""
    if job.renamed_from:
        yield FactRow("renamed from", ", ".join(job.renamed_from))


def asked_row(job: JobRow, at: int) -> FactRow:
    """Return what a job asked for, how long it waited, and for how long it runs or ran, ns since 1970. Nothing is said of
    what nobody asked for, as of a process outside any scheduler; no limit is not an unknown one."""
    limit = job.time_limit_seconds
    known = job.unlimited or limit is not None
    words = "without a time limit" if job.unlimited else "" if limit is None else f"at most {duration(limit)}"
    if job.gpus_asked is not None:
        length = f" {'' if job.unlimited else 'for '}{words}" if known else ", time limit not known"
        words = f"{counted(job.gpus_asked, 'GPU')}{length}"
    elif job.unlimited:
        words = "no time limit"
    waited = "" if job.wait_seconds is None else duration(job.wait_seconds)
    if not waited and job.submitted is not None:
        waited = "an unknown time"
    if waited and job.reason:
        waited += f" ({job.reason})"
    ran = duration(max(0.0, ((at if job.end is None else job.end) - job.begin) / 1e9))
    found = (("asked for", words), ("waited", waited), ("runs for" if job.end is None else "ran for", ran))
    (label, first), *rest = ((verb, its) for verb, its in found if its)
    return FactRow(label, "; ".join([first, *(f"{verb} {its}" for verb, its in rest)]))


def read_row(summary: JobSummary) -> FactRow:
    """Return of how much of the job's GPU time its use is known."""
    if summary.coverage is None:
        return FactRow("read", "nothing", Tone.WARN)
    note = "so that figures are partial (~)" if summary.partial else ""
    return FactRow("read", f"{percent(summary.coverage)} of its GPU time", Tone.WARN if note else Tone.PLAIN, note=note)


def hours_row(summary: JobSummary) -> FactRow:
    """Return for how long it held GPUs."""
    return FactRow("GPU hours", number(summary.gpu_hours, 2))


def use_row(summary: JobSummary | None) -> FactRow:
    """Return the mean use of its GPUs, and how it is spread over the time."""
    if summary is None or summary.utilization_ratio is None:
        return unknown("use, mean")
    low, high = summary.utilization_p10_ratio, summary.utilization_p90_ratio
    spread = (
        ""
        if low is None or high is None
        else f"a tenth of the time below {percent(low)}, a tenth above {percent(high)}"
    )
    return figure("use, mean", percent(summary.utilization_ratio), summary.coverage, spread)


def gpu_use_row(one: GpuUse) -> FactRow:
    """Return the mean use of one of its GPUs."""
    if one.utilization_ratio is None:
        return unknown("use")
    part = one.known_seconds / one.held_seconds if one.held_seconds else None
    return figure("use", percent(one.utilization_ratio), part)


def activity_rows(summary: JobSummary) -> Iterator[FactRow]:
    """Yield what the parts of the GPUs did, where GPM says so, and what went over their links, where it was read."""
    if summary.sm_active_ratio is not None:
        share = summary.activity_coverage
        part = "" if share is None else f"read for {percent(share)} of its GPU time"
        yield FactRow("multiprocessors active", percent(summary.sm_active_ratio), note=part)
        yield FactRow("multiprocessors occupied", percent(summary.sm_occupancy_ratio))
        yield FactRow("tensor cores active", percent(summary.tensor_active_ratio))
        yield FactRow("memory bandwidth used", percent(summary.dram_active_ratio))
    for link, rate, coverage in (
        ("PCIe", summary.pcie_bytes_per_second, summary.pcie_coverage),
        ("NVLink", summary.nvlink_bytes_per_second, summary.nvlink_coverage),
    ):
        if rate is not None:
            yield figure(f"over {link}", f"{rate_text(link, rate)} a GPU, both ways", coverage)


def idle_rows(summary: JobSummary) -> Iterator[FactRow]:
    """Yield the GPU hours that it did not use, and the GPUs that it never used."""
    if summary.idle_gpu_hours is not None:
        lost = "" if summary.idle_cost is None else f"{money(summary.idle_cost, summary.currency)} of the cost"
        yield figure("below 5% use", f"{number(summary.idle_gpu_hours, 2)} GPU hours", summary.idle_coverage, lost)
    idle = summary.gpus_idle
    if idle is None:
        yield unknown("GPUs below 1% use")
    else:
        yield FactRow("GPUs below 1% use", number(idle) if idle else "none")


def memory_row(summary: JobSummary) -> FactRow:
    """Return the highest memory of any of its GPUs; between two readings it may have been higher."""
    peak = summary.memory_peak_bytes
    return unknown("memory") if peak is None else FactRow("memory", f"at least {gibibytes(peak)} at its peak on a GPU")


def energy_row(label: str, joules: float | None, coverage: float | None, note: str = "") -> FactRow:
    """Return energy, marked where it is partial."""
    return unknown(label) if joules is None else figure(label, energy(joules), coverage, note)


def cost_row(summary: JobSummary | None) -> FactRow:
    """Return its cost, marked where it is partial."""
    if summary is None or summary.cost is None:
        return unknown("cost", "" if summary is None else NO_COST)
    return figure("cost", money(summary.cost, summary.currency), summary.wall_coverage)


def cost_rows(summary: JobSummary) -> Iterator[FactRow]:
    """Yield its energy, its cost and its CO2, or why it has none."""
    basis = ENERGY_FROM.get(summary.energy_from, "")
    yield energy_row("energy at the GPUs", summary.energy_joules, summary.energy_coverage, basis)
    yield energy_row("energy at the wall", summary.wall_joules, summary.wall_coverage, WALL_FROM[summary.energy_from])
    yield cost_row(summary)
    if summary.co2_kg is None:
        yield unknown("CO2", "without power at the wall")
    else:
        yield figure("CO2", kilograms(summary.co2_kg), summary.wall_coverage)


def clocks_row(summary: JobSummary) -> FactRow:
    """Return the GPU time under each clock limit, the longest first."""
    limits = sorted(summary.clock_limit_seconds.items(), key=lambda pair: -pair[1])
    words = ", ".join(f"{limit_word(word)} {duration(seconds)}" for word, seconds in limits)
    label = "GPU time at limited clocks"
    return FactRow(label, words or "none") if words or summary.coverage else unknown(label)


def faults_row(summary: JobSummary) -> FactRow:
    """Return the faults of its GPUs while it ran; nothing where there were none."""
    faults = sorted(summary.faults.items())
    return FactRow("faults while it ran", ", ".join(f"{kind} {counted(times, 'time')}" for kind, times in faults))


def figure_rows(summary: JobSummary) -> Iterator[FactRow]:
    """Yield every figure of a job's page, in the order in which it is read."""
    yield hours_row(summary)
    yield read_row(summary)
    yield use_row(summary)
    yield from activity_rows(summary)
    yield from idle_rows(summary)
    yield memory_row(summary)
    yield from cost_rows(summary)
    yield clocks_row(summary)
