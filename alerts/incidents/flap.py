"""Flap control: an alert that comes and goes all the time is told once, as one that flaps."""

from __future__ import annotations

from alerts.incidents.policy import NotificationTimings
from alerts.incidents.state import TrackedAlert

HOUR = 3600.0
_KEPT = 21
"""Changes that are remembered of one alert."""


def flipped(case: TrackedAlert, time: float, patience: NotificationTimings) -> None:
    """Note that an alert began to fire or resolved."""
    recent = [flip for flip in case.flips if time - flip < HOUR]
    case.flips = [*recent, time][-_KEPT:]
    lately = sum(time - flip < patience.flap_window for flip in case.flips)
    case.flaps = case.flaps or lately >= patience.flap_start


def calms_at(case: TrackedAlert, patience: NotificationTimings) -> float:
    """Return when an alert that flaps no longer does, if it stays as it is."""
    return (case.flips[-1] if case.flips else 0.0) + patience.flap_window


def restless(case: TrackedAlert, time: float) -> bool:
    """Whether an alert has been bad more than once within the last hour."""
    return sum(time - flip < HOUR for flip in case.flips) >= 3
