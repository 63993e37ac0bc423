"""The load profile of the present month, its idle GPUs, and the demand of the months before."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, tzinfo
from typing import Any

import numpy as np

from power.report.load_profile import SERIES, LoadProfile
from power.report.months import STEP, Ints, Month, month_at
from power.wiring import Floats

UNMAPPED = "(nodes on no circuit)"
"""Row of the nodes that hang on no circuit."""
_TAIL = 8
"""Newest intervals that a checkpoint holds; the month's file has all before."""
TAIL_SECONDS = STEP * (_TAIL - 1)
"""Time that a checkpoint holds at least."""
_MOST_MONTHS = 3
"""Months to which energy of one gap is assigned."""


class NodeIdle:
    """Idle GPUs of each node in a month: GPU seconds, idle GPU seconds, idle joules at the wall, money."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._values = np.zeros((0, 4))
        self._asked: tuple[tuple[str, ...], Ints] = ((), np.zeros(0, np.int64))
        """Names that were asked for last, with their positions: mostly the same fleet again."""

    def rows(self, names: tuple[str, ...]) -> Ints:
        """Return the positions of nodes; new ones are begun."""
        if names is self._asked[0]:
            return self._asked[1]
        for name in names:
            self._rows.setdefault(name, len(self._rows))
        if len(self._rows) > len(self._values):
            more = np.zeros((2 * len(self._rows) - len(self._values), 4))
            self._values = np.concatenate([self._values, more])
        self._asked = names, np.array([self._rows[name] for name in names], np.int64)
        return self._asked[1]

    def add(self, rows: Ints, values: Floats) -> None:
        """Add to some nodes; `values` of shape (nodes, 4)."""
        self._values[rows] += values

    def sums(self, rows: Ints) -> Floats:
        """Return the four sums of some nodes, of shape (nodes, 4)."""
        return self._values[rows]

    def copied(self) -> NodeIdle:
        """Return a copy that another thread may read."""
        other = NodeIdle()
        other._rows, other._values = dict(self._rows), self._values.copy()
        return other

    def totals(self) -> dict[str, tuple[float, float, float, float]]:
        """Return the four sums of each node."""
        values = self._values[: len(self._rows)].tolist()
        return {name: (a, b, c, d) for name, (a, b, c, d) in zip(self._rows, values, strict=True)}


class MonthLedger:
    """Energy and idle GPUs of the present month. A new month begins at the site's midnight."""

    def __init__(
        self, zone: tzinfo = UTC, stored: Callable[[str], tuple[LoadProfile, NodeIdle] | None] = lambda _: None
    ) -> None:
        """`stored` returns a month that was written before: a clock that was set may come back to it."""
        self.zone = zone
        self._stored = stored
        self.idle = NodeIdle()
        self.finished: list[tuple[LoadProfile, NodeIdle]] = []
        """Months that ended, until they are written."""
        self.continued: tuple[str, ...] = ()
        """Rows of the newest month before, where that was not counted by this process."""
        self.changed_from = math.inf
        """Instant from which on counters changed energy since this was last set to inf, seconds since 1970."""
        self.past_peaks: dict[str, float] = {}
        """Highest demand of the bill in earlier months, watts, by month."""
        self._profile: LoadProfile | None = None

    def at(self, now: float) -> LoadProfile:
        """Return the profile of the month at an instant, seconds since 1970."""
        profile = self._profile
        if profile is None or not profile.month.start <= now < profile.month.end:
            month = month_at(now, self.zone)
            continued: Sequence[str] = self.continued
            if profile is not None and profile.names:
                self.finished.append((profile, self.idle))
                continued = profile.going_on() if profile.month.start < month.start else ()
            profile, self.idle = self._resumed(month, continued)
            self._profile = profile
        return profile

    def between(self, start: float, end: float) -> list[LoadProfile]:
        """Return the profiles of the months between two instants, newest first; those that ended are
        written again. Of a longer time the last three months."""
        found = [self._of(end)]
        while found[-1].month.start > start and len(found) < _MOST_MONTHS:
            found.append(self._of(found[-1].month.start - 1))
        return found

    def _of(self, instant: float) -> LoadProfile:
        """Return the profile of the present month or of one before."""
        present = self._profile
        if present is None or instant >= present.month.start:
            return self.at(instant)
        before, idle = self._resumed(month_at(instant, self.zone), ())
        self.finished.append((before, idle))
        return before

    def recover(self, name: str, joules: float, start: float, end: float) -> None:
        """Add energy of the unknown time between two instants to their months, spread evenly over it."""
        months = self.between(start, end)
        self.changed_from = min(self.changed_from, start)
        parts = [float(one.free(name, start, end).sum()) for one in months]
        for profile, part in zip(months, parts, strict=True):
            if part > 0:
                profile.recover(name, joules * part / sum(parts), start, end)

    def correct(self, name: str, joules: float, start: float, end: float) -> None:
        """Correct the energy of the time between two instants in their months, spread evenly over it."""
        months = self.between(start, end)
        self.changed_from = min(self.changed_from, start)
        start = max(start, months[-1].month.start)
        for profile in months:
            profile.correct(int(profile.rows([name])[0]), joules, start, end)

    def _resumed(self, month: Month, continued: Sequence[str]) -> tuple[LoadProfile, NodeIdle]:
        """Return a month, with what is known of it from before the clock was set."""
        for number, one in enumerate(self.finished):
            if one[0].month.name == month.name:
                return self.finished.pop(number)
        return self._stored(month.name) or (LoadProfile(month, continued), NodeIdle())

    @property
    def profile(self) -> LoadProfile | None:
        """Return the present month's profile; None before the first reading."""
        return self._profile

    def held(self) -> list[tuple[LoadProfile, NodeIdle]]:
        """Return the months in memory: those that are not written yet, and the present one."""
        return [*self.finished, *([] if self._profile is None else [(self._profile, self.idle)])]

    def begin(self, profile: LoadProfile, idle: NodeIdle) -> None:
        """Go on with a month that was restored."""
        self._profile, self.idle = profile, idle

    def tail(self, now: float, *, idle: bool = True) -> dict[str, Any]:
        """Return the newest intervals as JSON can hold them, for a checkpoint; `idle`: with the idle GPUs
        of each node, which takes as long as all else."""
        profile = self._profile
        if profile is None:
            return {}
        last = int((now - profile.month.start) // STEP)
        found = {"month": profile.month.name, "profile": profile_tree(profile, max(last - _TAIL, 0), last + 1)}
        return found | ({"idle": self.idle.totals()} if idle else {})


def profile_tree(profile: LoadProfile, first: int = 0, last: int | None = None) -> dict[str, Any]:
    """Return some intervals of a profile as JSON can hold them: lists of numbers by series and row, and
    each row's first and last instant."""
    rows: dict[str, dict[str, Any]] = {}
    for name in profile.names:
        begins, ends = profile.life(name)
        rows[name] = {"begins": begins} | ({"ends": ends} if math.isfinite(ends) else {})
        if name in profile.roots:
            rows[name]["root"] = True
    for series in SERIES:
        values = np.round(profile.series(series, columns=slice(first, last)), 1)
        some = np.any(values, axis=1).tolist()
        for name, numbers, has in zip(profile.names, values, some, strict=True):
            if has:
                rows[name][series] = numbers.tolist()
    return {"start": profile.month.start + STEP * first, "rows": rows}


def merge_tree(profile: LoadProfile, tree: Mapping[str, Any]) -> None:
    """Take over what `profile_tree` returned, which is newer than the profile.

    Raises `KeyError`, `TypeError` or `ValueError` for anything else.
    """
    first = (int(tree["start"]) - profile.month.start) // STEP
    count = len(profile.month.minute)
    profile.rows([str(name) for name in tree["rows"]])
    for name, found in tree["rows"].items():
        fresh = {}
        for series in SERIES:
            numbers = np.array(found.get(series, []), float)
            if numbers.ndim != 1 or not np.isfinite(numbers).all():
                raise ValueError(f"{series} of {name}")
            begin, end = max(first, 0), min(first + len(numbers), count)
            if end > begin:
                fresh[series] = np.zeros(count)
                fresh[series][begin:end] = numbers[begin - first : end - first]
        profile.take(name, fresh)
        if "begins" in found:
            begins, ends = float(found["begins"]), float(found.get("ends", math.inf))
            if not (math.isfinite(begins) and ends >= begins):
                raise ValueError(f"life of {name}")
            profile.live(name, begins, ends)
        if found.get("root") is True:
            profile.roots.add(name)


def merge_idle(idle: NodeIdle, tree: Mapping[str, Any]) -> None:
    """Take over idle sums by node, wherever they are higher. Raises `TypeError` or `ValueError`."""
    names = tuple(str(name) for name in tree)
    if not names:
        return
    values = np.array([[float(x) for x in tree[name]] for name in tree])
    if values.shape != (len(names), 4) or not np.isfinite(values).all():
        raise ValueError("idle")
    rows = idle.rows(names)
    known = idle.sums(rows)
    more = values[:, 0] > known[:, 0]
    idle.add(rows[more], (values - known)[more])
