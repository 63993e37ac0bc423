"""A pytest plugin that writes the outcome of each test to a file as soon as it is known (`-p tests.gate.outcomes`)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

import msgspec
import pytest

FILE = "KILOWATCH_OUTCOMES"
"""Environment variable that names the file to which outcomes are appended."""
CPU = "processor time"
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
    cpu: float = 0.0
    """Processor time of the whole test and of the processes that it waited for, s; with its tear-down."""


def read(file: Path) -> list[Outcome]:
    """Return the outcomes in a file; none where it is not there."""
    if not file.exists():
        return []
    return [msgspec.json.decode(line, type=Outcome) for line in file.read_bytes().splitlines()]


class _Meter:
    """Notes the processor time of each test in the process that runs it."""

    def __init__(self) -> None:
        self._before = 0.0

    def pytest_runtest_logstart(self) -> None:
        self._before = _spent()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        if call.when == "teardown":
            item.user_properties.append((CPU, round(_spent() - self._before, 3)))


def _spent() -> float:
    return sum(os.times()[:4])


class _Recorder:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def _write(self, outcome: Outcome) -> None:
        self._file.write(msgspec.json.encode(outcome) + b"\n")
        self._file.flush()  # what was known before pytest itself is killed is kept

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        hung = report.failed and any(text in report.longreprtext for text in HANGS)
        self._write(
            Outcome(
                report.nodeid,
                report.when or "",
                report.outcome,
                report.duration,
                hung,
                cpu=dict(report.user_properties).get(CPU, 0.0) if report.when == "teardown" else 0.0,
            )
        )

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write(Outcome(report.nodeid, "collect", report.outcome))


def pytest_configure(config: pytest.Config) -> None:
    """Record in the process that gathers all reports, not in its workers."""
    name = os.environ.get(FILE)
    if name:
        config.pluginmanager.register(_Meter(), "processor time")
    if name and not hasattr(config, "workerinput"):
        file = Path(name).open("ab")  # noqa: SIM115 - until pytest ends
        config.add_cleanup(file.close)
        config.pluginmanager.register(_Recorder(file), "outcomes recorder")
