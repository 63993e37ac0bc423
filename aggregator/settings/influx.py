"""Settings of InfluxDB, with defaults that fit a server beside the aggregator."""

from __future__ import annotations

import itertools
import ssl
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from telemetry.errors import ConfigError
from telemetry.files.secrets import read_secret, read_token, secret_path

DAY = 86_400.0
MIB = 1024 * 1024
GIB = 1024 * MIB
EXACT_SECONDS = 60
"""Means up to this length are exact over a kill -9: their frames count as stored only when the mean
is in the spool, and are requested again until then."""


class InfluxApi(StrEnum):
    """The API of the server for writes."""

    V1 = "v1"
    """`/write`: InfluxDB 1.x, 2.x and 3.x, VictoriaMetrics."""
    V2 = "v2"
    """`/api/v2/write`: InfluxDB from 1.8 on, 2.x and 3.x, VictoriaMetrics."""


class InfluxConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The server, what is written there, and how much may wait for it."""

    url: str = "http://127.0.0.1:8086"
    """Address of the server."""
    api: InfluxApi = InfluxApi.V1
    """Interface for writing: `v1` or `v2`."""
    database: str = "kilowatch"
    """With v2 the buckets are `<database>/raw`, `<database>/rollup_1m` and so on."""
    org: str = ""
    """Organisation, for v2."""
    username: str = ""
    """User, for 1.x."""
    password_file: Path | None = None
    """A file with the password of `username` (1.x)."""
    token_file: Path | None = None
    """A file with the token (2.x and 3.x)."""
    ca_file: Path | None = None
    """Certificates to trust, for https, instead of the system's."""
    setup: bool = True
    """Create the database and its retention where the server reports that they are missing (1.x);
    false when this user may not."""
    every_seconds: float = 10.0
    """Fast readings are written as means of so many seconds, with each change of a state at its
    own time; 0 for every reading."""
    rollup_seconds: tuple[int, ...] = (60, 3600)
    """Steps of the roll-ups, each a multiple of the one before and of `every_seconds`."""
    raw_age_seconds: float = 7 * DAY
    """Retention of means and readings, on the server and in the spool."""
    rollup_age_seconds: tuple[float, ...] = (365 * DAY, 5 * 365 * DAY)
    """Retention of each roll-up, in the order of `rollup_seconds`."""
    events_age_seconds: float = 5 * 365 * DAY
    """Retention of events and announced holes on the server."""
    spool_bytes: int = 4 * GIB
    """Most disk for data that waits for the server; beyond it the oldest is dropped, and counted."""
    batch_lines: int = 5000
    """Most lines of one request."""
    timeout_seconds: float = 15.0
    """Longest time of one request."""

    def check(self, where: str) -> None:
        """Raise `ConfigError` for settings that can't work."""
        self._check_place(where)
        for name in ("raw_age_seconds", "events_age_seconds", "timeout_seconds"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{where}.{name}", "it must be more than 0 seconds")
        if not 0 <= self.every_seconds <= EXACT_SECONDS:
            raise ConfigError(
                f"{where}.every_seconds",
                "it must be 0 to 60 seconds",
                "Write 0 for every reading, 10 for means of 10 s.",
            )
        steps = [step for step in (self.every_seconds, *self.rollup_seconds) if step]
        if any(step < 1 for step in self.rollup_seconds) or any(
            later <= step or later % step for step, later in itertools.pairwise(steps)
        ):
            raise ConfigError(
                f"{where}.rollup_seconds",
                f"{list(self.rollup_seconds)} are no steps above {self.every_seconds:g}",
                "Write whole seconds, each a multiple of the one before, as [60, 3600].",
            )
        if len(self.rollup_age_seconds) != len(self.rollup_seconds):
            raise ConfigError(
                f"{where}.rollup_age_seconds",
                f"it has {len(self.rollup_age_seconds)} ages for {len(self.rollup_seconds)} roll-ups",
                "Give each step of rollup_seconds one age.",
            )
        if self.spool_bytes < MIB:
            raise ConfigError(f"{where}.spool_bytes", "it must be at least 1 MiB (1048576)")
        if not 1 <= self.batch_lines <= 100_000:
            raise ConfigError(f"{where}.batch_lines", "it must be 1 to 100000 lines")

    def _check_place(self, where: str) -> None:
        parts = urlsplit(self.url)
        try:
            _ = parts.port
        except ValueError as error:
            raise ConfigError(f"{where}.url", f"{self.url!r}: {error}", "Write http://HOST:8086.") from error
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query:
            raise ConfigError(f"{where}.url", f"{self.url!r} is no address", "Write http://HOST:8086.")
        if parts.username or parts.password:
            raise ConfigError(
                f"{where}.url", "a password does not belong into an address", "Write username and password_file."
            )
        if not self.database or set(self.database) & set('/"\\\n'):
            raise ConfigError(f"{where}.database", f"{self.database!r} is no name for a database")
        if self.api is InfluxApi.V2 and not self.org:
            raise ConfigError(
                f"{where}.org",
                "api v2 needs the name of the organisation",
                "Servers that have none (3.x, VictoriaMetrics) take any.",
            )
        if self.password_file and not self.username:
            raise ConfigError(f"{where}.password_file", "there is no username to it")
        if self.token_file and self.username:
            raise ConfigError(
                f"{where}.token_file",
                "there is a username too",
                "Use a token (2.x, 3.x), or a name and a password (1.x).",
            )

    def secret(self, where: str = "aggregator.store.influxdb") -> str:
        """Return token or password, empty if there is none. Raises `ConfigError`."""
        if self.token_file is not None:
            return read_token(f"{where}.token_file", self.token_file)
        if self.password_file is not None:
            return read_secret(f"{where}.password_file", self.password_file, "password")
        return ""

    def context(self, where: str = "aggregator.store.influxdb") -> ssl.SSLContext | None:
        """Return the TLS context, None for plain http. Raises `ConfigError`."""
        if not self.url.startswith("https:"):
            return None
        try:
            ca_file = self.ca_file and secret_path(f"{where}.ca_file", self.ca_file)
            return ssl.create_default_context(cafile=ca_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"{where}.ca_file", f"it can't be used: {error}") from error
