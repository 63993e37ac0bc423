"""Ray's own runtime on loopback: head, dashboard and workers, of the wheel, with a token."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import free_port
from tests.kit.waiting import end_of_patience, wait_until

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None and not os.environ.get("CI"), reason="pip install 'ray[default]==2.60.0'"
)
APPLICATION = Path(__file__).with_name("application.py")
TOO_SLOW = "node timed out during startup"
"""Words of Ray, which gives its own processes half a minute and has no setting for that: a busy machine needs longer."""


class RayRuntime:
    """A running application."""

    def __init__(self) -> None:
        """Nothing runs before `start`."""
        self.folder = Path(tempfile.mkdtemp(prefix="kwr-", dir="/tmp"))  # sockets: 107 characters
        self.token_file = self.folder / "token"
        self.token_file.write_text(secrets.token_hex(32))
        self.token_file.chmod(0o600)
        self.work = self.folder / "work"
        self.work.mkdir()
        self._errors = self.folder / "stderr"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[str] | None = None
        self.actors: list[tuple[int, list[str]]] = []
        """Process and logical GPUs of each."""
        self.tasks: list[tuple[int, list[str]]] = []

    def start(self) -> None:
        """Start it and wait until actors and tasks run."""
        said = json.loads(wait_until(self._try, lambda: self._errors.read_text()[-2000:]))
        self.actors = [(pid, gpus) for pid, gpus in said["actors"]]
        self.tasks = [(pid, gpus) for pid, gpus in said["tasks"]]

    def _try(self) -> str:
        """Start it in a session of its own, whose processes end with it; return what it says, nothing where Ray was too
        slow."""
        environment = os.environ | {
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # the address of its node is 127.0.0.1 then
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.token_file),
        }
        with self._errors.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, APPLICATION, self.folder / "ray", str(self.port), self.work],
                env=environment, cwd=self.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=errors, text=True, start_new_session=True,
            )  # fmt: skip
        if not (line := self._line()):
            errors = self._errors.read_text()
            assert TOO_SLOW in errors, errors[-2000:]
            self._end()
        return line

    def _line(self) -> str:
        assert self.process is not None
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def _answer(self) -> Any:
        line = self._line()
        assert line, self._errors.read_text()[-2000:]
        return json.loads(line)

    def kill_actor(self) -> None:
        """End the first actor."""
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write("kill\n")
        self.process.stdin.flush()
        self._answer()

    def finish(self) -> None:
        """Let the application end by itself; Ray ends with it."""
        shutil.rmtree(self.work, ignore_errors=True)
        if self.process is not None:
            assert self.process.stdin is not None
            assert self.process.stdout is not None
            self.process.stdin.close()
            self.process.stdout.close()
            self.process.wait(60)

    def stop(self) -> None:
        """End every process of its session."""
        shutil.rmtree(self.work, ignore_errors=True)
        self._end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _end(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            for number in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
                deadline = end_of_patience(10)
                while _alive(process) and time.monotonic() < deadline:
                    time.sleep(0.05)
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()


def _alive(process: subprocess.Popen[str]) -> bool:
    """Return whether one of the processes of a group is left."""
    process.poll()
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return False
    return True


@contextlib.contextmanager
def running() -> Iterator[RayRuntime]:
    """Run an application meanwhile."""
    runtime = RayRuntime()
    try:
        runtime.start()
        yield runtime
    finally:
        runtime.stop()
