"""Free addresses of this machine."""

from __future__ import annotations

import secrets
import socket

from telemetry.errors import ConfigError

LOWEST, HIGHEST = 12_000, 32_000
"""Linux gives ports from 32,768 on to outgoing connections (ip_local_port_range)."""


def is_free(host: str, port: int) -> bool:
    """Return whether this process could listen there now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port that is free now; of those that the kernel gives to no connection, so that none takes it
    before it is listened on."""
    for _ in range(100):
        port = LOWEST + secrets.randbelow(HIGHEST - LOWEST)
        if is_free(host, port):
            return port
    with socket.socket() as probe:  # nearly all are taken, or the host is not this one: the kernel says it
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def pick_address(address: tuple[str, int], *, given: bool) -> tuple[str, int]:
    """Return `address` if it is free, else a free port on its host.

    Raises `ConfigError` when the operator gave that address explicitly.
    """
    host, port = address
    if port and is_free(host, port):
        return host, port
    if port and given:
        raise ConfigError(f"{host}:{port}", "another process listens there already", "Choose another port, or end it.")
    return host, free_port(host)
