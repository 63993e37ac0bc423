"""Pauses between tries that fail: they double up to a limit, and are spread so that a fleet does not
try at once. Pure: nothing here waits or reads a clock."""

from __future__ import annotations

import random

FULL_JITTER = (0.0, 1.0)
"""Anything up to the whole pause: for many who try the same server."""
STEADY = (1.0, 1.0)
"""The whole pause: for a disk or a device of our own."""
STABLE_AFTER = 10.0
"""Seconds. A connection that lasted this long resets the pause; one that is closed at once does not."""
_DOUBLINGS = 32


class Backoff:
    """The pauses of one thing that is tried until it succeeds."""

    def __init__(
        self, first: float, longest: float, spread: tuple[float, float] = FULL_JITTER, dice: random.Random | None = None
    ) -> None:
        """Start with `first` seconds and double up to `longest`; a pause is drawn between the
        two parts of that in `spread`."""
        self._first, self._longest, self._spread = first, longest, spread
        self._dice = dice or random.Random()  # noqa: S311 - spreads a fleet, guards nothing
        self.failures = 0
        """Tries that failed since the last that did not."""
        self.until = 0.0
        """The time before which `start` asked not to try again; 0 for none."""

    def after(self, failures: int) -> float:
        """Return the seconds to wait after so many failures in a row; 0 for none."""
        if failures < 1:
            return 0.0
        whole: float = min(self._longest, self._first * 2.0 ** min(failures - 1, _DOUBLINGS))
        return whole * self._dice.uniform(*self._spread)

    def next(self) -> float:
        """Count a failure and return the seconds to wait before the next try."""
        self.failures += 1
        return self.after(self.failures)

    def start(self, now: float) -> None:
        """Count a failure at `now`, and begin its pause."""
        self.until = now + self.next()

    def over(self, now: float) -> bool:
        """Return whether there is no pause at `now`."""
        return now >= self.until

    def reset(self) -> None:
        """Forget the failures, and end the pause."""
        self.failures, self.until = 0, 0.0

    def lasted(self, seconds: float) -> None:
        """Forget the failures if the last connection was stable."""
        if seconds >= STABLE_AFTER:
            self.reset()
