"""Jobs in the dashboard: the table, the page, and the jobs of a GPU, a node and a circuit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from textual.pilot import Pilot

from aggregator.access.tokens import AccessScope, write
from aggregator.assembly.http_server import listening
from aggregator.http.config import HttpConfig
from api.alerts import Severity
from api.jobs import GpuHolder, GpuUse, JobAlert, JobPhase, JobReply, JobRow, JobSummary
from kilowatch.__main__ import main
from telemetry.wire.jobs import GpuProcess
from tests.aggregator.fake_view import give_jobs
from tests.aggregator.http_client import add_token
from tests.tui.cluster import Cluster, served, text_of, until
from tests.tui.test_app import press_until, shown
from tui.app import Top
from tui.frame.own_jobs import ME, OwnJobs
from tui.kit.text import STEP
from tui.kit.theme import THEMES, Line, Tones
from tui.screens.job_text import circuit_job_lines, holder_lines, job_lines, node_job_lines, process_lines
from tui.tables.fields import JOB_KEYS, job_fields
from tui.tables.filter import parse
from tui.tables.job_table import JOB_SORTS, job_listing, page_of

SECOND = 10**9
AT = 10_000 * SECOND


def job(id: str, **more: object) -> JobRow:  # noqa: A002 - the field's word
    """A job that runs."""
    facts = {"scheduler": "slurm", "cluster": "lab", "user": "ada", "begin": AT - 3600 * SECOND,
             "nodes": ["n1"], "gpus": 2, "power_watts": 900.0}  # fmt: skip
    return JobRow(id=id, **(facts | more))  # type: ignore[arg-type]


def summary(**more: object) -> JobSummary:
    """Figures that are whole."""
    return JobSummary(**({"gpu_hours": 2.0, "coverage": 1.0, "partial": False} | more))  # type: ignore[arg-type]


def texts(lines: list[Line]) -> str:
    """Lines as text."""
    return "\n".join("".join(text for text, _ in line) for line in lines)


JOBS = [
    job("1", summary=summary(utilization_ratio=0.9), power_watts=500.0),
    job("2", severity=Severity.TICKET, user="bob"),
    job("3", phase=JobPhase.SILENT, power_watts=None),
    job("4", severity=Severity.PAGE),
    job("5", hints=["3 of 8 GPUs never worked", "another"], power_watts=1500.0, nodes=["n1", "n2"]),
    job("6", severity=Severity.INFO, summary=summary(utilization_ratio=0.2, coverage=0.5)),
    job("7", phase=JobPhase.ENDED, end=AT, state="FAILED", exit_code=1),
    job("8", phase=JobPhase.ENDED, end=AT, state="COMPLETED", exit_code=0),
    job("9", phase=JobPhase.LOST, end=AT),
]


def ids(sort: str = "", wanted: str = "", *, reverse: bool = False, faults: bool = False) -> list[str]:
    """Ids in the order of the table."""
    found = job_listing(JOBS, AT, sort, parse(wanted, JOB_KEYS), reverse=reverse, faults=faults)
    return [JOBS[row].id for row in found.order.tolist()]


def test_the_worst_job_is_first_and_each_says_what_is_wrong() -> None:
    assert ids() == ["4", "9", "2", "7", "3", "5", "1", "6", "8"]
    assert ids(faults=True) == ["4", "9", "2", "7", "3"]
    listing = job_listing(JOBS, AT)
    rows = {JOBS[row].id: texts([listing.line(n, 120)]) for n, row in enumerate(listing.order)}
    for number, words in {
        "4": "▲ CRIT",
        "9": "LOST",
        "2": "! WARN",
        "7": "! FAILED",
        "3": "▒ SILENT",
        "1": "· ok",
        "8": "· ended",
    }.items():
        assert rows[number].startswith(words) or words in rows[number][:10], rows[number]
    assert "3 of 8 GPUs never worked +1" in rows["5"]
    assert "2 nodes" in rows["5"]
    assert "~20%" in rows["6"]  # read for a part of its time
    assert "—" in rows["3"]
    assert " 0 W" not in rows["3"]


def test_jobs_sort_and_filter_by_what_is_known() -> None:
    assert ids("power")[:2] == ["5", "2"]
    assert ids("power")[-1] == "3"  # not known: last, in both directions
    assert ids("power", reverse=True)[-1] == "3"
    assert ids("use")[:2] == ["1", "6"]
    assert set(JOB_SORTS) - {""} <= {column.title for column in job_listing(JOBS, AT).columns}
    for wanted, found in {
        "user=bob": {"2"},
        "sev>=warn": {"2", "4"},
        "state=silent": {"3"},
        "power>1000": {"5"},
        "power<=1k use<50%": {"6"},
        "node~=n2": {"5"},
        "bob": {"2"},
        "job=7": {"7"},
        "!power>0": {"3"},
        "gpus>2": set(),
    }.items():
        assert set(ids("", wanted)) == found, wanted
    assert set(job_fields(JOBS)) == {"", *JOB_KEYS}
    assert np.isnan(job_fields(JOBS)["power"]()[2])


def test_a_job_is_told_from_others_of_its_id() -> None:
    """A requeued one, another scheduler's, and the processes of a user on each node."""
    same = [
        job("ann"), job("ann", restart=1), job("ann", scheduler="kubernetes"),
        job("ann", scheduler="user", nodes=["n1"]), job("ann", scheduler="user", nodes=["n2"]),
    ]  # fmt: skip
    assert len(set(map(page_of, same))) == 5
    assert page_of(job("ns/pod a?&#")).startswith("api/v1/jobs/ns%2Fpod%20a%3F%26%23?scheduler=slurm")


