"""Real MQTT brokers for tests: Debian's mosquitto and the embedded rumqttd, on free ports.

Both can be killed with SIGKILL and started again on the same port, as the fault tests need.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import aiomqtt

from kilowatch.stack.broker import EmbeddedBroker
from telemetry.wire.mqtt import BrokerConfig
from tests.kit.waiting import FACTOR

PORTS = range(12_000, 32_000)
"""Below those that the kernel gives to connections, so that none of them takes one before it is used."""
_WORKERS = 8
"""Slices of `PORTS`: each worker of pytest counts in its own, and its children in the same."""


def _counted() -> Iterator[int]:
    """Count the ports of this worker upwards, from a place of this process, round and round."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _WORKERS
    size = len(PORTS) // _WORKERS
    begin = secrets.randbelow(size)
    for number in itertools.count(begin):
        yield PORTS[worker * size + number % size]


_NEXT_PORT = _counted()


def free_port() -> int:
    """Return a TCP port of the loopback address that is free now, and that no other worker of the tests gets; the
    same only after all others of the worker."""
    for port in _NEXT_PORT:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError


def wait_for_port(port: int, seconds: float = 20.0) -> None:
    """Wait until a loopback port accepts connections. Raises `TimeoutError`."""
    deadline = time.monotonic() + seconds * FACTOR
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.5):
            return
        time.sleep(0.02)
    raise TimeoutError(f"nobody listens on 127.0.0.1:{port} after {seconds} s")


def plain_client(broker: BrokerConfig) -> aiomqtt.Client:
    """Return a client as other programs are, with the user that the broker asks for."""
    username, password = broker.login()
    return aiomqtt.Client(broker.host, broker.port, username=username, password=password)


class Broker(Protocol):
    """What a test may do to a broker."""

    host: str
    port: int

    @property
    def config(self) -> BrokerConfig:
        """How a client enters."""

    def start(self) -> None:
        """Start, or start again on the same port; returns when it listens."""

    def kill(self) -> None:
        """Send SIGKILL: nothing is stored or reported."""


class Mosquitto:
    """Debian's mosquitto without persistence; `settings` are further lines of its file."""

    host = "127.0.0.1"

    def __init__(self, folder: Path, settings: str = "", *, anonymous: bool = True) -> None:
        self.port = free_port()
        self.config = BrokerConfig(host=self.host, port=self.port)
        self._file = folder / "mosquitto.conf"
        self._file.write_text(
            f"listener {self.port} 127.0.0.1\npersistence false\n"
            f"allow_anonymous {str(anonymous).lower()}\n"
            f"max_queued_messages 100000\nlog_type error\n{settings}\n" + ("user root\n" if os.geteuid() == 0 else "")
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        binary = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
        self._process = subprocess.Popen([binary, "-c", str(self._file)])
        wait_for_port(self.port)

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def signal(self, number: int) -> None:
        """Send any signal, SIGSTOP and SIGCONT for instance."""
        assert self._process is not None
        self._process.send_signal(number)


class Embedded:
    """The broker that `kilowatch run` starts: rumqttd, from the wheel `iotcore`."""

    host = "127.0.0.1"

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._broker = EmbeddedBroker(self.host, self.port, folder)
        self.config = self._broker.config

    def start(self) -> None:
        self._broker.start()

    def kill(self) -> None:
        self._broker.kill()
