"""Who uses the GPUs of a node: jobs, their allocations and processes, as one retained message.

Border types: tolerant of unknown fields, fields are only ever added, with a default. The message is
always the complete list, never a change: a message that is lost is healed by the next one, and an
aggregator that was away makes intervals of the difference.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from enum import StrEnum
from typing import Literal

import msgspec
from msgspec.structs import replace

from telemetry.notations.batch import NUMBERED

MAX_MESSAGE_BYTES = 64 * 1024
"""Bytes of a message at most; a node with more processes leaves out the smallest ones, and says how many."""
ENDED_SECONDS = 600.0
"""Time for which an ended allocation stays in the message, so that an aggregator that was away gets
its exact end."""


MOST_JOB_LABELS = 32


UNLIMITED: Literal["unlimited"] = "unlimited"
"""Time limit of a job that may run for ever."""


class UserPrivacy(StrEnum):
    """Form in which persons leave the node."""

    NAMES = "names"
    HASHED = "hashed"
    """A keyed hash of 12 hex digits in place of each user, account and uid."""
    OFF = "off"


class Precision(StrEnum):
    """How a begin or an end was learned, the most exact first."""

    HOOK = "hook"
    """A scheduler's prolog or epilog, to a second."""
    SCHEDULER = "scheduler"
    """The scheduler's own time, to a second, asked for later."""
    PROCESS = "process"
    """The first or last reading with a process of it, to one interval of such readings."""
    ACCOUNTING = "accounting"
    """The scheduler's accounts, to a second, without the numbers of GPUs."""


class AllocationKind(StrEnum):
    """Why a GPU belongs to somebody."""

    ALLOCATED = "allocated"
    """A scheduler gave it."""
    USED = "used"
    """A process on it belongs to that job or user."""


class JobKey(msgspec.Struct, frozen=True, order=True):
    """Identity of a job: never used again for another one."""

    scheduler: str
    """`slurm`, `pbs`, `lsf`, `htcondor`, `kubernetes`, `ray`, `container`, `systemd` or `user` (processes outside any of
    them)."""
    cluster: str
    """The scheduler's own name of its cluster; empty where it has none."""
    id: str
    """`4711`, `4711_3` (array task), `4711[3]` (that of PBS and LSF), `4711+1` (component), `4711.0` (HTCondor), `namespace/pod`, the unit, the container
    or the user."""
    restart: int = 0
    """How often it was requeued."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job as far as this node knows it; a text is empty and a time 0 where it does not."""

    key: JobKey
    name: str = ""
    user: str = ""
    account: str = ""
    queue: str = ""
    """Partition, queue or namespace."""
    owner: str = ""
    """Object that made it: `Job/train`, `PyTorchJob/llm`, `RayCluster/lab`."""
    submitted: int = 0
    """ns since 1970; of a run after a requeue, when it was requeued."""
    eligible: int = 0
    """When it could have begun for the first time, ns since 1970: nothing held it but the want of resources."""
    begin: int = 0
    end: int = 0
    """0 while it runs."""
    state: str = ""
    """The scheduler's word: `RUNNING`, `COMPLETED`, `FAILED`, `TIMEOUT`; `ended` where nobody says how,
    `lost` where it ended unseen."""
    exit_code: int | None = None
    nodes: int = 0
    """Number of its nodes as the scheduler says."""
    gpus: int = 0
    """Number of GPUs that it asked for."""
    purpose: str = ""
    """Declaration of its owner (`telemetry.notations.purpose`): `gpus=6 checkpoint=15m idle=ok`."""
    time_limit: int | Literal["unlimited"] | None = None
    """Seconds for which it may run; None where nobody says."""
    reason: str = ""
    """Why it waits or is held, or did last before it began, in the scheduler's word: `Resources`, `JobHeldUser`."""
    labels: dict[str, str] = {}
    """Labels of the pod that the settings of its node name: `{"team": "vision"}`."""
    aliases: tuple[str, ...] = ()
    """Other ids by which it was known before its scheduler named it, as its cgroup has them: the uid of a pod, the slot of
    HTCondor."""


