"""The live pages of servers that a test starts."""

from __future__ import annotations

import pytest

from aggregator.web import frame
from aggregator.web.live_pages import LivePages


def keep_pages(monkeypatch: pytest.MonkeyPatch) -> list[LivePages]:
    """Return the list to which each server adds its live pages."""
    kept: list[LivePages] = []
    make = frame.LivePages

    def making(*given: object) -> LivePages:
        kept.append(make(*given))  # type: ignore[arg-type]
        return kept[-1]

    monkeypatch.setattr(frame, "LivePages", making)
    return kept
