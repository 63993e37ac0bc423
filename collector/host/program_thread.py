"""A thread that runs programs which may take long, or hang with their device, and of which no tick waits."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

LEAVING = 0.5
"""Seconds for the thread to end, and for a killed program."""
_DENIED = ("ermission denied", "Operation not permitted")


class ProgramOutput(NamedTuple):
    """Output of a program that has ended."""

    text: str
    complaint: str
    code: int


class ProgramThread:
    """The thread, and the program that it runs."""

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        """`work` runs in the thread until `ended`."""
        self._name = name
        self._work = work
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._child: subprocess.Popen[str] | None = None
        self._stuck: dict[tuple[str, ...], subprocess.Popen[str]] = {}
        """Programs that did not end when they were killed."""

    def begin(self) -> None:
        """Start the thread, where it does not run."""
        if self._thread is None or not (self._thread.is_alive() or self._end.is_set()):
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def ended(self) -> bool:
        """Whether the thread is to end."""
        return self._end.is_set()

    def wait(self, seconds: float) -> None:
        """Wait so long, or until the end."""
        self._end.wait(seconds)

    def close(self) -> None:
        """End the thread, and the program that runs; do not wait for one that hangs."""
        self._end.set()
        child = self._child
        if child is not None:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
        if self._thread is not None:
            self._thread.join(timeout=LEAVING)

    def run(self, command: Sequence[str], seconds: float) -> ProgramOutput:
        """Return what a program writes. One that does not end in time is killed, and one that its device holds
        is left alone; it is not started again while it is there. Raises `TimeoutError`, `PermissionError` or
        `OSError`."""
        key = tuple(command)
        stuck = self._stuck.get(key)
        if stuck is not None:
            if stuck.poll() is None:
                raise TimeoutError(f"{command[0]} hangs")
            del self._stuck[key]
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, "LC_ALL": "C"},
        )
        self._child = child
        try:
            if self._end.is_set():  # closed before it was started
                child.kill()
            text, complaint = child.communicate(timeout=seconds)
        except subprocess.TimeoutExpired as error:
            self._leave(key, child)
            raise TimeoutError(f"{command[0]} did not answer") from error
        finally:
            self._child = None
        if any(word in complaint for word in _DENIED):
            raise PermissionError(complaint)
        return ProgramOutput(text, complaint, child.returncode)

    def _leave(self, key: tuple[str, ...], child: subprocess.Popen[str]) -> None:
        """Kill a program that does not answer; it ends when the kernel lets it."""
        child.kill()
        try:
            child.communicate(timeout=LEAVING)
        except subprocess.TimeoutExpired:
            self._stuck[key] = child
            for pipe in (child.stdout, child.stderr):
                if pipe is not None:
                    pipe.close()
