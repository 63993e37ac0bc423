"""No traceback of a file, a disk, a name, a network, TLS, a broker or a server reaches a log; one of ours does."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path

import aiohttp
import aiomqtt
import pytest

from telemetry.errors import BusError
from telemetry.text.log_lines import log_to_stderr
from telemetry.text.outside_errors import OWN, outside_line
from telemetry.text.printable import PrintableFormatter
from telemetry.text.service_log import JsonFormatter
from telemetry.text.settings import read_toml
from tests.kit.packages import PACKAGES
from tests.kit.stranger import stranger


def _nobody() -> tuple[str, int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        found: tuple[str, int] = server.getsockname()
    return found


def _refused() -> None:
    socket.create_connection(_nobody())


def _no_tls() -> None:
    with stranger(b"220 this is no TLS\r\n") as port, socket.create_connection(("127.0.0.1", port)) as plain:
        ssl.create_default_context().wrap_socket(plain, server_hostname="localhost")


async def _broker() -> None:
    host, port = _nobody()
    async with aiomqtt.Client(host, port):
        pass


async def _server() -> None:
    async with aiohttp.ClientSession() as session, session.get("http://{}:{}/".format(*_nobody())):
        pass


def _caught(fails: Callable[[], object]) -> Exception:
    try:
        fails()
    except Exception as error:  # noqa: BLE001 - whatever it is
        return error
    raise AssertionError("it did not fail")


def _both(*fails: Callable[[], object]) -> None:
    raise ExceptionGroup("tasks", [_caught(each) for each in fails])


def _no_file() -> None:
    Path("/none/of\nit").read_text()


def _own_error() -> None:
    raise BusError("nothing listens there", "Start it.")


def _full_disk() -> None:
    Path("/dev/full").write_text("x")


OUTSIDE: dict[str, tuple[Callable[[], object], str]] = {
    "no file": (_no_file, "FileNotFoundError: /none/of it: No such file or directory"),
    "full disk": (_full_disk, "No space left on device"),
    "no name": (lambda: socket.getaddrinfo("kilowatch.invalid", 1), "gaierror: [Errno "),
    "nobody listens": (_refused, "ConnectionRefusedError: [Errno 111]"),
    "no TLS": (_no_tls, "SSLError: "),
    "broker": (lambda: asyncio.run(_broker()), "MqttError: "),
    "server": (lambda: asyncio.run(_server()), "ClientConnectorError: "),
    "time is up": (lambda: asyncio.run(asyncio.wait_for(asyncio.Event().wait(), 0)), "TimeoutError: it says nothing else"),
    "several": (lambda: _both(_refused, _no_file), "ConnectionRefusedError: "),
    "an error of ours on purpose": (_own_error, "BusError: nothing listens there. Start it."),
}  # fmt: skip


def _bad_descriptor() -> None:
    os.close(os.open(os.devnull, os.O_RDONLY) + 4000)


OURS: dict[str, Callable[[], object]] = {
    "arithmetic": lambda: 1 // 0,
    "a descriptor that is closed": _bad_descriptor,
    "an argument that is none": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 9999),
    "one of several": lambda: _both(_refused, lambda: 1 // 0),
}


def _logged(fails: Callable[[], object]) -> tuple[str, dict[str, str]]:
    """Return the error as both forms of the log have it."""
    error = _caught(fails)
    met = (type(error), error, error.__traceback__)
    record = logging.LogRecord("x", logging.ERROR, "f", 1, "a step failed", None, met)
    found: dict[str, str] = json.loads(JsonFormatter().format(record))
    return PrintableFormatter("%(message)s").format(record), found


@pytest.mark.parametrize("kind", OUTSIDE)
def test_an_error_from_outside_is_one_line(kind: str) -> None:
    fails, words = OUTSIDE[kind]
    text, found = _logged(fails)
    first, second = text.splitlines()
    assert first == "a step failed"
    assert second.startswith("  ")
    assert words in second
    assert "traceback" not in found
    assert words in found["error"]


@pytest.mark.parametrize("kind", OURS)
def test_a_fault_of_ours_keeps_its_traceback(kind: str) -> None:
    text, found = _logged(OURS[kind])
    assert "Traceback (most recent call last)" in text
    assert "Traceback (most recent call last)" in found["traceback"]
    assert "error" not in found


def test_the_line_says_where_in_kilowatch_it_was_met(tmp_path: Path) -> None:
    line = outside_line(_caught(lambda: read_toml(tmp_path)))
    assert line is not None
    assert re.fullmatch(r"ConfigError: .* \(telemetry\.text\.settings:\d+\)", line)


def test_its_own_packages_are_all() -> None:
    assert set(PACKAGES) == OWN


def test_twice_verbose_keeps_every_traceback(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        text, found = _logged(_refused)
    assert "Traceback" in text
    assert "traceback" in found


def test_what_ends_a_thread_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Python would print it past the log."""
    before = threading.excepthook
    try:
        log_to_stderr(logging.WARNING)
        thread = threading.Thread(target=_refused, name="reader")
        thread.start()
        thread.join()
    finally:
        threading.excepthook = before
    (record,) = caplog.records
    assert record.getMessage() == "thread reader failed"
    assert isinstance(record.exc_info and record.exc_info[1], ConnectionRefusedError)
