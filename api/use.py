"""Use of the GPUs in a month by user, account or job: `/api/v1/use`.

A figure is null where it is not known, and stands beside its coverage: the share of the GPU hours that it
was computed from.
"""

from __future__ import annotations

import msgspec

BY = ("user", "account", "job")


class UseRow(msgspec.Struct, frozen=True, kw_only=True):
    """Use by one user, account or job; of the three texts the one that was asked for, empty where not known."""

    user: str = ""
    account: str = ""
    job: str = ""
    scheduler: str = ""
    """Of a job."""
    cluster: str = ""
    """Of a job: the scheduler's name of its cluster."""
    jobs: int
    """Jobs that held a GPU in the month; each run of a requeued one counts."""
    gpu_hours: float | None = None
    hours_coverage: float
    """Share of the jobs whose GPU hours are known."""
    utilization_ratio: float | None = None
    """Mean over GPUs and time with a reading."""
    utilization_coverage: float | None = None
    energy_joules: float | None = None
    """At the GPUs."""
    energy_coverage: float | None = None
    wall_joules: float | None = None
    """At the wall."""
    wall_coverage: float | None = None
    cost: float | None = None
    """By the site's tariff; null without one."""
    cost_coverage: float | None = None
    """Share of the GPU hours with a power at the wall, of jobs that have a cost."""
    co2_kg: float | None = None
    """Kilograms of CO2 of the energy at the wall that is known, the building's overhead with it."""
    idle_gpu_hours: float | None = None
    """GPU hours with a utilisation below 5 %, of those read."""
    idle_coverage: float | None = None
    idle_cost: float | None = None
    """The part of `cost` in that time."""
    asked_gpu_hours: float | None = None
    """GPU hours that its jobs asked for by their time limits: GPUs held times limit, of jobs that have ended and whose limit
    is known. Of a job over an edge of the month the part by the time that it held GPUs in it. Without runs that were
    requeued, preempted or ended by a failure of a node, which would have used more."""
    asked_used_ratio: float | None = None
    """Share of `asked_gpu_hours` for which these jobs ran."""
    asked_coverage: float | None = None
    """Share of the GPU hours that are of these jobs."""
    gpus_held: int | None = None
    """GPUs of all jobs of which it is known how many worked; one that two jobs had counts twice."""
    gpus_idle: int | None = None
    """GPUs of `gpus_held` that never worked: below 1 % use in the mean over their time in the month."""
    gpus_coverage: float | None = None
    memory_peak_ratio: float | None = None
    """Highest memory in use on a GPU of a job, of what the GPU has; between two readings it may have been more. Of the jobs
    within the month on nodes that are known, whose GPUs all have the same memory."""
    memory_coverage: float | None = None
    split_by_time: int = 0
    """Jobs over an edge of the month whose sums at it are not known: their figures are divided by the time that
    they held GPUs."""


class UseReply(msgspec.Struct, frozen=True, kw_only=True):
    """Use of the GPUs in a month, the most GPU hours first. With `unheld` and `unreported` it adds up to all that the
    aggregator has read of GPUs in the month."""

    at: int
    """ns since 1970."""
    by: str
    month: str
    timezone: str
    currency: str = ""
    g_per_kwh: float | None = None
    """Grams of CO2 per kWh by which `co2_kg` was computed; null of an aggregator that does not compute it."""
    rows: list[UseRow]
    unheld: UseRow | None = None
    """GPUs while no job held them; null where that was not counted in the month."""
    unreported: UseRow | None = None
    """GPUs of nodes that did not say who held them: nobody knows whether they were free."""
    missing: list[str] = []
    """Aggregators of the cluster whose part is in no sum."""
