"""Outcome of an HTTP request by its status: delivered, retry, refused; and `Retry-After`. Pure.

Senders to receivers with rules of their own (PagerDuty, a database) refine this.
"""

from __future__ import annotations

import contextlib
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import StrEnum

_TRANSIENT = frozenset({408, 425, 429})
"""Request timeout, too early, too many requests."""


class HttpOutcome(StrEnum):
    """Outcome of a request."""

    DELIVERED = "delivered"
    RETRY = "retry"
    """The server or the network fails, or the server requests a pause."""
    REFUSED = "refused"
    """The same request would be refused again."""


def outcome_of(status: int) -> HttpOutcome:
    """Return the outcome of a status."""
    if 200 <= status < 300:
        return HttpOutcome.DELIVERED
    transient = status >= 500 or status in _TRANSIENT
    return HttpOutcome.RETRY if transient else HttpOutcome.REFUSED


def retry_after(text: str, now: float | None, longest: float) -> float | None:
    """Return the seconds of a `Retry-After`, at most `longest`: a number, or a date, for which `now`
    is in seconds since 1970; None when it is neither, or past."""
    text = text.strip()
    seconds: float | None = None
    with contextlib.suppress(ValueError):
        seconds = float(text)
    if seconds is None and now is not None:
        with contextlib.suppress(ValueError, TypeError, IndexError):
            moment = parsedate_to_datetime(text)
            seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now
    if seconds is None or not 0 <= seconds < float("inf"):
        return None
    return min(seconds, longest)
