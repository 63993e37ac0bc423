"""The load profile of a month: energy of each circuit in each quarter of an hour, and what follows.

An interval knows for how many of its seconds the load was known. The rest is recovered by a meter's own
counter, else filled by a declared rule, and both are kept apart from what was measured:

- past time without readings is filled with the circuit's mean power at the same hour of the day, over
  the month's known time, else with its mean over all of it;
- the time until the month's end is forecast in the same way, from the last seven days.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from power.report.energy import JOULES_PER_KWH
from power.report.months import STEP, Ints, Month
from power.wiring import Flags, Floats

KNOWN_PART = 0.9
"""Part of an interval that must have been measured for its demand to be known."""
LEAST_SECONDS = 3600.0
"""Shortest known time from which a month is filled and forecast."""
_HOUR_SECONDS = 900.0
"""Shortest known time of an hour of the day that has a mean of its own."""
_FORECAST_SECONDS = 7 * 86_400
PARTIAL_RATIO = 0.01
"""Part of an interval's energy up to which a stand-in for silent nodes leaves its demand known."""
SERIES = (
    "joules", "seconds", "corrected", "recovered", "recovered_seconds", "stand_in", "reactive", "reactive_seconds",
)  # fmt: skip
_TAKEN = (
    (("joules", "seconds", "corrected", "stand_in"), "seconds"),
    (("recovered", "recovered_seconds"), "recovered_seconds"),
    (("reactive", "reactive_seconds"), "reactive_seconds"),
)
"""Series that are taken over together, and the seconds that tell which knows more."""
ROWS_AT_ONCE = 100
"""Rows of which arrays are computed at once: thousands would take a gigabyte."""
_ALL = slice(None)
_ROUNDING_SECONDS = 0.5
_SHORT_PART = 0.01
"""Part of an interval below which a row that began or ended in it counts as if it had not lived in it."""
_Series = npt.NDArray[np.float32]


