"""Owners of the GPUs of a simulated node: jobs, allocations and processes at any second, from closed forms.

The load of a GPU is its `SimulatedJob`'s, which never ends; here that load is cut into runs: one job
ends, its GPUs are free for some seconds, and the next one begins. Nodes of each kind of load show
another use of a scheduler: whole-node training, pods that serve, array tasks, two users on a node with
a process that outlives its job, and GPUs that are allocated and do nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from collector.jobs.source import JobsAnswer, JobsInput
from collector.simulated.cluster import SimulatedNode
from collector.simulated.inventory import uuid_of
from collector.simulated.programme import LoadPhase
from collector.simulated.random import draw, unit
from collector.simulated.scenario import Scenario
from telemetry.wire.jobs import (
    ENDED_SECONDS,
    Allocation,
    AllocationKind,
    GpuProcess,
    Job,
    JobKey,
    JobSourceState,
    Precision,
)

NAME = "slurm-simulated"
"""Name of the source."""
PAUSE = 20
"""Seconds for which GPUs are free between two jobs."""
LEFT_OVER = 600
"""Seconds for which a process of the job before stays on its first GPU, on nodes that two users share."""
_LOADS = 5
"""Seconds after the begin of a job in which its processes are on no GPU yet."""
_HOUR = 3600
_RUN = {"training": 6 * _HOUR, "inference": 720 * _HOUR, "evaluation": 1800, "mixed": _HOUR, "idle": 8 * _HOUR}
"""Seconds from one job's begin to the next one's."""
_USERS = (("ada", "nlp"), ("grace", "vision"), ("linus", "bio"), ("emmy", "nlp"), ("alan", "physics"))
_NAMES = {"training": "pretrain", "inference": "serve", "evaluation": "evaluate", "mixed": "finetune", "idle": "sweep"}
_IDLE_SHARE = 0.5
"""Share of the nodes without load that a job has all the same."""


@dataclass(frozen=True, slots=True)
class _Part:
    """GPUs of a node that one job has at a time."""

    gpus: tuple[int, ...]
    number: int
    """Of the job, whatever its run; the same on all of its nodes."""
    kind: str
    task: int | None = None
    """Number of the array task."""
    nodes: int = 1
    all_gpus: int = 0
    """Number of GPUs on all nodes."""


def _parts(node: SimulatedNode, owned: dict[int, int]) -> Iterator[_Part]:
    """Yield how the GPUs of a node are given away. `owned`: number of nodes of each job."""
    job, size = node.job, len(node.gpus)
    everything, half = tuple(range(size)), max(1, size // 2)
    scenario, number = node.scenario, job.number * 16
    nodes = owned[job.number]
    if scenario.name != "fleet" and len(scenario.nodes) > 1 and node.name == scenario.nodes[-1]:
        # The last node of one long training: half of it is another user's.
        yield _Part(everything[:half], number, "training", None, nodes, size * nodes - size + half)
        yield _Part(everything[half:], number + 1, "mixed", None, 1, size - half)
        return
    match job.kind:
        case "evaluation":
            for index in everything:
                yield _Part((index,), number, job.kind, index, 1, 1)
        case "inference" | "mixed":
            yield _Part(everything[:half], number, job.kind, None, 1, half)
            if size > half:
                yield _Part(everything[half:], number + 1, job.kind, None, 1, size - half)
        case "idle" if unit(scenario.seed, node.name, "allocated") >= _IDLE_SHARE:
            return
        case _:
            shared = scenario.name != "fleet" and len(scenario.nodes) > 1
            gpus = size * nodes - (size - half if shared else 0)
            yield _Part(everything, number, job.kind, None, nodes, gpus)


@dataclass(frozen=True, slots=True)
class _Run:
    """A job on a part of a node, from its begin to its end."""

    part: _Part
    job: Job
    begin: int
    end: int
    """Seconds since the scenario's start."""


