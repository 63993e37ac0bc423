"""Parts of a month that one aggregator tells another: intervals that the other did not count, and idle GPUs. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import msgspec
import numpy as np

from power.report.energy_ledger import Day
from power.report.load_profile import ROWS_AT_ONCE, SERIES, LoadProfile
from power.report.month_ledger import NodeIdle
from power.report.months import STEP

SLACK_SECONDS = 5.0
"""Seconds by which an interval may be short and still counts as counted."""


class MonthRow(msgspec.Struct, frozen=True, array_like=True):
    """A row of a load profile, in some intervals. Fields are only added, with a default."""

    begins: float
    ends: float | None
    """None where it goes on."""
    root: bool
    series: dict[str, bytes]
    """float32, little-endian, by name of `SERIES`; of one in which nothing is, none."""


class MonthPart(msgspec.Struct, frozen=True):
    """The knowledge of one aggregator about a month. Fields are only added, with a default."""

    columns: list[int] = []
    """Intervals of `rows`."""
    rows: dict[str, MonthRow] = {}
    idle: dict[str, tuple[float, float, float, float]] = {}
    """Idle GPUs of its own nodes, as `NodeIdle.totals` has them."""
    peaks: dict[str, float] = {}
    """Highest demands of the months before, watts."""
    days: dict[str, Day] = {}


class MonthElsewhere(NamedTuple):
    """The knowledge of others about a month, and who of them does not answer."""

    parts: Sequence[MonthPart] = ()
    missing: Sequence[str] = ()


class EnergyElsewhere(Protocol):
    """The other aggregators of a cluster."""

    async def month(self, name: str | None) -> MonthElsewhere:
        """Return what they know of a month that this one does not; of the present one for None. Raises
        `ConfigError` for what is no month."""


def lacking(profile: LoadProfile, now: float) -> list[int]:
    """Return the intervals that have ended and in which no row was counted to the end: this aggregator was away.
    `now`: seconds since 1970."""
    past = min(max(int((now - profile.month.start) // STEP), 0), len(profile.month.minute))
    some = profile.names[:ROWS_AT_ONCE]
    known = profile.series("seconds", some) + profile.series("recovered_seconds", some)
    most = known[:, :past].max(axis=0, initial=0.0)
    found: list[int] = np.flatnonzero(most < STEP - SLACK_SECONDS).tolist()
    return found


def rows_of(profile: LoadProfile, columns: Sequence[int]) -> dict[str, MonthRow]:
    """Return the rows of a profile in which anything is in some intervals."""
    found: dict[str, MonthRow] = {}
    names, count = profile.names, len(profile.month.minute)
    at = [column for column in columns if 0 <= column < count]
    for first in range(0, len(names) if at else 0, ROWS_AT_ONCE):
        part = names[first : first + ROWS_AT_ONCE]
        tables = {name: profile.series(name, part)[:, at].astype("<f4") for name in SERIES}
        for place, name in enumerate(part):
            its = {series: table[place].tobytes() for series, table in tables.items() if table[place].any()}
            if its:
                begins, ends = profile.life(name)
                row = MonthRow(begins, ends if math.isfinite(ends) else None, name in profile.roots, its)
                found[name] = row
    return found


def merge_part(profile: LoadProfile, part: MonthPart) -> Iterator[None]:
    """Take over what another aggregator knows better of a month, a row at a time. Raises `ValueError` for rows that do
    not fit their intervals."""
    count = len(profile.month.minute)
    at = np.array(part.columns, np.intp)
    if len(at) and not 0 <= at.min() <= at.max() < count:
        raise ValueError("intervals of another month")
    for name, row in part.rows.items():
        fresh = {}
        for series, body in row.series.items():
            if series in SERIES:
                fresh[series] = np.zeros(count)
                fresh[series][at] = np.frombuffer(body, "<f4")
        new = name not in profile.names
        profile.take(name, fresh)
        begins, ends = profile.life(name)
        theirs = math.inf if row.ends is None else row.ends
        if new:
            begins, ends = row.begins, theirs
        elif math.isfinite(ends) and math.isfinite(theirs):
            ends = max(ends, theirs)
        profile.live(name, min(begins, row.begins), ends)
        if row.root:
            profile.roots.add(name)
        yield


def add_idle(idle: NodeIdle, part: MonthPart) -> None:
    """Add the idle GPUs of another aggregator's nodes; of a node that moved both have counted their time."""
    if part.idle:
        idle.add(idle.rows(tuple(part.idle)), np.array(list(part.idle.values()), np.float64))
