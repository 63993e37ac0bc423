"""The line on the terminal while a demo starts."""

from __future__ import annotations

import io

from kilowatch.stack.foreground import progress


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
