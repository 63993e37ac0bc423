"""A site of Slurm as kilowatch sees it: two collectors on scripted drivers, and an aggregator that asks Slurm.

A job of it runs a real process on each of its nodes and says which (`WORK`); `drive` makes that process known to the
driver of its node, on the GPUs that Slurm gave the job.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.brokers import Broker
from tests.fake_nvml import FakeDriver
from tests.kit.services import Services
from tests.kit.waiting import FACTOR
from tests.slurm.cluster import SlurmCluster

GIB = 1 << 30
PATIENCE = 240.0
"""Seconds: more than any machine needs; no test waits for it."""
WORK = 'd={folder}/.$SLURM_JOB_ID; echo "$SLURM_JOB_GPUS $$" > $d; mv $d {folder}/$SLURM_JOB_ID.$SLURMD_NODENAME; exec sleep 600'


class SlurmSite(Services):
    """Collectors and an aggregator in processes of their own; a test may kill and start each."""

    def __init__(
        self,
        folder: Path,
        broker: Broker,
        slurm: SlurmCluster,
        *,
        rules: str = "",
        clocks: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """`rules`: of the site's own; `clocks`: environment of the collectors that have a clock of their own, by node."""
        super().__init__(folder, broker)
        self.slurm = slurm
        self.busy: dict[str, int] = {}
        """Use of their GPUs by the processes of some jobs, percent by number; of the others nobody knows it."""
        (folder / "rules.toml").write_text(rules)
        self.work = folder / "work"
        self.work.mkdir()
        self.drivers = {node: FakeDriver(folder / node, gpus=4) for node in slurm.nodes}
        self._driven: dict[str, dict[str, tuple[int, list[int]]]] = {node: {} for node in slurm.nodes}
        self._told: dict[tuple[str, str], int] = {}
        self._gone: dict[tuple[str, str], int] = {}
        self._slowest = 0.0
        self.numbers: dict[str, int] = {}
        """Number of each GPU by its UUID, which no GPU of another node has."""
        for place, (node, driver) in enumerate(self.drivers.items()):
            for gpu in range(4):
                uuid = f"GPU-{place:08}{driver.uuid(gpu)[12:]}"
                self.numbers[uuid] = gpu
                driver.call("nvmlDeviceGetUUID", uuid, gpu=gpu)
                driver.processes(gpu)
            (folder / node / "kernel.log").touch()
            self.configure(
                node,
                (
                    f'[collector]\nnode = "{node}"\nsource = "nvml"\ninterval = 0.5\nstate_dir = "{folder / node}"\n'
                    f'kernel_log = "{folder / node}/kernel.log"\nnode_readings = false\n'
                    f"[jobs]\ninterval = 1\nsame_pids = true\n"
                    f'[jobs.slurm]\nfolder = "{slurm.folder}/jobs-{node}"\ngres_file = "{slurm.folder}/gres.conf"\n'
                ),
                {**driver.environment, **(clocks or {}).get(node, {})},
            )
        accounting = (slurm.folder / "database").exists()
        self.configure(
            "aggregator",
            (
                f'[aggregator]\nlisten = "{self.http}"\ndata_dir = "{folder / "data"}"\n'
                f'rules = ["{folder / "rules.toml"}"]\n[aggregator.store]\nwrite_seconds = 0.2\n'
                f"[aggregator.slurm]\nenabled = true\ninterval = 1\ndeadline = 60\naccounting = {str(accounting).lower()}\n"
                f'conf_file = "{slurm.folder}/slurm.conf"\ngres_file = "{slurm.folder}/gres.conf"\n'
            ),
        )

    def close(self) -> None:
        """End all in order."""
        super().close()
        for driver in self.drivers.values():
            driver.close()

    def jobs(self) -> dict[str, dict[str, Any]]:
        """Return the newest run of each job of Slurm by its id."""
        found: dict[str, dict[str, Any]] = {}
        for row in (self.get("/api/v1/jobs") or {}).get("jobs", ()):
            known = found.get(row["id"])
            if row["scheduler"] == "slurm" and (known is None or known["restart"] < row["restart"]):
                found[row["id"]] = row
        return found

    def job(self, number: str, restart: int | None = None) -> dict[str, Any] | None:
        """Return all about a job."""
        run = "" if restart is None else f"&restart={restart}"
        reply: dict[str, Any] | None = self.get(f"/api/v1/jobs/{number}?scheduler=slurm{run}")
        return reply

    def until(self, what: str, so: Callable[[], object]) -> None:
        """Drive the drivers until something is so."""
        end = time.monotonic() + PATIENCE * FACTOR
        while True:
            self.drive()
            if so():
                return
            if time.monotonic() > end:
                raise AssertionError(
                    f"{self.log()}\n{json.dumps(self.jobs())}\n{self.slurm.words()}\n{what} did not come"
                )
            asleep = time.monotonic()
            time.sleep(0.25)
            self._slowest = max(self._slowest, time.monotonic() - asleep - 0.25)

    def drive(self) -> None:
        """Tell the drivers of the processes that jobs have begun, and of those that are gone."""
        for node, driver in self.drivers.items():
            now = {}
            for path in self.work.glob(f"[0-9]*.{node}"):
                gpus, pid = path.read_text().split(" ")
                if gpus and Path(f"/proc/{int(pid)}").exists():
                    now[path.name] = (int(pid), [3 - int(gpu) for gpu in gpus.split(",")])
            before = self._driven[node]
            if now != before:
                self._driven[node] = now
                for gpu in range(4):
                    there = {name.partition(".")[0]: pid for name, (pid, gpus) in now.items() if gpu in gpus}
                    busy = {pid: self.busy[name] for name, pid in there.items() if name in self.busy}
                    driver.processes(gpu, compute=dict.fromkeys(there.values(), GIB), busy=busy or None)
                for name, found in now.items():
                    if before.get(name) != found:
                        self._told[node, name.partition(".")[0]] = time.time_ns()
                for name in before.keys() - now.keys():
                    self._gone[node, name.partition(".")[0]] = time.time_ns()

    def told(self, node: str, number: str, *, gone: bool = False) -> int:
        """Return when the driver of a node had been told of the newest process of a job, or that it was gone; ns
        since 1970."""
        return (self._gone if gone else self._told)[node, number]

    def remembers(self, node: str, *numbers: str) -> bool:
        """Return whether the collector of a node has on disk that processes of jobs use its GPUs."""
        file = self.folder / node / "jobs.json"
        opened = json.loads(file.read_bytes())["open"] if file.exists() else ()
        found = {each["allocation"]["job"]["id"] for each in opened if each["allocation"]["kind"] == "used"}
        return found >= set(numbers)

    def late(self, seconds: float) -> float:
        """Return nanoseconds that something may take that takes some seconds on a machine that is in time: where
        it is not, as many more as the test itself has been late."""
        return (seconds + 4 * self._slowest) * 1e9

    def submit(self, *options: str, work: str = "") -> str:
        """Submit a job that runs a process of its own on its GPUs, or `work`."""
        script = work or WORK.format(folder=self.work)
        return self.slurm.submit(script, "-A", "physics", *options)

    def given(self, number: str) -> Mapping[str, set[int]]:
        """Return the numbers of the GPUs that a job holds now by node, as the aggregator has them."""
        reply = self.job(number)
        found: dict[str, set[int]] = {}
        for row in (reply or {}).get("allocations", ()):
            if row["kind"] == "allocated" and row["end"] is None:
                found.setdefault(row["node"], set()).add(self.numbers[row["gpu"]])
        return found
