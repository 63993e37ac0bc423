"""How long a test waits for the dashboard to have handled a key, and how long what it says in passing stands."""

from __future__ import annotations

import pytest
from textual.notifications import Notification


@pytest.fixture(autouse=True)
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    """After each key Textual looks, every 20 ms, whether the process has done next to nothing for one
    of them; here the aggregator lives in the same process and is seldom so quiet. Looked at four times
    as often, the suite takes half as long."""
    monkeypatch.setattr("textual._wait.SLEEP_GRANULARITY", 0.005)
    monkeypatch.setattr("textual._wait.SLEEP_IDLE", 0.005 / 20)


@pytest.fixture(autouse=True)
def toasts(monkeypatch: pytest.MonkeyPatch) -> None:
    """No toast expires: some stand for 3 seconds, and on a busy machine were over before they were looked at."""
    monkeypatch.setattr(Notification, "time_left", 3600.0)
