"""Alert quality: `/api/v1/alerts/quality`, and `kilowatch alerts quality --json`."""

from __future__ import annotations

import msgspec


class RuleQuality(msgspec.Struct, frozen=True, kw_only=True):
    """How the notifications of one rule served the people who received them."""

    rule: str
    """Name of the rule; `storm` is the one notification of many incidents at once."""
    pages: int = 0
    """New pages; reminders and updates are none."""
    tickets: int = 0
    acknowledged: int = 0
    """How many of both were acknowledged."""
    acknowledged_median_seconds: float | None = None
    """From sending to acknowledgement; null when none was acknowledged."""
    acknowledged_p90_seconds: float | None = None
    self_resolved: int = 0
    """How many were over within five minutes, before anybody acknowledged them."""
    silenced: int = 0
    """Alerts that a silence or maintenance window held back."""
    flapping: int = 0
    """Notifications whose alerts flapped."""
    marked_false: int = 0
    """How many a person marked as false: `kilowatch ack KEY --false`."""
    reviewed: int = 0
    """How many were marked as false, or acknowledged and not marked."""
    precision: float | None = None
    """Part of `reviewed` that is not false, 0 to 1; null where no notification was marked: nobody said
    that any was right."""


class QualityReply(msgspec.Struct, frozen=True, kw_only=True):
    """Alert quality over a time."""

    at: int = 0
    """End of the time, ns since 1970."""
    since: int = 0
    """Its beginning; ns since 1970."""
    recorded_since: int = 0
    """When the recording of quality began: of what was before, nothing is known. ns since 1970."""
    rules: list[RuleQuality] = []
    """Rules that sent or silenced anything, those with the most pages first."""
    quiet: list[str] = []
    """Rules in force that had no page, no ticket and nothing silenced in this time: no data, which is
    neither good nor bad."""


class RuleSuggestion(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a rule whose notifications were marked as false, with its evidence."""

    rule: str
    setting: str = ""
    """`level` or `hold`; empty where no change is suggested."""
    present: float | None = None
    suggested: float | None = None
    false_alerts: int = 0
    """Alerts that were marked as false."""
    true_alerts: int = 0
    """Alerts that were acknowledged and not marked."""
    false_replayed: int = 0
    """Number of the false ones whose stored readings make the present rule fire again: the evidence."""
    true_replayed: int = 0
    avoided: int = 0
    """How many of the replayed false ones the change avoids."""
    kept: int = 0
    """How many of the replayed true ones still fire."""
    reason: str = ""
    """Why no change is suggested."""
    finished: bool = True
    """False where the replay was ended for want of time: nothing of it is known then."""


class SuggestionsReply(msgspec.Struct, frozen=True, kw_only=True):
    """Suggested changes of the rules whose notifications were marked as false."""

    at: int = 0
    """ns since 1970."""
    since: int = 0
    suggestions: list[RuleSuggestion] = []