def test_the_page_of_a_job_has_its_gpus_processes_and_faults() -> None:
    uses = [
        GpuUse(
            node="n1",
            gpu=f"GPU-{n}",
            held_seconds=3600.0,
            known_seconds=3600.0 * (n != 2),
            utilization_ratio=None if n == 2 else 0.5,
            shared=n == 10,
        )
        for n in (10, 2)
    ]
    row = job("5", summary=summary(gpus=uses, coverage=None, partial=True), hints=["xid 79 2 times while it ran"])
    alert = JobAlert(rule="job_hit", severity=Severity.PAGE, node="n1", gpu="GPU-2", since=AT)
    hidden = GpuProcess(gpu="GPU-2", pid=7, hidden="no permission")
    page = texts(job_lines(JobReply(AT, row, [], [hidden], [alert]), 100))
    assert page.index("n1/GPU-2 ") < page.index("n1/GPU-10")
    (gpu,) = [line for line in page.splitlines() if line.startswith("n1/GPU-2 ")]
    assert gpu.count("—") == 3  # use, energy and memory are not known, and no zeros
    assert "shared" in page
    assert "job_hit on n1/GPU-2  it tells of another user" in page
    assert "xid 79 2 times while it ran" in page
    assert "use, mean not known" in page
    assert "no permission" in page
    assert "nothing fires" not in page
    ended = texts(job_lines(JobReply(AT, JOBS[6], [], [], []), 100))
    assert "exit code 1" in ended
    assert "nothing was measured yet" in ended
    assert "process" not in ended


def test_what_a_node_does_not_say_is_not_that_there_is_no_job() -> None:
    held = [GpuHolder(scheduler="slurm", job=str(n), user="ada", begin=AT) for n in range(6)]
    assert holder_lines(None, AT) == []
    assert texts(holder_lines([], AT)) == "no job holds it"
    assert "and 2 more jobs" in texts(holder_lines(held, AT))
    assert node_job_lines([(0, None), (1, None)]) == []
    assert texts(node_job_lines([(0, []), (1, None)])) == "no job holds its GPUs"
    assert "gpu 0, 3" in texts(node_job_lines([(0, held[:1]), (3, held[:1]), (4, [])]))
    assert texts(process_lines([], 80)) == "no process is listed"
    assert "GiB" not in texts(process_lines([GpuProcess(gpu="g", pid=1, user="a", name="p")], 80))


def test_a_circuit_names_the_jobs_on_its_nodes() -> None:
    lines = texts(circuit_job_lines(JOBS, ["n2", "n9"], "", 80))
    assert lines.splitlines()[0] == "1 job on it"
    assert "1 of 2 nodes here" in lines
    assert circuit_job_lines(JOBS, [], "", 80) == []
    assert texts(circuit_job_lines([], ["n1"], "refused", 80)) == "jobs: refused"
    assert "as far as its nodes say" in texts(circuit_job_lines(JOBS, ["n7"], "", 80))


@pytest.mark.parametrize("text", ["\x1b[2J", "a\nb", "\u202e"])
def test_no_text_of_a_job_reaches_the_terminal_as_it_came(text: str) -> None:
    row = job(
        f"1{text}",
        user=text,
        account=text,
        queue=text,
        job_name=text,
        state=text,
        nodes=[text],
        scheduler=text,
        cluster=text,
        hints=[text],
        summary=summary(gpus=[GpuUse(node=text, gpu=text, held_seconds=1.0, known_seconds=1.0)]),
    )
    process = GpuProcess(gpu=text, user=text, name=text, hidden=text)
    alert = JobAlert(rule=text, severity=Severity.PAGE, node=text, gpu=text, since=AT, summary=text)
    holder = GpuHolder(scheduler=text, job=text, job_name=text, user=text)
    drawn = texts([
        *job_lines(JobReply(AT, row, [], [process], [alert]), 90), *holder_lines([holder], AT),
        *node_job_lines([(0, [holder])]), *circuit_job_lines([row], [text], text, 80),
        *circuit_job_lines([row], [text], "", 80),
        job_listing([row], AT).line(0, 120),
    ])  # fmt: skip
    assert text not in drawn.replace("\n", " " if text == "a\nb" else "\n")


