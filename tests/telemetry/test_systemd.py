"""The notification protocol, with a socket of our own in systemd's place."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from telemetry.runtime.supervision import ProgressMarks
from telemetry.runtime.systemd import ServiceManager
from tests.kit.waiting import until
from tests.notify_socket import NotifySocket


@pytest.fixture(params=["path", "abstract"])
def manager_socket(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NotifySocket]:
    address = str(tmp_path / "notify")
    if request.param == "abstract":
        address = f"@kilowatch-test-{os.getpid()}"
    with NotifySocket(address) as manager:
        yield manager


def test_without_systemd_nothing_is_sent() -> None:
    manager = ServiceManager.of({})
    manager.send(READY=1)
    assert manager.watchdog == 0.0


def test_a_manager_that_is_behind_does_not_hold_up_who_feeds_it(
    manager_socket: NotifySocket, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its socket has room for some messages; a collector that waited for more read its GPUs at half their rate."""
    manager = ServiceManager.of(manager_socket.environment())
    monkeypatch.setattr("telemetry.runtime.systemd.SEND_SECONDS", 86_400.0)
    for _ in range(10_000):
        manager.feed(WATCHDOG=1)
        if caplog.records:
            break
    assert "systemd was not notified of WATCHDOG=1" in caplog.text
    assert manager_socket.receive() == {"WATCHDOG": "1"}
    caplog.clear()
    manager.feed(WATCHDOG=1)
    assert not caplog.records, "there is room again"


def test_the_environment_is_not_handed_on(manager_socket: NotifySocket) -> None:
    environment = manager_socket.environment(watchdog=30.0) | {"HOME": "/root"}
    manager = ServiceManager.of(environment)
    assert manager.watchdog == 30.0
    assert environment == {"HOME": "/root"}


def test_the_watchdog_of_another_process_is_not_ours(manager_socket: NotifySocket) -> None:
    environment = manager_socket.environment(watchdog=30.0) | {"WATCHDOG_PID": "1"}
    assert ServiceManager.of(environment).watchdog == 0.0


def test_a_reload_is_between_two_notices(manager_socket: NotifySocket) -> None:
    manager = ServiceManager.of(manager_socket.environment())

    def apply() -> None:
        assert manager_socket.receive()["RELOADING"] == "1"
        raise RuntimeError("refused")

    with pytest.raises(RuntimeError, match="refused"):
        manager.reload(apply)
    assert manager_socket.receive() == {"READY": "1"}


def test_a_reload_says_when_it_began(manager_socket: NotifySocket) -> None:
    ServiceManager.of(manager_socket.environment()).reload(lambda: None)
    notice = manager_socket.receive()
    assert notice["RELOADING"] == "1"
    assert int(notice["MONOTONIC_USEC"]) > 0


def test_a_manager_that_is_gone_is_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ServiceManager(str(tmp_path / "nobody")).send(READY=1)
    assert "systemd was not notified of READY=1" in caplog.text


class Service:
    """A service in a time that the test sets."""

    def __init__(self, manager: NotifySocket) -> None:
        self.now = 0.0
        self.stop, self.ready = asyncio.Event(), asyncio.Event()
        self.marks = ProgressMarks({"sample": 10.0}, ("sample",), clock=lambda: self.now)
        self.manager = ServiceManager.of(manager.environment(watchdog=0.02))


@contextlib.asynccontextmanager
async def serving(manager: NotifySocket) -> AsyncIterator[Service]:
    service = Service(manager)

    async def work() -> str:
        await service.stop.wait()
        return "result"

    task = asyncio.create_task(
        service.manager.accompany(work(), service.stop, service.ready, service.marks, lambda: "8 GPUs")
    )
    try:
        yield service
    finally:
        service.stop.set()
        assert await task == "result"


async def test_it_is_ready_when_the_start_has_succeeded_and_not_before(manager_socket: NotifySocket) -> None:
    async with serving(manager_socket) as service:
        await asyncio.sleep(0)
        await asyncio.sleep(0.05)
        assert manager_socket.waiting() == []
        service.ready.set()
        await until(lambda: manager_socket.count("READY") == 1)
        assert manager_socket.all[0] == {"READY": "1", "STATUS": "8 GPUs"}
    manager_socket.waiting()
    assert manager_socket.all[-1] == {"STOPPING": "1"}


async def test_only_progress_feeds_the_watchdog(manager_socket: NotifySocket) -> None:
    async with serving(manager_socket) as service:
        service.ready.set()
        await until(lambda: manager_socket.count("WATCHDOG") >= 3)
        service.now = 11.0
        await until(lambda: "No progress of sample for 11 s" in manager_socket.statuses())
        fed = manager_socket.count("WATCHDOG")
        seen = len(manager_socket.all)
        await until(lambda: manager_socket.read() >= seen + 5)  # it goes on looking
        assert manager_socket.count("WATCHDOG") == fed
        service.marks.mark("sample")
        await until(lambda: manager_socket.count("WATCHDOG") > fed)


async def test_a_process_that_ends_by_an_error_says_that_it_stops(tmp_path: Path) -> None:
    async def work() -> None:
        raise RuntimeError("no")

    with NotifySocket(str(tmp_path / "notify")) as socket_:
        manager = ServiceManager.of(socket_.environment())
        with pytest.raises(RuntimeError, match="no"):
            await manager.accompany(work(), asyncio.Event(), asyncio.Event(), ProgressMarks({}, ()), str)
        assert socket_.receive() == {"STOPPING": "1"}
