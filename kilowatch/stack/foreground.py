"""The dashboard in front, everything else in a process behind it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from telemetry.errors import KilowattError

START_SECONDS = 30.0


def announce(text: str) -> None:
    """Say something to the operator, on stderr: stdout is for results."""
    click.echo(text, err=True)


def watch_with_dashboard(
    arguments: Sequence[str],
    host: str,
    port: int,
    show: Callable[[str], None] | None = None,
    patience: float = START_SECONDS,
) -> None:
    """Start `kilowatch ARGUMENTS` behind us, show the dashboard, end both together.

    `show`: shows it, given where; without, it is the usual dashboard, and what the process said last
    is told. `patience`: seconds until it must
    answer."""
    from tui.top import run_top  # noqa: PLC0415 - Textual takes a while to load

    log = Path(tempfile.gettempdir()) / f"kilowatch-{port}.log"
    with log.open("wb") as output:
        behind = subprocess.Popen(
            [sys.executable, "-m", "kilowatch", *arguments, "--until-eof"],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
        )
        try:
            _wait_until_served(behind, host, port, log, patience)
            (show or run_top)(f"http://{host}:{port}")
        finally:
            if behind.stdin:
                behind.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                behind.wait(30)
    if show is None:
        announce("".join(log.read_text(errors="replace").splitlines(keepends=True)[-2:]).rstrip())


def _wait_until_served(
    behind: subprocess.Popen[bytes], host: str, port: int, log: Path, patience: float
) -> None:
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        if behind.poll() is not None:
            raise KilowattError(f"it ended at once:\n{log.read_text(errors='replace').strip()}")
        try:
            with urllib.request.urlopen(f"http://{host}:{port}/healthz", timeout=1):
                return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.05)
    raise KilowattError(f"nothing answers at {host}:{port} after {patience:.0f} s; see {log}")
