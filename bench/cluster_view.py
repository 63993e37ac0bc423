"""`python -m bench.cluster_view --nodes 2500`: what one copy of the present costs its holder and who asks.

CPU time of one process, nodes of 8 GPUs with 18 links each; the fast lane changes before each copy, and the list of jobs of
every fifth node: each looks every 5 s. Then what it costs to join a job over all of these GPUs that two members have.
"""

from __future__ import annotations

import argparse
import sys
import time
import zlib
from collections.abc import Callable
from typing import TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace

from aggregator.cluster.fleet_copy import FleetCopy, FleetPart, FleetSource
from aggregator.cluster.groups import GROUPS
from aggregator.jobs.joined import joined_job
from aggregator.jobs.service import JobService
from aggregator.jobs.stored import StoredJob
from aggregator.jobs.usage import GpuAccount
from api.jobs import AllocationRow, GpuUse
from telemetry.fleet import Fleet
from telemetry.metric import Lane
from telemetry.wire.jobs import Allocation, GpuProcess, Job, JobKey, NodeJobs
from tests.aggregator.fake_view import inventory

T = TypeVar("T")
ROUNDS = 5


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    """Return a result, and the milliseconds of CPU that it took."""
    began = time.process_time()
    return work(), 1000 * (time.process_time() - began)


def _sample(fleet: Fleet, now: float, lanes: set[Lane]) -> None:
    """Give all nodes new readings of some lanes."""
    random = np.random.default_rng(round(now))
    for matrix in fleet.matrices:
        if matrix.block.lane in lanes:
            rows = fleet.size(matrix.block.table)
            shape = (rows, len(matrix.block.gauges))
            matrix.gauges[:rows] = random.normal(400, 50, shape).round(1)
            matrix.seen[:rows] = now
    for node in fleet.nodes.values():
        node.seen, node.online = now, True


def _lists(fleet: Fleet, jobs: JobService, now: int) -> None:
    """Give every fifth node a new list: one job that has all GPUs, with a process on each."""
    key = JobKey("slurm", "lab", "4711")
    for number, (name, node) in enumerate(fleet.nodes.items()):
        if name in jobs.lists and number % 5 != now % 5:
            continue
        gpus = [gpu.uuid for gpu in node.inventory.gpus]
        message = NodeJobs(
            session=1,
            version=now,
            at=now * 10**9,
            jobs=(Job(key=key, name="pretrain", user="ada"),),
            allocations=tuple(Allocation(job=key, gpu=gpu, begin=10**9) for gpu in gpus),
            processes=tuple(
                GpuProcess(gpu=gpu, pid=now + at, user="ada", name="python", job=key, memory_bytes=2**36)
                for at, gpu in enumerate(gpus)
            ),
        )
        jobs.receive(name, msgspec.json.encode(message), set(gpus), now * 10**9)


def _joined(jobs: JobService, nodes: int) -> str:
    """Join a job of which two members have every other node."""
    ((key, _),) = jobs.ledger.jobs.items()
    part, made = _timed(lambda: jobs.stored(key, 200 * 10**9))
    body, packed = _timed(lambda: zlib.compress(msgspec.msgpack.encode(part), 1))
    found, read = _timed(lambda: msgspec.msgpack.decode(zlib.decompress(body), type=StoredJob))
    halves = {name: _of_nodes(found, number) for number, name in enumerate("ab")}
    _, joined = _timed(lambda: joined_job(halves, lambda node: "ab"[int(node[1:]) % 2], 200 * 10**9))
    return (
        f"a job on {8 * nodes:,} GPUs: members {made:.0f} ms, packing {packed:.0f} ms, {len(body) / 1e6:.1f} MB; "
        f"reading {read:.0f} ms, joining {joined:.0f} ms"
    )


def _of_nodes(part: StoredJob, number: int) -> StoredJob:
    """Return the part of a job that is on every other node."""

    def there(each: AllocationRow | GpuAccount | GpuUse) -> bool:
        return int(each.node[1:]) % 2 == number

    record, summary = part.record, part.summary
    return replace(
        part,
        record=replace(record, allocations=list(filter(there, record.allocations))),
        accounts=list(filter(there, part.accounts)),
        summary=replace(summary, gpus=list(filter(there, summary.gpus))),
    )


def main(arguments: list[str]) -> int:
    """Measure, and print a line for the first copy and one for the usual."""
    parser = argparse.ArgumentParser(prog="python -m bench.cluster_view")
    parser.add_argument("--nodes", type=int, default=2500)
    nodes: int = parser.parse_args(arguments).nodes
    fleet = Fleet()
    for number in range(nodes):
        fleet.place(inventory(f"n{number:05}", 8, 18))
    _sample(fleet, 100.0, set(Lane))
    source, copy, groups = FleetSource("bench"), FleetCopy(), dict.fromkeys(GROUPS, 1)
    jobs, lines = JobService(), []
    for number in range(ROUNDS):
        now, asked = 101.0 + number, copy.question("a")
        _lists(fleet, jobs, 101 + number)
        part, made = _timed(lambda: source.part(fleet, groups, asked, now, [], [], jobs.lists))  # noqa: B023 - called at once
        body, packed = _timed(lambda: zlib.compress(msgspec.msgpack.encode(part), 1))  # noqa: B023
        found, read = _timed(
            lambda: msgspec.msgpack.decode(zlib.decompress(body), type=FleetPart)  # noqa: B023
        )
        _, entered = _timed(lambda: copy.update({"a": found}, now))  # noqa: B023
        lines.append(
            f"{8 * nodes:,} GPUs: holder {made:.0f} ms, packing {packed:.0f} ms, {len(body) / 1e6:.1f} MB; "
            f"reading {read:.0f} ms, copy {entered:.0f} ms"
        )
        _sample(fleet, now + 0.5, {Lane.FAST})
    sys.stdout.write(f"first   {lines[0]}\nusual   {sorted(lines[1:])[len(lines) // 2]}\n")
    sys.stdout.write(_joined(jobs, nodes) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
