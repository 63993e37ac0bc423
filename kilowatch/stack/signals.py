"""Signals that end or reload a service."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable


def stop_on_signals(*, until_eof: bool = False) -> asyncio.Event:
    """Return an event that SIGINT and SIGTERM set.

    `until_eof`: the end of standard input sets it too, because the parent process with the dashboard
    has ended then.
    """
    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def read() -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            loop.remove_reader(sys.stdin)
            stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if until_eof:
        loop.add_reader(sys.stdin, read)
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
