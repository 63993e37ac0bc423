"""Jobs, the GPUs that they hold and what they used: `/api/v1/jobs` and `/api/v1/jobs/{id}`.

A figure is null where it is not known, and stands beside its coverage: the share of the job's GPU time
that it was computed from. Below 0.9 the figures are partial.
"""

from __future__ import annotations

import msgspec

from api.alerts import Severity
from api.decoding import OpenEnum
from telemetry.devices import Gpu
from telemetry.wire.jobs import AllocationKind, GpuProcess, JobSourceState, NodeJobs, Precision

PARTIAL_BELOW = 0.9
"""Coverage below which a summary is partial."""


class JobPhase(OpenEnum):
    """The state of a job as far as its nodes say."""

    RUNNING = "running"
    SILENT = "silent"
    """No node that it runs on reports: whether it still runs is not known."""
    ENDED = "ended"
    LOST = "lost"
    """Ended, and nobody said when: its end is when it was listed last."""


class AllocationRow(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU, or an instance of it, in the hands of a job from a time to a time."""

    node: str
    gpu: str
    """UUID."""
    instance: int | None = None
    """MIG GPU instance."""
    step: str = ""
    kind: AllocationKind = AllocationKind.ALLOCATED
    begin: int
    """ns since 1970."""
    end: int | None = None
    """Null while it lasts."""
    begin_from: Precision = Precision.PROCESS
    end_from: Precision = Precision.PROCESS
    lost: bool = False
    """Whether it ended unseen: `end` is when it was listed last."""
    source: str = ""
    assumed: bool = False
    """Whether the scheduler's number of the GPU was taken for that of `/dev/nvidiaN`, which nothing has shown."""
    end_by: str = ""
    """Evidence from which its end was concluded, where no epilog reported it: `a newer run of it`, `the next job on its GPU`,
    `squeue`. `end` is the latest that is possible then."""
    end_after: int | None = None
    """Where its end was concluded: when it certainly lasted, ns since 1970."""


class JobAccount(msgspec.Struct, frozen=True, kw_only=True):
    """The scheduler's accounting of a run that has ended."""

    state: str
    begin: int | None = None
    """ns since 1970, to a second; null where the accounting lost it, as of a run that was requeued at once."""
    end: int | None = None
    exit_code: int | None = None
    """Negative: the signal that ended it."""
    submitted: int | None = None
    """ns since 1970; of a run after a requeue, when it was requeued."""
    eligible: int | None = None
    time_limit_seconds: int | None = None
    unlimited: bool = False
    """Whether it had no time limit; false also where nobody says."""


class EnergyFrom(OpenEnum):
    """Basis of the energy at the GPUs of a job."""

    PROVISIONAL = "provisional"
    """Sum of samples so far: it runs, or the stored readings of its begin and end are looked for."""
    COUNTERS = "counters"
    """Growth of the counters of its GPUs between begin and end, interpolated between stored readings."""
    SAMPLES = "samples"
    """Sum of samples: another one held a GPU at the same time, or there are no stored counters."""


class GpuUse(msgspec.Struct, frozen=True, kw_only=True):
    """Use of one GPU by a job."""

    node: str
    gpu: str
    held_seconds: float
    known_seconds: float
    """Part of `held_seconds` in which utilisation was read."""
    utilization_ratio: float | None = None
    """Mean over `known_seconds`."""
    energy_joules: float | None = None
    """At the GPU; where several jobs hold it, this job's share."""
    memory_peak_bytes: float | None = None
    """Highest reading: the true peak is at least that."""
    shared: bool = False
    """Whether another job held the GPU at the same time: utilisation is that of the GPU."""


class JobSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Use, energy and cost of a job."""

    gpu_hours: float
    """Of a GPU that several held at the same time, the job's share, as of its energy."""
    coverage: float | None = None
    """Share of the GPU hours with a known utilisation; null without any GPU time."""
    partial: bool = True
    """Whether a coverage is below 0.9."""
    utilization_ratio: float | None = None
    """Mean over GPUs and time."""
    utilization_p10_ratio: float | None = None
    utilization_p90_ratio: float | None = None
    energy_joules: float | None = None
    """Energy at the GPUs."""
    energy_coverage: float | None = None
    energy_from: EnergyFrom = EnergyFrom.SAMPLES
    wall_joules: float | None = None
    """At the wall: the energy of its GPUs, and an equal part for each GPU of what else its node drew; over time in which
    the wall was not read too, once `energy_from` is `counters`."""
    wall_coverage: float | None = None
    """Share of the GPU hours in which the wall was read."""
    cost: float | None = None
    """By the site's tariff and its power usage effectiveness; null without a tariff."""
    currency: str = ""
    co2_kg: float | None = None
    """Of the energy at the wall that is known, the building's overhead with it, by the site's `g_per_kwh` at the time
    of the answer."""
    idle_gpu_hours: float | None = None
    """GPU hours with a utilisation below 5 %, of those read: idle as on the site's bill."""
    idle_coverage: float | None = None
    """Share of the GPU hours of which it is known whether they were idle."""
    idle_cost: float | None = None
    """The part of `cost` in that time."""
    memory_peak_bytes: float | None = None
    """Highest of any of its GPUs."""
    sm_active_ratio: float | None = None
    """Share of the multiprocessors that had a warp, mean over GPUs and time: by GPM, from Hopper on."""
    sm_occupancy_ratio: float | None = None
    """Warps on the multiprocessors, of the most that they can hold."""
    tensor_active_ratio: float | None = None
    dram_active_ratio: float | None = None
    """Memory bandwidth used, of its maximum."""
    activity_coverage: float | None = None
    """Share of the GPU hours in which the activity was read."""
    pcie_bytes_per_second: float | None = None
    """Sent and received by a GPU over PCIe, mean over GPUs and time; of the whole GPU, also where others share it."""
    pcie_coverage: float | None = None
    nvlink_bytes_per_second: float | None = None
    """Sent and received over all NVLinks of a GPU, in the same way."""
    nvlink_coverage: float | None = None
    clock_limit_seconds: dict[str, float] = {}
    """GPU time under each reason for limited clocks, by NVML's names; only those that occurred."""
    faults: dict[str, int] = {}
    """Events of its GPUs while it ran, and one minute after, by kind: `xid 79`."""
    gpus_idle: int | None = None
    """GPUs whose utilisation was below 1 % in the mean; null where none is known."""
    gpus: list[GpuUse] = []


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A job in a list; a text is empty where it is not known."""

    scheduler: str
    cluster: str
    """The scheduler's name of its cluster."""
    id: str
    restart: int = 0
    renamed_from: list[str] = []
    """Ids by which it was known before its scheduler named it: the uid of a pod."""
    job_name: str = ""
    user: str = ""
    account: str = ""
    queue: str = ""
    owner: str = ""
    phase: JobPhase = JobPhase.RUNNING
    state: str = ""
    """The scheduler's word."""
    exit_code: int | None = None
    submitted: int | None = None
    """ns since 1970; of a run after a requeue, when it was requeued."""
    eligible: int | None = None
    """When it could have begun for the first time, ns since 1970: after the jobs that it depends on, the begin that it
    asked for, a hold, and the pause after a requeue."""
    wait_seconds: float | None = None
    """How long it waited for resources: from `eligible`, where that is not known from `submitted`, up to the begin that its
    scheduler says; null where one of them is not known."""
    reason: str = ""
    """Why it waited or was held last before it began, in its scheduler's word: `Resources`, `JobHeldUser`."""
    begin: int
    """ns since 1970."""
    end: int | None = None
    """Null while it runs."""
    nodes: list[str] = []
    gpus: int = 0
    """GPUs that it holds or held."""
    gpus_asked: int | None = None
    purpose: str = ""
    """Declaration of its owner in its comment: `gpus=6 checkpoint=15m idle=ok`."""
    time_limit_seconds: int | None = None
    """Time for which its scheduler lets it run at most; null where nobody says, and where it is `unlimited`."""
    unlimited: bool = False
    """Whether its scheduler says that it has no time limit; false also where nobody says."""
    account_of_run: JobAccount | None = None
    """The scheduler's accounting of it; null while it runs, and where there is none."""
    differences: list[str] = []
    """Where its sources disagree, a line each: `its end is 12 s later in sacct`."""
    summary: JobSummary | None = None
    """Without `gpus`; null where nothing was measured yet."""
    power_watts: float | None = None
    """Of the GPUs that it holds, now; null where one of them is not read, and of a job that has ended."""
    severity: Severity | None = None
    """The worst of the alerts that fire on its GPUs and nodes, while it holds them."""
    hints: list[str] = []
    """Remarks that its figures suggest, a line each: `3 of 8 GPUs never worked`."""


class JobsReply(msgspec.Struct, frozen=True):
    """Jobs, the newest begin first."""

    at: int
    """ns since 1970."""
    jobs: list[JobRow]
    more: bool = False
    """Whether there are more than `limit`."""
    user: str = ""
    """The user whose jobs are all that the caller's token shows; empty for one that shows all."""
    sources: list[JobSourceState] = []
    """State of the scheduler's own word, where the aggregator asks for it: `squeue` and `sacct`. Those of the
    nodes are in their lists."""
    missing: list[str] = []
    """Aggregators of the cluster whose part is not in it: jobs of theirs may be missing, or be more than is shown."""


class NodeJobsReply(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs of a node and who uses them, as its collector said last: `/api/v1/nodes/{node}/jobs`."""

    at: int
    """ns since 1970."""
    driver_state: str
    driver_message: str = ""
    gpus: list[Gpu] = []
    found: NodeJobs | None = None
    """Null where the node publishes none: its collector is of an older release, or jobs are off."""


class GpuHolder(msgspec.Struct, frozen=True, kw_only=True):
    """A job that holds a GPU now."""

    scheduler: str
    job: str
    """Id of the job."""
    job_name: str = ""
    user: str = ""
    account: str = ""
    kind: AllocationKind = AllocationKind.ALLOCATED
    begin: int = 0
    """ns since 1970; 0 where nobody says."""


class JobAlert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert that fires on a GPU or a node of a job."""

    rule: str
    severity: Severity
    node: str
    gpu: str = ""
    """UUID; empty for the node."""
    since: int
    """ns since 1970."""
    summary: str = ""
    """Empty for the token of a user where it may tell of somebody else."""


class JobReply(msgspec.Struct, frozen=True):
    """A job with its allocations."""

    at: int
    job: JobRow
    """Its summary has each GPU."""
    allocations: list[AllocationRow]
    processes: list[GpuProcess] = []
    """Its processes on its GPUs, as its nodes listed them last; none of a job that has ended."""
    alerts: list[JobAlert] = []
    """Alerts that fire on its GPUs and nodes while it holds them, the worst first."""
    indices: dict[str, int] = {}
    """Number of each of its GPUs on its node, by UUID, as far as the GPU is there."""
    missing: list[str] = []
    """Aggregators of the cluster whose part is not in it: it may be more than is shown."""
