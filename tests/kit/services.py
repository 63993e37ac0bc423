"""Collectors and an aggregator of a test in processes of their own, of which it may kill and start each."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.brokers import Broker, free_port


class Services:
    """Processes `kilowatch collect` and `kilowatch aggregate`, each with a file of settings of its name in a folder."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.folder = folder
        self.http = f"127.0.0.1:{free_port()}"
        self._broker = broker
        self._environments: dict[str, Mapping[str, str]] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._log = (folder / "processes.log").open("ab")

    def configure(self, name: str, text: str, environment: Mapping[str, str] | None = None) -> None:
        """Write the settings of a node's collector or of the `aggregator`, and keep what is in its environment beside
        ours."""
        self._environments[name] = environment or {}
        (self.folder / f"{name}.toml").write_text(
            f'[broker]\nhost = "{self._broker.host}"\nport = {self._broker.port}\n{text}'
        )

    def start(self, name: str) -> None:
        """Start the collector of a node, or the `aggregator`."""
        command = "aggregate" if name == "aggregator" else "collect"
        self._processes[name] = subprocess.Popen(
            [sys.executable, "-m", "kilowatch", command, "--config", str(self.folder / f"{name}.toml")],
            env={**os.environ, **self._environments[name]},
            stdout=self._log,
            stderr=self._log,
        )

    def kill(self, name: str) -> None:
        """SIGKILL."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def close(self) -> None:
        """End all in order."""
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self._processes.values():
            process.wait(60)
        self._log.close()

    def get(self, path: str) -> Any:
        """Ask the aggregator; None while it does not serve, and for what it does not know."""
        try:
            with urllib.request.urlopen(f"http://{self.http}{path}", timeout=30) as answer:
                return json.loads(answer.read())
        except (urllib.error.HTTPError, OSError):
            return None

    def log(self) -> str:
        """Return the end of what all have written."""
        return (self.folder / "processes.log").read_text(errors="replace")[-2000:]
