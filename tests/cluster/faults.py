"""Faults of a cluster: each lasts while its block runs, and all is there again after it."""

from __future__ import annotations

import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.cluster.hall import Hall


@contextmanager
def killed(hall: Hall, *names: str) -> Iterator[None]:
    """SIGKILL of members, all at once."""
    for name in names:
        hall.loop.signal(name, signal.SIGKILL)
    for name in names:
        hall.loop.kill(name)
    try:
        yield
    finally:
        hall.loop.start(*names)


@contextmanager
def ended(hall: Hall, name: str) -> Iterator[None]:
    """SIGTERM of a member."""
    assert hall.loop.end(name) == 0
    try:
        yield
    finally:
        hall.loop.start(name)


_RELEASE = """
from aggregator.cluster import groups, member
member.PROTOCOL, member.OLDEST_PROTOCOL = {protocol}, {oldest}
if not {checks}:
    groups.refusal = member.refusal = lambda *_: ""
from kilowatch.__main__ import main
main()
"""


@contextmanager
def other_release(hall: Hall, name: str, protocol: int, oldest: int, *, checks: bool = True) -> Iterator[None]:
    """A member, not running now, that runs with other numbers of the protocol. `checks`: whether it looks at
    those of the others at all."""
    hall.loop.programs[name] = _RELEASE.format(protocol=protocol, oldest=oldest, checks=checks)
    hall.loop.start(name)
    try:
        yield
    finally:
        del hall.loop.programs[name]
        assert hall.loop.end(name) == 0


@contextmanager
def stopped(hall: Hall, name: str) -> Iterator[None]:
    """A member that stands still, and goes on where it stood."""
    hall.loop.signal(name, signal.SIGSTOP)
    try:
        yield
    finally:
        hall.loop.signal(name, signal.SIGCONT)


@contextmanager
def slowed(hall: Hall, name: str) -> Iterator[None]:
    """A member that has a tenth of the time."""
    over = threading.Event()

    def slow() -> None:
        while not over.is_set():
            hall.loop.signal(name, signal.SIGSTOP)
            over.wait(0.45)
            hall.loop.signal(name, signal.SIGCONT)
            over.wait(0.05)

    thread = threading.Thread(target=slow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        hall.loop.signal(name, signal.SIGCONT)


@contextmanager
def servers_killed(hall: Hall, *numbers: int) -> Iterator[None]:
    """SIGKILL of nats-servers."""
    servers = [hall.loop.nats.servers[number] for number in numbers]
    for server in servers:
        server.kill()
    try:
        yield
    finally:
        for server in servers:
            server.start()


@contextmanager
def server_stopped(hall: Hall, number: int) -> Iterator[None]:
    """A nats-server that stands still: the routes to it are cut, and nobody is told."""
    server = hall.loop.nats.servers[number]
    server.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.signal(signal.SIGCONT)


@contextmanager
def power_cut(hall: Hall) -> Iterator[None]:
    """Members, servers and collectors die at once, and members' disks have what was synced alone. Members run with
    such disks as the block begins, and the power is cut at its end."""
    loop = hall.loop
    for name in loop.members:
        loop.kill(name)
        loop.disks[name].keep_synced(loop.folder / name)
    loop.start(*loop.members)
    hall.whole()
    yield
    for name in list(loop.processes):
        loop.signal(name, signal.SIGKILL)
    for server in loop.nats.servers:
        server.kill()
    for name in list(loop.processes):
        loop.kill(name)
    for name in loop.members:
        loop.disks[name].forget_unsynced(loop.folder / name)
    for server in loop.nats.servers:
        server.start()
    loop.start(*loop.members, *loop.nodes)


@contextmanager
def streams_wiped(hall: Hall) -> Iterator[None]:
    """SIGKILL of all servers, and the loss of what they had stored."""
    servers = hall.loop.nats.servers
    for server in servers:
        server.kill()
    for server in servers:
        shutil.rmtree(server.folder / "js")
        server.start()
    yield


@contextmanager
def storage_away(hall: Hall) -> Iterator[None]:
    """The shared storage can't be reached."""
    storage = hall.loop.storage
    assert storage is not None
    away = storage.with_name("away")
    storage.rename(away)
    try:
        yield
    finally:
        away.rename(storage)


@contextmanager
def disk_full(hall: Hall, name: str) -> Iterator[None]:
    """A member's own disk takes nothing more."""
    hall.loop.disks[name].be("nospace")
    try:
        yield
    finally:
        hall.loop.disks[name].be("ok")


@contextmanager
def clocks_stepped(hall: Hall, ahead: dict[str, float]) -> Iterator[None]:
    """The wall clocks of members are wrong by so many seconds."""
    for name, seconds in ahead.items():
        hall.loop.clocks[name].be_ahead(seconds)
    try:
        yield
    finally:
        for name in ahead:
            hall.loop.clocks[name].be_ahead(0.0)
