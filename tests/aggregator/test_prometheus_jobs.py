"""Jobs in a real Prometheus: the join answers, both boards do, and the series of jobs that ended end."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from aggregator.http.job_metrics import job_families
from grafana.prometheus import jobs as jobs_board
from grafana.prometheus import users as users_board
from telemetry.wire.exposition import Sample
from telemetry.wire.jobs import Allocation, Job, JobKey, NodeJobs, Precision
from tests.aggregator.fake_view import FakeView, inventory
from tests.aggregator.http_client import door
from tests.aggregator.test_http_prometheus import discovering, prometheus, until
from tests.aggregator.test_jobs_usage import SECOND, Site
from tests.grafana.dashboards import queries

JOIN = "kilowatch_gpu_power_watts * on (cluster, node, uuid) group_left (job_id, user) kilowatch_gpu_job_info"
MONTH = 30 * 24 * 3600
pytestmark = pytest.mark.systems


def send(view: FakeView, node: str, version: int, held: dict[int, list[Job]]) -> None:
    """Send who holds the GPUs of a node, by their number."""
    message = NodeJobs(
        session=7,
        version=version,
        at=view.wall(),
        jobs=tuple({job.key: job for jobs in held.values() for job in jobs}.values()),
        allocations=tuple(
            Allocation(
                job=job.key,
                gpu=f"GPU-{node}-{number}",
                begin=view.wall(),
                begin_from=Precision.HOOK,
                end_from=Precision.HOOK,
            )
            for number, jobs in held.items()
            for job in jobs
        ),
    )
    gpus = {gpu.uuid for gpu in view.fleet.nodes[node].inventory.gpus}
    view.jobs.receive(node, msgspec.json.encode(message), gpus, view.wall())


def job(number: int, user: str, account: str = "") -> Job:
    """A job of Slurm."""
    return Job(key=JobKey("slurm", "lab", str(number)), user=user, account=account)


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="apt-get install prometheus")
async def test_readings_join_with_the_job_of_their_gpu_and_both_boards_answer(tmp_path: Path) -> None:
    view = FakeView()
    for node in ("n1", "n2"):
        view.add(inventory(node))
    view.add(inventory("n3"))  # it does not say who holds its GPUs
    ada, bob = job(11, "ada", "physics"), job(12, "bob", "chemistry")
    send(view, "n1", 1, {0: [ada], 1: [ada]})
    send(view, "n2", 1, {0: [bob]})
    async with door(view) as client, prometheus(tmp_path, discovering(client)) as server:

        async def joined() -> list[tuple[dict[str, str], float]] | None:
            found = await server.query(JOIN)
            return found if len(found) == 3 else None

        found = await until(view, joined)
        assert {
            (labels["node"], labels["gpu"], labels["job_id"], labels["user"]): watts for labels, watts in found
        } == {("n1", "0", "11", "ada"): 300.25, ("n1", "1", "11", "ada"): 301.25, ("n2", "0", "12", "bob"): 300.25}
        assert {labels["job"] for labels, _ in found} == {"kilowatch"}, "the job that scrapes"
        assert await server.query('count({exported_job!=""})') == []
        totals = await server.query(f"sum by (user) ({JOIN})")
        by_user = {labels["user"]: watts for labels, watts in totals}
        assert by_user == {"ada": 601.5, "bob": 300.25}

        titles = {jobs_board.DASHBOARD.title, users_board.DASHBOARD.title}
        # The marks of alerts and XIDs are of every board; tests/endtoend/test_stack.py has both.
        asked = [
            (where, query) for where, query in queries("5s") if where.split(":")[0] in titles and ": marks" not in where
        ]
        assert {where.split(":")[0] for where, _ in asked} == titles
        assert len(asked) > 40
        left = dict(asked)

        async def all_answered() -> bool:
            for where, query in list(left.items()):
                if await server.query(query):
                    del left[where]
            return not left

        try:
            await until(view, all_answered)
        except TimeoutError:
            pytest.fail(f"nothing came of: {left}")
        board = dict(asked)

        async def value(where: str) -> float:
            ((_, number),) = await server.query(board[where])
            return number

        assert await value("kilowatch / Jobs: GPUs held A") == 3
        assert await value("kilowatch / Jobs: GPUs free A") == 1
        assert await value("kilowatch / Jobs: GPUs not reported A") == 2

        send(view, "n1", 2, {0: [ada, bob], 1: [bob]})  # one is shared, one has changed hands

        async def changed() -> bool:
            found = await server.query("kilowatch_gpu_job_info")
            return {(each["node"], each["gpu"], each["job_id"]) for each, _ in found} == {
                ("n1", "1", "12"),
                ("n2", "0", "12"),
            }

        await until(view, changed)
        assert await value("kilowatch / Jobs: GPUs shared A") == 1


def test_the_series_of_a_month_of_jobs_are_one_a_hold_and_those_there_at_once_one_a_gpu() -> None:
    """5000 jobs in 30 days on 8 GPUs, the time given: what ended is in no page, and in no memory."""
    site, view = Site(nodes=2, gpus=4), FakeView()
    view.jobs, view.fleet = site.jobs, site.fleet
    nodes = list(site.fleet.nodes.values())
    step = MONTH / 5000 * SECOND
    series: set[str] = set()
    most = most_jobs = 0
    held: dict[int, tuple[JobKey, int]] = {}
    written = 0
    for number in range(5000):
        site.now += step / SECOND
        row = number % 8
        held[row] = JobKey("slurm", "lab", str(number)), site.wall
        name = f"n{row // 4}"
        site.send(name, *(site.held(key, each, begin) for each, (key, begin) in held.items() if each // 4 == row // 4))
        view.monotonic = site.now
        info, count, *_ = (family.samples for family in job_families(view, nodes, scope=False))
        assert len(info) == len(held)
        assert len(count) in {4, 8}
        series |= names(info)
        most = max(most, len(info) + len(count))
        site.jobs.absorb([], [key for key, _ in held.values()])
        for node in nodes:
            node.seen, node.sampled_at = site.now, site.wall
        for _ in site.jobs.steps(site.fleet, site.now, site.wall):
            pass
        for window in site.jobs.energy.due(site.wall):
            site.jobs.energy.note(window, {})
        due = site.jobs.due(site.now, site.wall)
        site.jobs.written(due, site.now, site.wall)
        written += len(due)
        site.jobs.forget_ended(site.now, site.wall)
        most_jobs = max(most_jobs, len(site.jobs.ledger.jobs))
    assert most == 2 * 8, "those of one scrape: an info and a count of each GPU"
    assert len(series) == 5000, "those of the month: one for each hold of a GPU"
    assert most_jobs < 24, "jobs that ended leave memory once they are stored"
    assert written >= 5000


def names(samples: list[Sample]) -> set[str]:
    """Return the labels of samples."""
    return {labels for labels, _ in samples}
