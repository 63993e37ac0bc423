"""Pages of jobs, and who holds a GPU on the pages of devices, circuits and incidents."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from aggregator.http.config import HttpConfig
from aggregator.http.nodes import device
from aggregator.web.job_list import COLUMNS, jobs_body
from aggregator.web.job_pages import _held_now
from api.alerts import Severity
from api.jobs import JobPhase, JobRow, JobsReply, JobSummary
from present.device.figures import USE
from present.device.gpu import CLOCK_LIMITS
from telemetry.devices import Event
from telemetry.metric import Table
from telemetry.text import rfc3339
from telemetry.wire.jobs import Job, JobKey, JobSourceState, UserPrivacy
from tests.aggregator.fake_view import START
from tests.aggregator.http_client import door
from tests.aggregator.test_http_circuits import lab
from tests.alerts.notices import MINUTE, NOON, alert, incident
from tests.alerts.test_evidence import card, reply
from tests.web.busy_lab import POD, READING, SECOND, TRAIN, busy_lab, held, process, send, work
from tests.web.test_pages import ANEW, EVIL, Page, crawled, read

NOT_KNOWN = re.compile(r"\b0(\.0+)? (W|kWh|%|GiB|EUR)")


def ids(page: Page) -> list[str]:
    """Jobs of a table by the links of its rows."""
    return [link.partition("?")[0].removeprefix("jobs/") for link in page.links if link.startswith("jobs/")]


async def test_what_the_gpus_of_a_job_read_now_is_as_their_own_pages_have_it() -> None:
    """A job may hold all of a fleet: only what its page needs is read, in columns."""
    view = await busy_lab()
    found = _held_now(view.fleet, view.now(), {*view.fleet.by_uuid, "GPU-gone"})
    assert found.keys() == view.fleet.by_uuid.keys()
    names = {USE, *CLOCK_LIMITS}
    for uuid, one in found.items():
        row = view.fleet.by_uuid[uuid]
        entry = view.fleet.gpus[row]
        assert entry is not None
        assert (one.node, one.index) == (entry[0], entry[1].index)
        readings = device(view.fleet, Table.GPU, row, view.now()).readings
        assert one.readings == pytest.approx({each: readings[each] for each in names & readings.keys()})
    assert any(one.readings for one in found.values())


async def test_jobs_are_in_the_menu_where_a_node_says_who_holds_its_gpus() -> None:
    async with door(await lab()) as client:
        assert "jobs" not in (await read(client, "/")).links
        empty = await read(client, "/jobs")
        assert "No job that was asked for had a GPU in that time" in empty.text
    async with door(await busy_lab()) as client:
        found = await crawled(client, "/")
    assert "/jobs" in found
    assert any(path.startswith("/jobs/lab%2Ftrain-0") for path in found)
    assert any(path.startswith("/jobs?user=ada") for path in found)


async def test_the_table_filters_sorts_and_says_what_is_odd() -> None:
    async with door(await busy_lab()) as client:
        page = await read(client, "/jobs")
        assert sorted(ids(page)) == ["4710", "4711", "ann", "lab%2Ftrain-0"]
        assert "4 jobs: 3 running, 1 ended, newest first" in page.text
        assert "1 of 3 jobs that run needs a look slurm 4711: 1 of 3 GPUs without a process now" in page.text
        assert "asked for 4 GPUs, 3 seen" in page.text
        assert "failed exit code 2" in page.text
        for asked, wanted in {
            "user=ada": ["4711"],
            "account=chemistry": ["4710"],
            "job=4711": ["4711"],
            "state=ended": ["4710"],
            "node=n1&sort=gpus": ["4711", "lab%2Ftrain-0"],
        }.items():
            assert ids(await read(client, f"/jobs?{asked}")) == wanted, asked
        for wrong in ("state=odd", "sort=odd", "page=0", "x=1", "from=soon"):
            assert (await client.text(f"/jobs?{wrong}"))[0] == 400, wrong
        sorted_page = await read(client, "/jobs?user=ada&sort=use")
        assert "jobs?user=ada&sort=energy" in sorted_page.links, "the filter stays"


async def test_a_job_has_what_it_did_its_gpus_its_past_and_its_faults() -> None:
    view = await busy_lab()
    at = view.wall() - 30 * SECOND
    xid = Event(id="7-1", node="n1", at=at, kind="xid", gpu="GPU-n1-1", data={"xid": 79, "line": "fell off the bus"})
    other = Event(id="7-2", node="n2", at=at, kind="xid", gpu="GPU-n2-1", data={"line": "of another"})
    own = Event(id="7-3", node="n1", at=at, kind="collector_started", data={"line": "hello"})
    for event in (xid, other, own):
        view.record_event(event)
        view.jobs.faults.note(event)
    async with door(view) as client:
        page = await read(client, "/jobs/4711")
        for words in (
            "Job 4711 pretrain",
            "user ada",
            "account physics",
            "asked for 4 GPUs, time limit not known; waited 90 s; runs for",
            "xid 79 once while it ran",
            "fell off the bus",
            "allocated, step 0",
            "a tenth of the time below",
            "1 of 3 GPUs without a process now",
            "added up from samples",
            "n1 GPU 0 is slowed down: power brake",
            "its 2 other GPUs wait for it",
        ):
            assert words in page.text, words
        assert "of another" not in page.text
        assert "collector_started" not in page.text
        assert re.search(r"cost \d+\.\d\d EUR", page.text)
        assert re.search(r"CO2 \d+\.\d{3} kg", page.text)
        assert {"gpus/GPU-n1-0", "gpus/GPU-n1-1", "gpus/GPU-n2-0", "nodes/n1"} <= set(page.links)
        _, body, _ = await client.text("/jobs/4711")
        assert body.count('class="strip"') == 3
        for label in ("power of its GPUs", "use of its GPUs"):
            assert re.search(rf'aria-label="{label}: up to', body), label
        (points,) = re.findall(r'aria-label="power of its GPUs[^>]*data-points="([^"]*)"', body)
        assert len(points.split()) >= 30
        zoomed = f"/jobs/4711?from={rfc3339(at - 60 * SECOND)}&to={rfc3339(at)}"
        _, body, _ = await client.text(zoomed)
        assert 'data-seconds="60.000"' in body
        assert "data-live" not in body
        assert "jobs/4711#past" in Page(body).links, "back to the whole run"
        assert "shared with others" in (await read(client, "/jobs/lab%2Ftrain-0")).text
        ended = await read(client, "/jobs/4710")
        assert "exit code 2" in ended.text
        assert "given back" in ended.text
        assert (await client.text("/jobs/none"))[0] == 404
        assert (await client.text("/jobs/4711?restart=9"))[0] == 404


async def test_what_is_not_known_of_a_job_is_said_in_words() -> None:
    """Its node is silent: nothing was read, and nobody knows whether it runs."""
    view = await lab()
    send(view, "n1", jobs=(Job(key=TRAIN),), allocations=(held(TRAIN, "GPU-n1-0", view.wall()),))
    view.fleet.nodes["n1"].online = False
    view.monotonic += 600.0
    work(view)
    async with door(view) as client:
        for path in ("/jobs", "/jobs/4711"):
            page = await read(client, path)
            assert "silent" in page.text
            assert page.text.count("not known") >= 4, path
            assert not NOT_KNOWN.search(page.text), path
            assert "without a process" not in page.text
        assert "Nothing of this time is stored" in page.text


async def test_a_gpu_and_its_node_show_who_holds_them() -> None:
    async with door(await busy_lab()) as client:
        gpu = await read(client, "/gpus/GPU-n1-0")
        assert "41207 ada slurm 4711 pretrain 40 GiB 98%" in gpu.text
        assert "kubernetes lab/train-0" in gpu.text
        node = await read(client, "/nodes/n1")
        assert "allocated by slurm-hook, no process" in node.text
        other = await read(client, "/nodes/n2")
        assert "600 ann no job 40 GiB 0%" in other.text
        assert "no permission" in other.text
        assert "not known not known not known python" in other.text


async def test_a_node_says_first_what_is_wrong_and_marks_the_gpu() -> None:
    """Holders stand beside a GPU, for who may see persons; the GPU that differs has charts beside the others."""
    view = await busy_lab()
    view.raised = [alert(node="n2", gpu=1, severity=Severity.TICKET)]
    view.raised = [msgspec.structs.replace(view.raised[0], gpu="GPU-n2-1", summary="n2 GPU 1 is slow")]
    async with door(view) as client:
        _, body, _ = await client.text("/nodes/n2", headers=ANEW)
        page = Page(body)
        assert page.faults == []
        assert re.search(r'class="verdict page".*?lab/2, which feeds it, may trip', body)
        assert "What helps: cap each GPU at" in page.text
        assert len(re.findall(r"<tr [^>]*class=ticket>", body)) == 2
        assert "GPU 1 gpu lost power brake" in page.text
        assert "GPU 1 beside the others" in page.text
        assert body.count('class="peers"') == 4
        assert re.search(r"ada pretrain 665 W", page.text)
        assert "circuits/lab%2F2" in page.links
        view.fleet.nodes["n2"].online = False
        old = Page((await client.text("/nodes/n2", headers=ANEW))[1]).text
        assert "n2 is offline: nothing new for" in old


async def test_a_blind_node_is_not_shown_as_free() -> None:
    view = await busy_lab()
    refused = (JobSourceState(name="process", state="no permission", message="run it on the host"),)
    send(view, "n1", sources=refused, jobs=(), allocations=(held(POD, "GPU-n1-0", view.wall()),))
    async with door(view) as client:
        page = await read(client, "/nodes/n1")
        assert "process: no permission: run it on the host" in page.text
        assert "allocated by slurm-hook, processes not known" in page.text
        assert "no process" not in page.text
        assert "without a process" not in (await read(client, "/jobs?job=lab/train-0")).text
    send(view, "n1")
    send(view, "n2", sources=READING, processes=(process("GPU-n2-0", 1, "ada", None),), left_out=1)
    view.monotonic += 600.0
    async with door(view) as client:
        assert "Jobs are switched off on this node" in (await read(client, "/nodes/n1")).text
        silent = (await read(client, "/nodes/n2")).text
        assert "The node is silent: this is what it said" in silent
        assert "1 process found no room" in silent
        assert "processes not known" in silent


async def test_a_circuit_lists_the_jobs_behind_its_load() -> None:
    view = await busy_lab()
    async with door(view) as client:
        page = await read(client, "/circuits/main")
        assert "3 jobs on the nodes that it feeds" in page.text
        watts = {
            uuid: float(view.fleet.column("gpu_power_watts", view.now())[view.fleet.by_uuid[uuid]])
            for uuid in ("GPU-n1-0", "GPU-n1-1", "GPU-n2-0")
        }
        assert f"slurm 4711 pretrain ada 3 {sum(watts.values()) / 1e3:.1f} kW" in page.text
        one = await read(client, "/circuits/lab%2F1")
        assert f"slurm 4711 pretrain ada 2 {(watts['GPU-n1-0'] + watts['GPU-n1-1']) / 1e3:.1f} kW" in one.text
        assert "ann" not in one.text
        view.monotonic += 600.0
        old = await read(client, "/circuits/lab%2F1")
        assert "slurm 4711 pretrain ada 2 not known" in old.text


async def test_an_incident_links_the_job_that_it_hit() -> None:
    from aggregator.http.jobs import job_key
    from aggregator.web.incident_page import incident_body, jobs_named

    lead = alert(labels={"job": "4711,old", "user": "ada"})
    about = incident(alerts=[lead])
    evidence = reply(msgspec.structs.replace(card(), job="4711", user="ada"))
    assert jobs_named(about, evidence) == {"4711", "old"}
    view = await busy_lab()
    key = await job_key(view.find_jobs, "4711", view.wall())
    assert key == TRAIN
    assert await job_key(view.find_jobs, "old", view.wall()) is None
    page = Page(incident_body(about, None, evidence, NOON + MINUTE, {"4711": '<a href="jobs/4711">4711</a>'}))
    assert page.faults == []
    assert page.links.count("jobs/4711") == 2
    assert "4711 , old" in page.text
    assert "Job 4711 of ada" in page.text


async def test_who_reads_anonymously_sees_nothing_of_persons(tmp_path: Path) -> None:
    """Neither whose a job is, nor by a filter which jobs are a person's; a token shows it."""
    config = HttpConfig(listen="0.0.0.0:0", tokens_file=tmp_path / "t", anonymous_read=True)
    async with door(await busy_lab(), config) as client:
        for path in ("/jobs", "/nodes/n1", "/nodes/n2", "/gpus/GPU-n1-0", "/circuits/main"):
            page = await read(client, path)
            for word in ("ada", "grace", "physics", "pretrain", "jupyter", "ann", "41207"):
                assert not re.search(rf"\b{word}\b", page.text), (path, word)
            known = await read(client, path, client.bearer)
            assert re.search(r"\b(ada|ann)\b", known.text), path
        for path in ("/jobs/4711", "/jobs?user=ada", "/jobs?account=physics", "/api/v1/jobs?user=ada"):
            status, body, headers = await client.text(path)
            assert status == 401, path
            assert headers["WWW-Authenticate"] == "Bearer", path
            assert "pretrain" not in body
            assert (await client.text(path, headers=client.bearer))[0] == 200, path


