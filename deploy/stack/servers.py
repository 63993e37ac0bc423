"""The servers of the stack, each started from its shipped configuration in a folder of its own.

A configuration is copied with the requested ports and intervals and is otherwise unchanged.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

DEPLOY = Path(__file__).parents[1]
PORTS = {
    "mosquitto": 1883,
    "influxd": 8086,
    "influxd backup": 8088,
    "prometheus": 9090,
    "alertmanager": 9093,
    "kilowatch": 9400,
}
"""Ports in the shipped files."""
FILES = (
    "stack/mosquitto.conf",
    "stack/influxdb.conf",
    "stack/kilowatch.toml",
    "prometheus/prometheus.yml",
    "prometheus/alertmanager.yml",
    "prometheus/kilowatch.rules.yml",
    "prometheus/kilowatch-power.rules.yml",
)
NODES = ("dgx-01", "dgx-02")
PACKAGES = {
    "mosquitto": "mosquitto",
    "influxd": "influxdb",
    "prometheus": "prometheus",
    "prometheus-alertmanager": "prometheus-alertmanager",
}
"""Programs, and the Debian packages that contain them."""
_SECONDS = 30.0


class StackError(Exception):
    """Failure of the stack: the text names what is missing or did not start, and the remedy."""


def missing() -> list[str]:
    """Return the packages that are not installed."""
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin"))
    return [package for name, package in PACKAGES.items() if shutil.which(name, path=path) is None]


def _found(program: str) -> str:
    """Return the path of a program of mosquitto's package, which Debian keeps off a user's PATH."""
    return shutil.which(program) or f"/usr/sbin/{program}"


@dataclass(slots=True)
class Stack:
    """The processes of the stack: mosquitto, influxd, Alertmanager, Prometheus, the aggregator and two collectors."""

    folder: Path
    ports: Mapping[str, int] = field(default_factory=lambda: dict(PORTS))
    scrape: str = "15s"
    faults: str = ""
    """Faults of the simulated machines, as in `kilowatch demo --faults`."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Texts that replace shipped files, by file name."""
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def url(self, name: str) -> str:
        """Return the base URL of a server."""
        return f"http://127.0.0.1:{self.ports[name]}"

    def start(self) -> None:
        """Start all processes and wait until each server listens. Raises `StackError`."""
        lacking = missing()
        if lacking:
            raise StackError(f"not installed: {' '.join(lacking)}. sudo apt-get install {' '.join(lacking)}")
        self._write()
        for name, command in self._servers().items():
            self._run(name, command)
        for name, port in self.ports.items():
            if name != "kilowatch":
                self._wait(name.split()[0], port)
        self._kilowatch("kilowatch", "aggregate", self.folder / "kilowatch.toml")
        self._wait("kilowatch", self.ports["kilowatch"])
        for node in NODES:
            self._kilowatch(node, "collect", self._collector(node))

    def _write(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        password, users = self.folder / "broker.password", self.folder / "broker.users"
        for path in (password, users):
            path.touch(0o600)
        password.write_text(secrets.token_urlsafe(32), "utf-8")
        users.write_text(f"kilowatch:{password.read_text('utf-8')}\n", "utf-8")
        subprocess.run((_found("mosquitto_passwd"), "-U", users), check=True)  # hashes them
        for file in FILES:
            name = Path(file).name
            text = self.settings.get(name) or (DEPLOY / file).read_text("utf-8")
            if name == "mosquitto.conf" and os.geteuid() == 0:
                text += "user root\n"  # else it switches to a user that can't read this folder
            (self.folder / name).write_text(self._adapted(text), "utf-8")

    def _adapted(self, text: str) -> str:
        """Replace the shipped ports and intervals."""
        ports = {str(PORTS[name]): str(port) for name, port in self.ports.items()}
        text = re.sub(r"\b\d{4}\b", lambda found: ports.get(found[0], found[0]), text)
        return re.sub(r"(_interval:) 15s", rf"\1 {self.scrape}", text).replace(
            "refresh_interval: 30s", f"refresh_interval: {self.scrape}"
        )

    def _servers(self) -> dict[str, Sequence[str]]:
        return {
            "mosquitto": (_found("mosquitto"), "-c", "mosquitto.conf"),
            "influxd": ("influxd", "-config", "influxdb.conf"),
            "alertmanager": (
                "prometheus-alertmanager", "--config.file=alertmanager.yml",
                "--storage.path=alertmanager", "--cluster.listen-address=",
                f"--web.listen-address=127.0.0.1:{self.ports['alertmanager']}", "--log.level=warn",
            ),
            "prometheus": (
                "prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=prometheus",
                f"--web.listen-address=127.0.0.1:{self.ports['prometheus']}", "--log.level=warn",
            ),
        }  # fmt: skip

    def _collector(self, node: str) -> Path:
        path = self.folder / f"{node}.toml"
        faults = f"?faults={self.faults}" if self.faults else ""
        path.write_text(
            f'cluster = "stack"\n[broker]\nhost = "127.0.0.1"\nport = {self.ports["mosquitto"]}\n'
            'username = "kilowatch"\npassword_file = "broker.password"\n'
            f'[collector]\nnode = "{node}"\nsource = "simulated:two-dgx-h100/{node}{faults}"\n'
            f'state_dir = "{node}"\n',
            "utf-8",
        )
        return path

    def _kilowatch(self, name: str, command: str, config: Path) -> None:
        self._run(name, (sys.executable, "-m", "kilowatch", command, "--config", config.name))

    def _run(self, name: str, command: Sequence[str]) -> None:
        environment = os.environ | {"PYTHONPATH": str(DEPLOY.parent)}
        with (self.folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
            )

    def _wait(self, name: str, port: int) -> None:
        deadline = time.monotonic() + _SECONDS
        while time.monotonic() < deadline:
            if self._running[name].poll() is not None:
                break
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.5):
                return
            time.sleep(0.05)
        log = (self.folder / f"{name}.log").read_text("utf-8", "replace").strip()[-2000:]
        raise StackError(f"{name} does not listen on port {port}. Its log ends:\n{log}")

    def check(self) -> None:
        """Raise `StackError` when a process has ended by itself."""
        for name, process in self._running.items():
            if process.poll() is not None:
                raise StackError(f"{name} has ended; its log is {self.folder / name}.log")

    def stop(self) -> None:
        """End all processes, the newest first: collectors, aggregator, servers."""
        for process in reversed(self._running.values()):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running.clear()