class Allocation(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU, or an instance of it, in the hands of a job."""

    job: JobKey
    gpu: str
    """UUID."""
    instance: int | None = None
    """MIG GPU instance."""
    step: str = ""
    """The scheduler's step, or the container within a pod."""
    kind: AllocationKind = AllocationKind.ALLOCATED
    begin: int = 0
    """ns since 1970."""
    end: int = 0
    """0 while it lasts."""
    begin_from: Precision = Precision.PROCESS
    end_from: Precision = Precision.PROCESS
    source: str = ""
    """The source that said so: `slurm-cgroup`, `slurm-hook`, `squeue`, `qstat`, `bjobs`, `condor_status`, `pod-resources`, `ray`, `process`."""
    assumed: bool = False
    """Whether the scheduler's number of the GPU was taken for that of `/dev/nvidiaN`, which nothing has shown."""
    end_by: str = ""
    """Evidence from which its end was concluded, where nobody reported it: `a newer run of it`, `the next job on its GPU`."""
    end_after: int = 0
    """Where its end was concluded: when it certainly lasted. It ended between that and `end`. ns since 1970."""


class GpuProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process with a context on a GPU, now."""

    gpu: str
    instance: int | None = None
    pid: int = 0
    """In the initial PID namespace."""
    started: int = 0
    """ns since 1970; 0 if it can't be known. PIDs are used again."""
    type: str = "compute"
    """`compute`, `graphics` or `mps`."""
    user: str = ""
    name: str = ""
    """Name of its program, without arguments."""
    job: JobKey | None = None
    memory_bytes: int | None = None
    """None where the driver does not say: no memory is not 0."""
    sm_ratio: float | None = None
    """Use of the streaming multiprocessors since the reading before, 0 to 1."""
    hidden: str = ""
    """Why owner and job are unknown: `no permission`, `gone`, `other namespace`; empty where they are known."""


class JobSourceState(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a source of jobs can be asked."""

    name: str
    state: str = "reading"
    """`reading`, `absent` (there is no such scheduler), `no permission`, `failing`."""
    message: str = ""
    """Fault and its cure, in one sentence."""
    since: int = 0
    """ns since 1970."""
    unattributed: dict[str, int] = {}
    """Number of devices that pods hold and no GPU of the node could be found for, by reason (docs/kubernetes.md)."""


class NodeJobs(msgspec.Struct, frozen=True, kw_only=True):
    """Complete list of a node's jobs, allocations and processes; retained, sent when it changes, at most
    once a second."""

    session: int
    version: int = 0
    """Incremented within a session with every change."""
    at: int = 0
    """ns since 1970."""
    users: UserPrivacy = UserPrivacy.NAMES
    jobs: tuple[Job, ...] = ()
    allocations: tuple[Allocation, ...] = ()
    """Allocations that last, and those that ended within `ENDED_SECONDS`."""
    processes: tuple[GpuProcess, ...] = ()
    left_out: int = 0
    """Processes that found no room in the message."""
    sources: tuple[JobSourceState, ...] = ()


def holders_of(message: NodeJobs, gpu: str, instances: Container[int | None] | None = None) -> list[Allocation]:
    """Return an allocation of each job that holds a GPU, or one of some GPU instances of it: those to whom it is
    allocated, else those who use it."""
    retained = [
        each
        for each in message.allocations
        if each.gpu == gpu and not each.end and (instances is None or each.instance in instances)
    ]
    given = [each for each in retained if each.kind is AllocationKind.ALLOCATED]
    return list({each.job: each for each in given or retained}.values())


OF_A_NODE = frozenset({"user", "systemd", "container"})
"""Schedulers whose ids mean something on one node only: a user, a unit or a container of that name on another
node is another job."""


def aliases_of(job: Job) -> list[JobKey]:
    """Return the keys by which a job is known where nothing but a cgroup names it."""
    key = job.key
    number = [key.id] if key.scheduler in NUMBERED and key.cluster else []
    return [JobKey(key.scheduler, "", each) for each in (*number, *job.aliases)]


def with_keys(message: NodeJobs, key: Callable[[JobKey], JobKey]) -> NodeJobs:
    """Return a node's list with other keys of its jobs."""
    return replace(
        message,
        jobs=tuple(replace(job, key=key(job.key)) for job in message.jobs),
        allocations=tuple(replace(one, job=key(one.job)) for one in message.allocations),
        processes=tuple(one if one.job is None else replace(one, job=key(one.job)) for one in message.processes),
    )


def with_node(message: NodeJobs, node: str) -> NodeJobs:
    """Return a node's list in which ids that mean something there only have its name as their cluster."""
    if not any(each.job.scheduler in OF_A_NODE for each in message.allocations):
        return message

    def key(known: JobKey) -> JobKey:
        return replace(known, cluster=node) if known.scheduler in OF_A_NODE else known

    return with_keys(message, key)
