"""The embedded MQTT broker of `kilowatch run` and `demo`: rumqttd, in a process of its own.

For one machine; a cluster needs a maintained broker (docs/deploy.md). It has one user, whose password
is made at each start and found by programs of the same user of the machine (`telemetry.files.local_token`);
it knows no access list, so whoever has the password may publish anything. It speaks MQTT 3.1.1, stores
nothing over a restart (nothing needs to be stored: telemetry/wire/frame.py), and binds to loopback by
default.
"""

from __future__ import annotations

import json
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from iotcore import Broker

from kilowatch.stack.ports import is_free
from telemetry.errors import BusError
from telemetry.files import local_token, private_file
from telemetry.wire.mqtt import EMBEDDED_USER, BrokerConfig

log = logging.getLogger(__name__)
METERS_USER = "meters"
ALL_ADDRESSES = "0.0.0.0"  # noqa: S104 - plugs reach it over the network

_SETTINGS = """\
id = 0

[router]
id = 0
max_connections = 20000
max_outgoing_packet_count = 1000
max_segment_size = 16777216
max_segment_count = 4

[v4.main]
name = "main"
listen = "{host}:{port}"
next_connection_delay_ms = 0
[v4.main.connections]
connection_timeout_ms = 60000
max_payload_size = 8388608
max_inflight_count = 1000
dynamic_filters = true
[v4.main.connections.auth]
{user} = "{password}"
"""


def client_of(host: str, port: int, folder: Path) -> BrokerConfig:
    """Return how the parts of one stack connect to their broker, whose files are in `folder`."""
    return BrokerConfig(host=host, port=port, username=EMBEDDED_USER, password_file=folder / f"broker-{port}.password")


def meters_of(port: int, folder: Path) -> BrokerConfig:
    """Return how the aggregator connects to the broker of meters, whose password its owner may write."""
    return BrokerConfig(host="127.0.0.1", port=port, username=METERS_USER, password_file=folder / "meters.password")


def _escaped(text: str) -> str:
    """Return text as TOML has it between quotation marks."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


class EmbeddedBroker:
    """MQTT broker in a child process, which always ends with this process."""

    def __init__(self, host: str, port: int, folder: Path, *, own: bool = True, option: str = "--broker-port") -> None:
        """`folder`: its settings and its password are written there at the start. `own`: for the parts of this stack;
        else for meters on the network, whose password lasts. `option` names its port."""
        self.host = host
        self.port = port
        self._own, self._option = own, option
        self.config = client_of(host, port, folder) if own else meters_of(port, folder)
        self._folder = folder
        self._password = local_token.make()
        self._published = ExitStack()
        self._broker: Broker | None = None

    def start(self) -> None:
        """Start the broker and wait until it listens. Raises `BusError` when the port is taken."""
        if not is_free(self.host, self.port):  # before files of a broker that runs are replaced
            raise self._refused("the port is taken")
        try:
            self._broker = Broker(config_path=str(self._write()))
            with _child_keeps_signals_waiting():
                self._broker.start()
        except (OSError, RuntimeError) as error:
            raise self._refused(error) from error
        self._publish()

    def _refused(self, problem: object) -> BusError:
        return BusError(
            f"the embedded broker can't listen on {self.host}:{self.port}: {problem}. "
            f"Is another kilowatch running? Choose another port with {self._option}."
        )

    def _write(self) -> Path:
        """Write settings and password; return the settings."""
        private_file.claim_folder(self._folder)
        file = self._folder / f"broker-{self.port}.toml"
        password_file = self.config.password_file
        assert password_file is not None  # noqa: S101 - both kinds name one
        if not self._own and password_file.exists():
            self._password = self.config.password() or self._password
        else:
            os.close(private_file.write(password_file, f"{self._password}\n"))
        text = _SETTINGS.format(
            host=self.host, port=self.port, user=self.config.username, password=_escaped(self._password)
        )
        os.close(private_file.write(file, text))
        return file

    def _publish(self) -> None:
        """Write our own password where programs of this user find it, `kilowatch tap` for instance."""
        if not self._own:
            return
        self._published.close()
        try:
            self._published.enter_context(
                local_token.published(
                    local_token.state_folders()[0], [(self.host, self.port)], self._password, local_token.BROKERS
                )
            )
        except (OSError, IndexError) as error:
            log.warning(
                "other programs do not find the broker's password by themselves (%s): set "
                'broker.username = "%s" and broker.password_file = "%s"',
                error,
                EMBEDDED_USER,
                self.config.password_file,
            )

    @property
    def pid(self) -> int | None:
        """Process id of the broker, to measure its CPU time."""
        process = self._broker and self._broker._process  # noqa: SLF001 - there is no public attribute
        return process.pid if process else None

    def kill(self) -> None:
        """Kill the broker with SIGKILL, for tests."""
        process = self._broker and self._broker._process  # noqa: SLF001
        if process:
            process.send_signal(signal.SIGKILL)
            process.wait()
            if process.stdin:
                process.stdin.close()
        self._broker = None
        self._published.close()

    def stop(self) -> None:
        """Stop the broker and free the port."""
        self._published.close()
        process = self._broker and self._broker._process  # noqa: SLF001
        if process:
            process.kill()  # it has nothing to store, and does not take SIGTERM
        if self._broker is not None:
            self._broker.stop()
            self._broker = None


@contextmanager
def _child_keeps_signals_waiting() -> Iterator[None]:
    """Have a child that this thread starts take neither SIGTERM nor SIGINT: a terminal and systemd send
    them to the whole group, and the last frames still have to pass through it. It ends with our end of its
    standard input."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
