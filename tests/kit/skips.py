"""Skips in CI: right where a machine can not give what a test needs, wrong where nobody has installed it."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

RIGHT = (
    "../shared",  # recordings and tables that are lent to few
    "only root can",
    "it takes root",
    "needs root and /dev/fuse",
    "no network namespace can be made",
    "by night",
    "make homeassistant",  # needs another Python
    "npm could not fetch",  # the registry does not answer: no fault of a change
    "this machine has no",
    "a machine of one core",
    "this kernel keeps none",
    "the C library gives nothing back",
    "libnvidia-ml.so.1 is here",
)
"""Parts of the reasons that CI takes."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail in CI what is skipped there for another reason: the want of a program, a module, or any parameter."""
    report = yield
    if report.skipped and os.environ.get("CI") and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2]
        if not any(each in reason for each in RIGHT):
            report.outcome, report.longrepr = "failed", f"CI must run this: {reason}"
    return report
