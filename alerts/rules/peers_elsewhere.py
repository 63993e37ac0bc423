"""GPUs of our jobs at other aggregators: what conditions on peers state of ours, and what others stated of theirs.

A group is the GPUs of one job and one model. Nobody compares what members read at different times: time is cut
into moments by the wall clock, a condition states its values once in each, and a group over several members is compared
one moment late, when the others have stated the same. Pure: the aggregator brings questions and answers.

A group of which a part is out of sight is not compared: its rows are unknown, so that no alert ends, or begins, because
of it. A part is out of sight while its member does not state it anew, and for `SETTLE_SECONDS` after nodes have
changed hands, until somebody has as many GPUs of the group as there were.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from alerts.rules.gpu_jobs import GpuJobs
from alerts.rules.medians import Others
from alerts.rules.row_memory import Flags, Floats, Index, RowMemory

STATED = 64
"""Values of a group that a member states at most. Of more GPUs it states quantiles, each of which stands for as many as
it should by its weight; the rank of any value among n GPUs is off by n / 128 at most, less than a hundredth of them."""
MOST_GROUPS = 50_000
"""Groups of a member that others are asked about at most: 400 kB. More are compared within the member."""
SETTLE_SECONDS = 180.0
"""Seconds after which a group that is smaller than it was is one that has lost GPUs for good: when a member dies,
another one has read its nodes, and stated what it read, in half of that."""
MOMENT_SECONDS = 20.0
"""Seconds of a moment: others state their values within 5 s, and are asked every 10 s."""
Identities = npt.NDArray[np.uint64]
_NO_INDEX = np.zeros(0, np.intp)
_NONE = Others(np.zeros(0), _NO_INDEX, _NO_INDEX)


class StatedValues(NamedTuple):
    """Values that one member compared at a moment, group by group."""

    moment: int
    identities: Identities
    """Ascending."""
    rows: Index
    """Devices of each group that the member has, read or not."""
    compared: Index
    """Devices among these that have a value."""
    values: Floats
    """Values of each group, `min(compared, STATED)`, ascending; one group after the other."""

    def of(self, wanted: Identities) -> StatedValues:
        """Return the part about some groups, ascending."""
        at = np.searchsorted(self.identities, wanted)
        at = at[at < len(self.identities)]
        chosen = at[self.identities[at] == wanted[: len(at)]]
        counts = np.minimum(self.compared, STATED)
        values = self.values[_spans((np.cumsum(counts) - counts)[chosen], counts[chosen])]
        return StatedValues(self.moment, self.identities[chosen], self.rows[chosen], self.compared[chosen], values)


class Compared(NamedTuple):
    """Values that a condition compares now, in place of its present readings."""

    values: Floats
    """Values, of rows in groups that others have too those of the moment before."""
    there: Flags
    others: Others
    blind: Flags
    """Rows of groups of which a part is out of sight: they are not there."""
    late: Flags
    """Rows in groups that others have too."""


@dataclass(slots=True)
class _Sizes:
    """Devices of each group as they were known of one comparison."""

    identities: Identities = field(default_factory=lambda: np.zeros(0, np.uint64))
    known: Index = field(default_factory=lambda: _NO_INDEX)

    def lost(self, identities: Identities, present: Index, stale: Index, settled: bool) -> Flags:
        """Return the groups of which a part is out of sight. `stale`: devices that were stated too long ago; `settled`:
        whether the nodes have not changed hands lately."""
        if self.identities is not identities:  # a number may be another group's now
            before, self.known = self.known, np.zeros(len(identities), np.intp)
            common = min(len(before), len(identities))
            same = self.identities[:common] == identities[:common]
            self.known[:common] = np.where(same, before[:common], 0)
            self.identities = identities
        known = present + stale
        self.known = known if settled else np.maximum(self.known, known)
        lost: Flags = (self.known > present) & (identities != 0)
        return lost


class _Elsewhere(NamedTuple):
    """GPUs of others in one comparison."""

    others: Others
    devices: Index
    """Number of devices of each group that others have, read or not ..."""
    stale: Index
    """... and of those that they have not stated anew."""


@dataclass(slots=True)
class _Heard:
    """Statements of another member."""

    process: str
    stated: dict[str, list[StatedValues]] = field(default_factory=dict)
    """By comparison, the newest two."""


class PeersElsewhere:
    """Knowledge of the GPUs of our jobs that other aggregators have."""

    def __init__(self) -> None:
        self._version = -1
        self._identities: Identities = np.zeros(1, np.uint64)
        """By group, 0 for one that can't be elsewhere too."""
        self._sorted: Identities = np.zeros(0, np.uint64)
        """Identities of groups that can, ascending, and their numbers."""
        self._numbers: Index = _NO_INDEX
        self._asked: Identities = np.zeros(0, np.uint64)
        """Identities of groups of which all members have said what they have."""
        self._unasked: Flags = np.zeros(1, np.bool_)
        """By group, whether it is none of these."""
        self._stated: dict[str, StatedValues] = {}
        self._heard: dict[str, _Heard] = {}
        """By member."""
        self._turn = 0
        """Counts what changes the values of others."""
        self._found: dict[str, tuple[int, int, _Elsewhere]] = {}
        self._sizes: dict[str, _Sizes] = {}
        self._blind: dict[str, tuple[Identities, Flags]] = {}
        """Of each comparison the groups without a verdict when it was computed last."""
        self._moved_at = -math.inf
        """When nodes last changed hands, monotonic seconds."""

    # -- What may be elsewhere -------------------------------------------------------------------

    def follow(self, version: int, groups: Index, identities: Identities, held: GpuJobs) -> None:
        """Find the groups of which others may have a part: more GPUs were asked for than are here, or nobody says
        how many. `identities`: by group, 0 for those that are of no job; `version`: rises with any change."""
        if version == self._version:
            return
        self._version = version
        found = identities.copy()
        rows = np.flatnonzero(groups)[::-1]
        first = np.full(len(found), -1, np.intp)
        first[groups[rows]] = rows
        found[first < 0] = 0
        there = np.flatnonzero(first >= 0)
        asked, job = held.asked[first[there]], held.alone
        here = np.bincount(job, minlength=held.count)[job[first[there]]]
        found[there[(asked > 0) & (asked <= here)]] = 0
        numbers = np.flatnonzero(found)
        order = np.argsort(found[numbers])
        found[numbers[order[MOST_GROUPS:]]] = 0  # the same ones at all members
        self._numbers = numbers[order[:MOST_GROUPS]]
        self._sorted = found[self._numbers]
        if not np.array_equal(found, self._identities):
            self._identities = found
        self._note_unasked()
        self._turn += 1

    def _note_unasked(self) -> None:
        self._unasked = np.zeros(len(self._identities), np.bool_)
        self._unasked[self._numbers] = ~np.isin(self._sorted, self._asked)

    # -- Conditions ------------------------------------------------------------------------------

    @staticmethod
    def moment(wall: int, seconds: float = MOMENT_SECONDS) -> int:
        """Return the number of a moment, the same at all members. `wall`: ns since 1970."""
        return int(wall // int(seconds * 1e9))

    def compared(
        self, key: str, moment: int, values: Floats, there: Flags, groups: Index, memory: RowMemory, now: float
    ) -> Compared:
        """Return what is compared at a moment. `key`: name of the comparison; `memory`: its own."""
        newest, before = self._held(values, groups, memory)
        stated = memory.state.get("stated", moment)
        if stated not in {moment, memory.state.get("compared")}:
            before[:] = newest
            memory.state["compared"] = stated
        found = self._others(key, memory.state.get("compared", moment - 1))
        shared, blind = self._shared(key, groups, found, now)
        late = shared[groups]
        own = np.where(late, before, values)
        unseen = blind[groups]
        there = np.where(late, ~np.isnan(before), there) & ~unseen
        return Compared(own, there, found.others, unseen, late)

    def state(self, key: str, moment: int, values: Floats, there: Flags, groups: Index, memory: RowMemory) -> None:
        """State the values of a moment, the first ones of it; they are compared in the next one."""
        if memory.state.get("stated") == moment:
            return
        memory.state["stated"] = moment
        newest, _ = self._held(values, groups, memory)
        newest[:] = np.where(there, values, np.nan)
        self._put(key, moment, newest, ~np.isnan(newest), groups)

    def present(
        self, key: str, moment: int, values: Floats, there: Flags, groups: Index, now: float
    ) -> tuple[Others, Flags]:
        """State values that change slowly, and return those of others that are known now, and the rows that are blind."""
        stated = self._stated.get(key)
        if stated is None or stated.moment != moment:
            self._put(key, moment, values, there, groups)
        found = self._others(key, moment)
        return found.others, self._shared(key, groups, found, now)[1][groups]

    def _held(self, values: Floats, groups: Index, memory: RowMemory) -> tuple[Floats, Floats]:
        """Return the values of each row that were stated last, and those of the moment before; none of before it
        was in its group."""
        newest = memory.array("newest", values.dtype, np.nan)
        before = memory.array("before", values.dtype, np.nan)
        of, its = memory.array("of", np.uint64, 0), self._identities[groups]
        changed = of != its
        if changed.any():
            newest[changed] = before[changed] = np.nan
            of[:] = its
        return newest, before

    def _put(self, key: str, moment: int, values: Floats, there: Flags, groups: Index) -> None:
        place = np.full(len(self._identities), -1, np.intp)
        place[self._numbers] = np.arange(len(self._numbers))
        its = place[groups]
        rows = np.bincount(its[its >= 0], minlength=len(self._numbers))
        chosen = np.flatnonzero(there & (its >= 0))
        order = np.lexsort((values[chosen], its[chosen]))
        ranked = values[chosen][order]
        size = np.bincount(its[chosen], minlength=len(self._numbers))
        low, high = _segments(size)
        first = np.repeat(np.cumsum(size) - size, np.minimum(size, STATED))
        self._stated[key] = StatedValues(moment, self._sorted, rows, size, ranked[first + (low + high - 1) // 2])

    def _others(self, key: str, wanted: int) -> _Elsewhere:
        """Return what others stated of a moment, or of the one beside it."""
        known = self._found.get(key)
        if known is not None and known[:2] == (wanted, self._turn):
            return known[2]
        parts: list[Others] = []
        count = len(self._identities)
        devices, stale = np.zeros(count, np.intp), np.zeros(count, np.intp)
        for heard in self._heard.values():
            stated = heard.stated.get(key)
            if not stated:
                continue
            nearest = min(stated, key=lambda one: abs(one.moment - wanted))
            its = nearest.of(self._sorted)
            numbers = self._numbers[np.searchsorted(self._sorted, its.identities)]
            if abs(nearest.moment - wanted) > 1:
                stale[numbers] += its.rows
                continue
            devices[numbers] += its.rows
            low, high = _segments(its.compared)
            counts = np.minimum(its.compared, STATED)
            parts.append(Others(its.values, np.repeat(numbers, counts), high - low))
        others = Others(*map(np.concatenate, zip(*parts, strict=True))) if parts else _NONE
        found = _Elsewhere(others, devices, stale)
        self._found[key] = wanted, self._turn, found
        return found

    def _shared(self, key: str, groups: Index, found: _Elsewhere, now: float) -> tuple[Flags, Flags]:
        """Return the groups that others have too, and those of which a part is out of sight."""
        here = np.bincount(groups, minlength=len(self._identities))
        settled = now - self._moved_at >= SETTLE_SECONDS
        sizes = self._sizes.setdefault(key, _Sizes())
        lost = sizes.lost(self._identities, here + found.devices, found.stale, settled)
        blind = lost | self._unasked
        self._blind[key] = self._identities, blind
        return (found.devices > 0) | lost, blind

    # -- Members ---------------------------------------------------------------------------------

    @property
    def wanted(self) -> Identities:
        """The groups to ask others about, ascending."""
        return self._sorted

    @property
    def blind(self) -> Identities:
        """The groups that have no verdict in a comparison, since a part of them is out of sight; ascending."""
        found = [identities[blind] for identities, blind in self._blind.values() if identities is self._identities]
        return np.intersect1d(np.concatenate(found), self._sorted) if found else self._sorted[:0]

    def apart(self, member: str) -> bool:
        """Return whether a member states other moments than we do: its clock is another one."""
        return any(
            abs(self._stated[key].moment - moment) > 1
            for key, moment in self.moments(member).items()
            if key in self._stated
        )

    def moments(self, member: str) -> dict[str, int]:
        """Return the moment of what a member stated last, by comparison."""
        heard = self._heard.get(member)
        return {} if heard is None else {key: its[-1].moment for key, its in heard.stated.items()}

    def answer(self, wanted: Identities, known: Mapping[str, int]) -> dict[str, StatedValues]:
        """Return what we stated last of some groups, ascending, by comparison; not what is known already."""
        return {key: stated.of(wanted) for key, stated in self._stated.items() if stated.moment != known.get(key)}

    def hear(
        self,
        asked: Identities,
        answers: Mapping[str, Mapping[str, StatedValues]],
        others: Mapping[str, str],
        now: float,
        *,
        moved: bool = False,
    ) -> None:
        """Note the answers of a round, by member. `others`: those that may have something, and their processes;
        `moved`: whether nodes have changed hands since the round before."""
        gone = [name for name, its in self._heard.items() if others.get(name) != its.process]
        for member in gone:  # others have its nodes, or it has begun anew
            del self._heard[member]
        for member, statements in answers.items():
            stated = self._heard.setdefault(member, _Heard(others.get(member, ""))).stated
            for key, statement in statements.items():
                stated[key] = [*stated.get(key, ()), statement][-2:]
        if moved or gone:
            self._moved_at = now
        if not self._heard.keys() - answers.keys():  # else who is silent may have new ones too
            self._asked = asked
        self._note_unasked()
        self._turn += 1


def _spans(first: Index, counts: Index) -> Index:
    """Return the positions of spans, one after the other."""
    begin = np.repeat(first - (np.cumsum(counts) - counts), counts)
    return np.asarray(begin + np.arange(len(begin)), np.intp)


def _segments(sizes: Index) -> tuple[Index, Index]:
    """Return first and last rank, exclusive, of what each stated value of groups stands for."""
    counts = np.minimum(sizes, STATED)
    group = np.repeat(np.arange(len(sizes)), counts)
    number = _spans(np.zeros(len(sizes), np.intp), counts)
    return number * sizes[group] // counts[group], (number + 1) * sizes[group] // counts[group]
