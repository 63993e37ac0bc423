"""What became of a try: a value, not an exception, because each of the three is expected."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Delivered:
    """The receiver has it."""

    detail: str = ""


@dataclass(frozen=True, slots=True)
class Later:
    """Not now: a network that fails, a receiver that is ill or asks to wait."""

    reason: str
    after: float | None = None
    """Seconds that the receiver asked to wait (`Retry-After`)."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Never: the receiver will not take this, however often it is sent."""

    reason: str
    status: int | None = None
    """What HTTP calls it."""


Answer = Delivered | Later | Refused
