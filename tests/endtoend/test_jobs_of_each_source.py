"""Jobs of a kubelet, of Ray, of a rootless container and of nobody's launcher on one node, over a kill -9 of the
aggregator: each once, on its own GPUs, and with the energy that the counters of these GPUs grew by."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests import podman
from tests.brokers import Mosquitto
from tests.fake_nvml import FakeDriver
from tests.fake_nvml.registers import Registers
from tests.kit.services import Services
from tests.kit.waiting import wait_until
from tests.kubernetes import kubelet
from tests.kubernetes.kubelet import pod
from tests.podman import needs_podman
from tests.ray import runtime as ray
from tests.ray.runtime import needs_ray

pytestmark = [pytest.mark.systems, needs_ray, needs_podman]
GPUS = 8
POD, CONTAINER, PROCESS = (4, 5), 6, 7
"""GPUs of each; Ray has three of the first four."""
GIB = 1 << 30
ATTRIBUTED = 10.0
"""Seconds after which a job is listed or ended at the latest: twice the interval of kubelet and Ray."""


class Node(Services):
    """A node's collector and an aggregator."""

    def __init__(self, folder: Path, broker: Mosquitto, driver: FakeDriver, jobs: str) -> None:
        super().__init__(folder, broker)
        self.gpus = {driver.uuid(number): number for number in range(GPUS)}
        (folder / "state").mkdir(mode=0o700)
        self.configure(
            "n1",
            (
                f'[collector]\nnode = "n1"\nsource = "nvml"\ninterval = 0.5\nstate_dir = "{folder / "state"}"\n'
                f"node_readings = false\n[jobs]\ninterval = 1\nsame_pids = true\n{jobs}"
            ),
            driver.environment,
        )
        self.configure(
            "aggregator",
            (
                f'[aggregator]\nlisten = "{self.http}"\ndata_dir = "{folder / "data"}"\n'
                f"[aggregator.store]\nwrite_seconds = 0.2\n"
            ),
        )

    def jobs(self) -> dict[str, dict[str, Any]]:
        """Return all jobs by their scheduler, with the allocations of each. Raises where one has two."""
        found: dict[str, dict[str, Any]] = {}
        for row in (self.get("/api/v1/jobs") or {}).get("jobs", ()):
            assert row["scheduler"] not in found, (row, found)
            run = f"scheduler={row['scheduler']}"
            reply = self.get(f"/api/v1/jobs/{quote(row['id'], safe='')}?{run}") or {}
            found[row["scheduler"]] = row | {"allocations": reply.get("allocations", [])}
        return found

    def holders(self) -> dict[int, set[str]]:
        """Return the schedulers of the jobs that hold each GPU now."""
        held: dict[int, set[str]] = {}
        for name, job in self.jobs().items():
            for each in job["allocations"]:
                if each["end"] is None:
                    held.setdefault(self.gpus[each["gpu"]], set()).add(name)
        return held

    def log(self) -> str:
        """Return the end of what both have written, and what is shown."""
        return f"{super().log()}\n{json.dumps(self.get('/api/v1/jobs'))}"


@contextmanager
def sleeping() -> Iterator[subprocess.Popen[bytes]]:
    """A process that no launcher knows."""
    with subprocess.Popen(["sleep", "3600"], start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


def ended_by_counters(node: Node, count: int) -> dict[str, dict[str, Any]]:
    """Return the jobs once all have ended, and the energy of each is that of the counters."""
    jobs = node.jobs()
    whole = len(jobs) == count and all(
        job["end"] and job["summary"]["energy_from"] == "counters" for job in jobs.values()
    )
    return jobs if whole else {}


def test_each_job_is_listed_once_and_pays_for_what_its_gpus_drew(mosquitto: Mosquitto, tmp_path: Path) -> None:
    with ExitStack() as stack:
        application = stack.enter_context(ray.running())
        container = stack.enter_context(podman.running())
        process = stack.enter_context(sleeping())
        pods = stack.enter_context(kubelet.listening(tmp_path / "kubelet.sock"))
        driver = stack.enter_context(FakeDriver(tmp_path, gpus=GPUS))
        registers = stack.enter_context(Registers(driver, GPUS))
        at_work: dict[int, dict[int, int]] = {CONTAINER: {container.pid: GIB}, PROCESS: {process.pid: GIB}}
        for pid, (logical,) in (*application.actors, *application.tasks):
            at_work.setdefault(int(logical), {})[pid] = GIB
        for number in range(GPUS):
            driver.processes(number, compute=at_work.get(number))
        pods.pods = [pod("train-0", {"main": [("nvidia.com/gpu", [driver.uuid(gpu) for gpu in POD])]})]
        node = Node(
            tmp_path,
            mosquitto,
            driver,
            (
                f'[jobs.kubernetes]\nsocket = "{tmp_path / "kubelet.sock"}"\n'
                f'[jobs.ray]\nurl = "{application.url}"\ntoken_file = "{application.token_file}"\ninterval = 5\n'
            ),
        )
        stack.callback(node.close)
        node.start("aggregator")
        node.start("n1")

        held = {gpu: {"ray"} for gpu in at_work if gpu < min(POD)}
        assert len(held) == 3, "actors on one each, tasks together on a third"
        held |= {CONTAINER: {"container"}, PROCESS: {"user"}, **{gpu: {"kubernetes"} for gpu in POD}}
        wait_until(lambda: node.holders() == held, node.log)
        begun = time.time()
        wait_until(lambda: time.time() > begun + 12)
        node.kill("aggregator")
        killed = time.time()
        wait_until(lambda: time.time() > killed + 6)
        node.start("aggregator")
        wait_until(lambda: node.holders() == held and time.time() > killed + 12, node.log)

        ended = time.time()
        application.finish()
        container.kill()
        process.kill()
        process.wait()
        pods.pods = []
        for number in range(GPUS):
            driver.processes(number)
        jobs = wait_until(lambda: ended_by_counters(node, 4), node.log)
        for name, job in jobs.items():
            ends = [each["end"] / 1e9 for each in job["allocations"]]
            assert min(ends) >= ended - ATTRIBUTED, "it did not end before it was ended"
            truth, slack = registers.of(job["allocations"], node.gpus)
            found = job["summary"]["energy_joules"]
            assert abs(found - truth) <= 0.03 * truth + slack, (name, found, truth, slack)
            assert job["summary"]["energy_coverage"] >= 0.97
