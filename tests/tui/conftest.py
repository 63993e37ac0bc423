"""How long a test waits for the dashboard to have handled a key."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    """After each key Textual looks, every 20 ms, whether the process has done next to nothing for one
    of them; here the aggregator lives in the same process and is seldom so quiet. Looked at four times
    as often, the suite takes half as long."""
    monkeypatch.setattr("textual._wait.SLEEP_GRANULARITY", 0.005)
    monkeypatch.setattr("textual._wait.SLEEP_IDLE", 0.005 / 20)
