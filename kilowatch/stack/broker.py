"""The embedded MQTT broker of `kilowatch run` and `demo`: rumqttd, in a process of its own.

For one machine; a cluster needs a maintained broker (docs/deploy.md). It speaks MQTT 3.1.1, stores
nothing over a restart (nothing needs to be stored: telemetry/frame.py), and binds to loopback by
default.
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
    """MQTT broker in a child process, which always ends with this process."""

    def __init__(self, host: str, port: int, folder: Path) -> None:
        self.host = host
        self.port = port
        self._file = folder / f"broker-{port}.toml"
        self._file.write_text(_SETTINGS.format(host=host, port=port))
        self._broker: Broker | None = None

    def start(self) -> None:
        """Start the broker and wait until it listens. Raises `BusError` when the port is taken."""
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

    def stop(self) -> None:
        """Stop the broker and free the port."""
        if self._broker is not None:
            self._broker.stop()
            self._broker = None
