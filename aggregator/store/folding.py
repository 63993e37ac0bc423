"""When the log of the engine is folded into its tables: at a size, and where later folds leave alone what it makes."""

from __future__ import annotations

from collections import Counter

from aggregator.store.duck import settled

LONGEST = 3
"""Times its usual size that the log may have while a fold would leave work to later ones."""


class Folding:
    """Rows and bytes since the last fold, by which the next one is due."""

    def __init__(self, usual_bytes: int) -> None:
        self._usual = self._at = usual_bytes
        """Bytes of the log at which it is folded in."""
        self._seen = 0
        """Bytes of the log after the last commit."""
        self._rows: Counter[str] = Counter()

    def add(self, table: str, rows: int) -> None:
        """Count rows that were appended to a table."""
        self._rows[table] += rows

    def due(self, log_bytes: int) -> bool:
        """Whether to fold now, between two commits. It waits while a fold would make row groups that others merge and
        the log has room for one more commit like the last."""
        if log_bytes < self._seen:  # the sealer folded
            self._rows.clear()
            self._seen = 0
        grown, self._seen = log_bytes - self._seen, log_bytes
        if log_bytes < self._at:
            return False
        full = log_bytes + grown > self._at + (LONGEST - 1) * self._usual
        return full or settled(max(self._rows.values(), default=0))

    def done(self) -> None:
        """Note that all was folded in."""
        self._at, self._seen = self._usual, 0
        self._rows.clear()

    def put_off(self) -> None:
        """Note that it failed: the log has it all, and there is no hurry."""
        self._at = self._seen + self._usual
