"""Settings of a collector, with defaults that work on any node."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

import msgspec

from collector.jobs.config import JobsConfig
from telemetry.errors import ConfigError
from telemetry.inventory import CommandKind
from telemetry.mqtt import BrokerConfig
from telemetry.topics import check_name

SHORTEST_INTERVAL = 0.05
"""Seconds; the driver updates its sensors no faster."""
SMALLEST_RING = 64 * 1024
"""Bytes; a smaller ring would not hold a minute of one node."""


def short_hostname() -> str:
    """Return this machine's name without its domain, in letters that a topic allows."""
    name = socket.gethostname().split(".")[0]
    return re.sub(r"[^A-Za-z0-9._:-]", "-", name).lstrip("._:-") or "localhost"


def default_state_dir() -> Path:
    """Return `/var/lib/kilowatch` for root, else `kilowatch` in the user's state folder."""
    if os.geteuid() == 0 and os.access("/var/lib", os.W_OK):
        return Path("/var/lib/kilowatch")
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "kilowatch"


def listen_address(where: str, text: str) -> tuple[str, int]:
    """Split `127.0.0.1:9401`, `[::1]:9401` or `:9401` (loopback). Raises `ConfigError`."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ConfigError(where, f"{text!r} is no address", "Write host:port, as 127.0.0.1:9401.")
    return host.strip("[]") or "127.0.0.1", int(port)


class CollectorConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of one collector: source, intervals, ring and broker."""

    node: str = msgspec.field(default_factory=short_hostname)
    """Name of this node on the bus: the short host name by default."""
    cluster: str = "default"
    """Name in the MQTT topics; usually `cluster` at the top of the settings."""
    source: str = "auto"
    """`auto`, `nvml`, `nvidia-smi`, `nvidia-smi:FILE`, `simulated:SCENARIO` or `recording:FILE`;
    see `collector.sources`."""
    interval: float = 1.0
    """Seconds between frames."""
    slow_interval: float = 15.0
    """Seconds between readings of metrics that are expensive to read or seldom change."""
    state_dir: Path = msgspec.field(default_factory=default_state_dir)
    """Folder of the ring and of the list of known GPUs; used by one collector only."""
    ring_enabled: bool = True
    """Whether frames are kept on disk, from which an aggregator requests what it missed."""
    ring_bytes: int = 256 * 1024 * 1024
    """Disk space of the ring at most; 256 MiB hold 14 hours of eight GPUs at 1 Hz."""
    backfill_bytes_per_second: float = 2e6
    """Rate limit of backfill, so that live frames never wait for it."""
    broker: BrokerConfig = BrokerConfig()
    metrics_listen: str | None = None
    """`host:port` of the node's own `/metrics` page; none by default."""
    kernel_log: str | None = "auto"
    """Kernel log to read XIDs from: `auto` is /dev/kmsg for a source that reads real GPUs and none
    for simulations and recordings; a path; or `none`, as in a container, where XIDs come from NVML alone."""
    accept_commands: tuple[CommandKind, ...] = (CommandKind.RESEND, CommandKind.INVENTORY)
    """Commands from the bus that are obeyed: `resend`, `inventory`, `release`, `resume`. `release`
    closes the driver, which leaves the node without readings: accept it where the broker lets only
    the aggregator send commands, as with `kilowatch pki` (docs/deploy.md)."""
    node_readings: bool = True
    """Whether to read the host too: CPU, memory, disk, network, wall power."""
    jobs: JobsConfig = JobsConfig()
    """Who uses the GPUs (docs/jobs.md); usually the section `[jobs]` of the settings."""
    seed: int = 1
    """Seed of a simulated source that does not name one."""

    def __post_init__(self) -> None:
        """Raise `ConfigError` for values that can't work."""
        if self.kernel_log == "none":  # TOML has no word for it
            msgspec.structs.force_setattr(self, "kernel_log", None)
        check_name("collector.node", self.node)
        check_name("collector.cluster", self.cluster)
        if not SHORTEST_INTERVAL <= self.interval <= 3600:
            raise ConfigError(
                "collector.interval",
                f"{self.interval} s is out of range",
                f"Choose {SHORTEST_INTERVAL} to 3600 seconds; 1 is usual.",
            )
        if not self.interval <= self.slow_interval <= 86400:
            raise ConfigError(
                "collector.slow_interval",
                f"{self.slow_interval} s is out of range",
                f"Choose at least the interval ({self.interval} s) and at most a day.",
            )
        if self.ring_bytes < SMALLEST_RING:
            raise ConfigError(
                "collector.ring_bytes",
                f"{self.ring_bytes} bytes are too few",
                f"Give the ring at least {SMALLEST_RING}, or switch it off: ring_enabled = false.",
            )
        if self.backfill_bytes_per_second <= 0:
            raise ConfigError(
                "collector.backfill_bytes_per_second",
                f"{self.backfill_bytes_per_second} is no rate",
                "Choose a number of bytes a second above 0; 2000000 is usual.",
            )
        if self.metrics_listen is not None:
            listen_address("collector.metrics_listen", self.metrics_listen)
