"""The dashboard in the foreground, with everything else in a child process.

The dashboard is drawn at once, and shows what the child is waiting for; no start is given up while the child
lives.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, TextIO

from kilowatch.exit_codes import ExitCode
from kilowatch.output import echo
from kilowatch.stack.parent import END_SECONDS, end_child, start_child, write_to_parent
from kilowatch.stack.start import StartReport
from telemetry.errors import KilowattError
from telemetry.text.decoders import of_json

LAST_LINES = 2
"""Lines of the child's log that are printed at its end: what came of it."""


def announce(text: str) -> None:
    """Print a message to stderr: stdout is for results."""
    echo(text, err=True)


class StartedAggregator:
    """The child process behind the dashboard, which serves the pages; `tui.frame.start_line.OwnAggregator`."""

    def __init__(self, arguments: Sequence[str], address: str, log: IO[bytes]) -> None:
        """Start `kilowatch ARGUMENTS`."""
        self.address = address
        self._report = StartReport("kilowatch is starting")
        self._child = start_child(
            [sys.executable, "-m", "kilowatch", *arguments, "--until-eof"], output=subprocess.PIPE, log=log
        )
        threading.Thread(target=self._follow, name="start", daemon=True).start()

    @property
    def waits(self) -> str:
        """Unfinished part of its start; "" when it is complete."""
        return self._report.waits

    @property
    def serving(self) -> bool:
        """Whether it can be connected to."""
        return self._report.serving

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return self._child.poll() is not None

    @property
    def code(self) -> int | None:
        """Exit code of the process; None while it runs."""
        return self._child.poll()

    def end(self) -> None:
        """Have it end, and wait for that."""
        with progress(sys.stderr) as show:
            show("ending: the last readings are stored")
            end_child(self._child, END_SECONDS)

    def _follow(self) -> None:
        assert self._child.stdout is not None  # noqa: S101 - started with a pipe
        with self._child.stdout as lines:
            for line in lines:
                self._report = of_json(StartReport).decode(line)


def watch_with_dashboard(
    arguments: Sequence[str],
    host: str,
    port: int,
    what: str,
    show: Callable[[str, StartedAggregator], None] | None = None,
    *,
    write: bool = False,
) -> None:
    """Run `kilowatch ARGUMENTS` in a child process and show the dashboard; end both together.

    `what` is shown beside the address until the dashboard is. `show` is called with the URL and the child; the
    default is the usual dashboard, after which the last lines of the child are printed. `write`: whether the usual
    dashboard may acknowledge and silence. Where the child ends first, by an error that it has told, this is told again,
    and the process ends with the same code; by another fault: raises `KilowattError`."""
    # Of a name that no other user of the machine can foresee, and put a link in its place.
    handle, name = tempfile.mkstemp(prefix=f"kilowatch-{port}-", suffix=".log")
    log, url = Path(name), f"http://{host}:{port}"
    with os.fdopen(handle, "wb") as output:
        child = StartedAggregator(arguments, url, output)
        try:
            announce(f"{what}\nweb pages {url}  log {log}")
            if show is not None:
                show(url, child)
            else:
                from tui.top import run_top  # noqa: PLC0415 - Textual takes a while to load

                run_top(url, write=write, own=child)
            if child.code not in {None, ExitCode.CLEAN, ExitCode.TICKET}:
                if error := _error(log):
                    announce(error)
                    sys.exit(child.code)
                raise KilowattError(f"it ended with code {child.code}; its log, {log}, ends with:\n{_last(log)}")
        finally:
            child.end()
    if show is None:
        announce(_last(log))


def _error(log: Path) -> str:
    """Return the error with which a child has ended, to the end of its log; "" where it told none."""
    _, found, rest = log.read_text(errors="replace").rpartition("\nError: ")
    return f"Error: {rest.rstrip()}" if found else ""


def _last(log: Path) -> str:
    """Return the last lines of a log."""
    return "".join(log.read_text(errors="replace").splitlines(keepends=True)[-LAST_LINES:]).rstrip()


@contextlib.contextmanager
def start_reports(*, to_parent: bool) -> Iterator[Callable[[StartReport], None]]:
    """Yield what shows the progress of a start: to the process that started this one, else on the terminal."""
    if to_parent:
        yield write_to_parent
        return
    with progress(sys.stderr) as show:
        yield lambda report: show(report.waits)


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
