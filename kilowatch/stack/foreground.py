"""The dashboard in the foreground, with everything else in a child process."""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

from kilowatch.cli.output import echo
from telemetry.errors import KilowattError

START_SECONDS, START_SECONDS_EACH = 120.0, 0.1
"""Seconds that a start may take, on a machine with much other work too, and more for each simulated node. A child
that ends is told at once."""
END_SECONDS = 30.0
"""Seconds that the child may take to end; then it is killed, which loses nothing that is on disk."""


def announce(text: str) -> None:
    """Print a message to stderr: stdout is for results."""
    echo(text, err=True)


def watch_with_dashboard(
    arguments: Sequence[str],
    host: str,
    port: int,
    show: Callable[[str], None] | None = None,
    timeout: float = START_SECONDS,
    *,
    write: bool = False,
) -> None:
    """Run `kilowatch ARGUMENTS` in a child process and show the dashboard; end both together.

    `show` is called with the URL; the default is the usual dashboard, after which the last lines of
    the child are printed. `timeout`: seconds until the child must answer. `write`: whether the usual
    dashboard may acknowledge and silence."""
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
            (show or functools.partial(run_top, write=write))(f"http://{host}:{port}")
        finally:
            if child.stdin:
                child.stdin.close()
            end(child, END_SECONDS)
    if show is None:
        announce("".join(log.read_text(errors="replace").splitlines(keepends=True)[-2:]).rstrip())


def end(child: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait for a child that was told to end; one that does not is killed, for nobody sees it any more."""
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _wait_until_served(
    child: subprocess.Popen[bytes], host: str, port: int, log: Path, timeout: float
) -> None:
    start = time.monotonic()
    with progress(sys.stderr) as report:
        while (waited := time.monotonic() - start) < timeout:
            report(
                f"starting broker, collectors and aggregator: {waited:.0f} s of at most {timeout:.0f} s"
            )
            if _served(child, host, port, log):
                return
            time.sleep(0.05)
    raise KilowattError(f"nothing answers at {host}:{port} after {timeout:.0f} s; see {log}")


@contextlib.contextmanager
def progress(stream: TextIO) -> Iterator[Callable[[str], None]]:
    """Show a line on the terminal that is replaced, and removed at the end; without a terminal, none."""
    if not stream.isatty():
        yield lambda _: None
        return
    shown = ""

    def report(text: str) -> None:
        nonlocal shown
        if text != shown:
            shown = text
            stream.write(f"\r\x1b[K{text}")
            stream.flush()

    try:
        yield report
    finally:
        stream.write("\r\x1b[K")
        stream.flush()


def _served(child: subprocess.Popen[bytes], host: str, port: int, log: Path) -> bool:
    """Return whether the child answers. Raises `KilowattError` where it has ended."""
    if child.poll() is not None:
        raise KilowattError(f"it ended at once:\n{log.read_text(errors='replace').strip()}")
    try:
        with urllib.request.urlopen(f"http://{host}:{port}/healthz", timeout=1):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
