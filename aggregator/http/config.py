"""Where the aggregator listens, and who may come in."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import msgspec

from aggregator.config import listen_address
from telemetry.errors import ConfigError
from telemetry.secrets import read_token

LISTEN = "127.0.0.1:9400"


class HttpConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the HTTP listener. `check` them before use."""

    listen: str = LISTEN
    """Address and port; port 0 takes any that is free. IPv6 as `[::1]:9400`, `:9400` is loopback."""
    token_file: Path | None = None
    """A file with a bearer token alone. Asked for everywhere but on loopback."""
    names: tuple[str, ...] = ()
    """Further host names under which a loopback listener is reached, behind a proxy for instance."""
    address: str | None = None
    """`host:port` under which Prometheus reaches this aggregator, where the Host header of its
    service discovery request does not."""

    slow_viewer_seconds: float = 10.0
    """Seconds that a viewer of the stream may take to read a message before it is cut off."""

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

    def token(self) -> str | None:
        """Read the token. Raises `ConfigError` when its file can't be read or holds none."""
        if self.token_file is None:
            return None
        token = read_token("aggregator.token_file", self.token_file)
        if len(token) < 16:
            raise ConfigError(
                "aggregator.token_file",
                f"{self.token_file} does not hold a token",
                "Write at least 16 characters without blanks: openssl rand -hex 32",
            )
        return token

    def check(self) -> str | None:
        """Return the token to require. Raises `ConfigError` for what can't or must not be."""
        listen_address(self.listen)
        token = self.token()
        if token is None and not self.loopback:
            raise ConfigError(
                "aggregator.listen",
                f"{self.listen} can be reached from other machines, and there is no token",
                "Set aggregator.token_file, or listen on 127.0.0.1.",
            )
        return token


def is_loopback(host: str) -> bool:
    """Whether a host name or address means this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