class LoadProfile:
    """Energy of rows (circuits) in the intervals of one month; arrays of shape (rows, intervals).

    A row lives from its first instant to its last: outside of that it draws nothing.
    """

    def __init__(self, month: Month, continued: Collection[str] = ()) -> None:
        """`continued`: rows of the month before; they begin with the month."""
        self.month = month
        self._continued = frozenset(continued)
        self._rows: dict[str, int] = {}
        self._series: dict[str, _Series] = {}
        """Of `SERIES`, those in which anything was written."""
        self._life: Floats = np.zeros((0, 2))
        """First and last instant of each row, seconds since 1970."""
        self._heard: Flags = np.zeros(0, dtype=bool)
        """Rows that were measured at any time."""
        self.roots: set[str] = set()
        """Rows of circuits that nothing fed: they were billed while they lived."""
        self._positions: dict[tuple[str, ...], Ints] = {}
        self._heard_names: dict[tuple[str, ...], list[str]] = {}
        self.revision = 0
        """Number that grows with each row that begins or ends, and each that is heard first."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the rows."""
        return tuple(self._rows)

    @property
    def nbytes(self) -> int:
        """Return the bytes of its arrays."""
        return sum(values.nbytes for values in self._series.values())

    def positions(self, names: Sequence[str]) -> Ints:
        """Return the positions of those rows that there are."""
        key = tuple(names)
        found = self._positions.get(key)
        if found is None:
            found = np.array([self._rows[one] for one in key if one in self._rows], np.int64)
            self._positions[key] = found
        return found

    def series(self, name: str, rows: Sequence[str] | None = None, columns: slice = _ALL) -> Floats:
        """Return a copy of one of `SERIES`: joules and seconds that were measured, what counters corrected
        of them, what they recovered, what stood in for silent nodes, and var seconds with the time in which
        they were known."""
        at = np.arange(len(self._rows)) if rows is None else self.positions(rows)
        values = self._series.get(name)
        if values is None:
            return np.zeros((len(at), len(range(len(self.month.minute))[columns])))
        found: Floats = values[:, columns][at].astype(np.float64)
        return found

    def energy(self, rows: Sequence[str] | None = None, columns: slice = _ALL) -> Floats:
        """Return the joules that were measured, by watts and corrected by counters."""
        found = self.series("joules", rows, columns)
        return found + self.series("corrected", rows, columns) if "corrected" in self._series else found

    def heard(self, rows: Sequence[str]) -> list[str]:
        """Return those rows that were measured at any time of the month."""
        key = tuple(rows)
        found = self._heard_names.get(key)
        if found is None:
            found = [one for one in key if one in self._rows and self._heard[self._rows[one]]]
            self._heard_names[key] = found
        return found

    def copied(self, rows: Sequence[str] | None = None) -> LoadProfile:
        """Return a copy that another thread may read, of some rows or of all."""
        kept = self.names if rows is None else tuple(one for one in rows if one in self._rows)
        at = self.positions(kept)
        other = LoadProfile(self.month, self._continued)
        other._rows = {name: number for number, name in enumerate(kept)}
        other._series = {name: values[at] for name, values in self._series.items()}
        other._life, other._heard = self._life[at], self._heard[at]
        other.roots = self.roots & set(kept)
        return other

    # -- Rows and their lives ------------------------------------------------------------------------

    def rows(self, names: Iterable[str], now: float | None = None) -> Ints:
        """Return the positions of rows. New ones begin at `now` in seconds since 1970, with the month where
        it is None or they go on from the month before; those that had ended drew nothing until now."""
        found, fresh = [], []
        for name in names:
            row = self._rows.get(name)
            if row is None:
                row = self._rows[name] = len(self._rows)
                fresh.append(self.month.start if now is None or name in self._continued else now)
            elif now is not None and math.isfinite(self._life[row, 1]):
                for interval, seconds in self._spread(self._life[row, 1], now):
                    self._written("seconds")[row, interval] += seconds
                self._life[row, 1] = math.inf
                self.revision += 1
            found.append(row)
        if fresh:
            more = len(fresh)
            born = np.maximum(np.array(fresh, float), self.month.start)
            self._life = np.concatenate([self._life, np.stack([born, np.full(more, np.inf)], axis=1)])
            self._heard = np.concatenate([self._heard, np.zeros(more, bool)])
            for name, old in self._series.items():
                self._series[name] = np.concatenate([old, np.zeros((more, old.shape[1]), np.float32)])
            self._forget_names()
            self.revision += 1
        return np.array(found, np.int64)

    def end(self, names: Iterable[str], now: float) -> None:
        """End rows that have not ended, seconds since 1970."""
        for row in (self._rows[name] for name in names if name in self._rows):
            if math.isinf(self._life[row, 1]):
                self._life[row, 1] = max(now, self._life[row, 0])
                self.revision += 1

    def life(self, name: str) -> tuple[float, float]:
        """Return the first and last instant of a row, seconds since 1970; it may have no last one."""
        begins, ends = self._life[self._rows[name]]
        return float(begins), float(ends)

    def live(self, name: str, begins: float, ends: float) -> None:
        """Set the life of a row, as `life` returned it."""
        self._life[self._rows[name]] = begins, ends
        self.revision += 1

    def going_on(self) -> list[str]:
        """Return the rows that have not ended."""
        return [name for name, row in self._rows.items() if math.isinf(self._life[row, 1])]

    def lived(self, until: float, rows: Sequence[str] | None = None, columns: slice = _ALL) -> Floats:
        """Return the seconds of each interval in which rows lived, up to an instant."""
        life = self._life if rows is None else self._life[self.positions(rows)]
        if len(life) > 1 and (life == life[0]).all():  # as in most months
            same = self._lived(life[:1], until, columns)
            return np.broadcast_to(same, (len(life), same.shape[1]))
        return self._lived(life, until, columns)

    def _lived(self, life: Floats, until: float, columns: slice) -> Floats:
        begins = (self.month.start + STEP * np.arange(len(self.month.minute)))[columns]
        last = np.minimum(begins + STEP, np.minimum(life[:, 1:], until))
        found: Floats = np.clip(last - np.maximum(begins, life[:, :1]), 0.0, STEP)
        return found

    # -- Energy --------------------------------------------------------------------------------------

    def add(self, rows: Ints, now: float, seconds: float, joules: Floats, known: Flags, reactive: Floats) -> None:
        """Add the energy of the last `seconds` where it is `known`; `reactive`: var seconds, NaN where
        nobody measures them. `now`: seconds since 1970."""
        measured = known & np.isfinite(reactive)
        kinds = [("joules", np.where(known, joules, 0.0)), ("seconds", np.where(known, seconds, 0.0))]
        if measured.any():
            kinds.append(("reactive", np.where(measured, reactive, 0.0)))
            kinds.append(("reactive_seconds", np.where(measured, seconds, 0.0)))
        for interval, inside in self._spread(now - seconds, now):
            for name, values in kinds:
                self._written(name)[rows, interval] += inside / seconds * values
        if seconds > 0 and not self._heard[rows[known]].all():
            self._heard[rows[known]] = True
            self._forget_names()
            self.revision += 1

    def correct(self, row: int, joules: float, start: float, end: float) -> None:
        """Correct the energy that was measured between two instants, spread evenly over that time."""
        for interval, inside in self._spread(start, end):
            self._written("corrected")[row, interval] += joules * inside / (end - start)

    def stand_in(self, name: str, now: float, seconds: float, joules: float) -> None:
        """Add energy that stands in for a part of a row of which nothing is known for the last `seconds`."""
        row = self._rows[name]
        for interval, inside in self._spread(now - seconds, now):
            self._written("stand_in")[row, interval] += joules * inside / seconds

    def free(self, name: str, start: float, end: float) -> Floats:
        """Return the seconds of each interval between two instants in which a row was neither measured nor
        recovered."""
        begins = self.month.start + STEP * np.arange(len(self.month.minute))
        inside: Floats = np.clip(np.minimum(begins + STEP, end) - np.maximum(begins, start), 0.0, None)
        if name not in self._rows:
            return inside
        taken = self.series("seconds", [name])[0] + self.series("recovered_seconds", [name])[0]
        free: Floats = np.minimum(inside, np.clip(STEP - taken, 0.0, None))
        return free

    def recover(self, name: str, joules: float, start: float, end: float) -> None:
        """Add energy of the unknown time between two instants, spread evenly over its part in this month."""
        row, free = int(self.rows([name])[0]), self.free(name, start, end)
        if free.sum() > 0:
            self._written("recovered")[row] += joules * free / free.sum()
            self._written("recovered_seconds")[row] += free

    def take(self, name: str, found: Mapping[str, Floats]) -> None:
        """Take over the series of a row, which are newer, wherever they know as much of an interval."""
        row = int(self.rows([name])[0])
        for kinds, seconds in _TAKEN:
            if seconds in found:
                more = (found[seconds] >= self.series(seconds, [name])[0]) & (found[seconds] > 0)
                for kind in kinds:
                    self._written(kind)[row, more] = found[kind][more] if kind in found else 0.0
        if "seconds" in found and found["seconds"].any():
            self._heard[row] = True
        self._forget_names()
        self.revision += 1

    def _forget_names(self) -> None:
        """Forget what was looked up for lists of names: rows have changed."""
        self._positions.clear()
        self._heard_names.clear()

    def _written(self, name: str) -> _Series:
        """Return one of `SERIES` to be written."""
        values = self._series.get(name)
        if values is None:
            values = np.zeros((len(self._rows), len(self.month.minute)), np.float32)
            self._series[name] = values
        return values

    def _spread(self, start: float, end: float) -> list[tuple[int, float]]:
        """Return the intervals of this month between two instants, and the seconds in each."""
        last = len(self.month.minute) - 1
        if end <= start:
            return []
        first, final = (int((at - self.month.start) // STEP) for at in (start, end))
        if first == final:
            return [(first, end - start)] if 0 <= first <= last else []
        found = []
        for interval in range(max(first, 0), min(final, last) + 1):
            begins = self.month.start + STEP * interval
            inside = min(end, begins + STEP) - max(start, begins)
            if inside > 0:
                found.append((interval, inside))
        return found


@dataclass(frozen=True, slots=True)
class MonthEnergy:
    """Energy of a month; joules and seconds over rows. The four energies are apart from each other."""

    month: str
    names: tuple[str, ...]
    measured: Floats
    """By watts, corrected by a meter's own counter."""
    recovered: Floats
    """Of time without readings, by a meter's own counter."""
    filled: Floats
    """Of past time without readings or a counter, by the declared rule; NaN where too little is known."""
    forecast: Floats
    """Of the time until the month's end; NaN where too little is known."""
    known_seconds: Floats
    """Measured or recovered, without the part for which something stood in."""
    elapsed_seconds: Floats
    """Lived so far."""
    money: Floats
    """Cost of the four energies, shape (4, rows), in that order; NaN where a price is missing."""

    @property
    def so_far(self) -> Floats:
        """Return the joules up to now, filled ones with them."""
        return self.measured + self.recovered + self.filled

    @property
    def whole(self) -> Floats:
        """Return the joules of the whole month."""
        return self.so_far + self.forecast

    def take(self, first: int, part: MonthEnergy) -> None:
        """Take over the energy of some rows, from position `first` on."""
        last = first + len(part.names)
        for name in ("measured", "recovered", "filled", "forecast", "known_seconds", "elapsed_seconds"):
            getattr(self, name)[first:last] = getattr(part, name)
        self.money[:, first:last] = part.money


def month_energy(profile: LoadProfile, now: float, prices: Floats, rows: Sequence[str] | None = None) -> MonthEnergy:
    """Return the energy of some rows of a month, or of all, at `now` in seconds since 1970; `prices`: money
    per kWh of each interval."""
    every = profile.names
    there = frozenset(every)
    names = every if rows is None else tuple(one for one in rows if one in there)
    count = len(names)
    measured, recovered, filled, forecast, known, elapsed = np.zeros((6, count))
    found = MonthEnergy(
        profile.month.name, names, measured, recovered, filled, forecast, known, elapsed, np.zeros((4, count))
    )
    for first in range(0, count, ROWS_AT_ONCE):
        part = names[first : first + ROWS_AT_ONCE]
        measured, recovered = profile.energy(part), profile.series("recovered", part)
        known = profile.series("seconds", part) + profile.series("recovered_seconds", part)
        filled, forecast = fillings(profile, now, part)
        each = (measured, recovered, filled, forecast)
        with np.errstate(invalid="ignore"):
            money = [np.where(values != 0, values * prices, 0.0).sum(axis=1) for values in each]
        found.take(
            first,
            MonthEnergy(
                profile.month.name,
                part,
                measured.sum(axis=1),
                recovered.sum(axis=1),
                filled.sum(axis=1),
                forecast.sum(axis=1),
                (known * known_part(profile, part)).sum(axis=1),
                profile.lived(now, part).sum(axis=1),
                np.array(money) / JOULES_PER_KWH,
            ),
        )
    return found


def known_part(profile: LoadProfile, rows: Sequence[str] | None = None) -> Floats:
    """Return the part of each interval's energy that was measured where it was: 1 less the stand-in for
    silent nodes."""
    stand_in = profile.series("stand_in", rows)
    if not stand_in.any():
        return np.ones_like(stand_in)
    with np.errstate(invalid="ignore", divide="ignore"):
        part = 1.0 - stand_in / (np.maximum(profile.energy(rows), 0.0) + stand_in)
    found: Floats = np.where(stand_in > 0, part, 1.0)
    return found


def fillings(profile: LoadProfile, now: float, rows: Sequence[str] | None = None) -> tuple[Floats, Floats]:
    """Return the joules of each row and interval that fill the past of its life, and that forecast the
    rest; NaN where too little is known."""
    month, count = profile.month, len(profile.month.minute)
    over = min(max(math.ceil((now - month.start) / STEP), 1), count)
    past, coming = slice(0, over), slice(over - 1, count)
    passed = profile.lived(now, rows, past)
    stand_in = profile.series("stand_in", rows, past)
    joules = profile.energy(rows, past) + profile.series("recovered", rows, past) + stand_in
    known = profile.series("seconds", rows, past) + profile.series("recovered_seconds", rows, past)
    missing = np.clip(passed - known, 0.0, None)
    # A rest that only rounding leaves is no missing time.
    missing = np.where(missing < _ROUNDING_SECONDS, 0.0, missing)
    left = profile.lived(math.inf, rows, coming) - profile.lived(now, rows, coming)
    lately = slice(max(math.ceil((now - _FORECAST_SECONDS - month.start) / STEP), 0), over)
    filled, forecast = np.zeros((len(joules), count)), np.zeros((len(joules), count))
    # Nothing is missing where all is known, however short that is.
    mean = _mean_watts(month, joules, known, past, past)
    filled[:, past] = np.where(missing == 0, 0.0, mean * missing) + stand_in
    mean = _mean_watts(month, joules[:, lately], known[:, lately], lately, coming)
    forecast[:, coming] = np.where(left == 0, 0.0, mean * left)
    return filled, forecast


def _mean_watts(month: Month, joules: Floats, seconds: Floats, known: slice, wanted: slice) -> Floats:
    """Return the power of each row that stands for `wanted` intervals: its mean at that hour of the day over
    the `known` ones, else over all of them. NaN where less than an hour is known."""
    hour, by_hour = _hours(month)
    energy, time = joules @ by_hour[known], seconds @ by_hour[known]
    total = time.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        over_all = np.where(total >= LEAST_SECONDS, energy.sum(axis=1) / total, np.nan)
        means = np.where(time >= _HOUR_SECONDS, energy / time, over_all[:, None])
    found: Floats = np.where(np.isnan(over_all)[:, None], np.nan, means)[:, hour[wanted]]
    return found


@lru_cache(maxsize=4)
def _hours(month: Month) -> tuple[Ints, Floats]:
    """Return the hour of the day of each interval, and the same as a matrix of shape (intervals, 24)."""
    hour = month.minute // 60 % 24
    by_hour = np.zeros((len(hour), 24))
    by_hour[np.arange(len(hour)), hour] = 1.0
    return hour, by_hour


def demands(profile: LoadProfile, names: Sequence[str], now: float, minutes: int, first: int = 0) -> Floats:
    """Return the demand in watts of some rows together in each finished interval of `minutes` from number
    `first` on. Rows of which nothing is known in this month are left out; a row that lived through a part
    of an interval counts with that part.

    NaN where one of them was not measured for nine tenths of the time that it lived, where more than a
    hundredth of the energy stood in for silent nodes, where no row lived through nine tenths of the
    interval, and where it has not ended at `now`. Neither filled nor recovered energy makes a demand:
    nobody knows when it was drawn.
    """
    width = minutes * 60 // STEP
    whole = len(profile.month.minute) // width
    ended = min(max(int((now - profile.month.start) // (60 * minutes)), first), whole)
    found, count = np.full(max(whole - first, 0), np.nan), max(ended - first, 0)
    heard = profile.heard(names)
    if not heard or not count:
        return found
    columns = slice(first * width, ended * width)
    sums, stood_in, longest, energy = (np.zeros(count) for _ in range(4))
    for at in range(0, len(heard), ROWS_AT_ONCE):
        rows = heard[at : at + ROWS_AT_ONCE]
        joules, stand_in, seconds, lived = (
            values.reshape(len(rows), count, width).sum(axis=2)
            for values in (
                profile.series("joules", rows, columns),
                profile.series("stand_in", rows, columns),
                profile.series("seconds", rows, columns),
                profile.lived(now, rows, columns),
            )
        )
        lived = np.where(lived < _SHORT_PART * 60 * minutes, 0.0, lived)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.where(seconds >= KNOWN_PART * lived, (joules + stand_in) / seconds, np.nan)
        sums += np.where(lived == 0, 0.0, mean * lived).sum(axis=0)
        stood_in += stand_in.sum(axis=0)
        energy += (joules + stand_in).sum(axis=0)
        longest = np.maximum(longest, lived.max(axis=0))
    known = (stood_in <= PARTIAL_RATIO * energy) & (longest >= KNOWN_PART * 60 * minutes)
    found[:count] = np.where(known, sums / np.maximum(longest, 1.0), np.nan)
    return found


def begun_interval(profile: LoadProfile, names: Sequence[str], now: float, minutes: int) -> tuple[float, float]:
    """Return the mean watts of the known part of the running interval (NaN before any), and the part of
    the interval that is over. A row that lived through a part of it counts with that part."""
    passed = (now - profile.month.start) % (60 * minutes)
    width = minutes * 60 // STEP
    first = int((now - profile.month.start) // (60 * minutes)) * width
    rows, columns = profile.heard(names), slice(first, first + width)
    joules, stand_in, seconds, lived = (
        values.sum(axis=1)
        for values in (
            profile.series("joules", rows, columns),
            profile.series("stand_in", rows, columns),
            profile.series("seconds", rows, columns),
            profile.lived(now, rows, columns),
        )
    )
    if not len(joules) or not lived.any() or (seconds[lived > 0] <= 0).any():
        return math.nan, passed / (60 * minutes)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(lived > 0, (joules + stand_in) / seconds * lived / lived.max(), 0.0)
    return float(mean.sum()), passed / (60 * minutes)
