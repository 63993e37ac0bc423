"""Results of a try: values, not exceptions, because each of the three is expected."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Delivered:
    """The receiver has accepted the message."""

    detail: str = ""


@dataclass(frozen=True, slots=True)
class Later:
    """A temporary failure, of the network or the receiver, or a request to wait."""

    reason: str
    after: float | None = None
    """Seconds that the receiver asked to wait (`Retry-After`)."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A permanent refusal: the receiver would refuse the same message again."""

    reason: str
    status: int | None = None
    """HTTP status, if there was one."""


Answer = Delivered | Later | Refused
