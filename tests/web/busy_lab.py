"""The laboratory of two nodes with work on its GPUs: of Slurm, of Kubernetes, and of a person's own."""

from __future__ import annotations

import msgspec

from aggregator.jobs.service import JobService
from telemetry.wire.jobs import (
    Allocation,
    AllocationKind,
    GpuProcess,
    Job,
    JobKey,
    JobSourceState,
    NodeJobs,
    Precision,
    UserPrivacy,
)
from tests.aggregator.fake_view import FakeView
from tests.aggregator.test_http_circuits import lab

TRAIN = JobKey("slurm", "lab", "4711")
ENDED = JobKey("slurm", "lab", "4710")
POD = JobKey("kubernetes", "", "lab/train-0")
ANN = JobKey("user", "", "ann")
SECOND = 10**9
MINUTES = 6
"""How long the work goes on: longer than the time in which a job warms up."""
READING = (JobSourceState(name="process"), JobSourceState(name="slurm"))


def held(job: JobKey, gpu: str, begin: int, end: int = 0, **more: object) -> Allocation:
    """An allocation by Slurm."""
    facts = {"source": "slurm-hook", "begin_from": Precision.HOOK, "end_from": Precision.HOOK, **more}
    return Allocation(job=job, gpu=gpu, begin=begin, end=end, **facts)  # type: ignore[arg-type]


def process(gpu: str, pid: int, user: str, job: JobKey | None, **more: object) -> GpuProcess:
    """A process that computes."""
    facts = {"name": "python", "memory_bytes": 40 * 2**30, "sm_ratio": 0.98, **more}
    return GpuProcess(gpu=gpu, pid=pid, user=user, job=job, **facts)  # type: ignore[arg-type]


def send(view: FakeView, node: str, **parts: object) -> None:
    """Let a node say who holds its GPUs."""
    before = view.jobs.lists.get(node)
    version = 1 if before is None else before.version + 1
    message = NodeJobs(session=7, version=version, at=view.wall(), **parts)  # type: ignore[arg-type]
    gpus = {gpu.uuid for gpu in view.fleet.nodes[node].inventory.gpus}
    view.jobs.receive(node, msgspec.json.encode(message), gpus, view.wall())


async def busy_lab(users: UserPrivacy = UserPrivacy.NAMES) -> FakeView:
    """Job 4711 holds three GPUs on two nodes, of which one has no process; a pod shares one of them."""
    view = await lab()
    view.jobs = JobService(lambda: "EUR")
    begin = view.wall()
    train = Job(
        key=TRAIN,
        name="pretrain",
        user="ada",
        account="physics",
        queue="gpu",
        submitted=begin - 90 * SECOND,
        gpus=4,
        state="RUNNING",
    )
    ended = Job(key=ENDED, name="sweep", user="grace", account="chemistry", state="FAILED", exit_code=2)
    send(
        view,
        "n1",
        users=users,
        sources=READING,
        jobs=(train, Job(key=POD, name="train", queue="lab", owner="Job/train")),
        allocations=(
            held(TRAIN, "GPU-n1-0", begin),
            held(TRAIN, "GPU-n1-1", begin, step="0"),
            held(POD, "GPU-n1-0", begin, source="pod-resources"),
        ),
        processes=(process("GPU-n1-0", 41207, "ada", TRAIN, started=begin),),
    )
    send(
        view,
        "n2",
        users=users,
        sources=READING,
        jobs=(train, ended, Job(key=ANN, user="ann")),
        allocations=(
            held(TRAIN, "GPU-n2-0", begin),
            held(ENDED, "GPU-n2-1", begin - 60 * SECOND, begin),
            held(ANN, "GPU-n2-1", begin, kind=AllocationKind.USED, source="process"),
        ),
        processes=(
            process("GPU-n2-0", 512, "ada", TRAIN, memory_bytes=None, sm_ratio=None),
            process("GPU-n2-1", 600, "ann", ANN, name="jupyter-lab", sm_ratio=0.0),
            process("GPU-n2-1", 601, "", None, name="", hidden="no permission"),
        ),
    )
    for tick in range(MINUTES * 60):
        await view.tick(6 + tick)
        if tick % 5 == 4:
            work(view)
    view.electrical.snapshots(view.fleet, view.now(), view.wall())
    return view


def work(view: FakeView) -> None:
    """Count what the jobs use."""
    watts = dict.fromkeys(view.fleet.nodes, 2000.0)
    for _ in view.jobs.steps(view.fleet, view.now(), view.wall(), watts, 0.30):
        pass
