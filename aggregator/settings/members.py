"""Settings of an aggregator that is one of several."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from aggregator.settings.shared_storage import SharedStorageConfig
from telemetry.errors import ConfigError

_MEMBER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*")


class MembersConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Several aggregators as one, which agree through NATS; a single one without `nats`.

    In the settings file these keys stand in `[cluster]`, beside the cluster's own `name`.
    """

    nats: tuple[str, ...] = ()
    """Servers of one NATS cluster with JetStream, as `["tls://a:4222", "tls://b:4222"]`. [off]"""
    member: str = ""
    """Name of this aggregator among the members, which nobody else has. [the host's name]"""
    storage: SharedStorageConfig = SharedStorageConfig()
    """Storage that all members share; `storage = "/mnt/kilowatch"` is short for its `url`."""
    weight: float = 1.0
    """Share of the nodes, against that of the other members."""
    site: bool = True
    """Whether this member may take the site role: circuits, budgets, UPSs, meters, incidents."""
    dead_after_seconds: float = 10.0
    """Silence after which a member counts as dead and others take its nodes."""
    username: str | None = None
    """User of the NATS servers, where they ask for one."""
    password_file: Path | None = None
    """File with the password alone."""
    ca_file: Path | None = None
    """Authority that the servers' certificates must be signed by. [the system's]"""
    cert_file: Path | None = None
    """Our certificate, for servers that ask for one."""
    key_file: Path | None = None
    """The key of `cert_file`."""

    @property
    def name(self) -> str:
        """Name of this member."""
        return self.member or socket.gethostname()

    def check(self, where: str) -> None:
        """Raise `ConfigError` for settings that can't work."""
        for text in self.nats:
            parts = urlsplit(text)
            if parts.scheme not in {"nats", "tls"} or not parts.hostname:
                raise ConfigError(
                    f"{where}.nats", f"{text!r} is no server", "Write nats://HOST:4222 or tls://HOST:4222."
                )
        if not _MEMBER.fullmatch(self.name) or len(self.name) > 64:
            raise ConfigError(
                f"{where}.member",
                f"{self.name!r} can't be a member's name",
                "Use letters, digits, '.', '_' and '-', at most 64.",
            )
        if not 0.01 <= self.weight <= 100:
            raise ConfigError(f"{where}.weight", "it must be 0.01 to 100")
        if not 2 <= self.dead_after_seconds <= 300:
            raise ConfigError(f"{where}.dead_after_seconds", "it must be 2 to 300 seconds")
        if self.storage.url:
            self.storage.check(f"{where}.storage")
