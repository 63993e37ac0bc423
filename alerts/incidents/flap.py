"""Flap detection: an alert that fires and resolves again and again is notified once, as flapping."""

from __future__ import annotations

from alerts.incidents.policy import NotificationTimings
from alerts.incidents.state import TrackedAlert

HOUR = 3600.0
_MAX_FLIPS = 21
"""State changes that are kept of one alert."""


def add_flip(tracked: TrackedAlert, time: float, timings: NotificationTimings) -> None:
    """Record that an alert began to fire or resolved."""
    flips = (*(flip for flip in tracked.flips if time - flip < HOUR), time)[-_MAX_FLIPS:]
    recent = sum(time - flip < timings.flap_window for flip in flips)
    tracked.flips, tracked.flaps = flips, tracked.flaps or recent >= timings.flap_start


def stable_at(tracked: TrackedAlert, timings: NotificationTimings) -> float:
    """Return when a flapping alert stops to count as such, if it changes no more."""
    return last_flip(tracked) + timings.flap_window


def last_flip(tracked: TrackedAlert) -> float:
    """Return when an alert last began to fire or resolved."""
    return tracked.flips[-1] if tracked.flips else 0.0


def recurs(tracked: TrackedAlert, time: float) -> bool:
    """Whether an alert has fired more than once within the last hour."""
    return sum(time - flip < HOUR for flip in tracked.flips) >= 3
