"""Settings of remote write."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from telemetry.errors import ConfigError
from telemetry.files.secrets import read_token


class RemoteWriteConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The receiver of the series of the metrics pages; none without a URL."""

    url: str = ""
    """For example http://127.0.0.1:8428/api/v1/write. [off]"""
    every_seconds: float = 15.0
    """Seconds between two pushes."""
    token_file: Path | None = None
    """A file with a token, sent as `Authorization: Bearer`."""
    timeout_seconds: float = 10.0
    """How long one request may take."""
    waiting: int = 200
    """Requests, of 10,000 series at most, that are kept in memory while the receiver is away; the
    oldest goes, and is counted."""

    def check(self, where: str) -> None:
        """Raise `ConfigError` for settings that can't work."""
        parts = urlsplit(self.url)
        if self.url and (parts.scheme not in {"http", "https"} or not parts.hostname):
            raise ConfigError(f"{where}.url", f"{self.url!r} is no address", "Write http://HOST:PORT/api/v1/write.")
        if self.every_seconds < 1 or self.timeout_seconds <= 0:
            raise ConfigError(where, "every_seconds is at least 1, timeout_seconds above 0")
        if not 1 <= self.waiting <= 10_000:
            raise ConfigError(f"{where}.waiting", "it must be 1 to 10000")

    def headers(self, where: str = "aggregator.remote_write") -> dict[str, str]:
        """Return the headers of every request. Raises `ConfigError`."""
        found = {
            "Content-Encoding": "snappy",
            "Content-Type": "application/x-protobuf",
            "X-Prometheus-Remote-Write-Version": "0.1.0",
        }
        if self.token_file is None:
            return found
        token = read_token(f"{where}.token_file", self.token_file)
        return found | {"Authorization": f"Bearer {token}"}
