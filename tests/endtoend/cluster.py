"""A small real cluster in processes of its own, that a test may kill part by part.

Collectors of the simulated two DGX H100 at five frames a second, an aggregator, and a broker. The
simulation is a pure function of (seed, start, node, tick), so that `audit` knows every value.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collector.simulated import Scenario, scenario
from tests.brokers import Broker, free_port
from tests.kit.waiting import FACTOR

INTERVAL = 0.2
NODES = ("dgx-01", "dgx-02")
FAULTS = "xid79@dgx-02/3+3s:4s"
"""A GPU falls off the bus for four seconds."""
LOST_UNTIL = 20
"""Ticks from the start in which a collector must have begun to see it go: through the third second."""
PATIENCE = 60.0


class Cluster:
    """Processes `kilowatch collect` and `kilowatch aggregate`, on a broker that a test gives."""

    seal_seconds = 3600.0
    program = "kilowatch"
    """Module that is started."""

    def __init__(
        self, folder: Path, broker: Broker, seed: int = 11, doors: Mapping[str, int] | None = None, collector: str = ""
    ) -> None:
        """`doors`: ports through which single parts reach the broker instead of its own;
        `collector`: more lines for the collectors' settings."""
        self.folder = folder
        self.broker = broker
        self.doors = doors or {}
        self.collector = collector
        self.http = f"127.0.0.1:{free_port()}"
        self.data = folder / "data"
        self.seed = seed
        self.start_tick = int(time.time() / INTERVAL)
        self.environments: dict[str, dict[str, str]] = {}
        """What single parts have in their environment beside ours."""
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.log = (folder / "processes.log").open("ab")
        for node in NODES:
            self._settings(node)
        self._settings("aggregator")

    @property
    def scenario(self) -> Scenario:
        """What the collectors simulate."""
        return scenario("two-dgx-h100", seed=self.seed, start_tick=self.start_tick, interval=INTERVAL, faults=FAULTS)

    def state_dir(self, node: str) -> Path:
        """Where a collector keeps its ring."""
        return self.folder / node

    def _settings(self, name: str) -> None:
        source = f"simulated:two-dgx-h100/{name}?seed={self.seed}&start={self.start_tick}&faults={FAULTS}"
        (self.folder / f"{name}.toml").write_text(
            f'[broker]\nhost = "{self.broker.host}"\nport = {self.doors.get(name, self.broker.port)}\n'
            f'[aggregator]\nlisten = "{self.http}"\ndata_dir = "{self.data}"\n'
            f"[aggregator.store]\nwrite_seconds = 0.2\nseal_seconds = {self.seal_seconds}\n"
            f'[collector]\nnode = "{name}"\nsource = "{source}"\ninterval = {INTERVAL}\n'
            f'slow_interval = 1.0\nstate_dir = "{self.state_dir(name)}"\n{self.collector}\n'
        )

    def start(self, name: str) -> None:
        """Start a node's collector or the `aggregator`."""
        command = "aggregate" if name == "aggregator" else "collect"
        self.processes[name] = subprocess.Popen(
            [sys.executable, "-m", self.program, command, "--config", str(self.folder / f"{name}.toml")],
            stdout=self.log,
            stderr=self.log,
            env=os.environ | self.environments.get(name, {}),
        )

    def kill(self, name: str) -> None:
        """SIGKILL."""
        process = self.processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def end(self, name: str, seconds: float = 20.0) -> int:
        """SIGTERM; returns the exit code."""
        process = self.processes.pop(name)
        process.send_signal(signal.SIGTERM)
        return process.wait(seconds)

    def end_all(self) -> None:
        """Leave nothing behind."""
        for name in list(self.processes):
            self.kill(name)
        self.log.close()

    def get(self, path: str) -> Any:
        """Ask the aggregator; None while it does not serve."""
        try:
            with urllib.request.urlopen(f"http://{self.http}{path}", timeout=5 * FACTOR) as answer:
                body = answer.read()
        except urllib.error.HTTPError:
            return None
        except OSError:
            return None
        return body.decode() if path.startswith("/metrics") else json.loads(body)

    def sample(self, name: str) -> float:
        """Return the sum of one series of /metrics, 0 without a server."""
        page = self.get("/metrics") or ""
        return sum(
            float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.split("{")[0].split(" ")[0] == name
        )
