"""Rate limit and back-off of one channel. Pure: `now` is an argument."""

from __future__ import annotations

import random

from telemetry.runtime.backoff import Backoff

LONGEST_PAUSE = 30.0
FIRST = 1.0


class RateLimiter:
    """A token bucket, and a pause that grows while the channel fails.

    While it fails, one message at a time probes it, however many wait.
    """

    def __init__(self, per_minute: float, burst: int, at_once: int, dice: random.Random) -> None:
        self._per_second = per_minute / 60
        self._burst = float(burst)
        self._at_once = at_once
        self._backoff = Backoff(FIRST, LONGEST_PAUSE, dice=dice)
        self._tokens = self._burst
        self._filled: float | None = None
        self._paused_until = 0.0

    @property
    def at_once(self) -> int:
        """Messages that may be in flight now."""
        return 1 if self._backoff.failures else self._at_once

    def wait(self, now: float) -> float:
        """Return seconds until the next message may go; 0 is now."""
        self._fill(now)
        missing = max(0.0, 1.0 - self._tokens) / self._per_second
        return max(missing, self._paused_until - now, 0.0)

    def spend(self, now: float) -> None:
        """Spend a token on a message."""
        self._fill(now)
        self._tokens -= 1.0

    def succeeded(self) -> None:
        """Reset the pause after a success."""
        self._backoff.reset()

    def failed(self, now: float, asked: float | None) -> None:
        """Extend the pause after a failure; `asked`: seconds that the receiver asked to wait."""
        pause = max(self._backoff.next(), asked or 0.0)
        self._paused_until = max(self._paused_until, now + pause)

    def _fill(self, now: float) -> None:
        if self._filled is not None and now > self._filled:
            grown = (now - self._filled) * self._per_second
            self._tokens = min(self._burst, self._tokens + grown)
        self._filled = now
