"""The line on the terminal while a demo starts, and the end of what the terminal no longer shows."""

from __future__ import annotations

import io
import signal
import subprocess
import sys

from kilowatch.stack.foreground import progress
from kilowatch.stack.parent import end_child


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_start_of_a_demo_says_what_it_waits_for_and_leaves_nothing() -> None:
    terminal = Terminal()
    with progress(terminal) as report:
        report("starting: 0 s")
        report("starting: 0 s")
        report("starting: 1 s")
    shown = terminal.getvalue()
    assert shown.count("starting: 0 s") == 1
    assert shown.endswith("starting: 1 s\r\x1b[K")


def test_a_log_gets_no_progress_line() -> None:
    log = io.StringIO()
    with progress(log) as report:
        report("starting: 0 s")
    assert log.getvalue() == ""


def test_a_child_that_does_not_end_is_not_left_running() -> None:
    deaf = "import time; print('x', flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", deaf], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.read(1)
        end_child(child, 0.05)
        assert child.returncode == -signal.SIGKILL
