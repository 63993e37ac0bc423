"""The end of a child process with its parent, however that one ends.

The child's standard input is a pipe whose other end only the parent has: it ends with the parent, also when
that one is killed. A thread waits for it from the first moment, so that a child ends too that is still
loading its modules, or whose event loop is busy. (prctl's PR_SET_PDEATHSIG would end it before its last readings
are stored, and for the end of the thread that started it, and not at all for a parent that ended before the call.)
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import IO

import msgspec

END_SECONDS = 30.0
"""Seconds that a child may take to end in order; then it is killed, which loses nothing that is on disk."""


class ParentPipe:
    """Standard input of a child process, read in a thread."""

    def __init__(self, received: Callable[[bytes], None] = lambda _: None) -> None:
        """`received` is called with each line, in the thread."""
        self._received = received
        self._lock = threading.Lock()
        self._act: Callable[[], None] | None = None
        self._ended = False
        threading.Thread(target=self._read, name="parent", daemon=True).start()

    def at_end(self, act: Callable[[], None]) -> None:
        """Have `act` called at the end of the parent, in the thread or at once; the process is killed where it
        does not end then. Without this it ends at once: it has nothing to store yet."""
        with self._lock:
            self._act = act
            if not self._ended:
                return
        act()

    def stop_at_end(self, stop: asyncio.Event) -> None:
        """Set an event of the running loop at the end of the parent."""
        loop = asyncio.get_running_loop()

        def act() -> None:
            try:
                loop.call_soon_threadsafe(stop.set)
            except RuntimeError:  # the loop has ended by itself
                return

        self.at_end(act)

    def _read(self) -> None:
        rest = b""
        while chunk := _read_input():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._received(line)
        with self._lock:
            self._ended = True
            act = self._act
        if act is None:
            os._exit(0)
        # The kernel ends the process then, even where no Python code runs any more.
        signal.setitimer(signal.ITIMER_REAL, END_SECONDS)
        act()


def _read_input() -> bytes:
    # Not `sys.stdin`, whose lock a thread that waits would hold at the interpreter's end.
    try:
        return os.read(0, 65536)
    except OSError:
        return b""


def write_to_parent(report: msgspec.Struct) -> None:
    """Write a report to the parent, which reads our output."""
    with contextlib.suppress(BrokenPipeError):  # it has ended, which the other pipe says
        sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
        sys.stdout.buffer.flush()


def start_child(arguments: Sequence[str], *, output: int | IO[bytes], log: IO[bytes] | None) -> subprocess.Popen[bytes]:
    """Start a command that ends with this process: it makes a `ParentPipe`, and what a terminal sends to its
    foreground processes does not reach it. `log`: where its standard error goes; None: where ours does."""
    return subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=output, stderr=log, process_group=0)


def end_child(child: subprocess.Popen[bytes], seconds: float) -> None:
    """Have a child end, and wait for it; one that does not is killed, for nobody sees it any more."""
    if child.stdin is not None:
        with contextlib.suppress(BrokenPipeError):  # it has ended, and not read all
            child.stdin.close()
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
