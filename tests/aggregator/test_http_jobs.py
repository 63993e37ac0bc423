"""`/api/v1/jobs` and the commands that show it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from aggregator.http.config import HttpConfig
from aggregator.jobs.hints import hints
from aggregator.jobs.scheduled import SchedulerWord
from aggregator.remote.push import Gatherer
from aggregator.scheduler.listed import JobListing, ListedJob
from api.alerts import Alert, AlertState, Severity
from api.decoding import decode
from api.device import GpuPageReply, NodePageReply
from api.jobs import JobPhase, JobReply, JobRow, JobsReply, JobSummary
from kilowatch.text.jobs import job_lines, summary_lines
from present import units
from telemetry.devices import MigInstance
from telemetry.wire.jobs import GpuProcess, Job, JobKey, JobSourceState, NodeJobs
from tests.aggregator.fake_view import FakeView, inventory
from tests.aggregator.http_client import add_token, bearer, door
from tests.aggregator.test_jobs_usage import KEYS, SECOND, Site
from tui.screens.gpu import gpu_tables


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
        for asked, wanted in {"": {"1", "2", "3"}, "?state=running": {"1"}, "?state=ended": {"2", "3"}}.items():
            reply = decode((await client.text(f"/api/v1/jobs{asked}"))[1].encode(), JobsReply)
            assert {row.id for row in reply.jobs} == wanted, asked
        few = decode((await client.text("/api/v1/jobs?limit=1"))[1].encode(), JobsReply)
        assert (len(few.jobs), few.more) == (1, True)
        running = decode((await client.text("/api/v1/jobs/1"))[1].encode(), JobReply)
        stored = decode((await client.text("/api/v1/jobs/3?scheduler=slurm"))[1].encode(), JobReply)
    assert (running.job.phase, running.job.user, running.job.nodes) == (JobPhase.RUNNING, "ada", ["n0"])
    assert running.job.summary is not None
    assert running.job.summary.energy_joules is not None
    assert [each.gpu for each in running.job.summary.gpus] == ["GPU-n0-0"]
    assert running.job.summary.wall_joules is not None
    kilograms = running.job.summary.wall_joules / 3.6e6 * 0.475  # kg a kWh, where the site says no other
    assert running.job.summary.co2_kg == pytest.approx(kilograms)
    assert stored.job.phase is JobPhase.ENDED
    lines = "\n".join(summary_lines(running))
    assert "job 1 of slurm (lab): running" in lines
    assert f"{units.kilograms(kilograms)}" in lines.partition("CO2")[2]
    assert job_lines(few)[-1].startswith("there are more")


async def test_processes_of_a_user_are_a_job_of_each_node() -> None:
    view, site = filled()
    ann = JobKey("user", "", "ann")
    site.send("n0", site.held(ann, 0, site.wall - SECOND))
    site.send("n1", site.held(ann, 2, site.wall - SECOND))
    async with door(view) as client:
        reply = decode((await client.text("/api/v1/jobs?job=ann"))[1].encode(), JobsReply)
        assert sorted((row.cluster, row.nodes) for row in reply.jobs) == [("n0", ["n0"]), ("n1", ["n1"])]
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


async def test_a_job_that_waits_is_a_404_that_says_why_to_who_may_see_it(tmp_path: Path) -> None:
    view, site = filled()
    word = SchedulerWord(lambda *_: ([0, 1], ""), lambda _: (), 0)
    key = JobKey("slurm", "lab", "98")
    job = Job(key=key, user="ada", state="PENDING", reason="JobHeldUser")
    word.hear(JobListing(at=site.wall, cluster="lab", jobs=(ListedJob(job=job),)), site.wall)
    site.jobs.word = word
    path = tmp_path / "tokens.json"
    ada, bob = (add_token(path, user, user=user) for user in ("ada", "bob"))
    async with door(view, HttpConfig(listen="0.0.0.0:0", tokens_file=path)) as client:
        for token, told in ((ada, True), (bob, False)):
            status, body = (await client.text("/api/v1/jobs/98", headers=bearer(token)))[:2]
            assert status == 404
            assert ("'98' waits: JobHeldUser" in body) is told
        assert "is not known" in (await client.text("/api/v1/jobs/99", headers=bearer(ada)))[1]


async def test_a_gpu_s_job_is_a_series_to_join_with_where_it_has_one_holder() -> None:
    view, site = filled()
    view.fleet = site.fleet
    async with door(view) as client:
        page = (await client.text("/metrics/node/n0"))[1]
        (info,) = [line for line in page.splitlines() if line.startswith("kilowatch_gpu_job_info{")]
        for label in ('job_id="1"', 'user="ada"', 'scheduler="slurm"', 'kind="allocated"', "GPU-n0-0"):
            assert label in info
        holders = [line.split()[-1] for line in page.splitlines() if line.startswith("kilowatch_gpu_holders{")]
        assert len(holders) == 2
        both = (site.held(KEYS[1], 0, site.wall), site.held(KEYS[2], 0, site.wall))
        site.send("n0", *both)
        page = (await client.text("/metrics/node/n0"))[1]
        assert "kilowatch_gpu_job_info{" not in page


async def test_devices_of_pods_without_a_gpu_are_counted_by_reason_and_told() -> None:
    view, site = filled()
    view.fleet = site.fleet
    gpus = {gpu.uuid for gpu in view.fleet.nodes["n0"].inventory.gpus}
    states = (
        JobSourceState(name="processes"),
        JobSourceState(name="pod-resources", message="pods have devices", unattributed={"unknown_gpu": 2}),
    )
    message = NodeJobs(session=1, version=50, at=site.wall, sources=states)
    site.jobs.receive("n0", msgspec.json.encode(message), gpus, site.wall)
    async with door(view) as client:
        page = (await client.text("/metrics/node/n0"))[1]
        web = (await client.text("/nodes/n0", headers=client.bearer))[1]
    (line,) = [line for line in page.splitlines() if line.startswith("kilowatch_unattributed_devices{")]
    assert 'source="pod-resources",reason="unknown_gpu"} 2' in line
    assert "pod-resources: pods have devices" in web


@pytest.mark.parametrize("name", ['my"app', "my\\app", "my\tapp", "my\x1bapp", "x" * 2000])
async def test_a_process_of_any_name_costs_no_page(name: str) -> None:
    """A quotation mark in the name of a process made plain texts of the kinds of all allocations of its node."""
    view, site = filled()
    view.fleet = site.fleet
    held = site.held(KEYS[1], 0, site.wall)
    process = GpuProcess(gpu="GPU-n0-0", pid=7, name=name, job=KEYS[1])
    gpus = {gpu.uuid for gpu in view.fleet.nodes["n0"].inventory.gpus}
    message = NodeJobs(
        session=1, version=50, at=site.wall, jobs=(Job(key=KEYS[1]),), allocations=(held,), processes=(process,)
    )
    site.jobs.receive("n0", msgspec.json.encode(message), gpus, site.wall)
    async with door(view) as client:
        for path in ("/metrics/nodes", "/metrics/node/n0"):
            status, page = (await client.text(path))[:2]
            assert status == 200, path
            assert "kilowatch_gpu_job_info{" in page, path
    gatherer = Gatherer(view)
    (_, samples), *_ = gatherer.requests(await gatherer.snapshots(), 1)
    assert samples
    assert not view.pages_aside.failures


async def test_each_mig_instance_has_its_own_holder_on_page_screen_and_in_prometheus() -> None:
    """Two pods on two instances of a GPU, and a third instance that is free: no job holds the GPU alone."""
    view, site = FakeView(), Site(nodes=0)
    numbers = (5, 7, 9)
    what = inventory("n0", gpus=2, links=0)
    uuid = what.gpus[1].uuid
    parts = tuple(MigInstance(uuid=f"MIG-{n}", gpu=uuid, gpu_instance=n, profile="1g.10gb") for n in numbers)
    site.fleet.place(msgspec.structs.replace(what, instances=parts))
    site.fleet.nodes["n0"].online = True
    view.fleet, view.jobs, view.monotonic = site.fleet, site.jobs, site.now
    pods = [JobKey("kubernetes", "", f"team/{name}") for name in ("a", "b")]
    held = [site.held(pod, 1, site.wall, instance=n) for pod, n in zip(pods, numbers, strict=False)]
    site.send("n0", *held)
    async with door(view) as client:
        page = decode((await client.text(f"/api/v1/gpus/{uuid}"))[1].encode(), GpuPageReply)
        metrics = (await client.text("/metrics/node/n0"))[1]
        web = (await client.text(f"/gpus/{uuid}", headers=client.bearer))[1]
    wanted = [["team/a"], ["team/b"], []]
    assert [[one.job for one in each.holders or ()] for each in page.instances] == wanted
    assert [one.job for one in page.holders or ()] == ["team/a", "team/b"]
    drawn = ["".join(text for text, _ in line) for line in gpu_tables(page, 80, utc=True)]
    (first,) = [place for place, line in enumerate(drawn) if line.startswith("5/0 1g.10gb")]
    assert "job kubernetes team/a" in drawn[first + 1]
    assert drawn[first + 4].startswith("9/0 1g.10gb")
    lines = [line for line in metrics.splitlines() if not line.startswith("#")]
    series = {
        (line.split('gpu_instance="')[1][0], line.split('job_id="')[1].split('"')[0])
        for line in lines
        if line.startswith("kilowatch_instance_job_info{")
    }
    assert series == {("5", "team/a"), ("7", "team/b")}
    counts = [line.split()[-1] for line in lines if line.startswith("kilowatch_instance_holders{")]
    assert list(map(float, counts)) == [1, 1, 0]
    assert not any(line.startswith("kilowatch_gpu_job_info{") for line in lines)
    rows = [row for row in web.split("<tr") if "team/" in row]
    assert [("team/a" in row, "team/b" in row) for row in rows[:2]] == [(True, False), (False, True)]


def shared() -> tuple[FakeView, Site]:
    """A view with a job of ada and one of bob on one node, each with a process and an alert, and on one
    more GPU both at once."""
    view, site = FakeView(), Site(nodes=1, gpus=3)
    view.jobs, view.fleet = site.jobs, site.fleet
    ada, bob = KEYS[1], KEYS[2]
    given = [site.held(ada, 0, site.wall), site.held(bob, 1, site.wall)]
    given += [site.held(ada, 2, site.wall), site.held(bob, 2, site.wall)]
    processes = tuple(
        GpuProcess(gpu=site.uuid(row), pid=number, user=user, name=f"{user}.py", job=key, memory_bytes=2**30)
        for number, (row, user, key) in enumerate(((0, "ada", ada), (1, "bob", bob), (2, "ada", ada), (2, "bob", bob)))
    )
    message = NodeJobs(
        session=7,
        version=99,
        at=site.wall,
        allocations=tuple(given),
        processes=processes,
        jobs=(Job(key=ada, user="ada", name="mine"), Job(key=bob, user="bob", name="his")),
    )
    gpus = {gpu.uuid for gpu in site.fleet.nodes["n0"].inventory.gpus}
    site.jobs.receive("n0", msgspec.json.encode(message), gpus, site.wall)
    site.run(10)
    view.monotonic = site.now
    view.raised = [
        Alert(
            key="hot",
            rule="gpu_hot",
            state=AlertState.FIRING,
            severity=Severity.TICKET,
            node="n0",
            gpu=site.uuid(0),
            summary="GPU 0 is hot",
        ),
        Alert(
            key="hit",
            rule="job_hit",
            state=AlertState.FIRING,
            severity=Severity.PAGE,
            node="n0",
            gpu=site.uuid(2),
            labels={"user": "bob"},
            summary="a fault hit job 2 of bob",
        ),
        Alert(
            key="slow",
            rule="gpu_slow",
            state=AlertState.PENDING,
            severity=Severity.PAGE,
            node="n0",
            gpu=site.uuid(0),
            summary="not yet",
        ),
    ]
    return view, site


async def test_the_token_of_a_user_shows_that_user_s_jobs_alone(tmp_path: Path) -> None:
    """By every way of asking: list, filter, id, and the names that an error suggests."""
    view, site = shared()
    view.memory.write_jobs([site.jobs.stored(key, site.wall) for key in (KEYS[1], KEYS[2])])
    for key in (KEYS[1], KEYS[2]):  # the store has another of each
        stored = view.memory.jobs.pop(key)
        other = msgspec.structs.replace(key, id=f"{key.id}0")
        row = msgspec.structs.replace(stored.row, id=other.id)
        record = msgspec.structs.replace(stored.record, job=msgspec.structs.replace(stored.record.job, key=other))
        view.memory.jobs[other] = msgspec.structs.replace(stored, row=row, record=record)
    path = tmp_path / "tokens.json"
    secret = add_token(path, "laptop", user="ada")
    async with door(view, HttpConfig(listen="0.0.0.0:0", tokens_file=path)) as client:

        async def text(asked: str, *, admin: bool = False) -> tuple[int, str]:
            headers = client.bearer if admin else bearer(secret)
            return (await client.text(f"/api/v1/jobs{asked}", headers=headers))[:2]

        every = decode((await text("", admin=True))[1].encode(), JobsReply)
        assert {row.id for row in every.jobs} == {"1", "2", "10", "20"}
        for asked in ("", "?user=ada", "?state=running", "?node=n0", "?job=1", "?job=2", "?job=20"):
            status, body = await text(asked)
            assert status == 200
            assert {row.user for row in decode(body.encode(), JobsReply).jobs} <= {"ada"}, asked
            assert "bob" not in body
        assert {row.id for row in decode((await text(""))[1].encode(), JobsReply).jobs} == {"1", "10"}
        assert (await text("?user=bob"))[0] == 403
        for foreign in ("/2", "/20", "/2?scheduler=slurm", "/2?node=n0", "/3"):
            status, body = await text(foreign)
            assert status == 404, foreign
            assert "Known: 1." in body, body
        status, body = await text("/1")
        assert status == 200
        assert "bob" not in body
        mine = decode(body.encode(), JobReply)
        assert mine.indices == {site.uuid(0): 0, site.uuid(2): 2}
        listed = [decode((await text("", admin=all_))[1].encode(), JobsReply) for all_ in (False, True)]
        assert [reply.user for reply in listed] == ["ada", ""]
        assert [each.name for each in mine.processes] == ["ada.py", "ada.py"]
        assert [(one.rule, one.summary) for one in mine.alerts] == [
            ("job_hit", ""),  # that it fires is hers to know, of whom it tells is not
            ("gpu_hot", "GPU 0 is hot"),
        ]
        # On her own GPU there is a process of somebody: its name is for her where it is the name of hers.
        stray = view.raised[0]
        for name, words in (("secret.py", ""), ("ada.py", "a process: ada.py")):
            labels, summary = {"user": "ada", "process": name}, f"a process: {name}"
            view.raised[0] = msgspec.structs.replace(stray, labels=labels, summary=summary)
            body = (await text("/1"))[1]
            assert ("secret" in body, decode(body.encode(), JobReply).alerts[1].summary) == (False, words)
        assert "process: ada.py" in (await text("/1", admin=True))[1]
        whole = decode((await text("/1", admin=True))[1].encode(), JobReply)
        assert whole.alerts[0].summary == "a fault hit job 2 of bob"


async def test_a_row_has_the_power_and_the_worst_alert_of_what_it_holds_now() -> None:
    view, _ = shared()
    async with door(view) as client:

        async def rows() -> dict[str, tuple[float | None, Severity | None]]:
            reply = decode((await client.text("/api/v1/jobs"))[1].encode(), JobsReply)
            return {row.id: (row.power_watts, row.severity) for row in reply.jobs}

        assert await rows() == {"1": (pytest.approx(200.0), Severity.PAGE), "2": (pytest.approx(200.0), Severity.PAGE)}
        view.raised = view.raised[:1]
        assert [severity for _, severity in (await rows()).values()].count(None) == 1
        view.monotonic += 1000.0  # a reading that is old is none, and a part is not the sum
        assert {watts for watts, _ in (await rows()).values()} == {None}


async def test_the_pages_of_a_gpu_and_its_node_name_who_holds_it_now() -> None:
    view, site = shared()
    async with door(view) as client:
        gpu = decode((await client.text(f"/api/v1/gpus/{site.uuid(2)}"))[1].encode(), GpuPageReply)
        assert gpu.holders is not None
        assert [(each.job, each.user) for each in gpu.holders] == [("1", "ada"), ("2", "bob")]
        assert [each.name for each in gpu.processes] == ["ada.py", "bob.py"]
        node = decode((await client.text("/api/v1/nodes/n0"))[1].encode(), NodePageReply)
        assert [len(each.holders or ()) for each in node.gpus] == [1, 1, 2]
        site.jobs.remove("n0")
        node = decode((await client.text("/api/v1/nodes/n0"))[1].encode(), NodePageReply)
        assert [each.holders for each in node.gpus] == [None] * 3  # nobody says: that is not none


async def test_who_may_not_see_persons_can_t_ask_about_them(tmp_path: Path) -> None:
    view, _ = shared()
    config = HttpConfig(listen="0.0.0.0:0", tokens_file=tmp_path / "t.json", anonymous_read=True)
    async with door(view, config) as client:
        status, body, _ = await client.text("/api/v1/jobs")
        assert status == 200
        assert "ada" not in body
        assert "bob" not in body
        for asked in ("?user=ada", "?user=nobody", "?account=x", "?job=1", "/1", "/nothing"):
            assert (await client.text(f"/api/v1/jobs{asked}"))[0] == 401, asked
            assert (await client.text(f"/api/v1/jobs{asked}", headers=client.bearer))[0] in {200, 404}
        assert (await client.text("/api/v1/nodes/n0/jobs"))[0] == 401
        assert "ada.py" in (await client.text("/api/v1/nodes/n0/jobs", headers=client.bearer))[1]


@pytest.mark.parametrize(
    ("figures", "wanted"),
    [
        ({"gpus_idle": 3, "utilization_ratio": 0.6}, ["3 of 8 GPUs never worked"]),
        ({"utilization_ratio": 0.2}, ["use 20% in the mean: the GPUs mostly wait"]),
        ({"utilization_ratio": 0.0, "gpus_idle": 8}, ["8 of 8 GPUs never worked"]),
        ({"utilization_ratio": 0.2, "pcie_bytes_per_second": 11.26e9},
         ["use 20% in the mean: the GPUs mostly wait, and PCIe moves 11.3 GB/s a GPU"]),
        ({"utilization_ratio": 0.2, "pcie_bytes_per_second": 1.9e9}, ["use 20% in the mean: the GPUs mostly wait"]),
        ({"faults": {"xid 79": 2}, "gpu_hours": 0.01}, ["xid 79 2 times while it ran"]),
        ({"utilization_ratio": 0.1, "gpus_idle": 2, "gpu_hours": 1.0}, []),  # 7.5 min: too early
        ({"clock_limit_seconds": {"sw_power_cap": 28_000.0, "gpu_idle": 28_000.0}}, []),
        ({"clock_limit_seconds": {"sw_power_cap": 28_000.0, "hw_slowdown": 7200.0}},
         ["clocks limited by hw slowdown for 25% of its GPU time"]),
        ({"partial": True, "coverage": 0.5}, ["partial: 50% of its GPU time was read"]),
        ({"partial": True, "coverage": 0.9, "energy_coverage": 0.4},
         ["partial: 40% of its GPU time was read"]),
        ({"partial": True, "coverage": None}, ["no use was read"]),
        ({}, []),
    ],
)  # fmt: skip
def test_hints_say_what_was_read(figures: dict[str, object], wanted: list[str]) -> None:
    usual = {"gpu_hours": 8.0, "partial": False, "coverage": 1.0}
    row = JobRow(
        scheduler="slurm", cluster="c", id="1", begin=0, gpus=8, summary=msgspec.convert(usual | figures, JobSummary)
    )
    assert hints(row) == wanted


@pytest.mark.parametrize(
    ("purpose", "wanted"),
    [
        ("gpus=6", ["use 20% in the mean: the GPUs mostly wait"]),
        ("gpus=7", ["2 of 8 GPUs never worked", "use 20% in the mean: the GPUs mostly wait"]),
        ("idle=ok", []),
        ("gpus=10", ["2 of 8 GPUs never worked", "use 20% in the mean: the GPUs mostly wait"]),
        ("gpu=6", ["its owner declares 'gpu=6', which says nothing: gpus=6, checkpoint=15m and idle=ok do",
                   "2 of 8 GPUs never worked", "use 20% in the mean: the GPUs mostly wait"]),
    ],
)  # fmt: skip
def test_hints_leave_out_what_the_owner_declares(purpose: str, wanted: list[str]) -> None:
    summary = JobSummary(gpu_hours=8.0, partial=False, coverage=1.0, gpus_idle=2, utilization_ratio=0.2)
    row = JobRow(scheduler="slurm", cluster="c", id="1", begin=0, gpus=8, summary=summary, purpose=purpose)
    assert hints(row) == wanted


@pytest.mark.parametrize(("purpose", "unused", "told"), [("gpus=6", 2, False), ("gpus=6", 3, True), ("idle=ok", 8, False), ("gpus=10", 0, False)])  # fmt: skip
def test_gpus_without_a_process_that_are_declared_spare_are_no_hint(purpose: str, unused: int, told: bool) -> None:
    row = JobRow(scheduler="slurm", cluster="c", id="1", begin=0, gpus=8, purpose=purpose)
    assert hints(row, unused) == [f"{unused} of 8 GPUs without a process now"] * told


def test_hints_of_a_job_without_figures() -> None:
    """What its nodes and its scheduler say is known without them."""
    row = JobRow(scheduler="slurm", cluster="c", id="1", begin=0, gpus=8, gpus_asked=4, phase=JobPhase.SILENT)
    assert hints(row, 2) == [
        "its nodes are silent: whether it runs is not known",
        "2 of 8 GPUs without a process now",
        "asked for 4 GPUs, 8 seen",
    ]


def test_the_commands_are_there() -> None:
    from kilowatch.__main__ import main

    for name in ("jobs", "job"):
        assert CliRunner().invoke(main, [name, "--help"]).exit_code == 0
