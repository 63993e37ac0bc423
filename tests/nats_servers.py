"""Three real NATS servers on loopback, with JetStream and the MQTT door, for tests."""

from __future__ import annotations

import json
import secrets
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

from kilowatch.pki.nats_configuration import MQTT_TIMEOUT
from tests.brokers import free_port, wait_for_port
from tests.kit.waiting import wait_until

BINARY = shutil.which("nats-server", path=str(Path(sys.executable).parent)) or "nats-server"


class NatsServer:
    """A server; `kill` and `start` it at will."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder, self.name = folder / f"nats{number}", f"nats{number}"
        self.port, self.mqtt, self.route, self.http = (free_port() for _ in range(4))
        self.process: subprocess.Popen[bytes] | None = None

    def write(self, routes: list[str], cluster: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.config = self.folder / "nats.conf"
        self.config.write_text(
            f"server_name: {self.name}\nlisten: 127.0.0.1:{self.port}\n"
            f"http: 127.0.0.1:{self.http}\n"
            f"jetstream {{ store_dir: {json.dumps(str(self.folder / 'js'))}, max_mem: 64MB, "
            "max_file: 256MB, sync_interval: always }\n"
            f"mqtt {{ listen: 127.0.0.1:{self.mqtt}, {MQTT_TIMEOUT} }}\n"
            f"cluster {{ name: {cluster}, listen: 127.0.0.1:{self.route}, no_advertise: true, "
            f"routes: {json.dumps(routes)} }}\n"
        )

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen([BINARY, "-c", str(self.config)], stdout=log, stderr=log)

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()
            self.process = None

    def ask(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/{path}", timeout=5) as answer:
            return json.load(answer)


class NatsCluster:
    """Three servers that agree."""

    def __init__(self, folder: Path, count: int = 3) -> None:
        self.servers = [NatsServer(folder, number) for number in range(count)]

    @property
    def urls(self) -> list[str]:
        return [f"nats://127.0.0.1:{each.port}" for each in self.servers]

    @property
    def mqtt_hosts(self) -> list[str]:
        return [f"127.0.0.1:{each.mqtt}" for each in self.servers]

    def start(self) -> None:
        routes = [f"nats://127.0.0.1:{each.route}" for each in self.servers]
        name = f"test{secrets.token_hex(4)}"
        for each in self.servers:
            each.write(routes, name)
            each.start()
        for each in self.servers:
            wait_for_port(each.port)
            wait_for_port(each.mqtt)

    def stream_leader(self, stream: str) -> NatsServer:
        """Wait until a server leads a stream; return that one."""

        def led() -> str:
            living = next(each for each in self.servers if each.process is not None)
            details = living.ask("jsz?streams=true&accounts=true")["account_details"]
            its = [
                found["cluster"].get("leader", "")  # left out while they vote
                for account in details
                for found in account.get("stream_detail", ())
                if found["name"] == stream
            ]
            return next(iter(its), "")

        leader = wait_until(led, "a leader of the stream")
        return next(each for each in self.servers if each.name == leader)

    def kill(self) -> None:
        for each in self.servers:
            each.kill()
