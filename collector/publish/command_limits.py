"""Which commands a collector obeys, and how often. Pure; the publisher passes the time in."""

from __future__ import annotations

from collections.abc import Collection

from telemetry.wire.inventory import CommandKind

PER_SECOND, BURST = 100.0, 400.0
"""Commands that are decoded; an aggregator sends a few a second to a node that it refills."""
PERIODS = {CommandKind.INVENTORY: 10.0, CommandKind.RELEASE: 1.0, CommandKind.RESUME: 1.0}
"""Seconds between two executions. Release and resume share one period: the later of them wins."""
NOTE_EVERY = 600.0
"""Seconds between two events about commands that are not obeyed."""


class CommandLimits:
    """Rate limits and permissions of the commands of one collector."""

    def __init__(self, accepted: Collection[CommandKind]) -> None:
        self._accepted = frozenset(accepted)
        self._tokens = BURST
        self._at: float | None = None
        self._executed: dict[str, float] = {}
        self._pending: dict[str, CommandKind] = {}
        self._noted = -NOTE_EVERY
        self.refused = 0
        """Commands beyond the rate, and those that this collector does not obey."""

    def spend(self, now: float) -> bool:
        """Return whether another command may be decoded at `now`, monotonic seconds."""
        elapsed = 0.0 if self._at is None else now - self._at
        self._tokens = min(BURST, self._tokens + PER_SECOND * elapsed)
        self._at = now
        if self._tokens < 1:
            self.refused += 1
            return False
        self._tokens -= 1
        return True

    def accepts(self, kind: CommandKind) -> bool:
        """Return whether this collector obeys a kind of command; count it if not."""
        if kind in self._accepted:
            return True
        self.refused += 1
        return False

    def note_due(self, now: float) -> bool:
        """Return whether an event about a refusal is due, and count it as written."""
        if now - self._noted < NOTE_EVERY:
            return False
        self._noted = now
        return True

    def delay(self, kind: CommandKind, now: float) -> float | None:
        """Return after how many seconds to call `due`; None when a call is on its way already."""
        group = _group(kind)
        waiting = group in self._pending
        self._pending[group] = kind
        if waiting:
            return None
        return max(0.0, self._executed.get(group, now - PERIODS[kind]) + PERIODS[kind] - now)

    def due(self, kind: CommandKind, now: float) -> CommandKind:
        """Return the command to execute now: the last one that came of this group."""
        group = _group(kind)
        self._executed[group] = now
        return self._pending.pop(group)


def _group(kind: CommandKind) -> str:
    return "inventory" if kind is CommandKind.INVENTORY else "driver"
