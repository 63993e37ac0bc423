"""The dashboard in the foreground, with everything else in a child process."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from kilowatch.cli.output import echo
from telemetry.errors import KilowattError

START_SECONDS = 30.0


def announce(text: str) -> None:
    """Print a message to stderr: stdout is for results."""
    echo(text, err=True)


def watch_with_dashboard(
    arguments: Sequence[str],
    host: str,
    port: int,
    show: Callable[[str], None] | None = None,
    timeout: float = START_SECONDS,
) -> None:
    """Run `kilowatch ARGUMENTS` in a child process and show the dashboard; end both together.

    `show` is called with the URL; the default is the usual dashboard, after which the last lines of
    the child are printed. `timeout`: seconds until the child must answer."""
    from tui.top import run_top  # noqa: PLC0415 - Textual takes a while to load

    # Of a name that no other user of the machine can foresee, and put a link in its place.
    handle, name = tempfile.mkstemp(prefix=f"kilowatch-{port}-", suffix=".log")
    log = Path(name)
    with os.fdopen(handle, "wb") as output:
        child = subprocess.Popen(
            [sys.executable, "-m", "kilowatch", *arguments, "--until-eof"],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
        )
        try:
            _wait_until_served(child, host, port, log, timeout)
            (show or run_top)(f"http://{host}:{port}")
        finally:
            if child.stdin:
                child.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(30)
    if show is None:
        announce("".join(log.read_text(errors="replace").splitlines(keepends=True)[-2:]).rstrip())


def _wait_until_served(
    child: subprocess.Popen[bytes], host: str, port: int, log: Path, timeout: float
) -> None:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if child.poll() is not None:
            raise KilowattError(f"it ended at once:\n{log.read_text(errors='replace').strip()}")
        try:
            with urllib.request.urlopen(f"http://{host}:{port}/healthz", timeout=1):
                return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.05)
    raise KilowattError(f"nothing answers at {host}:{port} after {timeout:.0f} s; see {log}")
