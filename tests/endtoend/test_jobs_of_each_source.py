"""Jobs of a kubelet, of Ray, of a rootless container and of nobody's launcher on one node, over a kill -9 of the
aggregator: each once, on its own GPUs, and with the energy that the counters of these GPUs grew by."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pynvml
import pytest

from tests import podman
from tests.brokers import Mosquitto
from tests.fake_nvml import FakeDriver
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


class Registers:
    """Energy counters of all GPUs. Each draws 100 W times its number and one more, and three times that in each
    second second: no sum of samples is right."""

    def __init__(self, driver: FakeDriver) -> None:
        self._driver = driver
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._grow)
        self.begin = time.time()
        self.late = 0.0
        """Most seconds for which a register stood still."""

    def joules(self, gpu: int, at: float) -> float:
        """Return what a GPU has drawn by a time, seconds since 1970."""
        passed = at - self.begin
        return 100 * (gpu + 1) * (passed + 2 * (passed // 2 + max(0.0, passed % 2 - 1)))

    def __enter__(self) -> Registers:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _grow(self) -> None:
        before = time.time()
        while not self._ended.wait(0.1):
            now = time.time()
            self.late, before = max(self.late, now - before), now
            for gpu in range(GPUS):
                millijoules = int(1000 * self.joules(gpu, now))
                self._driver.field(
                    pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, millijoules, gpu=gpu
                )


class Node(Services):
    """A node's collector and an aggregator."""

    def __init__(self, folder: Path, broker: Mosquitto, driver: FakeDriver, jobs: str) -> None:
        super().__init__(folder, broker)
        self.gpus = {driver.uuid(number): number for number in range(GPUS)}
        (folder / "state").mkdir(mode=0o700)
        self.configure("n1", (
            f'[collector]\nnode = "n1"\nsource = "nvml"\ninterval = 0.5\nstate_dir = "{folder / "state"}"\n'
            f"node_readings = false\n[jobs]\ninterval = 1\nsame_pids = true\n{jobs}"
        ), driver.environment)  # fmt: skip
        self.configure("aggregator", (
            f'[aggregator]\nlisten = "{self.http}"\ndata_dir = "{folder / "data"}"\n'
            f"[aggregator.store]\nwrite_seconds = 0.2\n"
        ))  # fmt: skip

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


def test_each_job_is_listed_once_and_pays_for_what_its_gpus_drew(
    mosquitto: Mosquitto, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        application = stack.enter_context(ray.running())
        container = stack.enter_context(podman.running())
        process = stack.enter_context(sleeping())
        pods = stack.enter_context(kubelet.listening(tmp_path / "kubelet.sock"))
        driver = stack.enter_context(FakeDriver(tmp_path, gpus=GPUS))
        registers = stack.enter_context(Registers(driver))
        at_work: dict[int, dict[int, int]] = {
            CONTAINER: {container.pid: GIB},
            PROCESS: {process.pid: GIB},
        }
        for pid, (logical,) in (*application.actors, *application.tasks):
            at_work.setdefault(int(logical), {})[pid] = GIB
        for number in range(GPUS):
            driver.processes(number, compute=at_work.get(number))
        pods.pods = [
            pod("train-0", {"main": [("nvidia.com/gpu", [driver.uuid(gpu) for gpu in POD])]})
        ]
        node = Node(tmp_path, mosquitto, driver, (
            f'[jobs.kubernetes]\nsocket = "{tmp_path / "kubelet.sock"}"\n'
            f'[jobs.ray]\nurl = "{application.url}"\ntoken_file = "{application.token_file}"\ninterval = 5\n'
        ))  # fmt: skip
        stack.callback(node.close)
        node.start("aggregator")
        node.start("n1")

        held = {gpu: {"ray"} for gpu in at_work if gpu < min(POD)}
        assert len(held) == 3, "actors on one each, tasks together on a third"
        held |= {
            CONTAINER: {"container"},
            PROCESS: {"user"},
            **{gpu: {"kubernetes"} for gpu in POD},
        }
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
            truth = slack = 0.0
            for each in job["allocations"]:
                gpu, begin, end = node.gpus[each["gpu"]], each["begin"] / 1e9, each["end"] / 1e9
                assert end >= ended - ATTRIBUTED, "it did not end before it was ended"
                truth += registers.joules(gpu, end) - registers.joules(gpu, begin)
                slack += 2 * 300 * (gpu + 1) * registers.late
            found = job["summary"]["energy_joules"]
            assert abs(found - truth) <= 0.03 * truth + slack, (name, found, truth, slack)
            assert job["summary"]["energy_coverage"] >= 0.97
