"""`/api/v1/jobs` and the commands that show it."""

from __future__ import annotations

from click.testing import CliRunner

from api.decoding import decode
from api.jobs import JobPhase, JobReply, JobsReply
from kilowatch.text.jobs import job_lines, summary_lines
from telemetry.jobs import JobKey
from tests.aggregator.fake_view import FakeView
from tests.aggregator.http_client import door
from tests.aggregator.test_jobs_usage import KEYS, SECOND, Site


def filled() -> tuple[FakeView, Site]:
    """A view with a job that runs, one that ended, and one that only the store has."""
    view, site = FakeView(), Site(nodes=2)
    view.jobs = site.jobs
    begin = site.wall
    site.send("n0", site.held(KEYS[3], 1, begin, begin + 2 * SECOND))
    view.memory.write_jobs([site.jobs.stored(KEYS[3], site.wall)])
    site.jobs.remove("n0")
    site.jobs.ledger.drop(KEYS[3])
    site.send("n0", site.held(KEYS[1], 0, begin), site.held(KEYS[2], 1, begin, begin + 30 * SECOND))
    site.run(120)
    view.monotonic = site.now
    return view, site


async def test_jobs_in_memory_and_store_are_one_list() -> None:
    view, _ = filled()
    async with door(view) as client:
        for asked, wanted in {
            "": {"1", "2", "3"},
            "?state=running": {"1"},
            "?state=ended": {"2", "3"},
        }.items():
            reply = decode((await client.text(f"/api/v1/jobs{asked}"))[1].encode(), JobsReply)
            assert {row.id for row in reply.jobs} == wanted, asked
        few = decode((await client.text("/api/v1/jobs?limit=1"))[1].encode(), JobsReply)
        assert (len(few.jobs), few.more) == (1, True)
        running = decode((await client.text("/api/v1/jobs/1"))[1].encode(), JobReply)
        stored = decode((await client.text("/api/v1/jobs/3?scheduler=slurm"))[1].encode(), JobReply)
    assert (running.job.phase, running.job.user, running.job.nodes) == (JobPhase.RUNNING, "ada", ["n0"])  # fmt: skip
    assert running.job.summary is not None
    assert running.job.summary.energy_joules is not None
    assert [each.gpu for each in running.job.summary.gpus] == ["GPU-n0-0"]
    assert stored.job.phase is JobPhase.ENDED
    lines = "\n".join(summary_lines(running))
    assert "job 1 of slurm (lab): running" in lines
    assert "cost -" in lines
    assert job_lines(few)[-1].startswith("there are more")


async def test_processes_of_a_user_are_a_job_of_each_node() -> None:
    view, site = filled()
    ann = JobKey("user", "", "ann")
    site.send("n0", site.held(ann, 0, site.wall - SECOND))
    site.send("n1", site.held(ann, 2, site.wall - SECOND))
    async with door(view) as client:
        reply = decode((await client.text("/api/v1/jobs?job=ann"))[1].encode(), JobsReply)
        assert sorted((row.cluster, row.nodes) for row in reply.jobs) == [("n0", ["n0"]), ("n1", ["n1"])]  # fmt: skip
        for node in ("n0", "n1"):
            body = (await client.text(f"/api/v1/jobs/ann?node={node}"))[1]
            assert decode(body.encode(), JobReply).job.nodes == [node]
        assert (await client.text("/api/v1/jobs/ann?node=n2"))[0] == 404


async def test_a_job_that_is_not_known_is_a_404() -> None:
    view, _ = filled()
    async with door(view) as client:
        assert (await client.text("/api/v1/jobs/99"))[0] == 404
        assert (await client.text("/api/v1/jobs?state=odd"))[0] == 400
        assert (await client.text("/api/v1/jobs/1?restart=x"))[0] == 400


async def test_a_gpu_s_job_is_a_series_to_join_with_where_it_has_one_holder() -> None:
    view, site = filled()
    view.fleet = site.fleet
    async with door(view) as client:
        page = (await client.text("/metrics/node/n0"))[1]
        (info,) = [line for line in page.splitlines() if line.startswith("kilowatch_gpu_job_info{")]
        for label in ('job="1"', 'user="ada"', 'scheduler="slurm"', 'kind="allocated"', "GPU-n0-0"):
            assert label in info
        holders = [line.split()[-1] for line in page.splitlines() if line.startswith("kilowatch_gpu_holders{")]  # fmt: skip
        assert len(holders) == 2
        both = (site.held(KEYS[1], 0, site.wall), site.held(KEYS[2], 0, site.wall))
        site.send("n0", *both)
        page = (await client.text("/metrics/node/n0"))[1]
        assert "kilowatch_gpu_job_info{" not in page


def test_the_commands_are_there() -> None:
    from kilowatch.__main__ import main

    for name in ("jobs", "job"):
        assert CliRunner().invoke(main, [name, "--help"]).exit_code == 0
