"""Signals that end or reload a service."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable


def stop_on_signals() -> asyncio.Event:
    """Return an event that SIGINT and SIGTERM set."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


def on_hangup(act: Callable[[], object]) -> None:
    """Call `act` at SIGHUP, as sent by `systemctl reload`. At a terminal SIGHUP keeps its meaning:
    the terminal is closed, and the process ends."""
    if sys.stdin is None or not sys.stdin.isatty():
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, act)


def stop_after(stop: asyncio.Event, seconds: float | None) -> asyncio.Event:
    """Return `stop`, which is set after some seconds; None means never."""
    if seconds is not None:
        asyncio.get_running_loop().call_later(seconds, stop.set)
    return stop


async def stop_at_eof(stop: asyncio.Event) -> None:
    """Set `stop` when standard input ends: the parent process with the dashboard has ended."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    await reader.read()
    stop.set()
