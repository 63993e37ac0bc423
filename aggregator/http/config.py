"""Where the aggregator listens, and who may come in."""

from __future__ import annotations

import ipaddress
import logging
import time
from pathlib import Path

import msgspec
from aiohttp import web

from aggregator.access.tokens import TOKENS, AccessScope, AccessToken, TokenRegister, hashed
from aggregator.config import AggregatorConfig, listen_address
from aggregator.http.tls import ServerCertificate
from telemetry.errors import ConfigError
from telemetry.files.secrets import read_token
from telemetry.wire.dcgm import CounterList, load_list

log = logging.getLogger(__name__)

LISTEN = "127.0.0.1:9400"
SHORTEST_TOKEN = 16


class HttpConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the HTTP listener. `check` them before use."""

    listen: str = LISTEN
    """Address and port; port 0 takes any that is free. IPv6 as `[::1]:9400`, `:9400` is loopback."""
    token_file: Path | None = None
    """A file with a bearer token alone, which permits everything."""
    tokens_file: Path | None = None
    """The file that `kilowatch token` writes."""
    state_folder: Path | None = None
    """State folder in which programs of this user find the local token; none is made without."""
    anonymous_read: bool | None = None
    """As in `AggregatorConfig`."""
    names: tuple[str, ...] = ()
    """Further host names under which a loopback listener is reached, behind a proxy for instance."""
    address: str | None = None
    """`host:port` under which Prometheus reaches this aggregator, where the Host header of its
    service discovery request does not."""
    dcgm_counters: Path | None = None
    """As in `AggregatorConfig`."""
    longest_silence_seconds: float = 7 * 86_400.0
    """As in `AggregatorConfig`."""

    tls_cert: Path | None = None
    """As in `AggregatorConfig`."""
    tls_key: Path | None = None
    """As in `AggregatorConfig`."""
    max_connections: int = 512
    """As in `AggregatorConfig`."""
    max_connections_each: int = 128
    """As in `AggregatorConfig`."""

    slow_viewer_seconds: float = 10.0
    """Seconds that a reader may take to read a message of the stream, or any of an answer, before it is
    cut off."""
    idle_seconds: float = 30.0
    """Seconds in which a request must come whole, its body aside; then its connection is closed."""
    body_seconds: float = 10.0
    """Seconds in which its body must come."""

    @classmethod
    def of(cls, config: AggregatorConfig, state_folder: Path | None = None) -> HttpConfig:
        """Return the listener's part of an aggregator's settings."""
        return cls(
            listen=config.listen,
            token_file=config.token_file,
            tokens_file=config.tokens_file or config.data_dir / TOKENS,
            state_folder=state_folder,
            anonymous_read=config.anonymous_read,
            names=config.names,
            address=config.address,
            dcgm_counters=config.dcgm_counters,
            longest_silence_seconds=config.longest_silence_seconds,
            tls_cert=config.tls_cert,
            tls_key=config.tls_key,
            max_connections=config.max_connections,
            max_connections_each=config.max_connections_each,
        )

    @property
    def host(self) -> str:
        """The address to bind."""
        return listen_address(self.listen)[0]

    @property
    def port(self) -> int:
        """The port to bind."""
        return listen_address(self.listen)[1]

    @property
    def loopback(self) -> bool:
        """Whether only this machine can connect."""
        return is_loopback(self.host)

    @property
    def open_here(self) -> bool:
        """Whether this machine may read without a token: on a loopback listener, unless a token was
        set for it."""
        return self.loopback and self.token_file is None and self.anonymous_read is not False

    def token(self) -> AccessToken | None:
        """Read the token of `token_file`. Raises `ConfigError` when it can't be read or holds none."""
        if self.token_file is None:
            return None
        secret = read_token("aggregator.token_file", self.token_file)
        if len(secret) < SHORTEST_TOKEN:
            raise ConfigError(
                "aggregator.token_file",
                f"{self.token_file} does not hold a token",
                f"Write at least {SHORTEST_TOKEN} characters without blanks: openssl rand -hex 32",
            )
        return AccessToken(
            name="token_file", scopes=(AccessScope.ADMIN,), sha256=hashed(secret), created=time.time_ns()
        )

    def certificate(self) -> ServerCertificate | None:
        """Load certificate and key; None without TLS. Raises `ConfigError`."""
        if self.tls_cert is None:
            if self.tls_key is not None:
                raise ConfigError("aggregator.tls_key", "there is no certificate to it", "Set aggregator.tls_cert too.")
            return None
        return ServerCertificate(self.tls_cert, self.tls_key)

    def counters(self) -> CounterList:
        """Load what the pages with dcgm-exporter's names show, and log what of it can't be given. Raises `ConfigError`."""
        found = load_list("aggregator.dcgm_counters", self.dcgm_counters)
        for each in found.missing:
            log.warning("http: %s", each)
        return found

    def check(self) -> TokenRegister:
        """Return the tokens to accept. Raises `ConfigError` for what can't or must not be."""
        listen_address(self.listen)
        token = self.token()
        register = TokenRegister(self.tokens_file, () if token is None else (token,))
        if register.empty and not self.loopback and not self.anonymous_read:
            raise ConfigError(
                "aggregator.listen",
                f"{self.listen} can be reached from other machines, and there is no token",
                "Make one with `kilowatch token add NAME`, set aggregator.token_file, or listen on 127.0.0.1.",
            )
        return register


CONFIG = web.AppKey("config", HttpConfig)


def is_loopback(host: str) -> bool:
    """Whether a host name or address means this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
