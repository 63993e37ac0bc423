"""A real cluster with circuits: mosquitto, `kilowatch aggregate`, `kilowatch collect`, and meters.

Holds of the electrical rules are divided, so that what takes minutes at night takes seconds here; their
ends only by two, for the simulated jobs dip for two seconds in ten. Levels, windows and everything else
are as shipped.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.brokers import Broker, free_port

SHIPPED = Path(__file__).parents[2] / "alerts" / "rules" / "circuit_rules.toml"
DIVIDE = {"hold": 20.0, "keep": 2.0}


def hurried(text: str) -> str:
    """Return rules whose times are divided."""
    return re.sub(
        r"^(hold|keep) = ([\d.]+)$",
        lambda match: f"{match[1]} = {float(match[2]) / DIVIDE[match[1]]:g}",
        text,
        flags=re.MULTILINE,
    )


class Plant:
    """Processes on a broker that a test gives; `power` is the text of the [power] tables."""

    def __init__(self, folder: Path, broker: Broker, power: str) -> None:
        self.folder, self.broker = folder, broker
        self.http = f"127.0.0.1:{free_port()}"
        self.settings = folder / "aggregator.toml"
        (folder / "hurried_rules.toml").write_text(hurried(SHIPPED.read_text()))
        self.configure(power)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.log = (folder / "processes.log").open("ab")

    def configure(self, power: str) -> None:
        """Write the settings anew."""
        self.settings.write_text(
            f'[broker]\nhost = "{self.broker.host}"\nport = {self.broker.port}\n'
            f'[aggregator]\nlisten = "{self.http}"\ndata_dir = "{self.folder / "data"}"\n'
            f'rules = ["{self.folder / "hurried_rules.toml"}"]\n{power}'
        )

    def aggregate(self) -> None:
        """Start the aggregator."""
        self._start("aggregator", "aggregate", "--config", str(self.settings))

    def collect(self, node: str, source: str) -> None:
        """Start a node."""
        path = self.folder / f"{node}.toml"
        path.write_text(
            f'[broker]\nhost = "{self.broker.host}"\nport = {self.broker.port}\n'
            f'[collector]\nnode = "{node}"\nsource = "{source}"\ninterval = 1.0\n'
            f'slow_interval = 2.0\nstate_dir = "{self.folder / node}"\n'
        )
        self._start(node, "collect", "--config", str(path))

    def _start(self, name: str, *arguments: str) -> None:
        self.processes[name] = subprocess.Popen(
            [sys.executable, "-m", "kilowatch", "-v", *arguments],
            stdout=self.log,
            stderr=self.log,
            stdin=subprocess.DEVNULL,
        )

    def signal(self, name: str, number: int) -> None:
        """Send any signal."""
        self.processes[name].send_signal(number)

    def kill(self, name: str) -> None:
        """SIGKILL."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def end(self, name: str) -> int:
        """SIGTERM; returns the exit code."""
        process = self.processes.pop(name)
        process.send_signal(signal.SIGTERM)
        return process.wait(20)

    def end_all(self) -> None:
        """Leave nothing behind."""
        for name in list(self.processes):
            self.kill(name)
        self.log.close()

    def get(self, path: str) -> Any:
        """Ask the aggregator; None while it does not serve."""
        try:
            with urllib.request.urlopen(f"http://{self.http}{path}", timeout=5) as answer:
                return json.loads(answer.read())
        except (urllib.error.HTTPError, OSError):
            return None

    def circuits(self) -> dict[str, Any]:
        """Every circuit by its name."""
        found = self.get("/api/v1/circuits")
        return {} if found is None else {c["id"]: c for c in found["circuits"]}

    def told(self) -> dict[str, set[str]]:
        """Ids of all electrical rules that fire and are not suppressed, by the circuit, supply, budget, UPS or
        node that they fire on."""
        found: dict[str, set[str]] = {}
        answer = self.get("/api/v1/alerts?state=firing&standing=told")
        for alert in answer["alerts"] if answer else ():
            if re.fullmatch(r"E\d\d", alert["id"]):
                found.setdefault(alert["name"] or alert["node"], set()).add(alert["id"])
        return found

    def alerts(self, **asked: str) -> list[dict[str, Any]]:
        """Alerts that fire."""
        query = "&".join(f"{name}={value}" for name, value in asked.items())
        answer = self.get(f"/api/v1/alerts?state=firing&{query}")
        return list(answer["alerts"]) if answer else []


def stays(ready: Any, seconds: float) -> bool:
    """Whether a condition holds all the time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not ready():
            return False
        time.sleep(0.1)
    return True