async def test_jobs_are_opened_from_the_table_and_named_on_gpu_and_node() -> None:
    cluster = Cluster()
    await cluster.beat()
    give_jobs(cluster, ("dgx-00", "4711", "ada", (0, 1)), ("dgx-01", "4712", "grace", (3,)))
    cluster.raise_alert("gpu_hot", "GPU-dgx-01-3", "GPU 3 is hot", node="dgx-01")
    async with shown(cluster) as (pilot, app):
        text = await press_until(pilot, "8", holds=lambda text: "4711" in text and "4712" in text)
        (worst,) = [line for line in text.splitlines() if "4712" in line]
        assert worst.startswith("▲ CRIT")
        assert "530 W" in worst
        text = await press_until(pilot, "enter", holds=lambda text: "1 process" in text)
        assert f"Jobs {STEP} 4712 pretrain" in text
        assert f"gpu_hot on dgx-01 {STEP} gpu3" in text
        assert "user grace" in text
        text = await press_until(pilot, "left_square_bracket", holds=lambda text: f"{STEP} 4711" in text)
        await press_until(pilot, "y", holds=lambda _: app.clipboard == "4711")
        await press_until(pilot, "escape", holds=lambda text: "hints" in text)
        await press_until(pilot, "y", holds=lambda _: app.clipboard == "4712")
        app.open("gpu", "GPU-dgx-00-1")
        await until(pilot, lambda text: "job slurm 4711 pretrain  user ada" in text)
        assert "python" in text_of(app)
        app.open("gpu", "GPU-dgx-00-5")
        await until(pilot, lambda text: "no job holds it" in text)
        app.open("node", "dgx-00")
        await until(pilot, lambda text: "4711 pretrain  user ada  gpu 0, 1" in text)
        cluster.jobs.remove("dgx-00")  # its node says nothing any more: not that there is no job
        await until(pilot, lambda text: "4711" not in text)
        assert "no job holds" not in text_of(app)


async def test_who_may_see_no_persons_is_refused_a_job_and_nothing_else() -> None:
    """A document that is refused must not end the picture of the fleet."""
    cluster = Cluster()
    await cluster.beat()
    give_jobs(cluster, ("dgx-00", "4711", "ada", (0, 1)))
    config = HttpConfig(listen="0.0.0.0:0", anonymous_read=True)
    async with listening(cluster, config) as (_, port):
        app = Top(f"http://127.0.0.1:{port}", every=0.2)
        async with app.run_test(size=(80, 24)) as pilot:
            await until(pilot, lambda text: "● LIVE lab" in text)
            text = await press_until(pilot, "8", holds=lambda text: "4711" in text)
            assert "ada" not in text
            text = await press_until(pilot, "enter", holds=lambda text: "a token is needed" in text)
            assert "● LIVE lab" in text
            await cluster.beat()
            await press_until(pilot, "3", holds=lambda text: "● LIVE lab" in text and "of 16" in text)


async def test_jobs_of_a_past_time_are_not_those_of_now() -> None:
    cluster = Cluster()
    await cluster.beat()
    give_jobs(cluster, ("dgx-00", "4711", "ada", (0, 1)))
    for _ in range(3):
        await cluster.beat(10.0)
    async with served(cluster) as url:
        app = Top(url, every=0.2)
        async with app.run_test(size=(100, 24)) as pilot:
            await until(pilot, lambda text: "● LIVE lab" in text)
            await press_until(pilot, "8", holds=lambda text: "4711" in text)
            await pilot.press("t", "left_curly_bracket")
            await until(pilot, lambda text: "nothing of this is kept" in text)
            assert "4711" not in text_of(app)
            await press_until(pilot, "L", holds=lambda text: "4711" in text)


