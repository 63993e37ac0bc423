"""Jobs of Ray: its own runtime with four logical GPUs, and a head that answers anything."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from collector.jobs.config import JobsConfig
from collector.jobs.processes import ProcReader
from collector.jobs.ray import MOST_LISTED, RayConfig, RayJobs
from collector.jobs.source import FoundProcess, JobsAnswer, JobsInput
from collector.jobs.sources import job_sources
from collector.jobs.users import PersonFilter, UserNames
from collector.nvml.source import NvmlSource
from collector.source import ListedProcess, ListedProcesses
from telemetry.errors import ConfigError
from telemetry.wire.jobs import AllocationKind, JobKey, NodeJobs
from tests.brokers import Mosquitto, free_port
from tests.collector.bus import collecting, config_of, reading
from tests.collector.jobs.given import GPU, START, at, given, process
from tests.fake_nvml import FakeDriver
from tests.kit.waiting import end_of_patience, until
from tests.ray.runtime import RayRuntime, needs_ray, running

SESSION = "session_2026-11-25_15-45-54_752837_12275"
CLUSTER = SESSION.removeprefix("session_")
JOB = JobKey("ray", CLUSTER, "01000000")
NODE = "f94dbb4cedee3ec3769e99eaa91f0844c4ab816d0a91d493a2cdd4c0"


def worker(pid: int, name: str = "ray::Trainer", cgroup: str = "0::/", **more: Any) -> FoundProcess:
    """Return a process with the title of a worker."""
    return process(pid, cgroup=cgroup, name=name, **more)


class Head:
    """A head that answers what it is told, to whoever has the token."""

    def __init__(self, folder: Path) -> None:
        self.token = folder / "token"
        self.token.write_text("abc\n")
        self.asked: list[str] = []
        self.version: Any = {"ray_version": "2.60.0", "session_name": SESSION}
        self.nodes = [{"node_id": NODE, "node_ip": "127.0.0.1", "state": "ALIVE"}]
        self.actors: list[dict[str, Any]] = []
        self.tasks: list[dict[str, Any]] = []
        self.jobs: list[dict[str, Any]] = [
            {"type": "SUBMISSION", "job_id": "01000000", "submission_id": "llm", "status": "RUNNING",
             "entrypoint": "python train.py --token=hunter2", "start_time": at(1) // 10**6, "end_time": 0,
             "runtime_env": {"env_vars": {"TOKEN": "hunter2"}}, "driver_exit_code": None},
        ]  # fmt: skip
        self.total: int | None = None
        self.body: bytes | None = None
        self.drip = 0.0
        """Seconds between the bytes of an answer."""
        self.redirect = ""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                if outer.redirect:
                    self.send_response(302)
                    self.send_header("Location", outer.redirect)
                    self.end_headers()
                    return
                right = self.headers["Authorization"] == "Bearer abc"
                body = outer.answer(self.path) if outer.body is None else outer.body
                self.send_response(200 if right else 403)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                try:
                    for number in range(len(body)) if outer.drip else ():
                        self.wfile.write(body[number : number + 1])
                        time.sleep(outer.drip)
                    self.wfile.write(b"" if outer.drip else body)
                except OSError:
                    """The client has given up, as it should."""

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Stay silent."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def answer(self, path: str) -> bytes:
        """Return what Ray's dashboard answers."""
        if path == "/api/version":
            return json.dumps(self.version).encode()
        if path == "/api/jobs/":
            return json.dumps(self.jobs).encode()
        kind = path.removeprefix("/api/v0/").partition("?")[0]
        rows = {"nodes": self.nodes, "actors": self.actors, "tasks": self.tasks}[kind]
        its = {"total": self.total or len(rows), "num_after_truncation": len(rows), "num_filtered": len(rows), "result": rows}  # fmt: skip
        return json.dumps({"result": True, "msg": "", "data": {"result": its}}).encode()

    def source(self, **settings: Any) -> RayJobs:
        """Return a source that asks here."""
        return RayJobs(RayConfig(**{"url": self.url, "token_file": self.token} | settings))


