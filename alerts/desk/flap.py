"""Flap control: an alert that comes and goes all the time is told once, as one that flaps."""

from __future__ import annotations

from alerts.desk.policy import Patience
from alerts.desk.state import Case

HOUR = 3600.0
_KEPT = 21
"""Changes that are remembered of one alert."""


def flipped(case: Case, time: float, patience: Patience) -> None:
    """Note that an alert began to fire or resolved."""
    recent = [flip for flip in case.flips if time - flip < HOUR]
    case.flips = [*recent, time][-_KEPT:]
    lately = sum(time - flip < patience.flap_window for flip in case.flips)
    case.flaps = case.flaps or lately >= patience.flap_start


def calms_at(case: Case, patience: Patience) -> float:
    """Return when an alert that flaps no longer does, if it stays as it is."""
    return (case.flips[-1] if case.flips else 0.0) + patience.flap_window


def restless(case: Case, time: float) -> bool:
    """Whether an alert has been bad more than once within the last hour."""
    return sum(time - flip < HOUR for flip in case.flips) >= 3