@asynccontextmanager
async def own(
    cluster: Cluster, folder: Path, user: str, asked: str = ME
) -> AsyncIterator[tuple[Pilot[None], OwnJobs, Path]]:
    """The dashboard of one person, with the token of `user` ("": one that reads all), and its tokens file."""
    tokens = folder / "tokens.json"
    secret = add_token(tokens, "mine", *(() if user else (AccessScope.READ,)), user=user)
    async with listening(cluster, HttpConfig(listen="127.0.0.1:0", tokens_file=tokens)) as (_, port):
        url = f"http://127.0.0.1:{port}"
        app = OwnJobs(url, secret, asked, Tones(THEMES["dark"]), every=0.1)
        async with app.run_test(size=(90, 24)) as pilot:
            yield pilot, app, tokens


async def busy() -> Cluster:
    """Two nodes with jobs of two users, of which one has an alert."""
    cluster = Cluster()
    await cluster.beat()
    give_jobs(
        cluster, ("dgx-00", "4711", "ada", (0, 1)), ("dgx-01", "4712", "grace", (3,)), ("dgx-01", "4713", "ada", (4,))
    )
    cluster.raise_alert("gpu_hot", "GPU-dgx-01-4", "GPU 4 is hot", Severity.TICKET, node="dgx-01")
    return cluster


async def test_a_person_sees_the_own_jobs_and_what_is_wrong_with_them(tmp_path: Path) -> None:
    async with own(await busy(), tmp_path, "ada") as (pilot, app, _):
        text = await until(pilot, lambda text: "jobs of ada" in text and "4711" in text)
        lines = text.splitlines()
        assert lines[0].startswith("● LIVE")
        assert lines[1].startswith("2 jobs run on 3 GPUs  1.8 kW  0 ended in the last 24 h  1 with an alert")
        assert lines[3].startswith("! WARN    ada        4713")
        assert "grace" not in text
        await pilot.press("enter")
        text = await until(pilot, lambda text: "1 process" in text)
        assert f"gpu_hot on dgx-01 {STEP} gpu4" in text
        await pilot.press("escape")
        await until(pilot, lambda text: "hints" in text)
        await pilot.press("s", "s", "s", "s")
        await until(pilot, lambda text: "▼power" in text)
        await pilot.press("r")
        await until(pilot, lambda text: "4713" in text.splitlines()[3])
        await pilot.press("q")
        assert not app.is_running or app._exit


async def test_a_token_that_reads_all_shows_the_user_that_is_named(tmp_path: Path) -> None:
    async with own(await busy(), tmp_path, "", "grace") as (pilot, _, _tokens):
        text = await until(pilot, lambda text: "4712" in text)
        assert "4711" not in text
    (tmp_path / "tokens.json").unlink()
    async with own(await busy(), tmp_path, "ada", "nobody") as (pilot, _, _tokens):
        text = await until(pilot, lambda text: "REFUSED" in text)
        assert "sees the jobs of the user 'ada' alone" in text


async def test_who_has_no_job_is_told_so_and_a_revoked_token_shows_nothing_more(tmp_path: Path) -> None:
    cluster = await busy()
    async with own(cluster, tmp_path, "zoe") as (pilot, _, tokens):
        text = await until(pilot, lambda text: "no job of zoe" in text)
        assert "0 jobs run on 0 GPUs" in text
        assert " 0 W" not in text
        give_jobs(cluster, ("dgx-00", "5000", "zoe", (2,)))
    async with own(cluster, tmp_path / "more", "ada") as (pilot, _, tokens):
        await until(pilot, lambda text: "4713" in text)
        write(tokens, [])
        text = await until(pilot, lambda text: "○ REFUSED" in text)
        assert "4713" not in text
        assert "the token is wrong" in text


async def test_a_dead_aggregator_is_named_and_old_jobs_are_marked_as_old(tmp_path: Path) -> None:
    secret = add_token(tmp_path / "tokens.json", "mine", user="ada")
    config = HttpConfig(listen="127.0.0.1:0", tokens_file=tmp_path / "tokens.json")
    async with AsyncExitStack() as stack:
        _, port = await stack.enter_async_context(listening(await busy(), config))
        app = OwnJobs(f"http://127.0.0.1:{port}", secret, ME, Tones(THEMES["dark"]), every=0.1)
        async with app.run_test(size=(90, 24)) as pilot:
            await until(pilot, lambda text: "4713" in text)
            await stack.aclose()
            text = await until(pilot, lambda text: "○ DISCONNECTED" in text)
            assert "jobs as of" in text
            assert "LIVE" not in text
            assert app.table.faded


def test_the_person_s_dashboard_changes_nothing() -> None:
    for more in (["--write"], ["--replay", "x"]):
        found = CliRunner().invoke(main, ["top", "--user", "me", *more])  # also where several run
        assert found.exit_code == 64
        assert "changes nothing" in found.output
    assert CliRunner().invoke(main, ["top", "--user", ""]).exit_code == 64
