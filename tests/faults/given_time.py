"""Hours that a test gives in place of waiting for them: the clocks of this process, set forward while they are in force."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest

from aggregator.service import Aggregator

_MONOTONIC, _TIME_NS = time.monotonic, time.time_ns


class GivenTime:
    """Real clocks, and what a test adds to them."""

    def __init__(self) -> None:
        self.passed = 0.0
        """Seconds that have passed beside the real ones: every clock is later by them."""
        self.step = 0.0
        """Seconds by which somebody has set the wall clock; the monotonic one does not know."""

    def monotonic(self) -> float:
        """Return the monotonic clock, seconds."""
        return _MONOTONIC() + self.passed

    def time_ns(self) -> int:
        """Return the wall clock, ns since 1970."""
        return _TIME_NS() + round((self.passed + self.step) * 1e9)

    @contextlib.contextmanager
    def in_force(self) -> Iterator[None]:
        """Have every module read these clocks, in the block."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time, "monotonic", self.monotonic)
            patch.setattr(time, "time_ns", self.time_ns)
            patch.setattr(time, "time", lambda: self.time_ns() / 1e9)
            yield


def give_clocks(aggregator: Aggregator) -> None:
    """Have the parts that took a clock when their module was loaded read those that are in force; all but the marks
    of progress, which is measured in real seconds."""
    aggregator.impairments._clock = time.monotonic
    aggregator.impairments._wall = aggregator.electrical._clock = time.time_ns
    aggregator.store.content._clock = time.monotonic
