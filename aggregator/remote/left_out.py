"""Parts that the last push lacked, each set aside by its name."""

from __future__ import annotations

from collections.abc import Mapping

from aggregator.view import AggregatorView


class LeftOut:
    """Parts that the pushes to one receiver lack."""

    def __init__(self, view: AggregatorView) -> None:
        self._view = view
        self._parts: set[str] = set()

    def report(self, failed: Mapping[str, Exception]) -> None:
        """Set aside what this push lacks; what the last one lacked alone works again, or is gone."""
        aside, now = self._view.pages_aside, self._view.now()
        for part in self._parts - failed.keys():
            aside.works(part)
        for part, error in failed.items():
            aside.fail(part, error, now)
        self._parts = set(failed)
