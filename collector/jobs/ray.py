"""Ray as a source of jobs: which job of Ray a worker on a GPU of this node works for.

Ray gives out logical GPUs and says of none which one it is: what it knows is which process is which actor or task,
and of which job. So it names the owners of processes that the driver lists, and no allocations of its own. Where a
worker runs within a job of another scheduler, in a pod or in a container, that one owns it, as its cgroup says.

Asked are the State API and the Job API of the head's dashboard, and only for what the driver lists: without a worker
of Ray on a GPU, the version alone. Environments, which both have, are neither asked for nor decoded.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec

from collector.http.request import HttpRequestError, get
from collector.jobs.source import RAY_TITLE, FoundProcess, JobsAnswer, JobsInput, Ownership, ProcessId
from telemetry.errors import ConfigError
from telemetry.files.secrets import read_token
from telemetry.text.decoders import of_json
from telemetry.wire.jobs import ENDED_SECONDS, Job, JobKey, JobSourceState

NAME = SCHEDULER = "ray"
SECONDS = 5.0
"""Seconds after which the dashboard is given up for this time; one question takes at most five requests."""
MOST_LISTED = 10_000
"""Actors or tasks of one answer at most, as Ray's own limit is."""
_LOCAL = frozenset({"127.0.0.1", "::1", "localhost"})
_RUNNING = frozenset({"PENDING", "RUNNING"})
_Answer = TypeVar("_Answer")


class RayConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Jobs of Ray on the GPUs of a node."""

    url: str = ""
    """Dashboard of Ray's head node, `http://HOST:8265`; empty: Ray is not asked."""
    token_file: Path | None = None
    """File with Ray's token, `~/.ray/auth_token` where Ray made it; Ray asks for one by default since 2.60."""
    interval: float = 15.0
    """Seconds between two questions, 5 to 300: each node asks the one dashboard."""
    address: str = ""
    """This node's address in Ray; empty: the one of Ray's nodes whose address is this machine's."""

    def __post_init__(self) -> None:
        """Raise `ConfigError` for an address or a time that can't work."""
        parts = urlsplit(self.url)
        if self.url and (parts.scheme not in {"http", "https"} or not parts.hostname):
            raise ConfigError("jobs.ray.url", f"{self.url!r} is no address of a dashboard", "Write http://HOST:8265.")
        if not 5 <= self.interval <= 300:
            raise ConfigError("jobs.ray.interval", f"{self.interval:g} s is out of range", "Choose 5 to 300 seconds.")


class _Listed(msgspec.Struct):
    result: msgspec.Raw
    total: int
    num_after_truncation: int


class _ListedData(msgspec.Struct):
    result: _Listed


class _Listing(msgspec.Struct):
    """Answer of the State API."""

    data: _ListedData


class _Version(msgspec.Struct):
    session_name: str


class _Node(msgspec.Struct):
    node_id: str
    node_ip: str
    state: str = ""


class _Actor(msgspec.Struct):
    class_name: str
    state: str
    job_id: str
    node_id: str | None = None
    pid: int | None = None
    name: str | None = None


class _Task(msgspec.Struct):
    state: str
    job_id: str
    node_id: str | None = None
    worker_pid: int | None = None


class _Submitted(msgspec.Struct):
    status: str
    job_id: str | None = None
    submission_id: str | None = None
    start_time: int | None = None
    end_time: int | None = None
    driver_exit_code: int | None = None


class _Worker(NamedTuple):
    job: str
    actor: str
    """Name of the actor, else its class; empty of a worker that runs tasks."""


