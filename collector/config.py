"""Settings of a collector, with defaults that work on any node."""

from __future__ import annotations

import base64
import os
import re
import socket
from pathlib import Path
from typing import Literal

import msgspec

from collector.jobs.config import JobsConfig
from telemetry.devices import PORT_ROLES as ROLES
from telemetry.errors import ConfigError
from telemetry.files.secrets import read_secret
from telemetry.wire.inventory import CommandKind, NodeRole
from telemetry.wire.mqtt import BrokerConfig
from telemetry.wire.topics import check_name

SHORTEST_INTERVAL = 0.05
"""Seconds; the driver updates its sensors no faster."""
SHORTEST_RELEASE = 1.0
"""Seconds."""
_UNIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9:_.@-]{0,99}(?<!\.service)")
MOST_LABELS = 16
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


SERVICES = (
    "nvidia-fabricmanager", "nvidia-imex", "nvidia-persistenced", "nvidia-dcgm", "opensm", "nvlsm",
    "slurmd", "slurmctld", "slurmdbd", "munge", "kubelet", "containerd", "docker",
    "chronyd", "chrony", "ntpd", "systemd-timesyncd", "sssd", "sshd", "ssh", "rasdaemon",
    "beegfs-client", "beegfs-storage", "beegfs-meta",
)  # fmt: skip
"""Services that work on a node depends on."""


class BmcConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The node's own management controller over Redfish: fans, power supplies and the log of the hardware, in place
    of `ipmitool`. An account that may read is enough."""

    url: str = ""
    """Base of the service: `https://169.254.0.17` of the host interface, or the controller's own address; without
    one `ipmitool` is used, where it is installed."""
    username: str | None = None
    """User, with `password_file`."""
    password_file: Path | None = None
    """A file with the password alone."""
    login: Literal["session", "basic"] = "session"
    """Whether a session is opened, or each request carries the password."""
    verify: bool = True
    """Whether the certificate must be one that this machine trusts."""
    ca_file: Path | None = None
    """Certificates to trust; those of this machine by default."""
    timeout: float = 20.0
    """Seconds for all requests of one reading."""

    def __post_init__(self) -> None:
        """Raise `ConfigError` for settings that can't work."""
        where = "collector.bmc"
        if not self.url and self.username:
            raise ConfigError(where, "it has a login and no url", 'Write url = "https://169.254.0.17".')
        if self.url and not re.fullmatch(r"https?://[^\s/@?#]+", self.url.rstrip("/")):
            raise ConfigError(
                f"{where}.url", f"{self.url!r} is no address of a service", 'Write "https://169.254.0.17".'
            )
        if (self.username is None) != (self.password_file is None):
            raise ConfigError(where, "a login needs username and password_file", "Write both or neither.")
        if not 1.0 <= self.timeout <= 120.0:
            raise ConfigError(f"{where}.timeout", f"{self.timeout:g} s is out of range", "Write 1 to 120.")

    def password(self) -> str:
        """Return the password. Raises `ConfigError` where its file can't be read."""
        file = self.password_file
        return "" if file is None else read_secret("collector.bmc.password_file", file, "password")

    def basic(self) -> str:
        """Return the header of a basic login. Raises `ConfigError`."""
        return f"Basic {base64.b64encode(f'{self.username}:{self.password()}'.encode()).decode()}"


class CollectorConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of one collector: source, intervals, ring and broker."""

    node: str = msgspec.field(default_factory=short_hostname)
    """Name of this node on the bus: the short host name by default."""
    cluster: str = "default"
    """Name in the MQTT topics; usually `cluster` at the top of the settings."""
    source: str = "auto"
    """`auto`, `none`, `nvml`, `amd`, `nvml+amd`, `nvidia-smi`, `nvidia-smi:FILE`, `simulated:SCENARIO` or `recording:FILE`;
    see `collector.sources`."""
    role: NodeRole | None = None
    """Purpose of the node: `gpu`, `head`, `login`, `compute`, `storage` or `switch`; if absent, by its PCI bus
    and services (docs/roles.md)."""
    labels: dict[str, str] = {}
    """Labels of the node, by which `[[expected]]` may choose it: `{ pool = "training" }`."""
    interval: float = 1.0
    """Seconds between frames."""
    slow_interval: float = 15.0
    """Seconds between readings of metrics that are expensive to read or seldom change."""
    state_dir: Path = msgspec.field(default_factory=default_state_dir)
    """Folder of the ring and of the list of known GPUs; used by one collector only."""
    ring_enabled: bool = True
    """Whether frames are kept on disk, from which an aggregator requests what it missed."""
    ring_sync: bool = True
    """Whether frames of the ring are written to the disk at once; without it a power cut may cost the newest, a kill none."""
    ring_bytes: int = 256 * 1024 * 1024
    """Disk space of the ring at most; 256 MiB hold 14 hours of eight GPUs at 1 Hz."""
    backfill_bytes_per_second: float = 2e6
    """Rate limit of backfill, so that live frames never wait for it."""
    broker: BrokerConfig = BrokerConfig()
    metrics_listen: str | None = None
    """`host:port` of the node's own `/metrics` page; none by default."""
    metrics_jobs: bool = False
    """Whether that page's readings under dcgm-exporter's names have the pod or job of their GPU, as the exporter's do:
    the page asks for no token."""
    dcgm_counters: Path | None = None
    """dcgm-exporter's own file of counters, which says what `/metrics/dcgm` of that page shows; if absent, its lists of
    default and profiling counters (docs/dcgm.md). Read at the start."""
    names: tuple[str, ...] = ()
    """Further host names under which that page is asked for: addresses, localhost and the names of the node and its
    machine are known."""
    kernel_log: str | None = "auto"
    """Kernel log to read XIDs from: `auto` is /dev/kmsg for a source that reads real GPUs and none
    for simulations and recordings; a path; or `none`, as in a container, where XIDs come from NVML alone."""
    accept_commands: tuple[CommandKind, ...] = (CommandKind.RESEND, CommandKind.INVENTORY)
    """Commands from the bus that are obeyed: `resend`, `inventory`, `release`, `resume`. `release`
    closes the driver, which leaves the node without readings: accept it where operators upgrade drivers by it, and
    only the aggregator may send commands (docs/deploy.md)."""
    release_seconds: float = 3600.0
    """Seconds for which `release` closes the driver at most: then it is opened and read again without `resume`. A
    `release` that comes meanwhile does not extend them."""
    node_readings: bool = True
    """Whether to read the host too: CPU, memory, disk, network, wall power, ports, services, fans."""
    host_root: Path = Path("/")
    """Where the node's own /proc, /sys, /etc and /dev are; in a container that has them elsewhere, there."""
    ports: bool = True
    """Whether to read the ports of network adapters: InfiniBand, RoCE, Ethernet."""
    port_roles: dict[str, str] = {}
    """Roles of ports by pattern of the adapter's or interface's name: `{"mlx5_1[0-9]" = "storage"}`.
    `compute` and `storage` page when they go down, `management` is a ticket; the others are found by
    the PCI Express switch that they share with a GPU."""
    topology: Path | None = None
    """File that says which switch each port is cabled to: `lldpcli show neighbors -f json`, `iblinkinfo -l`,
    or lines of `PORT SWITCH PORT`. It is read again when it changes. Ports that go down together at one
    switch are one incident then."""
    services: tuple[str, ...] = SERVICES
    """systemd services whose state is read, without `.service`. One that is not enabled on the node counts for
    nothing, unless an `[[expected]]` of the aggregator names it."""
    bmc_readings: bool = True
    """Whether fans, power supplies and the log of the hardware are read from the BMC: fans and supplies once a
    minute, the log every five."""
    bmc: BmcConfig = BmcConfig()
    """The BMC over Redfish."""
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
        if len(self.labels) > MOST_LABELS or any(
            not _UNIT.fullmatch(name) or len(value) > 200 for name, value in self.labels.items()
        ):
            raise ConfigError(
                "collector.labels",
                "one has no name, or a long one, or there are many",
                f"Write {MOST_LABELS} at most, of letters, digits, _ and -.",
            )
        for name in self.services:
            if not _UNIT.fullmatch(name):
                raise ConfigError("collector.services", f"{name!r} is no service", "Write slurmd, without .service.")
        if self.backfill_bytes_per_second <= 0:
            raise ConfigError(
                "collector.backfill_bytes_per_second",
                f"{self.backfill_bytes_per_second} is no rate",
                "Choose a number of bytes a second above 0; 2000000 is usual.",
            )
        if not SHORTEST_RELEASE <= self.release_seconds <= 86400:
            raise ConfigError(
                "collector.release_seconds",
                f"{self.release_seconds:g} s is out of range",
                f"Choose {SHORTEST_RELEASE:g} to 86400 seconds; 3600 is usual.",
            )
        for pattern, role in self.port_roles.items():
            if role not in ROLES:
                raise ConfigError(
                    f"collector.port_roles.{pattern}", f"{role!r} is no role", f"Write {', '.join(ROLES)}."
                )
        if self.metrics_listen is not None:
            listen_address("collector.metrics_listen", self.metrics_listen)