class SimulatedJobs:
    """Source of the jobs of a simulated node; what it returns depends on the scenario, the node and the
    second alone."""

    name = NAME
    interval = 1.0

    def __init__(self, scenario: Scenario, node: SimulatedNode, owned: dict[int, int]) -> None:
        """`owned`: number of nodes of each simulated job."""
        self._scenario, self._node = scenario, node
        self._parts = tuple(_parts(node, owned))
        self._uuids = [uuid_of(scenario.seed, node.name, gpu.index) for gpu in node.gpus]
        self._newest: tuple[range, JobsAnswer] | None = None
        """The newest answer, and the seconds of which it is true."""

    def read(self, given: JobsInput) -> JobsAnswer:
        """Return jobs, allocations and processes at the time of the input."""
        return self.at((given.at - self._scenario.at_ns(0)) // 1_000_000_000)

    def close(self) -> None:
        """Do nothing."""

    def at(self, second: int) -> JobsAnswer:
        """Return jobs, allocations and processes at a second since the scenario's start."""
        if self._newest is None or second not in self._newest[0]:
            self._newest = self._steady(second), self._made(second)
        return self._newest[1]

    def _steady(self, second: int) -> range:
        """Return the seconds around one in which no job begins or ends and no process comes or goes."""
        edges = set()
        for part in self._parts:
            length, shift = _RUN[part.kind], self._node.job.shift
            number = (second + shift) // length
            for turn in (number - 1, number, number + 1):
                begin = turn * length - shift
                end = begin + length - PAUSE
                left = int(ENDED_SECONDS) + 1
                edges |= {begin, begin + _LOADS, end, end + LEFT_OVER, end + left}
        first = max((edge for edge in edges if edge <= second), default=second)
        return range(first, min((edge for edge in edges if edge > second), default=second + 1))

    def _made(self, second: int) -> JobsAnswer:
        jobs: dict[JobKey, Job] = {}
        allocations: list[Allocation] = []
        processes: list[GpuProcess] = []
        for part in self._parts:
            for run in self._runs(part, second):
                jobs[run.job.key] = run.job
                allocations += self._allocations(run, second)
                processes += self._processes(run, second)
        return JobsAnswer(
            state=JobSourceState(name=NAME, since=self._scenario.at_ns(0)),
            jobs=tuple(jobs.values()),
            allocations=tuple(allocations),
            processes=tuple(processes),
        )

    def _runs(self, part: _Part, second: int) -> Sequence[_Run]:
        """Return the run before, if it has ended lately, and the one of a second, if it has begun."""
        length, shift = _RUN[part.kind], self._node.job.shift
        number = (second + shift) // length
        found = []
        for turn in (number - 1, number):
            begin = turn * length - shift
            end = begin + length - PAUSE
            if second - end <= ENDED_SECONDS:
                found.append(_Run(part, self._job(part, turn, begin, end, second), begin, end))
        return found

    def _job(self, part: _Part, turn: int, begin: int, end: int, second: int) -> Job:
        user, account = _USERS[draw(self._scenario.seed, part.number, turn, "user") % len(_USERS)]
        name, over = _NAMES[part.kind], second >= end
        number = f"{1_000_000 + part.number * 1000 + turn % 1000}"
        limit = None
        if part.kind == "inference":
            key = JobKey("kubernetes", "simulated", f"serve/{name}-{number}")
            queue, owner = "serve", f"Deployment/{name}"
        else:
            task = "" if part.task is None else f"_{part.task}"
            key, queue, owner = JobKey("slurm", "simulated", number + task), "batch", ""
            limit = (1 + (end - begin) // 3600) * 3600
        return Job(
            key=key,
            name=name,
            user=user,
            account=account,
            queue=queue,
            owner=owner,
            submitted=self._scenario.at_ns(begin - 60),
            nodes=part.nodes,
            gpus=part.all_gpus,
            time_limit=limit,
            begin=self._scenario.at_ns(begin),
            end=self._scenario.at_ns(end) if over else 0,
            state="COMPLETED" if over else "RUNNING",
        )

    def _allocations(self, run: _Run, second: int) -> Iterator[Allocation]:
        for gpu in run.part.gpus:
            yield Allocation(
                job=run.job.key,
                gpu=self._uuids[gpu],
                kind=AllocationKind.ALLOCATED,
                begin=self._scenario.at_ns(run.begin),
                end=self._scenario.at_ns(run.end) if second >= run.end else 0,
                begin_from=Precision.HOOK,
                end_from=Precision.HOOK,
                source=NAME,
            )

    def _processes(self, run: _Run, second: int) -> Iterator[GpuProcess]:
        """Yield a process a GPU; a job without load has none, and some leave one behind."""
        if run.part.kind == "idle":
            return
        for gpu in run.part.gpus:
            stays = LEFT_OVER if run.part.kind == "mixed" and gpu == run.part.gpus[0] else 0
            if not run.begin + _LOADS <= second < run.end + stays:
                continue
            phase = LoadPhase.INFERENCE if run.part.kind == "inference" else LoadPhase.TRAINING
            own = draw(self._scenario.seed, self._node.name, gpu, run.begin)
            yield GpuProcess(
                gpu=self._uuids[gpu],
                pid=2000 + own % 4_000_000,
                started=self._scenario.at_ns(run.begin + _LOADS),
                user=run.job.user,
                name="vllm" if run.part.kind == "inference" else "python",
                job=run.job.key,
                memory_bytes=int(self._node.gpus[gpu].memory[phase][0]),
            )
