"""The token that an aggregator makes at its start, and the programs of the same user find by themselves.

A file for each address that it listens on, in the state folder of its user, mode 0600: so
`kilowatch ack` needs no flag, and another user of the machine can't write. The aggregator holds a
lock on the file while it lives. A token without the lock is out of force, and never shown to a stranger who
listens at the address of an aggregator that has ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import os
import secrets
import socket
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from telemetry.files import private_file

FOLDER = "local-tokens"
BROKERS = "local-brokers"
"""Folder of the passwords of embedded brokers, found in the same way."""
SYSTEM = (Path("/var/lib/kilowatch"), Path("/var/lib/kilowatch-data"))
"""State folders of services, which root may read."""
_MOST_BYTES = 256
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - as an aggregator may be bound
"""Address by which this machine reaches a listener on all addresses."""


def state_folders() -> list[Path]:
    """Return the state folders of this user, the one to write to first."""
    found = [Path(path) for path in os.environ.get("STATE_DIRECTORY", "").split(":") if path]
    home = os.environ.get("XDG_STATE_HOME")
    if home:
        found.append(Path(home) / "kilowatch")
    if os.geteuid() == 0 and os.access("/var/lib", os.W_OK):
        found += SYSTEM
    with contextlib.suppress(RuntimeError):  # a user without a home
        found.append(Path.home() / ".local" / "state" / "kilowatch")
    return found


@contextmanager
def published(folder: Path, addresses: Iterable[tuple[str, int]], token: str, kind: str = FOLDER) -> Iterator[None]:
    """Show a token to programs of this user for as long as the block runs. Raises `OSError`.

    `folder`: a state folder; `addresses`: those that this process listens on; `kind`: `FOLDER` or
    `BROKERS`.
    """
    place = folder / kind
    private_file.make_folder(place)
    with contextlib.ExitStack() as held:
        for host, port in addresses:
            path = place / _name(_ANY.get(host, host), port)
            handle = private_file.write(path, f"{token}\n")
            held.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held.callback(_remove, path, handle)
        yield


def find(url: str) -> str | None:
    """Return the token of the aggregator at a URL, where this user runs it on this machine."""
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return None
    return find_at(parts.hostname or "", port)


def find_at(host: str, port: int, kind: str = FOLDER) -> str | None:
    """Return what a program of this user, which listens at an address of this machine, published."""
    name = _name("127.0.0.1" if host == "localhost" else host, port)
    for folder in state_folders():
        token = _read(folder / kind / name)
        if token:
            return token
    return None


def running() -> list[tuple[str, int]]:
    """Return the addresses of this machine at which aggregators of this user listen, in order."""
    found = set()
    for folder in state_folders():
        with contextlib.suppress(OSError):
            for path in (folder / FOLDER).iterdir():
                host, _, port = path.name.removeprefix(f"{socket.gethostname()}_").rpartition("_")
                if port.isdigit() and path.name == _name(host, int(port)) and _read(path):
                    found.add((host, int(port)))
    return sorted(found)


def is_near(peer: str, own: str) -> bool:
    """Whether a connection comes from this machine: `peer` and `own` are the addresses of its ends."""
    try:
        return peer == own or ipaddress.ip_address(peer).is_loopback
    except ValueError:
        return False


def make() -> str:
    """Return a new token: 256 random bits."""
    return f"kwt_{secrets.token_urlsafe(32)}"


def _name(host: str, port: int) -> str:
    # With the machine's name: homes may lie on a file system that many machines share.
    return f"{socket.gethostname()}_{host}_{port}"


def _read(path: Path) -> str | None:
    """Return the token in a file of this user whose aggregator lives."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        its = os.fstat(handle)
        ours = os.geteuid() in {0, its.st_uid}
        if not stat.S_ISREG(its.st_mode) or its.st_mode & 0o077 or not ours:
            return None
        if not _locked(handle):  # its aggregator has ended
            return None
        return os.read(handle, _MOST_BYTES).decode("ascii", "ignore").strip()
    except OSError:
        return None
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    """Whether another process holds the lock of a file."""
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _remove(path: Path, handle: int) -> None:
    """Remove the file, unless another aggregator has put its own there."""
    with contextlib.suppress(OSError):
        if path.stat().st_ino == os.fstat(handle).st_ino:
            path.unlink()
