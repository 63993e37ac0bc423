"""Jobs of the whole cluster: who holds each GPU by the copy of the present, and one job of its parts.

A member has the allocations and the use of the nodes that it holds, or held. A question goes to all of them. A
job that several know is asked for whole, from each, and joined: which member a part of it matches a question is no
matter.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import msgspec

from aggregator.cluster.ask import MemberAnswers, QuestionHandler, decoded
from aggregator.cluster.fleet_copy import FleetCopy
from aggregator.jobs.aliases import without_aliases
from aggregator.jobs.joined import joined_job, joined_sums
from aggregator.jobs.scheduled import Word
from aggregator.jobs.stored import FoundJobs, JobQuery, StoredJob, UnheldMonth, WholeJobs, key_of
from aggregator.jobs.unheld import joined_use
from aggregator.view import AggregatorView
from api.jobs import JobRow
from power.report.months import months_between
from telemetry.text.decoders import of_msgpack
from telemetry.wire.jobs import JobKey, JobSourceState, NodeJobs

SECONDS = 10.0
"""Seconds in which a member must answer: its store may read much."""
KEPT_SECONDS = 10.0
"""Seconds for which a part of a job serves lists: dashboards ask again and again, and a member counts every 5 s."""
MOST_WORK = 0.1
"""Share of a core that joining may take: above, parts serve for longer."""
_pack = msgspec.msgpack.encode


class ClusterJobs:
    """Jobs of all members."""

    def __init__(
        self,
        own: AggregatorView,
        name: str,
        answers: MemberAnswers,
        copy: FleetCopy,
        others: Callable[[], tuple[list[str], list[str]]],
    ) -> None:
        """`own`: this member alone, called `name`. `others`: returns the other members that can be asked, and all
        that have something."""
        self._own, self._name, self._answers, self._copy, self._others = own, name, answers, copy, others
        self._held: dict[JobKey, list[tuple[str, str]]] = {}
        self._indexed: object = None
        """The lists that `_held` is of."""
        self._kept: dict[tuple[str, JobKey], tuple[float, StoredJob]] = {}
        """Parts by member, and when each was asked for."""
        self._work = 0.0
        """Seconds that the last joining of a list took."""
        self._rows: dict[JobKey, tuple[Mapping[str, StoredJob], JobRow]] = {}
        """Rows of jobs of several parts, and of which."""

    # -- Who holds which GPU now -----------------------------------------------------------------

    @property
    def lists(self) -> Mapping[str, NodeJobs]:
        """The newest list of each node, also of one whose member does not answer."""
        return self._copy.lists

    @property
    def sources(self) -> Callable[[], list[JobSourceState]]:
        """The scheduler's word as this member hears it."""
        return self._own.jobs.sources

    @property
    def word(self) -> Word | None:
        """Newest word of the scheduler, of the whole of its cluster, as this member hears it."""
        return self._own.jobs.word

    def held(self, key: JobKey) -> list[tuple[str, str]]:
        """Return node and UUID of the GPUs that a job holds."""
        if self._indexed is not self._copy.lists:
            self._indexed, self._held = self._copy.lists, {}
            for node, message in self._copy.lists.items():
                for each in message.allocations:
                    if not each.end:
                        self._held.setdefault(each.job, []).append((node, each.gpu))
        return list(dict.fromkeys(self._held.get(key, ())))

    def ids(self, own: str = "") -> Iterator[str]:
        """Yield the ids of jobs that the lists name; `own`: those of a user alone."""
        jobs = (job for message in self._copy.lists.values() for job in message.jobs)
        found = {job.key: job for job in jobs if own in {"", job.user}}
        return (key.id for key in found)

    # -- Jobs ------------------------------------------------------------------------------------

    async def find(self, wanted: JobQuery) -> FoundJobs:
        """Return the jobs of all members that match a query, the newest begin first."""
        asked, known = self._others()
        own, bodies = await asyncio.gather(
            self._own.find_jobs(wanted), self._answers.ask_all(asked, "found_jobs", lambda _: _pack(wanted), SECONDS)
        )
        answers = decoded(bodies, list[JobRow]) | {self._name: own.rows}
        rows = {name: {key_of(row): row for row in its} for name, its in answers.items()}
        keys = set().union(*rows.values())
        # A part that does not match by itself is still one: it has ended while another one runs.
        also = await self._ask_whole({name: keys - its.keys() for name, its in rows.items()})
        members: dict[JobKey, list[str]] = {}
        for name in answers:
            for key in (*rows[name], *also.get(name, ())):
                members.setdefault(key, []).append(name)
        several = {key for key, names in members.items() if len(names) > 1 or self._left(names[0], rows[names[0]][key])}
        found = [row for its in rows.values() for key, row in its.items() if key not in several]
        if wanted.sums and not wanted.user:
            plain = {key for key in several if self._is_plain(key, members[key], rows)}
            split = [[rows[name][key] for name in members[key]] for key in plain]
            found += filter(wanted.matches, map(joined_sums, split))
            several -= plain
        rest = await self._kept_whole({name: several & its.keys() for name, its in rows.items()})
        parts: dict[JobKey, dict[str, StoredJob]] = {}
        for name, its in (*also.items(), *rest.items()):
            for key, part in its.items():
                parts.setdefault(key, {})[name] = part
        # A job of thousands of GPUs takes a while.
        joined, work = await asyncio.to_thread(self._joined_rows, wanted, several, parts)
        found += joined
        if work:
            self._work = work
        found = without_aliases(found)
        found.sort(key=lambda row: -row.begin)
        silent = {name for name in rows if name not in also or name not in rest}
        return FoundJobs(found[: wanted.limit], sorted((set(known) - answers.keys()) | silent))

    def _joined_rows(
        self, wanted: JobQuery, keys: set[JobKey], parts: Mapping[JobKey, Mapping[str, StoredJob]]
    ) -> tuple[list[JobRow], float]:
        """Return those jobs of several parts that match as a whole, and the seconds that joining took: nothing of one
        that is in part another user's."""
        found, began, new = [], time.thread_time(), False
        self._rows = {key: known for key, known in self._rows.items() if key in keys}
        for key in keys & parts.keys():
            its = parts[key]
            if wanted.user and any(part.row.user not in {"", wanted.user} for part in its.values()):
                continue
            before, row = self._rows.get(key, ({}, None))
            if (
                row is None
                or before.keys() != its.keys()
                or any(before[name] is not part for name, part in its.items())
            ):
                row = self._joined(its).row
                self._rows[key], new = (its, row), True
            if wanted.matches(row):
                found.append(row)
        return found, time.thread_time() - began if new else 0.0

    def _is_plain(self, key: JobKey, names: Sequence[str], rows: Mapping[str, Mapping[JobKey, JobRow]]) -> bool:
        """Return whether the sums of a job are those of its rows: each of other nodes, which have not moved."""
        its = [(name, rows[name][key]) for name in names if key in rows[name]]
        nodes = [node for _, row in its for node in row.nodes]
        return (
            len(its) == len(names)
            and len(set(nodes)) == len(nodes)
            and not any(self._left(name, row) for name, row in its)
        )

    def _left(self, member: str, row: JobRow) -> bool:
        """Return whether a job runs, as a member says, on a node that another has now."""
        return row.end is None and any(self._holder(node) not in {"", member} for node in row.nodes)

    def _holder(self, node: str) -> str:
        return self._copy.lister(node)

    def _joined(self, parts: Mapping[str, StoredJob]) -> StoredJob:
        zone = self._own.electrical.site.zone
        months = partial(months_between, zone=zone)
        return joined_job(parts, self._holder, self._own.wall(), months)

    async def whole(self, keys: Sequence[JobKey]) -> WholeJobs:
        """Return all that the members know of some jobs."""
        asked, known = self._others()
        found = await self._ask_whole({name: set(keys) for name in (*asked, self._name)})
        parts: dict[JobKey, dict[str, StoredJob]] = {}
        for name, its in found.items():
            for key, part in its.items():
                parts.setdefault(key, {})[name] = part
        jobs = await asyncio.to_thread(lambda: {key: self._joined(its) for key, its in parts.items()})
        return WholeJobs(jobs, sorted(set(known) - found.keys()))

    async def _kept_whole(self, wanted: Mapping[str, set[JobKey]]) -> dict[str, Mapping[JobKey, StoredJob]]:
        """Return the parts of jobs for a list, which some seconds of age don't harm."""
        now = self._own.now()
        most = max(KEPT_SECONDS, self._work / MOST_WORK)
        kept = self._kept = {place: known for place, known in self._kept.items() if now - known[0] < most}
        found = await self._ask_whole(
            {name: {key for key in keys if (name, key) not in kept} for name, keys in wanted.items()}
        )
        for name, its in found.items():
            kept |= {(name, key): (now, part) for key, part in its.items()}
        return {name: {key: kept[name, key][1] for key in wanted[name] if (name, key) in kept} for name in found}

    async def _ask_whole(self, wanted: Mapping[str, set[JobKey]]) -> dict[str, Mapping[JobKey, StoredJob]]:
        """Return the parts of jobs that members have, by member; none of one that does not answer."""
        found: dict[str, Mapping[JobKey, StoredJob]] = {name: {} for name, keys in wanted.items() if not keys}
        asked = [name for name, keys in wanted.items() if keys and name != self._name]
        bodies = await self._answers.ask_all(asked, "whole_jobs", lambda name: _pack(sorted(wanted[name])), SECONDS)
        for name, its in decoded(bodies, list[StoredJob]).items():
            found[name] = {each.record.job.key: each for each in its}
        if own := wanted.get(self._name):
            found[self._name] = (await self._own.whole_jobs(sorted(own))).jobs
        return found

    async def unheld(self, month: str) -> UnheldMonth:
        """Return the use of the GPUs of all members that no job held in a month."""
        asked, known = self._others()
        own = await self._own.unheld(month)
        bodies = await self._answers.ask_all(asked, "unheld", lambda _: month.encode(), SECONDS)
        found = decoded(bodies, UnheldMonth)
        parts = [own, *found.values()]
        return UnheldMonth(
            joined_use(each.reported for each in parts),
            joined_use(each.unreported for each in parts),
            sorted(set(known) - found.keys()),
        )

    # -- Answers to others -----------------------------------------------------------------------

    def handlers(self) -> dict[str, QuestionHandler]:
        """Return what answers the questions of others, by their subject."""
        return {"found_jobs": self._answer_found, "whole_jobs": self._answer_whole, "unheld": self._answer_unheld}

    async def _answer_found(self, body: bytes) -> bytes:
        found = await self._own.find_jobs(of_msgpack(JobQuery).decode(body))
        return await asyncio.to_thread(_pack, found.rows)

    async def _answer_whole(self, body: bytes) -> bytes:
        found = await self._own.whole_jobs(of_msgpack(list[JobKey]).decode(body))
        return await asyncio.to_thread(_pack, list(found.jobs.values()))

    async def _answer_unheld(self, body: bytes) -> bytes:
        return _pack(await self._own.unheld(body.decode()))
