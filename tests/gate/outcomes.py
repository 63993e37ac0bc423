"""A pytest plugin that writes the outcome of each test to a file as soon as it is known (`-p tests.gate.outcomes`)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

import msgspec
import pytest

FILE = "KILOWATCH_OUTCOMES"
"""Environment variable that names the file to which outcomes are appended."""
HANGS = ("from pytest-timeout", "crashed while running")
"""Texts of a test that did not end by itself: its time limit, or the end of its worker."""


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The end of one phase (set-up, call, tear-down) of a test, or a file that can't be collected."""

    test: str
    """Node id, as pytest takes it."""
    phase: str
    outcome: str
    """`passed`, `failed` or `skipped`."""
    seconds: float = 0.0
    hung: bool = False


def read(file: Path) -> list[Outcome]:
    """Return the outcomes in a file; none where it is not there."""
    if not file.exists():
        return []
    return [msgspec.json.decode(line, type=Outcome) for line in file.read_bytes().splitlines()]


class _Recorder:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def _write(self, outcome: Outcome) -> None:
        self._file.write(msgspec.json.encode(outcome) + b"\n")
        self._file.flush()  # what was known before pytest itself is killed is kept

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        hung = report.failed and any(text in report.longreprtext for text in HANGS)
        self._write(
            Outcome(report.nodeid, report.when or "", report.outcome, report.duration, hung)
        )

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write(Outcome(report.nodeid, "collect", report.outcome))


def pytest_configure(config: pytest.Config) -> None:
    """Record in the process that gathers all reports, not in its workers."""
    name = os.environ.get(FILE)
    if name and not hasattr(config, "workerinput"):
        file = Path(name).open("ab")  # noqa: SIM115 - until pytest ends
        config.add_cleanup(file.close)
        config.pluginmanager.register(_Recorder(file), "outcomes recorder")
