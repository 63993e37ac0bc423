"""The energy of a cluster: each member counts all nodes, and asks the others for what it did not count while it was away.

Idle GPUs are counted by node, at the member that has it: whoever is asked for a bill adds them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import msgspec

from aggregator.cluster.ask import MemberAnswers, decoded
from aggregator.cluster.member import ClusterMember
from aggregator.cluster.port import CoordinationError
from aggregator.electrical.bill import month_held
from aggregator.electrical.month_parts import SLACK_SECONDS, MonthElsewhere, MonthPart, lacking, merge_part, rows_of
from aggregator.electrical.service import ElectricalService
from power.report.energy_ledger import Day
from power.report.load_profile import LoadProfile
from power.report.months import month_at, month_named
from telemetry.text.decoders import of_msgpack

ASK_SECONDS = 300.0
"""Seconds between two looks whether anything was not counted here."""
FIRST_SECONDS = 10.0
"""Seconds between two looks until all others have answered once."""
ANSWER_SECONDS = 5.0
"""Seconds in which a member must answer: it may read a file."""


class EnergyQuestion(msgspec.Struct, frozen=True):
    """A question for what a member knows of a month. Fields are only added, with a default."""

    month: str
    columns: list[int] = []
    """Intervals that are wanted."""
    days: bool = False
    """Whether days and peaks are wanted."""


class ClusterEnergy:
    """The `EnergyElsewhere` of a member; `run` it."""

    def __init__(
        self, electrical: ElectricalService, member: ClusterMember, now: Callable[[], float], wall: Callable[[], int]
    ) -> None:
        """`now`: monotonic seconds; `wall`: ns since 1970."""
        self._electrical, self._member, self._now, self._wall = electrical, member, now, wall
        self._answers = MemberAnswers(member.coordination, member.name)
        self._whole = False
        """Whether every other member has answered once."""

    async def run(self) -> None:
        """Answer the others and catch up with them until cancelled."""
        while True:
            try:
                async with self._answers.serving({"energy": self.answer}):
                    while True:
                        await self.catch_up()
                        await asyncio.sleep(ASK_SECONDS if self._whole else FIRST_SECONDS)
            except CoordinationError:
                await asyncio.sleep(1.0)

    async def catch_up(self) -> None:
        """Take over what others counted of the present month and of the past days while this member did not."""
        electrical, wall = self._electrical, self._wall() / 1e9
        profile = electrical.months.ledger.profile
        month = month_at(wall, electrical.site.zone)
        if profile is None or profile.month.name != month.name:
            return
        wanted = lacking(profile, wall)
        if self._whole and not wanted:
            return
        others, answered = self._member.others(self._now()), set[str]()
        for name in others:
            part = await self._ask(name, EnergyQuestion(month.name, wanted, days=True))
            if part is None:
                continue
            answered.add(name)
            with contextlib.suppress(ValueError):  # of another release
                for _ in merge_part(profile, part):
                    await asyncio.sleep(0)
            if part.rows:
                ledger = electrical.months.ledger
                ledger.changed_from = min(ledger.changed_from, float(profile.month.start))
            self._take_days(part)
            wanted = lacking(profile, wall)
        self._whole = self._whole or answered >= set(others)

    def _take_days(self, part: MonthPart) -> None:
        days, ledger = self._electrical.energy.ledger.days, self._electrical.months.ledger
        for date, theirs in part.days.items():
            if theirs.seconds > days.get(date, Day()).seconds + SLACK_SECONDS:
                days[date] = theirs
        for month, peak in part.peaks.items():
            ledger.past_peaks[month] = max(peak, ledger.past_peaks.get(month, peak))

    async def _ask(self, name: str, question: EnergyQuestion) -> MonthPart | None:
        body = msgspec.msgpack.encode(question)
        found = await self._answers.ask_all([name], "energy", lambda _: body, ANSWER_SECONDS)
        parts = await asyncio.to_thread(decoded, found, MonthPart)
        return parts.get(name)

    async def month(self, name: str | None) -> MonthElsewhere:
        """Return what the others know of a month that this one does not, and who does not answer. Raises
        `ConfigError`."""
        wall, zone = self._wall() / 1e9, self._electrical.site.zone
        month = month_at(wall, zone) if name is None else month_named(name, zone)
        profile = await self._profile(month.name)
        wanted = await asyncio.to_thread(lacking, profile, min(wall, float(month.end)))
        question = EnergyQuestion(month.name, wanted)
        asked = self._member.others(self._now())
        parts = await asyncio.gather(*(self._ask(each, question) for each in asked))
        found = {each: part for each, part in zip(asked, parts, strict=True) if part is not None}
        known = {*asked, *self._member.planner.members} - {self._member.name}
        return MonthElsewhere(list(found.values()), sorted(known - found.keys()))

    async def _profile(self, name: str) -> LoadProfile:
        """Return a copy of a month as it is known here."""
        return (await asyncio.to_thread(month_held(self._electrical, name)))[0]

    async def answer(self, body: bytes) -> bytes:
        """Answer the question of another member."""
        asked = of_msgpack(EnergyQuestion).decode(body)
        held = month_held(self._electrical, asked.month)
        days = (
            {date: msgspec.structs.replace(day) for date, day in self._electrical.energy.ledger.days.items()}
            if asked.days
            else {}
        )
        peaks = dict(self._electrical.months.ledger.past_peaks) if asked.days else {}

        def packed() -> bytes:
            profile, idle = held()
            rows = rows_of(profile, asked.columns)
            part = MonthPart(asked.columns, rows, idle.totals(), peaks, days)
            return msgspec.msgpack.encode(part)

        return await asyncio.to_thread(packed)