async def test_hashed_users_are_shown_as_their_nodes_send_them() -> None:
    view = await lab()
    owner, begin = "5f3a9c0d1e2b", view.wall() - SECOND
    send(
        view,
        "n1",
        users=UserPrivacy.HASHED,
        sources=READING,
        jobs=(Job(key=TRAIN, user=owner),),
        allocations=(held(TRAIN, "GPU-n1-0", begin),),
    )
    hidden = JobKey("user", "", "hidden")
    send(
        view,
        "n2",
        users=UserPrivacy.OFF,
        sources=READING,
        jobs=(Job(key=hidden),),
        allocations=(held(hidden, "GPU-n2-0", begin, kind="used"),),
    )
    work(view)
    async with door(view) as client:
        page = await read(client, "/jobs")
        assert sorted(ids(page)) == ["4711", "hidden"]
        assert owner in page.text
        assert ids(await read(client, f"/jobs?user={owner}")) == ["4711"]


def row(number: int, **more: object) -> JobRow:
    """A job that runs, of which nothing was measured."""
    facts = {"scheduler": "slurm", "cluster": "lab", "id": str(number), "begin": START - number * SECOND, "gpus": 1}
    return JobRow(**{**facts, **more})  # type: ignore[arg-type]


def used(ratio: float | None, joules: float | None) -> JobSummary:
    """A summary with a use and an energy."""
    return JobSummary(
        gpu_hours=1.0, coverage=1.0, energy_coverage=1.0, partial=False, utilization_ratio=ratio, energy_joules=joules
    )