@pytest.fixture
def head(tmp_path: Path) -> Iterator[Head]:
    """Start a head with one actor and one task on this node."""
    found = Head(tmp_path)
    found.actors = [actor(7)]
    found.tasks = [
        {"task_id": "t", "name": "half", "state": "RUNNING", "job_id": "01000000", "node_id": NODE, "worker_pid": 8}
    ]
    thread = threading.Thread(target=found.server.serve_forever, args=(0.05,))
    thread.start()
    yield found
    found.server.shutdown()
    found.server.server_close()
    thread.join()


def actor(pid: int, **more: Any) -> dict[str, Any]:
    """Return an actor as the State API lists it."""
    return {
        "actor_id": "b2d6", "class_name": "Trainer", "state": "ALIVE", "job_id": "01000000",
        "name": "rank-0", "node_id": NODE, "pid": pid, "ray_namespace": "x", **more,
    }  # fmt: skip


def steps(answer: JobsAnswer) -> dict[int, tuple[JobKey, str]]:
    """Return job and actor of each process."""
    return {each[0]: (owner.job, owner.step) for each, owner in answer.owners.items()}


def test_a_worker_works_for_the_job_of_its_actor_or_task(head: Head) -> None:
    """And what Ray says of environments and command lines stays there."""
    source = head.source()
    answer = source.read(given(0, worker(7), worker(8, "ray::half"), process(9)))
    assert (answer.state.name, answer.state.state, answer.state.message) == ("ray", "reading", "")
    assert steps(answer) == {7: (JOB, "rank-0"), 8: (JOB, "")}
    (job,) = answer.jobs
    assert (job.key, job.name, job.state, job.begin, job.end) == (JOB, "llm", "RUNNING", at(1), 0)
    assert answer.allocations == (), "a logical GPU is none of the node's"
    assert "hunter2" not in repr(answer)
    assert not any("detail" in path for path in head.asked), "details have environments"
    head.asked.clear()
    assert steps(source.read(given(15, worker(7), worker(8, "ray::IDLE")))) == steps(answer)
    assert head.asked == ["/api/version", "/api/jobs/"], "known workers are not asked for again"


