"""What stands on a board; apart, so that settings and alerts need no NumPy to name it."""

from __future__ import annotations

from enum import StrEnum


class SnapshotKind(StrEnum):
    """What a row of a board is."""

    CIRCUIT = "circuit"
    """A breaker: a circuit or a panel's main."""
    BUDGET = "budget"
    """A ceiling that someone set."""
    UPS = "ups"
    SUPPLY = "supply"
    """The power supplies of one node."""
