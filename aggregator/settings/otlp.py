"""Settings of the push in OpenTelemetry's protocol."""

from __future__ import annotations

import importlib.util
import ssl
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from telemetry.catalogue import BY_NAME
from telemetry.errors import ConfigError, did_you_mean
from telemetry.files.secrets import read_token

MIB = 1024 * 1024


def matching(pattern: str) -> list[str]:
    """Return the metrics of the catalogue that a pattern names: `gpu_clocks_event_*`."""
    return [name for name in BY_NAME if fnmatchcase(name, pattern)]


class OtlpProtocol(StrEnum):
    """How messages travel."""

    HTTP = "http"
    """Protobuf over HTTP; usually port 4318."""
    GRPC = "grpc"
    """Usually port 4317; needs the extra `otlp`."""


class OtlpConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The receiver of readings and events in OTLP; none without a URL (docs/otlp.md)."""

    url: str = ""
    """Address without a path: http://127.0.0.1:4318; https:// for TLS. [off]"""
    protocol: OtlpProtocol = OtlpProtocol.HTTP
    """`http` or `grpc`."""
    every_seconds: float = 10.0
    """Seconds between two pushes."""
    events: bool = True
    """Whether events are sent too, as log records."""
    more: tuple[str, ...] = ()
    """Metrics to send besides those of the hardware conventions, by name or pattern: `gpu_sm_clock_hertz`,
    `gpu_clocks_event_*`."""
    token_file: Path | None = None
    """A file with a token, sent as `Authorization: Bearer`."""
    ca_file: Path | None = None
    """Certificates that are trusted for https, in place of the system's."""
    timeout_seconds: float = 10.0
    """How long one request may take."""
    waiting_bytes: int = 64 * MIB
    """Requests that are kept in memory while the receiver is away; the oldest goes, and is counted."""

    def check(self, where: str) -> None:
        """Raise `ConfigError` for settings that can't work."""
        parts = urlsplit(self.url)
        if self.url and (parts.scheme not in {"http", "https"} or not parts.hostname or parts.query):
            raise ConfigError(
                f"{where}.url",
                f"{self.url!r} is no address",
                'Write http://HOST:4318, or with protocol "grpc" http://HOST:4317.',
            )
        if self.url and self.protocol is OtlpProtocol.GRPC:
            if parts.path.strip("/") or parts.port is None:
                raise ConfigError(
                    f"{where}.url", f"{self.url!r} is no address for gRPC", "Write http://HOST:4317, without a path."
                )
            if importlib.util.find_spec("grpc") is None:
                raise ConfigError(
                    f"{where}.protocol",
                    "grpcio is not installed, which gRPC needs",
                    "Install kilowatch with its extra: pip install 'kilowatch[otlp]'; or write protocol = \"http\".",
                )
        for pattern in self.more:
            if not matching(pattern):
                raise ConfigError(
                    f"{where}.more",
                    f"no metric is called {pattern!r}",
                    did_you_mean(pattern, BY_NAME) or "docs/metrics.md has all.",
                )
        if self.every_seconds < 1 or self.timeout_seconds <= 0:
            raise ConfigError(where, "every_seconds is at least 1, timeout_seconds above 0")
        if self.waiting_bytes < MIB:
            raise ConfigError(f"{where}.waiting_bytes", "it must be at least 1048576", "Write 67108864 for 64 MiB.")

    def check_secrets(self) -> None:
        """Raise `ConfigError` for a token or certificates that can't be read."""
        if self.url:
            self.headers()
            self.certificates()

    def headers(self, where: str = "aggregator.otlp") -> dict[str, str]:
        """Return the headers of every request, in lower case. Raises `ConfigError`."""
        if self.token_file is None:
            return {}
        return {"authorization": f"Bearer {read_token(f'{where}.token_file', self.token_file)}"}

    def certificates(self, where: str = "aggregator.otlp") -> bytes | None:
        """Return the certificates to trust; None for the system's. Raises `ConfigError`."""
        if self.ca_file is None:
            return None
        try:
            found = self.ca_file.read_bytes()
            ssl.create_default_context(cadata=found.decode())
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{where}.ca_file", f"{self.ca_file}: {error}", "Give a file of certificates in PEM."
            ) from error
        return found
