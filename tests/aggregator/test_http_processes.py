"""A series for each process on a GPU: bounded by the list of its node, and users in the form that the settings say."""

from __future__ import annotations

import asyncio
import re
import shutil
from asyncio.subprocess import PIPE
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from aggregator.config import AggregatorConfig
from aggregator.http.config import HttpConfig
from aggregator.load.controller import ShedStep
from aggregator.remote.push import Gatherer
from aggregator.settings.process_series import ProcessLabels, ProcessSeriesConfig
from collector.jobs.config import JobsConfig
from collector.jobs.merge import MergedJobs
from collector.jobs.message import JobsMessage
from collector.jobs.users import PersonFilter
from kilowatch.__main__ import main
from telemetry.devices import MigInstance
from telemetry.errors import WireError
from telemetry.wire.jobs import MAX_MESSAGE_BYTES, GpuProcess, JobKey, NodeJobs, UserPrivacy
from tests.aggregator.fake_view import FakeView
from tests.aggregator.http_client import door, small_cluster

FAMILY = "kilowatch_gpu_process_memory_bytes"
TRAIN, BOB = JobKey("slurm", "lab", "4711"), JobKey("user", "", "bob")
GPU = "GPU-n1-1"
THREE = (
    GpuProcess(gpu=GPU, pid=11, user="ada", name="python", job=TRAIN, memory_bytes=60 * 2**30),
    GpuProcess(gpu=GPU, pid=12, user="bob", name="ollama", job=BOB, memory_bytes=2**30 + 1),
    GpuProcess(gpu=GPU, pid=0, memory_bytes=2**20, hidden="other namespace"),
)
"""Processes of two users on one GPU, and one of which nothing is known."""


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file with the secret of the hashes."""
    path = tmp_path / "users.key"
    path.write_text("long random word\n")
    path.chmod(0o600)
    return path


async def cluster(
    config: ProcessSeriesConfig, processes: tuple[GpuProcess, ...] = THREE, users: UserPrivacy = UserPrivacy.NAMES
) -> FakeView:
    """A cluster with processes on n1, under some settings."""
    view = await small_cluster()
    view.process_words = config.words()
    send(view, NodeJobs(session=7, version=1, at=view.wall(), processes=processes, users=users))
    return view


def send(view: FakeView, message: NodeJobs) -> None:
    """Let n1 send its list."""
    gpus = {gpu.uuid for gpu in view.fleet.nodes["n1"].inventory.gpus}
    view.jobs.receive("n1", msgspec.json.encode(message), gpus, view.wall())


def series(page: str) -> list[tuple[dict[str, str], float]]:
    """Return labels, without those of all, and bytes of each process on a page."""
    found = []
    for line in page.splitlines():
        if line.startswith(f"{FAMILY}{{"):
            its = dict(re.findall(r'(\w+)="([^"]*)"', line))
            assert (its.pop("cluster"), its.pop("node")) == ("lab", "n1")
            found.append((its, float(line.rpartition(" ")[2])))
    return found


FULL = ProcessSeriesConfig(labels=ProcessLabels.FULL)
ON = {"gpu": "1", "uuid": GPU}


async def test_each_process_is_a_series_with_what_is_known_of_it() -> None:
    view = await cluster(FULL)
    wanted = [
        (ON | {"pid": "11", "process": "python", "user": "ada", "job_id": "4711", "scheduler": "slurm"}, 60 * 2**30),
        (ON | {"pid": "12", "process": "ollama", "user": "bob", "job_id": "bob", "scheduler": "user"}, 2**30 + 1),
        (ON | {"pid": "0"}, 2**20),
    ]
    async with door(view) as client:
        for path in ("/metrics/node/n1", "/metrics/nodes"):
            assert series((await client.text(path))[1]) == wanted, path
        send(view, NodeJobs(session=7, version=2, at=view.wall(), processes=THREE[1:2]))
        assert series((await client.text("/metrics/node/n1"))[1]) == wanted[1:2]
        view.fleet.nodes["n1"].online = False  # nobody knows who holds them now
        assert FAMILY not in (await client.text("/metrics/node/n1"))[1]


async def test_without_the_setting_there_is_none() -> None:
    assert AggregatorConfig().process_series.words() is None
    async with door(await cluster(ProcessSeriesConfig())) as client:
        assert FAMILY not in (await client.text("/metrics/node/n1"))[1]


async def test_hashed_users_are_those_that_a_node_with_the_same_secret_hashes(secret: Path) -> None:
    node = PersonFilter(JobsConfig(users=UserPrivacy.HASHED, secret_file=secret))
    ada, bob = node.person("ada"), node.person("bob")
    assert len({ada, bob, "ada", "bob"}) == 4
    config = ProcessSeriesConfig(labels=ProcessLabels.HASHED, secret_file=secret)
    async with door(await cluster(config)) as client:
        page = (await client.text("/metrics/node/n1"))[1]
    found = [(its.get("user"), its.get("job_id")) for its, _ in series(page)]
    assert found == [(ada, "4711"), (bob, bob), (None, None)]
    own = (msgspec.structs.replace(THREE[0], user=ada), msgspec.structs.replace(THREE[1], user=""))
    for users in (UserPrivacy.HASHED, UserPrivacy.OFF):  # what a node hashed is not hashed twice
        async with door(await cluster(config, own, users)) as client:
            page = (await client.text("/metrics/node/n1"))[1]
        assert [its.get("user") for its, _ in series(page)] == [ada, None]


def test_hashes_need_a_secret_that_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "kilowatch.toml"
    for more, told in (
        ("", 'labels = "hashed" needs a secret'),
        (f'secret_file = "{tmp_path}/gone"', "aggregator.process_series.secret_file"),
    ):
        path.write_text(f'[aggregator.process_series]\nlabels = "hashed"\n{more}\n')
        result = CliRunner().invoke(main, ["config", "check", "--config", str(path)])
        assert result.exit_code == 64
        assert told in result.output


async def test_who_reads_anonymously_sees_no_process() -> None:
    """Nor one without a user, of which nothing but the PID is known."""
    config = HttpConfig(listen="0.0.0.0:0", anonymous_read=True)
    async with door(await cluster(FULL), config) as client:
        for path in ("/metrics/node/n1", "/metrics/nodes"):
            status, page, _ = await client.text(path)
            assert (status, series(page)) == (200, [])
            assert "kilowatch_gpu_power_watts{" in page
            assert len(series((await client.text(path, headers=client.bearer))[1])) == 3


async def test_processes_are_shed_with_the_readings_of_devices() -> None:
    view = await cluster(FULL)
    view.shedding.step = ShedStep.DEVICE_METRICS
    async with door(view) as client:
        assert FAMILY not in (await client.text("/metrics/node/n1"))[1]


async def test_a_node_has_as_many_series_as_its_message_holds() -> None:
    """Of more processes those with the least memory are missing, and a longer message is refused."""
    many = tuple(
        GpuProcess(gpu=GPU, pid=number, user="ada", name="python", job=TRAIN, memory_bytes=number)
        for number in range(1, 5001)
    )
    merged = MergedJobs((), (), many)
    payload = JobsMessage(7, UserPrivacy.NAMES).encoded(merged, (), 1)
    assert payload is not None
    message = msgspec.json.decode(payload, type=NodeJobs)
    view = await cluster(FULL, message.processes)
    async with door(view) as client:
        found = series((await client.text("/metrics/node/n1"))[1])
        assert 100 < len(found) == 5000 - message.left_out < 1000
        assert {memory for _, memory in found} == set(range(5001 - len(found), 5001))
        whole = NodeJobs(session=7, version=9, at=view.wall(), processes=many)
        assert len(msgspec.json.encode(whole)) > MAX_MESSAGE_BYTES
        with pytest.raises(WireError, match="bytes"):
            send(view, whole)
        assert series((await client.text("/metrics/node/n1"))[1]) == found


async def test_a_process_without_its_memory_has_no_series_and_one_of_an_instance_says_so() -> None:
    """No memory is not 0."""
    view = await cluster(FULL, ())
    what = view.fleet.nodes["n1"].inventory
    mig = (MigInstance(uuid="MIG-5", gpu=GPU, gpu_instance=5),)
    view.add(msgspec.structs.replace(what, instances=mig))
    processes = (GpuProcess(gpu=GPU, pid=1), GpuProcess(gpu=GPU, instance=5, pid=2, name='my"app', memory_bytes=3))
    send(view, NodeJobs(session=7, version=2, at=view.wall(), processes=processes))
    async with door(view) as client:
        lines = [
            line for line in (await client.text("/metrics/node/n1"))[1].splitlines() if line.startswith(f"{FAMILY}{{")
        ]
    (line,) = lines
    assert 'gpu_instance="5",pid="2",process="my\\"app"} 3' in line


async def test_processes_are_pushed_too() -> None:
    gatherer = Gatherer(await cluster(FULL))
    families = [each for part in await gatherer.snapshots() for each in part.families]
    (its,) = [each for each in families if each.name == FAMILY]
    assert len(its.samples) == 3


@pytest.mark.skipif(shutil.which("promtool") is None, reason="apt-get install prometheus")
async def test_promtool_finds_nothing_to_say_about_processes() -> None:
    async with door(await cluster(FULL)) as client:
        page = (await client.text("/metrics/node/n1"))[1]
    assert FAMILY in page
    done = await asyncio.create_subprocess_exec("promtool", "check", "metrics", stdin=PIPE, stdout=PIPE, stderr=PIPE)
    said = await done.communicate(page.encode())
    assert (done.returncode, *said) == (0, b"", b"")