def test_the_end_of_a_job_is_rays(head: Head) -> None:
    source = head.source()
    source.read(given(0, worker(7)))
    head.jobs[0] |= {"status": "FAILED", "end_time": at(30) // 10**6, "driver_exit_code": 1}
    (job,) = source.read(given(45)).jobs
    assert (job.state, job.end, job.exit_code) == ("FAILED", at(30), 1)
    assert source.read(given(40 + 600)).jobs == ()
    head.asked.clear()
    source.read(given(700))
    assert head.asked == ["/api/version"], "nobody works here"


def test_another_start_of_ray_counts_its_jobs_anew(head: Head) -> None:
    source = head.source()
    source.read(given(0, worker(7)))
    head.version = {"session_name": "session_2026-11-26_00-00-00_1_1"}
    answer = source.read(given(60, worker(7, started=50.0)))
    assert steps(answer) == {7: (JobKey("ray", "2026-11-26_00-00-00_1_1", "01000000"), "rank-0")}


@pytest.mark.parametrize(
    "cgroup",
    [
        "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0",
        f"0::/kubepods/burstable/pod{'ab' * 16}/{'cd' * 32}",
        f"0::/system.slice/docker-{'cd' * 32}.scope",
    ],
)
def test_a_worker_within_a_job_pod_or_container_is_theirs(head: Head, cgroup: str) -> None:
    """In a container Ray knows other PIDs than the driver."""
    answer = head.source().read(given(0, worker(7, cgroup=cgroup)))
    assert (answer.owners, head.asked) == ({}, ["/api/version"])


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (actor(6), "another process"),
        (actor(7, node_id="of another node"), "the same PID elsewhere"),
        (actor(7, node_id=None), "not placed yet"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_pid_of_somebody_else_is_not_taken_for_ours(head: Head, row: dict[str, Any], why: str) -> None:
    head.actors, head.tasks = [row], []
    assert head.source().read(given(0, worker(7))).owners == {}, why


def test_a_process_without_the_title_is_no_worker_whatever_its_number(head: Head) -> None:
    assert head.source().read(given(0, process(7))).owners == {}


@pytest.mark.parametrize(
    ("nodes", "address", "problem"),
    [
        (["203.0.113.7"], "", "none of Ray's nodes has an address of this machine"),
        (["203.0.113.7"], "203.0.113.7", ""),
        (["127.0.0.1"], "203.0.113.7", "Ray has no node 203.0.113.7"),
        (["127.0.0.1", "127.0.0.2"], "", "more than one of Ray's nodes"),
        (["127.0.0.1", "127.0.0.1"], "", ""),
        (["::1", "no address", ""], "", "more than one of Ray's nodes"),
    ],
)
def test_this_node_is_the_one_with_an_address_of_this_machine(
    head: Head, nodes: list[str], address: str, problem: str
) -> None:
    head.nodes = [{"node_id": NODE, "node_ip": each, "state": "ALIVE"} for each in nodes]
    answer = head.source(address=address).read(given(0, worker(7)))
    assert answer.state.state == "reading"
    assert problem in answer.state.message
    assert bool(answer.owners) is not bool(problem)


def test_a_loopback_address_of_another_machines_ray_is_not_ours(head: Head) -> None:
    source = head.source(url=head.url)
    source._config = RayConfig(url="http://ray.example:8265")
    ids, problem = source._here([type("N", (), {"node_id": NODE, "node_ip": "127.0.0.1"})()])
    assert (ids, problem.partition(" ")[0]) == (frozenset(), "none")


def test_a_list_that_is_not_whole_says_so(head: Head) -> None:
    head.total = MOST_LISTED + 1
    assert "at most: some workers may have no job" in head.source().read(given(0, worker(7))).state.message


@pytest.mark.parametrize(
    ("fault", "state", "text"),
    [
        ("token", "no permission", "answers 403: the token is missing or not accepted"),
        ("no file", "no permission", "can't be read: No such file"),
        ("nobody", "failing", "does not answer: Connection refused"),
        ("redirect", "failing", "answers 302"),
        ("slow", "failing", "does not answer within"),
        ("no JSON", "failing", "/api/version answers something else"),
        ("no list", "failing", "answers something else"),
    ],
)
def test_a_head_that_can_not_be_read_is_a_state_and_ends_nothing(
    head: Head, monkeypatch: pytest.MonkeyPatch, fault: str, state: str, text: str
) -> None:
    source = head.source()
    source.read(given(0, worker(7)))
    match fault:
        case "token":
            head.token.write_text("another")
        case "no file":
            head.token.unlink()
        case "nobody":
            source._config = RayConfig(url=f"http://127.0.0.1:{free_port()}", token_file=head.token)
        case "redirect":
            head.redirect = "http://127.0.0.1:1/steal"
        case "slow":
            monkeypatch.setattr("collector.jobs.ray.SECONDS", 0.2)
            head.drip = 0.02
        case "no JSON":
            head.body = b"<html>"
        case "no list":
            head.body = json.dumps({"session_name": SESSION}).encode()
    began = time.monotonic()
    answer = source.read(given(30, worker(7), worker(99)))
    assert time.monotonic() - began < 60
    assert (answer.state.state, text in answer.state.message) == (state, True), answer.state
    assert steps(answer) == {7: (JOB, "rank-0")}
    assert "abc" not in answer.state.message


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"url": "ray:8265"}, "jobs.ray.url"),
        ({"url": "http://"}, "jobs.ray.url"),
        ({"url": "http://h:8265", "interval": 1}, "jobs.ray.interval"),
    ],
)
def test_settings_that_can_not_work_are_refused(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        RayConfig(**settings)


def test_ray_is_asked_where_the_settings_name_it() -> None:
    assert "ray" not in {each.name for each in job_sources(JobsConfig())}
    config = JobsConfig(ray=RayConfig(url="http://127.0.0.1:8265"))
    assert [each.name for each in job_sources(config)][-1] == "ray", "the last to be believed"


# ---- the real one ----


@pytest.fixture(scope="module")
def runtime() -> Iterator[RayRuntime]:
    """Start Ray once."""
    with running() as started:
        yield started


def _found(*pids: int) -> tuple[FoundProcess, ...]:
    """Return processes of this machine as the collector finds them."""
    reader = ProcReader(UserNames(), PersonFilter(JobsConfig()), same_pids=True)
    rows = tuple(ListedProcess(pid, "compute", 1 << 30, None, None) for pid in pids)
    return reader.find({GPU: ListedProcesses(START, rows)}).processes


@needs_ray
@pytest.mark.systems
def test_a_real_ray_wants_its_token_and_names_its_workers(runtime: RayRuntime) -> None:
    pids = [pid for pid, _ in (*runtime.actors, *runtime.tasks)]
    found = _found(*pids)
    assert {each.process.pid: each.process.name for each in found} == {
        **dict.fromkeys(pids[:2], "ray::Trainer"),
        **dict.fromkeys(pids[2:], "ray::half"),
    }
    asked = JobsInput(at=time.time_ns(), node="n1", processes=found)
    without = RayJobs(RayConfig(url=runtime.url)).read(asked)
    assert (without.state.state, without.owners) == ("no permission", {})
    assert "answers 401: the token is missing" in without.state.message
    deadline = end_of_patience()
    while True:  # workers tell the runtime of their tasks after they have begun
        answer = RayJobs(RayConfig(url=runtime.url, token_file=runtime.token_file)).read(asked)
        if len(steps(answer)) == len(pids) or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    assert (answer.state.state, answer.state.message) == ("reading", "")
    assert {pid: step for pid, (_, step) in steps(answer).items()} == dict(
        zip(pids, ["rank-0", "Trainer", "", ""], strict=True)
    )
    (job,) = answer.jobs
    assert {key for key, _ in steps(answer).values()} == {job.key}
    assert (job.key.scheduler, job.key.id, job.state) == ("ray", "01000000", "RUNNING")
    assert 0 < asked.at - job.begin < 3600e9
    assert job.key.cluster.startswith("20")


@needs_ray
@pytest.mark.systems
async def test_each_gpu_belongs_to_the_job_of_its_workers_until_they_end(
    runtime: RayRuntime, mosquitto: Mosquitto, tmp_path: Path
) -> None:
    """Ray's logical GPUs in the place of a driver's: actors on one each, tasks together on a third."""
    at_work: dict[str, dict[int, int]] = {}
    for pid, (gpu,) in (*runtime.actors, *runtime.tasks):
        at_work.setdefault(gpu, {})[pid] = 1 << 30
    assert len(at_work) == 3
    jobs = JobsConfig(
        interval=1.0, same_pids=True, ray=RayConfig(url=runtime.url, token_file=runtime.token_file, interval=5.0)
    )
    with FakeDriver(tmp_path, gpus=4) as fake:
        for number in range(4):
            fake.processes(number, compute=at_work.get(str(number)))
        source = NvmlSource(interval=0.05, environment=fake.environment, open_wait=20.0)
        config = config_of(mosquitto.config, tmp_path, jobs=jobs)
        async with reading(mosquitto.config) as reader, collecting(config, source):

            def held(message: NodeJobs) -> dict[tuple[str, str], set[str]]:
                """Return the steps on each GPU that last, by scheduler."""
                its: dict[tuple[str, str], set[str]] = {}
                for each in message.allocations:
                    if not each.end:
                        its.setdefault((each.gpu, each.job.scheduler), set()).add(each.step)
                return its

            (first, (one,)), (_, (two,)) = runtime.actors
            shared = runtime.tasks[0][1][0]
            wanted = {
                (fake.uuid(int(one)), "ray"): {"rank-0"},
                (fake.uuid(int(two)), "ray"): {"Trainer"},
                (fake.uuid(int(shared)), "ray"): {""},
            }
            await until(lambda: reader.jobs and held(reader.jobs[-1]) == wanted, seconds=60)
            newest = reader.jobs[-1]
            assert {each.kind for each in newest.allocations} == {AllocationKind.USED}
            assert {each.source for each in newest.allocations if not each.end} == {"ray"}
            users = {each.user for each in newest.processes}
            assert {job.user for job in newest.jobs if job.key.scheduler == "ray"} == users
            runtime.kill_actor()
            fake.processes(int(one))
            gone = {key: its for key, its in wanted.items() if key[0] != fake.uuid(int(one))}
            await until(lambda: held(reader.jobs[-1]) == gone, seconds=60)
            assert not Path(f"/proc/{first}").exists()
            runtime.finish()
            for number in (int(two), int(shared)):
                fake.processes(number)
            await until(lambda: held(reader.jobs[-1]) == {}, seconds=60)
            states = {each.name: each.state for each in reader.jobs[-1].sources}
            await until(lambda: {s.name: s.state for s in reader.jobs[-1].sources}["ray"] == "failing", seconds=60)
            assert states["process"] == "reading"
            assert [job.state for job in reader.jobs[-1].jobs if job.key.scheduler == "ray"] == ["RUNNING"]
