"""Settings of an aggregator, with defaults that work for one cluster."""

from __future__ import annotations

import itertools
import os
import re
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from aggregator.register.drift_watch import DriftConfig
from aggregator.register.expected import ExpectedState, check_expected
from aggregator.register.owners import OwnerEntry, check_owners
from aggregator.settings.batch import LsfAskConfig, PbsAskConfig
from aggregator.settings.budgets import IngestBudgets
from aggregator.settings.condor import CondorAskConfig
from aggregator.settings.homeassistant import HomeAssistantConfig
from aggregator.settings.influx import InfluxConfig
from aggregator.settings.members import MembersConfig
from aggregator.settings.otlp import OtlpConfig
from aggregator.settings.process_series import ProcessSeriesConfig
from aggregator.settings.remote_write import RemoteWriteConfig
from aggregator.settings.slurm import SlurmAskConfig
from alerts.config import AlertsConfig
from telemetry.errors import ConfigError
from telemetry.wire.mqtt import BrokerConfig
from telemetry.wire.topics import check_name

DAY = 86_400.0
MIB = 1024 * 1024
GIB = 1024 * MIB
_SHARDS = re.compile(r"([0-9a-f]{2})(?:-([0-9a-f]{2}))?")


def default_data_dir() -> Path:
    """Return `/var/lib/kilowatch/data` for root, else `kilowatch/data` in the user's state."""
    if os.geteuid() == 0 and os.access("/var/lib", os.W_OK):
        return Path("/var/lib/kilowatch/data")
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "kilowatch" / "data"


class StoreKind(StrEnum):
    """The place where readings are stored."""

    EMBEDDED = "embedded"
    """DuckDB and Parquet in `data_dir`; needs no server."""
    INFLUXDB = "influxdb"
    """An InfluxDB server; ledger, events and the spool stay in `data_dir`."""


class StoreConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The embedded store, and its retention."""

    kind: StoreKind = StoreKind.EMBEDDED
    """`embedded` is DuckDB and Parquet files in `data_dir`."""
    influxdb: InfluxConfig = InfluxConfig()
    """Used with kind "influxdb" (docs/influxdb.md)."""
    write_seconds: float = 1.0
    """Seconds between commits: a power cut costs as much, until it is sent again."""
    threads: int = 1
    """Threads of the engine; inserting is cheapest on one, long queries gain from more."""
    memory_limit_bytes: int = 512 * MIB
    """Most memory of the engine; at 100,000 GPUs more made nothing faster."""
    checkpoint_bytes: int = 16 * MIB
    """The write-ahead log is folded into the database at this size, between two commits: 0.1 s of
    work each, and the next commit waits for it. At four times the size it is four times as long and
    as seldom, so that nothing is gained. Up to three times the size, until what a fold makes is not
    made again by others. A restart reads the log again."""
    pending_bytes: int = 256 * MIB
    """Most readings held in memory while the store is slow or fails; more is shown live,
    not stored, and requested again from the nodes' rings."""
    seal_seconds: float = 3600.0
    """Seconds of a period; a period that is over is sealed to Parquet."""
    slice_rows: int = 1_000_000
    """Rows of one sealed file: as many are in memory while it is sealed."""
    rollup_seconds: tuple[int, ...] = (10, 60, 3600)
    """Steps of the roll-ups, each a multiple of the one before."""
    raw_age_seconds: float = 7 * DAY
    """Age of readings."""
    rollup_age_seconds: tuple[float, ...] = (30 * DAY, 365 * DAY, 5 * 365 * DAY)
    """Age of each roll-up, in the order of `rollup_seconds`."""
    events_age_seconds: float = 5 * 365 * DAY
    """Age of events and of recorded holes."""
    max_bytes: int = 50 * GIB
    """Most disk for all of it: the oldest raw readings go first, then the finest roll-ups."""

    def check_secrets(self) -> None:
        """Raise `ConfigError` for a password, token or certificate that can't be read."""
        if self.kind is StoreKind.INFLUXDB:
            self.influxdb.secret()
            self.influxdb.context()

    def check(self, where: str) -> None:
        """Raise `ConfigError` for settings that can't work."""
        if self.kind is StoreKind.INFLUXDB:
            self.influxdb.check(f"{where}.influxdb")
        for name in ("write_seconds", "seal_seconds", "raw_age_seconds", "events_age_seconds"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{where}.{name}", "it must be more than 0 seconds")
        for name in ("threads", "slice_rows", "max_bytes"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{where}.{name}", "it must be at least 1")
        for name in ("memory_limit_bytes", "checkpoint_bytes", "pending_bytes"):
            if getattr(self, name) < MIB:
                raise ConfigError(f"{where}.{name}", "it must be at least 1 MiB (1048576)")
        steps = self.rollup_seconds
        if any(step < 1 for step in steps) or any(
            later <= step or later % step for step, later in itertools.pairwise(steps)
        ):
            raise ConfigError(
                f"{where}.rollup_seconds",
                f"{list(steps)} are no steps",
                "Write whole seconds, each a multiple of the one before, as [10, 60, 3600].",
            )
        if len(self.rollup_age_seconds) != len(steps):
            raise ConfigError(
                f"{where}.rollup_age_seconds",
                f"it has {len(self.rollup_age_seconds)} ages for {len(steps)} roll-ups",
                "Give each step of rollup_seconds one age.",
            )


class NameLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Names without frames that the store keeps at a start."""

    sessions_per_node: int = IngestBudgets().sessions_per_node
    nodes: int = IngestBudgets().newcomers
    age_seconds: float = IngestBudgets().expiry_seconds
    """Age, counted from the newest seal, after which a node that sent nothing is left out."""


class BackfillConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How missing frames are requested again."""

    grace_seconds: float = 0.3
    """Seconds in which a missing frame may still come unrequested."""
    nodes_at_once: int = 64
    """Requests under way at a time, over the fleet: new frames must not wait for old ones."""
    frames_per_request: int = 128
    """Most frames that one request names."""
    first_wait_seconds: float = 2.0
    """Seconds to wait for the first answer; doubles to `longest_wait_seconds`."""
    longest_wait_seconds: float = 30.0
    """Longest pause before a request is repeated; it doubles up to that."""
    max_age_seconds: float = 0.0
    """Frames of a session older than that when it is first seen are recorded as lost (`too_old`)
    instead of requested; 0 requests all that the ring holds."""

    def check(self, where: str) -> None:
        """Raise `ConfigError` for settings that can't work."""
        if self.nodes_at_once < 1 or self.frames_per_request < 1:
            raise ConfigError(where, "nodes_at_once and frames_per_request must be at least 1")
        if self.first_wait_seconds <= 0 or self.longest_wait_seconds < self.first_wait_seconds:
            raise ConfigError(where, "the waits must be above 0, and the longest no shorter than the first")
        if self.grace_seconds < 0 or self.max_age_seconds < 0:
            raise ConfigError(where, "grace_seconds and max_age_seconds can't be negative")


class AggregatorConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An aggregator: its nodes, its store, and where it serves."""

    cluster: str = "default"
    """Name in the MQTT topics; usually `cluster` at the top of the settings."""
    shards: tuple[str, ...] = ()
    """Refused: `[cluster]` divides the nodes among several aggregators (docs/cluster.md)."""
    members: MembersConfig = MembersConfig()
    """Several aggregators as one (docs/cluster.md); written as `[cluster]`."""
    broker: BrokerConfig = BrokerConfig()
    data_dir: Path = msgspec.field(default_factory=default_data_dir)
    """Folder of the store, for one aggregator only."""
    listen: str = "127.0.0.1:9400"
    """`host:port` of HTTP; elsewhere than on loopback it needs a token. Empty for none."""
    token_file: Path | None = None
    """A file with one token alone, which permits everything; then reading on loopback needs one too."""
    tokens_file: Path | None = None
    """The file that `kilowatch token` writes: names, scopes and hashes. `tokens.json` in `data_dir` if
    absent; read again when it changes."""
    anonymous_read: bool | None = None
    """Whether reading needs no token: true also elsewhere than on loopback, without users, jobs and
    command lines; false nowhere. If absent, on loopback only."""
    longest_silence_seconds: float = 7 * DAY
    """Length of a silence at most, for tokens without the scope admin."""
    tls_cert: Path | None = None
    """Certificate of the listener (PEM, its chain below it), which then speaks HTTPS alone. Read again
    when it changes."""
    tls_key: Path | None = None
    """Its key; none where `tls_cert` has it too."""
    tls_ca: Path | None = None
    """Certificates that commands on this machine trust for it, where a private authority made it."""
    names: tuple[str, ...] = ()
    """Further host names under which HTTP on loopback is reached, behind a proxy for instance."""
    max_connections: int = 512
    """Connections to HTTP at a time; those of this machine come in beyond."""
    max_connections_each: int = 128
    """Connections from one address at a time; an IPv6 network of 64 bits is one."""
    address: str | None = None
    """`host:port` under which Prometheus reaches HTTP, where its own request does not name it."""
    dcgm_counters: Path | None = None
    """dcgm-exporter's own file of counters (`FIELD, type, help` a line), which says what the pages with its names
    show; if absent, its lists of default and profiling counters (docs/dcgm.md). Read at the start."""
    flush_seconds: float = 0.2
    """Seconds between two updates of the fleet."""
    rule_seconds: float = 1.0
    """Seconds between two runs of the rules."""
    rules: tuple[Path, ...] = ()
    """Files of rules beside those that come with kilowatch."""
    memory_limit_bytes: int = 0
    """Memory near which history, viewers and metrics pages are shed; 0 for the limit of the process's
    cgroup (`MemoryMax=` of the unit), if it has one."""
    quarantine_bytes: int = 16 * MIB
    """Most disk for samples of rejected messages."""
    store: StoreConfig = StoreConfig()
    backfill: BackfillConfig = BackfillConfig()
    budgets: IngestBudgets = IngestBudgets()
    """Most that a node and the cluster may bring (docs/deploy.md)."""
    alerts: AlertsConfig = AlertsConfig()
    remote_write: RemoteWriteConfig = RemoteWriteConfig()
    """Where to push what the metrics pages show, where nothing can scrape (docs/prometheus.md)."""
    otlp: OtlpConfig = OtlpConfig()
    """Where to push readings and events in OpenTelemetry's protocol (docs/otlp.md)."""
    process_series: ProcessSeriesConfig = ProcessSeriesConfig()
    """A series for each process on a GPU, on the metrics pages and in what is pushed (docs/prometheus.md)."""
    slurm: SlurmAskConfig = SlurmAskConfig()
    """Slurm's own word on its jobs (docs/slurm.md)."""
    htcondor: CondorAskConfig = CondorAskConfig()
    """HTCondor's own word on its slots (docs/jobs.md); not beside that of another scheduler."""
    pbs: PbsAskConfig = PbsAskConfig()
    """PBS's own word on its jobs (docs/jobs.md); not beside that of another scheduler."""
    lsf: LsfAskConfig = LsfAskConfig()
    """LSF's own word on its jobs (docs/jobs.md); not beside that of another scheduler."""
    homeassistant: HomeAssistantConfig = HomeAssistantConfig()
    """GPUs and circuits as devices of Home Assistant (docs/home.md)."""
    expected: tuple[ExpectedState, ...] = ()
    """Expected state of the nodes; the first entry that matches a node counts (docs/drift.md)."""
    drift: DriftConfig = DriftConfig()
    """When a node that differs is an alert."""
    owners: tuple[OwnerEntry, ...] = ()
    """Persons and teams that alerts belong to; the first entry that fits an alert counts (docs/alerts.md)."""
    power: dict[str, Any] = {}
    """The electrical site as written (docs/power.md); decoded by `power.site.config`."""

    @property
    def name_limits(self) -> NameLimits:
        """The names that the store keeps, by the budgets."""
        budgets = self.budgets
        return NameLimits(
            sessions_per_node=budgets.sessions_per_node, nodes=budgets.newcomers, age_seconds=budgets.expiry_seconds
        )

    def check(self) -> None:
        """Raise `ConfigError` for settings that can't work."""
        check_name("aggregator.cluster", self.cluster)
        if shard_names(self.shards):
            raise ConfigError(
                "aggregator.shards",
                "aggregators divide the nodes among themselves: a part given by hand has nobody when its aggregator is "
                "gone, and a breaker of two parts could trip without a page",
                'Leave shards out. Where one aggregator is too few, write [cluster] nats = ["nats://HOST:4222"] for '
                "each (docs/cluster.md).",
            )
        if not 0.01 <= self.flush_seconds <= 10:
            raise ConfigError("aggregator.flush_seconds", "it must be 0.01 to 10 seconds")
        if not 0.1 <= self.rule_seconds <= 60:
            raise ConfigError("aggregator.rule_seconds", "it must be 0.1 to 60 seconds")
        if self.memory_limit_bytes and self.memory_limit_bytes < 256 * MIB:
            raise ConfigError(
                "aggregator.memory_limit_bytes",
                f"{self.memory_limit_bytes} bytes are less than the aggregator needs without a node",
                "Write at least 256 MiB (268435456), or 0 for the limit of its unit.",
            )
        if self.listen:
            listen_address(self.listen)
        for name in ("max_connections", "max_connections_each"):
            if getattr(self, name) < 1:
                raise ConfigError(f"aggregator.{name}", "it must be at least 1")
        if self.longest_silence_seconds <= 0:
            raise ConfigError("aggregator.longest_silence_seconds", "it must be more than 0 seconds")
        self.members.check("cluster")
        self.store.check("aggregator.store")
        self.backfill.check("aggregator.backfill")
        self.budgets.check("aggregator.budgets")
        self.alerts.check()
        self.remote_write.check("aggregator.remote_write")
        self.otlp.check("aggregator.otlp")
        self.process_series.check("aggregator.process_series")
        asked: dict[str, SlurmAskConfig | CondorAskConfig | PbsAskConfig | LsfAskConfig]
        asked = {"slurm": self.slurm, "htcondor": self.htcondor, "pbs": self.pbs, "lsf": self.lsf}
        for name, each in asked.items():
            each.check(f"aggregator.{name}")
        enabled = [name for name, each in asked.items() if each.enabled]
        if len(enabled) > 1:
            title = {"slurm": "Slurm", "htcondor": "HTCondor", "pbs": "PBS"}[enabled[0]]
            raise ConfigError(
                f"aggregator.{enabled[1]}.enabled",
                f"an aggregator asks one scheduler, and here it asks {title}",
                "Give the nodes of the other one a `cluster` of their own, and an aggregator for it.",
            )
        self.homeassistant.check("homeassistant")
        check_expected(self.expected)
        self.drift.check("drift")
        check_owners(self.owners, self.power, self._rule_names)

    def _rule_names(self) -> list[str]:
        """Return the names of the rules in force. Raises `ConfigError`."""
        from alerts.rules.rule import load, monitor_rules  # noqa: PLC0415 - NumPy: not for the settings of a collector

        return [rule.name for rule in (*load(self.rules), *monitor_rules())]


def shard_names(shards: tuple[str, ...]) -> list[str]:
    """Return the names of all shards of these ranges; empty for the whole cluster. Raises
    `ConfigError`."""
    names: set[str] = set()
    for text in shards:
        match = _SHARDS.fullmatch(text)
        first, last = (match[1], match[2] or match[1]) if match else ("01", "00")
        if int(first, 16) > int(last, 16):
            raise ConfigError(
                "aggregator.shards",
                f"{text!r} is no shard",
                "Write two hex digits in lower case, as '3f', or a range, as '00-7f'.",
            )
        names.update(f"{number:02x}" for number in range(int(first, 16), int(last, 16) + 1))
    return [] if len(names) == 256 else sorted(names)


def listen_address(text: str) -> tuple[str, int]:
    """Split `127.0.0.1:9400`, `[::1]:9400` or `:9400` (loopback). Raises `ConfigError`."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ConfigError("aggregator.listen", f"{text!r} is no address", "Write host:port, as 127.0.0.1:9400.")
    return host.strip("[]") or "127.0.0.1", int(port)
