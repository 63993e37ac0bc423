"""The kinds of condition that a rule can have: each judges all rows of a table at once.

To add a kind, write one class and name it in the union `Condition`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from alerts.counters import Rate, Rises
from alerts.judging import BAD, UNKNOWN, Floats, Judgement, Kind, Sight, among, three
from alerts.rows import Rows
from telemetry.fleet import gaps_of
from telemetry.gap import Gap


class Above(Kind, frozen=True, tag="above"):
    """Bad at or above a level; once firing, good only below `clear`."""

    metric: str
    level: float | str
    """A number in the metric's base unit, or another metric of the same device."""
    clear: float | None = None

    def metrics(self) -> Iterator[str]:
        """The metric, and its level when that is one too."""
        yield from _level_metrics(self.metric, self.level)

    def judge(self, sight: Sight, rows: Rows) -> Judgement:
        """Compare each row's reading with the level."""
        values, level = sight.values(self.metric), _level(sight, self.level)
        bad = values >= level
        if self.clear is not None:
            bad |= sight.firing & (values >= self.clear)
        return Judgement(three(bad, np.isnan(values) | np.isnan(level)), values)


class Below(Kind, frozen=True, tag="below"):
    """Bad at or below a level; once firing, good only above `clear`."""

    metric: str
    level: float | str
    clear: float | None = None

    def metrics(self) -> Iterator[str]:
        """The metric, and its level when that is one too."""
        yield from _level_metrics(self.metric, self.level)

    def judge(self, sight: Sight, rows: Rows) -> Judgement:
        """Compare each row's reading with the level."""
        values, level = sight.values(self.metric), _level(sight, self.level)
        bad = values <= level
        if self.clear is not None:
            bad |= sight.firing & (values <= self.clear)
        return Judgement(three(bad, np.isnan(values) | np.isnan(level)), values)


class In(Kind, frozen=True, tag="in"):
    """Bad while a state or flag is one of some values."""

    metric: str
    values: tuple[int, ...]
    after: tuple[int, ...] = ()
    """Only on a device that has shown one of these before: a link that was never up is not down."""

    def metrics(self) -> Iterator[str]:
        """The state."""
        yield self.metric

    def judge(self, sight: Sight, rows: Rows) -> Judgement:
        """Look each row's state up."""
        values = sight.values(self.metric)
        bad = among(values, self.values)
        if self.after:
            primed = rows.array("primed", np.bool_, 0)
            primed |= among(values, self.after)
            bad &= primed
        return Judgement(three(bad, np.isnan(values)), values)


class Absent(Kind, frozen=True, tag="gap"):
    """Bad while a reading is absent for one of some reasons; good when the driver answered."""

    metric: str
    reasons: tuple[str, ...]
    """Words of `telemetry.gap.Gap`: `device_lost`, `timed_out`, `error`."""

    def metrics(self) -> Iterator[str]:
        """The reading that stands for all of its device."""
        yield self.metric

    def judge(self, sight: Sight, rows: Rows) -> Judgement:
        """Look each row's reason up. That a metric is not supported is an answer too."""
        gaps = gaps_of(sight.values(self.metric))
        bad = among(gaps, [int(Gap[reason.upper()]) for reason in self.reasons])
        return Judgement(three(bad, ~bad & ~among(gaps, _ANSWERS)))


class Silent(Kind, frozen=True, tag="silent"):
    """Bad when no frame of a node came for some intervals, and at least for some seconds."""

    intervals: float
    least: float = 0.0
    """Seconds; so that a node that reads ten times a second is not silent after 0.3 s."""

    def judge(self, sight: Sight, rows: Rows) -> Judgement:
        """Compare each node's silence with its own interval."""
        ages, intervals = sight.silence()
        bad = ages >= np.maximum(self.intervals * intervals, self.least)
        return Judgement(three(bad, np.isnan(ages)), ages)


class Happens(Kind, frozen=True, tag="event"):
    """Bad at the instant in which an event of some kind comes, of some XIDs if they are given."""

    kinds: tuple[str, ...] = ("xid",)
    xids: tuple[int, ...] = ()

    @property
    def edge(self) -> bool:
        """It is an instant."""
        return True

    def judge(self, sight: Sight, rows: Rows) -> Judgement:
        """Find the rows that something happened to. That nothing happened is known: good."""
        bad = np.zeros(sight.size, np.bool_)
        values = np.full(sight.size, np.nan, np.float32)
        for row, event in sight.happened():
            xid = event.data.get("xid")
            if event.kind in self.kinds and (not self.xids or xid in self.xids):
                bad[row] = True
                if isinstance(xid, int):
                    values[row] = xid
        return Judgement(bad.view(np.int8), values)


Level = Above | Below | In
"""The kinds that need no memory of their own: what a rule's `unless` may be."""


class AnyOf(Kind, frozen=True, tag="any"):
    """Bad when one of several is bad; good when all are good."""

    of: tuple[Above | Below | In | Rises | Rate | Absent | Silent | Happens, ...]

    def metrics(self) -> Iterator[str]:
        """Those of all of them."""
        for condition in self.of:
            yield from condition.metrics()

    @property
    def edge(self) -> bool:
        """Whether each of them is an instant."""
        return all(condition.edge for condition in self.of)

    def judge(self, sight: Sight, rows: Rows) -> Judgement:
        """Judge each and join the verdicts."""
        bad = np.zeros(sight.size, np.bool_)
        unknown = np.zeros(sight.size, np.bool_)
        values: Floats | None = None
        for number, condition in enumerate(self.of):
            judgement = condition.judge(sight, rows.part(number))
            is_bad = judgement.verdicts == BAD
            if judgement.values is not None:
                if values is None:
                    values = np.full(sight.size, np.nan)
                np.copyto(values, judgement.values, where=is_bad)
            bad |= is_bad
            unknown |= judgement.verdicts == UNKNOWN
        return Judgement(three(bad, unknown & ~bad), values)


Condition = Above | Below | In | Rises | Rate | Absent | Silent | Happens | AnyOf
"""The registry: a union read by the loader of rules and by the type checker."""


def happenings_of(condition: Condition) -> Condition | None:
    """Return the part of a condition that is about events, or None when it has none."""
    match condition:
        case Happens():
            return condition
        case AnyOf():
            found = tuple(part for part in condition.of if isinstance(part, Happens))
            return AnyOf(found) if found else None
        case _:
            return None


_ANSWERS = (255, int(Gap.NOT_SUPPORTED), int(Gap.NO_PERMISSION))
"""`gaps_of` says 255 where there is a value."""


def _level(sight: Sight, level: float | str) -> Floats:
    return sight.values(level) if isinstance(level, str) else np.full(1, level)


def _level_metrics(metric: str, level: float | str) -> Iterator[str]:
    yield metric
    if isinstance(level, str):
        yield level
