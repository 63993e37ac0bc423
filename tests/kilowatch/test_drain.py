"""The end of a run: how long the frames that are still missing are waited for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aggregator.load.controller import ShedStep
from kilowatch.stack.stack import _drain


class Busy:
    """An aggregator that puts a frame off for 200 looks, and stores it ten looks later."""

    def __init__(self) -> None:
        self.looks = 0

    @property
    def shedding(self) -> SimpleNamespace:
        self.looks += 1
        step = ShedStep.HALF_HISTORY if self.looks < 200 else ShedStep.NOTHING
        return SimpleNamespace(step=step)

    @property
    def stats(self) -> SimpleNamespace:
        return SimpleNamespace(frames_stored=1 if self.looks < 210 else 2)


async def test_frames_that_load_put_off_have_their_time_after_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the aggregator has put them off: it asks for them when it is over."""
    monkeypatch.setattr("kilowatch.stack.stack.LOOK_SECONDS", 0.001)
    monkeypatch.setattr("kilowatch.stack.stack.LONGEST_QUIET_SECONDS", 0.1)
    aggregator: Any = Busy()
    collector: Any = SimpleNamespace(frames=2)
    await _drain(aggregator, [collector])
    assert aggregator.stats.frames_stored == 2
