"""The embedded MQTT broker of `kilowatch run` and `demo`: rumqttd, in a process of its own.

Good for one machine; a cluster wants a broker that is looked after (docs/deploy.md). It speaks
MQTT 3.1.1, keeps nothing over a restart (nothing needs to be kept: telemetry/frame.py), and is
bound to loopback unless told otherwise.
"""

from __future__ import annotations

import signal
from pathlib import Path

from iotcore import Broker

from telemetry.errors import BusError

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
"""


class EmbeddedBroker:
    """An MQTT broker in a child process; it ends with us, whatever ends us."""

    def __init__(self, host: str, port: int, folder: Path) -> None:
        self.host = host
        self.port = port
        self._file = folder / f"broker-{port}.toml"
        self._file.write_text(_SETTINGS.format(host=host, port=port))
        self._broker: Broker | None = None

    def start(self) -> None:
        """Start it and wait until it listens. Raises `BusError` when the port is taken."""
        self._broker = Broker(config_path=str(self._file))
        try:
            self._broker.start()
        except (OSError, RuntimeError) as error:
            raise BusError(
                f"the embedded broker can't listen on {self.host}:{self.port}: {error}. "
                "Is another kilowatch running? Choose another port with --broker-port."
            ) from error

    @property
    def pid(self) -> int | None:
        """The broker's process, for those who count its CPU."""
        process = self._broker and self._broker._process  # noqa: SLF001 - it has no other door
        return process.pid if process else None

    def kill(self) -> None:
        """SIGKILL, for tests of what happens then."""
        process = self._broker and self._broker._process  # noqa: SLF001
        if process:
            process.send_signal(signal.SIGKILL)
            process.wait()
            if process.stdin:
                process.stdin.close()
        self._broker = None

    def stop(self) -> None:
        """End it and free the port."""
        if self._broker is not None:
            self._broker.stop()
            self._broker = None
