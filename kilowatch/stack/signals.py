"""Signals that end or reload a service."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable

from kilowatch.stack.parent import ParentPipe


def stop_on_signals(parent: ParentPipe | None = None) -> asyncio.Event:
    """Return an event that SIGINT and SIGTERM set, and the end of the parent. The second SIGINT ends the process at once, whatever it
    does: an operator who asks twice does not want to wait for the last frames."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def interrupted() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        stop.set()

    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGINT, interrupted)
    if parent is not None:
        parent.stop_at_end(stop)
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
