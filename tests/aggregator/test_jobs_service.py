"""Jobs over a real broker: lists become stored jobs, and a job goes on after the aggregator died."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import msgspec
import pytest

from aggregator.jobs import running as saved
from aggregator.jobs.edges import COUNTER
from api.jobs import EnergyFrom, JobSummary
from telemetry.wire.jobs import Allocation, Job, JobKey, NodeJobs, Precision
from telemetry.wire.schema import GPU_FAST, SCHEMA
from telemetry.wire.topics import Topic
from tests.aggregator.node import START, ScriptedNode, now
from tests.aggregator.test_service import config, running
from tests.brokers import Mosquitto
from tests.kit.waiting import until

pytestmark = pytest.mark.systems

KEY = JobKey("slurm", "lab", "7")
SECOND = 10**9


def jobs(version: int, end: int = 0, gpu: str = "GPU-a-0") -> bytes:
    """A node's list with one job."""
    held = Allocation(job=KEY, gpu=gpu, begin=START, end=end, begin_from=Precision.HOOK, end_from=Precision.HOOK)
    message = NodeJobs(
        session=1,
        version=version,
        at=START + version * SECOND,
        jobs=(Job(key=KEY, user="ada", name="train"),),
        allocations=(held,),
    )
    return msgspec.json.encode(message)


def left_by_a_kill(data: Path, copy: Path) -> None:
    """Copy the files of an aggregator; on the store's thread, which writes nothing meanwhile. Others may: what is
    renamed before its turn comes is not there."""

    def copied(source: str, target: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.copy2(source, target)

    shutil.copytree(data, copy, ignore=shutil.ignore_patterns(".*"), copy_function=copied)


async def test_a_job_outlives_a_dead_aggregator_and_ends_as_its_hook_said(mosquitto: Mosquitto, tmp_path: Path) -> None:
    """The first aggregator's files are copied while it runs, as a kill -9 leaves them; its end comes while
    none runs."""
    async with ScriptedNode(mosquitto.config, "a") as node:
        async with running(config(mosquitto.config, tmp_path / "first")) as aggregator:
            await node.publish(Topic.JOBS, jobs(1), retain=True)  # before the first frame
            await until(lambda: "a" in aggregator.fleet.nodes)  # it has subscribed
            assert KEY not in aggregator.jobs.ledger.jobs
            await node.tick()
            await until(lambda: KEY in aggregator.jobs.ledger.jobs)
            await until(lambda: not aggregator.jobs.ledger.changed)
            assert aggregator.pipeline.engine.jobs.newest["a"].jobs[0].user == "ada"
            await aggregator.store.run(left_by_a_kill, tmp_path / "first", tmp_path / "second")
        await node.publish(Topic.JOBS, jobs(2, START + 60 * SECOND), retain=True)
        async with running(config(mosquitto.config, tmp_path / "second")) as aggregator:
            assert KEY in aggregator.jobs.ledger.jobs  # open, before any message came
            await until(lambda: aggregator.jobs.ledger.jobs[KEY].end is not None)
            await until(lambda: not aggregator.jobs.ledger.changed)
            (stored,) = await aggregator.store.jobs_of([KEY])
            assert [(row.begin, row.end, row.lost) for row in stored.record.allocations] == [
                (START, START + 60 * SECOND, False)
            ]
            assert stored.row.end == START + 60 * SECOND


async def test_what_a_job_has_used_is_saved_while_nothing_of_it_is_written(
    mosquitto: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aggregator.assembly.jobs_loop.STEP_SECONDS", 0.1)
    monkeypatch.setattr("aggregator.assembly.jobs_loop.USE_SECONDS", 0.5)

    def held(folder: str) -> float:
        return sum(each.held for each in saved.load(tmp_path / folder).get(KEY, ()))

    async with ScriptedNode(mosquitto.config, "a") as node:
        async with running(config(mosquitto.config, tmp_path / "first")) as aggregator:
            monkeypatch.setattr(aggregator.jobs.meter, "_lag", 0.5)
            await until(lambda: "a" in aggregator.fleet.nodes)  # it has subscribed
            await node.publish(Topic.JOBS, jobs(1), retain=True)

            async def ahead_of_its_row() -> bool:
                await node.tick()
                rows = await aggregator.store.jobs_of([KEY])
                return bool(rows) and sum(each.held for each in rows[0].accounts) < held("first")

            await until(ahead_of_its_row, every=0.2)
            await aggregator.store.run(left_by_a_kill, tmp_path / "first", tmp_path / "second")
        used = held("second")
        async with running(config(mosquitto.config, tmp_path / "second")) as aggregator:
            assert aggregator.jobs.meter.account(KEY, "a", "GPU-a-0").held >= used > 0


async def test_a_job_of_four_seconds_has_the_energy_of_its_counter_through_a_hole_that_is_filled_later(
    mosquitto: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job at 300 W: the bus lost the frames of its whole life, which its node has kept."""
    counter = SCHEMA.blocks[GPU_FAST].names.index(COUNTER)

    def reading(_: str, __: int, column: int, seq: int) -> float:
        return 10_000.0 + 300.0 * seq if column == counter else 50.0

    monkeypatch.setattr("tests.aggregator.node.value", reading)
    begin, end = now() + 5 * SECOND + SECOND // 2, now() + 9 * SECOND + SECOND // 2
    async with (
        running(config(mosquitto.config, tmp_path / "data")) as aggregator,
        ScriptedNode(mosquitto.config, "a") as node,
    ):
        await until(lambda: "a" in aggregator.fleet.nodes)  # it has subscribed
        for seq in range(20):
            await node.tick(lost=3 <= seq <= 12)
        held = Allocation(
            job=KEY, gpu="GPU-a-0", begin=begin, end=end, begin_from=Precision.HOOK, end_from=Precision.HOOK
        )
        message = NodeJobs(session=1, version=1, at=end, jobs=(Job(key=KEY),), allocations=(held,))
        await node.publish(Topic.JOBS, msgspec.json.encode(message), retain=True)

        async def counted() -> JobSummary | None:
            found = [each.summary for each in await aggregator.store.jobs_of([KEY])]
            return next((one for one in found if one.energy_from is EnergyFrom.COUNTERS), None)

        summary = await until(counted)
        assert summary.energy_joules == pytest.approx(4 * 300.0)
        assert summary.energy_coverage == 1.0


async def test_jobs_on_a_gpu_of_another_node_are_refused(mosquitto: Mosquitto, tmp_path: Path) -> None:
    async with (
        running(config(mosquitto.config, tmp_path / "data")) as aggregator,
        ScriptedNode(mosquitto.config, "a") as node,
    ):
        await until(lambda: "a" in aggregator.fleet.nodes)  # it has subscribed
        await node.tick()
        await until(lambda: aggregator.stats.frames_stored == 1)
        await node.publish(Topic.JOBS, jobs(1, gpu="GPU-b-0"))
        await until(lambda: aggregator.stats.dropped.get("foreign") == 1)
        assert KEY not in aggregator.jobs.ledger.jobs