class RayJobs:
    """Jobs of Ray with workers on the GPUs of this node."""

    name = NAME

    def __init__(self, config: RayConfig) -> None:
        """Nothing is opened before the first question."""
        self._config = config
        self.interval = config.interval
        self._owners: dict[ProcessId, Ownership] = {}
        self._jobs: dict[str, Job] = {}
        """Jobs with a worker on a GPU here, now or lately, by Ray's id."""
        self._cluster = ""

    def read(self, given: JobsInput) -> JobsAnswer:
        """Return the jobs of the workers that the driver lists."""
        workers = {each.process.pid: each for each in given.processes if _is_worker(each)}
        present = {each.id for each in workers.values()}
        try:
            self._set_cluster(self._ask("/api/version", _Version).session_name)
            self._owners = {its: owner for its, owner in self._owners.items() if its in present}
            problem = self._find(given, workers) if present - self._owners.keys() else ""
            self._follow(given.at)
        except HttpRequestError as error:
            return self._answer(_state_of(error))
        except ConfigError as error:
            return self._answer(JobSourceState(name=NAME, state="no permission", message=str(error)))
        return self._answer(JobSourceState(name=NAME, state="reading", message=problem))

    def close(self) -> None:
        """Nothing stays open between two questions."""

    def _answer(self, state: JobSourceState) -> JobsAnswer:
        return JobsAnswer(state=state, jobs=tuple(self._jobs.values()), owners=dict(self._owners))

    def _ask(self, path: str, kind: type[_Answer]) -> _Answer:
        config = self._config
        token = "" if config.token_file is None else read_token("jobs.ray.token_file", config.token_file)
        body = get(config.url, path, token=token, seconds=SECONDS)
        try:
            return of_json(kind).decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise HttpRequestError(f"{config.url}{path.partition('?')[0]} answers something else: {error}") from error

    def _list(self, what: str, kind: type[_Answer], **wanted: str) -> tuple[list[_Answer], bool]:
        """Return what the State API lists with these properties, and whether that is all."""
        filters = "".join(
            f"&filter_keys={key}&filter_predicates=%3D&filter_values={value}" for key, value in wanted.items()
        )
        answer = self._ask(f"/api/v0/{what}?limit={MOST_LISTED}{filters}", _Listing)
        its = answer.data.result
        try:
            found = of_json(list[kind]).decode(its.result)  # type: ignore[valid-type]
        except msgspec.DecodeError as error:
            raise HttpRequestError(f"{self._config.url} lists no {what}: {error}") from error
        return found, its.total <= its.num_after_truncation

    def _set_cluster(self, session: str) -> None:
        """Begin anew with another start of Ray: it counts its jobs from 1 again."""
        cluster = session.removeprefix("session_")
        if cluster != self._cluster:
            self._cluster, self._owners, self._jobs = cluster, {}, {}

    def _find(self, given: JobsInput, workers: Mapping[int, FoundProcess]) -> str:
        """Find the jobs of workers that are new; return what stands in the way."""
        nodes, _ = self._list("nodes", _Node, state="ALIVE")
        here, problem = self._here(nodes)
        if not here:
            return problem
        actors, all_actors = self._list("actors", _Actor, state="ALIVE")
        found = {
            actor.pid: _Worker(actor.job_id, actor.name or actor.class_name)
            for actor in actors
            if actor.pid and actor.node_id in here
        }
        all_tasks = True
        if not found.keys() >= workers.keys():
            tasks, all_tasks = self._list("tasks", _Task, state="RUNNING", type="NORMAL_TASK")
            for task in tasks:
                if task.worker_pid and task.node_id in here:
                    found.setdefault(task.worker_pid, _Worker(task.job_id, ""))
        for pid, process in workers.items():
            if (worker := found.get(pid)) is not None and process.id not in self._owners:
                key = JobKey(SCHEDULER, self._cluster, worker.job)
                self._owners[process.id] = Ownership(key, worker.actor, NAME)
                self._jobs.setdefault(worker.job, Job(key=key))
        if all_actors and all_tasks:
            return ""
        return f"Ray lists {MOST_LISTED} actors or tasks at most: some workers may have no job"

    def _here(self, nodes: Sequence[_Node]) -> tuple[frozenset[str], str]:
        """Return Ray's ids of this node, and why there are none."""
        wanted = self._config.address
        if wanted:
            ids = frozenset(each.node_id for each in nodes if each.node_ip == wanted)
            return ids, "" if ids else f"Ray has no node {wanted}: look at jobs.ray.address"
        near = (urlsplit(self._config.url).hostname or "") in _LOCAL
        its = {each.node_ip for each in nodes if _is_ours(each.node_ip, near=near)}
        if len(its) == 1:
            return frozenset(each.node_id for each in nodes if each.node_ip in its), ""
        found = "none" if not its else "more than one"
        return (frozenset(), f"{found} of Ray's nodes has an address of this machine: set jobs.ray.address")

    def _follow(self, at: int) -> None:
        """Take in names, times and ends of the jobs that have or had a worker here."""
        if not self._jobs:
            return
        for each in self._ask("/api/jobs/", list[_Submitted]):
            if each.job_id in self._jobs:
                self._jobs[each.job_id] = Job(
                    key=self._jobs[each.job_id].key,
                    name=each.submission_id or "",
                    begin=(each.start_time or 0) * 1_000_000,
                    end=0 if each.status in _RUNNING else (each.end_time or 0) * 1_000_000,
                    state=each.status,
                    exit_code=each.driver_exit_code,
                )
        used = {owner.job.id for owner in self._owners.values()}
        oldest = at - ENDED_SECONDS * 1e9
        self._jobs = {its: job for its, job in self._jobs.items() if its in used or not job.end or job.end > oldest}


def _is_worker(found: FoundProcess) -> bool:
    """Return whether a process calls itself a worker of Ray and no other scheduler, pod or container has it: the
    PIDs that Ray knows are then those of this machine."""
    if found.process.hidden or not found.process.name.startswith(RAY_TITLE):
        return False
    owner = found.owner
    return owner is None or owner.scheduler in {"user", "systemd"}


def _is_ours(address: str, *, near: bool) -> bool:
    """Return whether an address is this machine's: then a socket may be bound to it. A loopback address is where
    the dashboard is."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    if address.startswith("127.") or address == "::1":
        return near
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    return True


def _state_of(error: HttpRequestError) -> JobSourceState:
    if error.status in {401, 403}:
        text = f"{error}: the token is missing or not accepted; look at jobs.ray.token_file"
        return JobSourceState(name=NAME, state="no permission", message=text)
    return JobSourceState(name=NAME, state="failing", message=str(error))
