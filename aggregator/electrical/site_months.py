"""The months of a site's energy: the present one in memory, all on disk, and the demands of those that have ended."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aggregator.electrical.month_files import MonthCopy, MonthFiles, copy_of
from aggregator.electrical.site_loader import LoadedSite
from power.report.bill import highest_demand, months_before
from power.report.load_profile import LoadProfile
from power.report.month_ledger import TAIL_SECONDS, MonthLedger, NodeIdle, merge_idle, merge_tree
from power.report.months import STEP, month_at

log = logging.getLogger(__name__)

_OLDER_SECONDS = 60.0
"""Least seconds between two writings of a month of which more changed than a checkpoint holds."""


class SiteMonths:
    """The ledger of the present month, and the files of all."""

    def __init__(self, folder: Path, site: LoadedSite) -> None:
        self._folder = folder
        self._site = self._peaks_of = site
        """The configuration, and that by which the ledger's `past_peaks` were computed."""
        self.files = MonthFiles(folder)
        self.ledger = MonthLedger(site.zone, self._stored)
        """Energy of the present month, by circuit and quarter of an hour."""
        self._saved_at = 0.0
        """Seconds since 1970 at which the present month's file was written last."""

    def follow(self, site: LoadedSite) -> None:
        """Go on by a new configuration; its peaks are read by `renew_peaks`."""
        self._site = site
        self.ledger.zone = site.zone

    def load(self, wall: float, tail: Mapping[str, Any]) -> None:
        """Go on with the present month, and read the highest demands of the months before. `wall`: seconds since 1970;
        `tail`: what a checkpoint had of the month beyond its file."""
        zone = self._site.zone
        month = month_at(wall, zone)
        profile, idle = self.files.load(month.name, zone)
        if tail.get("month") == month.name:
            merge_tree(profile, tail["profile"])
            merge_idle(idle, tail["idle"])
        elif "month" in tail:  # it ended while kilowatch was down
            ended, unused = self.files.load(str(tail["month"]), zone)
            merge_tree(ended, tail["profile"])
            merge_idle(unused, tail["idle"])
            self.ledger.finished.append((ended, unused))
        if profile.names:
            self.ledger.begin(profile, idle)
        else:
            self.ledger.continued = self._rows_before(month.name)
        self.ledger.past_peaks = self.past_peaks(month.name)()

    def _rows_before(self, name: str) -> tuple[str, ...]:
        """Return the rows that went on at the end of the newest month before another."""
        ended = [one for one, _ in self.ledger.finished if one.month.name < name]
        if ended:
            return tuple(ended[-1].going_on())
        stored = [one for one in self.files.names() if one < name]
        return tuple(self.files.load(stored[-1], self._site.zone)[0].going_on()) if stored else ()

    def _stored(self, name: str) -> tuple[LoadProfile, NodeIdle] | None:
        """Return a month that is on disk, else None."""
        return self.files.load(name, self._site.zone) if name in self.files.names() else None

    def past_peaks(self, before: str) -> Callable[[], dict[str, float]]:
        """Return the function that reads the highest demands of the bill, watts, in the months that count
        for the one named; another thread may call it."""
        bill, layout, zone = self._site.config.bill, self._site.layout, self._site.zone
        if bill is None:
            return dict
        earlier = months_before(before, bill.ratchet_months)
        names = [name for name in self.files.names() if name in earlier]
        ended = {one.month.name: one.copied() for one, _ in self.ledger.finished if one.month.name in earlier}

        def read() -> dict[str, float]:
            found = {}
            for name in sorted({*names, *ended}):
                profile = ended.get(name) or self.files.load(name, zone)[0]
                peak = highest_demand(bill, layout, profile)
                if peak is not None:
                    found[name] = peak
            return found

        return read

    async def renew_peaks(self, wall: float) -> None:
        """Read the demands of past months again after a change of the bill's terms or circuits."""
        if self._peaks_of is self._site:
            return
        site = self._site
        found = await asyncio.to_thread(self.past_peaks(month_at(wall, site.zone).name))
        if site is self._site:  # else the next round reads them by the newest terms
            self.ledger.past_peaks, self._peaks_of = found, site

    def due(self, wall: float, *, always: bool = False) -> list[MonthCopy]:
        """Return the files that are to be written: of months that ended, and of the present one once in
        each interval, or in each minute while counters tell of energy that no checkpoint holds."""
        ledger = self.ledger
        found = [copy_of(profile, idle) for profile, idle in ledger.finished]
        older = ledger.changed_from < wall - TAIL_SECONDS and wall - self._saved_at >= _OLDER_SECONDS
        due = always or older or int(wall // STEP) != int(self._saved_at // STEP)
        present = ledger.profile
        if present is not None and present.names and due:
            ledger.changed_from = math.inf
            found.append(copy_of(present, ledger.idle))
        return found

    def write(self, months: Sequence[MonthCopy]) -> bool:
        """Write months; return whether all are on disk. Another thread may call it."""
        try:
            for month in months:
                self.files.save(month)
        except OSError as error:
            log.warning("%s: %s. The month's energy would not survive a restart now.", self._folder, error.strerror)
            return False
        return True

    def written(self, wall: float, months: Sequence[MonthCopy]) -> None:
        """Forget the months that ended and are on disk, all but their demands."""
        names = {one.profile.month.name for one in months}
        for profile, _ in self.ledger.finished:
            if profile.month.name in names:
                self._note_peak(profile)
        self.ledger.finished = [one for one in self.ledger.finished if one[0].month.name not in names]
        if months:
            self._saved_at = wall

    def _note_peak(self, profile: LoadProfile) -> None:
        """Remember the highest demand of a month that ended."""
        bill = self._site.config.bill
        peak = None if bill is None else highest_demand(bill, self._site.layout, profile)
        if peak is not None:
            self.ledger.past_peaks[profile.month.name] = peak