def drawn(rows: list[JobRow], asked: dict[str, str] | None = None, page: int = 1) -> Page:
    """The table of some jobs."""
    return Page(jobs_body(JobsReply(START, rows), asked or {}, page, private=True))


@pytest.mark.parametrize(("sort", "wanted"), [("use", "231"), ("energy", "321"), ("since", "123"), ("state", "312")])
def test_what_is_not_known_is_sorted_last(sort: str, wanted: str) -> None:
    rows = [row(1), row(2, summary=used(0.0, 3.6e6)), row(3, summary=used(0.5, 7.2e6), phase=JobPhase.SILENT)]
    assert "".join(ids(drawn(rows, {"sort": sort}))) == wanted


def test_five_thousand_jobs_are_pages_of_a_table() -> None:
    rows = [row(number) for number in range(1, 5001)]
    first, last = drawn(rows), drawn(rows, {"state": "running"}, 25)
    assert (len(ids(first)), ids(last)[-1]) == (200, "5000")
    assert "page 1 of 25" in first.text
    assert "jobs?page=24&state=running" in last.links
    body = jobs_body(JobsReply(START, rows, more=True), {}, 1, private=True)
    assert "There are more than these 5,000" in body
    assert all(f'sort={name}"' in body for name in COLUMNS if name != "since")


