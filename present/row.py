"""A row of a resource: one fact, as every face shows it. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from telemetry.text import duration, estimated_duration, short_duration

Wording = Callable[[float], str]
"""Function by which a face writes seconds."""


class Tone(StrEnum):
    """Loudness of a fact; a face has a style for each."""

    PLAIN = ""
    DIM = "dim"
    STRONG = "strong"
    STALE = "stale"
    """Not measured now: assumed, or of some time ago."""
    WARN = "warn"
    """A ticket."""
    CRIT = "crit"
    """A page: act now."""


@dataclass(frozen=True, slots=True)
class FactRow:
    """A fact. Its texts may hold names from outside: a face cleans or escapes them."""

    label: str
    value: str
    """"" where there is nothing to say: a face leaves the row out."""
    tone: Tone = Tone.PLAIN
    since: float | None = None
    """Seconds for which it has been so."""
    until: float | None = None
    """Seconds that are left until what `value` announces: a face may let them run on."""
    note: str = ""
    """A remark for those who read on."""
    short: str = ""
    """The value for a narrow column; "" where it is short enough."""

    @property
    def text(self) -> str:
        """The value with its time, as a sentence has it: `over its continuous limit for 2 min`."""
        return f"{self.value}{self._left(estimated_duration)}{self._held(duration)}"

    @property
    def brief(self) -> str:
        """The value with its time for a narrow screen: `over its continuous limit for 2 m`."""
        return f"{self.value}{self._left(short_duration)}{self._held(short_duration)}"

    @property
    def column(self) -> str:
        """The short form with the time that is left: `100% in 21 m`."""
        return f"{self.short or self.value}{self._left(short_duration)}"

    @property
    def whole(self) -> str:
        """The value with its time and its note."""
        return f"{self.text}, {self.note}" if self.note else self.text

    def _left(self, wording: Wording) -> str:
        return "" if self.until is None else f" {wording(self.until)}"

    def _held(self, wording: Wording) -> str:
        return f" for {wording(self.since)}" if self.since else ""