def test_hostile_names_of_jobs_are_text() -> None:
    bad = row(
        1, id=EVIL, job_name=EVIL, user=EVIL, account=EVIL, scheduler=EVIL, cluster=EVIL, nodes=[EVIL], state=EVIL
    )
    body = jobs_body(JobsReply(START, [bad, bad]), {"q": EVIL, "from": EVIL, "job": EVIL}, 1, private=True)
    page = Page(body)
    assert page.faults == []
    assert "<img" not in body
    assert "<script>alert(1)</script>" in page.text


async def test_two_jobs_of_one_id_have_pages_of_their_own() -> None:
    """Processes of a person are a job of each node; a requeued job is a run of each."""
    view = await busy_lab()
    again, begin = JobKey("slurm", "lab", "4710", 1), view.wall() - SECOND
    send(
        view,
        "n1",
        sources=READING,
        jobs=(Job(key=JobKey("user", "", "ann"), user="ann"), Job(key=again)),
        allocations=(held(JobKey("user", "", "ann"), "GPU-n1-0", begin, kind="used"), held(again, "GPU-n1-1", begin)),
    )
    async with door(view) as client:
        page = await read(client, "/jobs?job=ann")
        ways = [link for link in page.links if link.startswith("jobs/ann")]
        assert len(set(ways)) == 2
        for way in ways:
            node = re.findall(r"node=(\w+)", way)[0]
            assert f"nodes/{node}" in (await read(client, f"/{way}")).links
        runs = await read(client, "/jobs?job=4710")
        assert len({link for link in runs.links if link.startswith("jobs/4710")}) == 2
        assert "exit code 2" in (await read(client, "/jobs/4710?restart=0")).text
        newest = await read(client, "/jobs/4710")
        assert "run 2, all its runs" in newest.text
