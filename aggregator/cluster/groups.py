"""Which member should hold which shard group, and what this member does about it. Pure: no clock, no I/O.

The entry of a group says who *does* hold it, rendezvous hashing over the living members who *should*.
`GroupPlanner` compares the two once a round and returns moves of its own member only; compare-and-set
decides between members that see different things.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple, TypeVar

import msgspec

from aggregator.cluster.port import BucketEntry
from telemetry.text.decoders import of_json

GROUPS = tuple(f"{number:02x}" for number in range(256))
"""The shard groups: one a shard of the topic tree. Finer ones need a new version of the tree."""
JOIN_SECONDS = 3.0
"""Seconds that a new member waits for others that start with it, so that groups move once."""
FLAPPING_SECONDS = 60.0
FLAPPING_JOINS = 3
"""A member that joined so many times within `FLAPPING_SECONDS` gets no groups for as long."""
BEHIND_SECONDS = 1.0
"""Seconds for which a server that is read may be behind. Rounds follow each other within milliseconds while there is
much to do, and what is held is claimed anew from a table that was lost."""
MOVES_PER_SECOND = 16.0
"""Groups that a member takes or hands over in a second: each begins with a refill."""

PROTOCOL = 2
"""Number of what members tell each other. It rises where an older release would not understand, or would do
something else; what is only added does not raise it."""
OLDEST_PROTOCOL = 1
"""The lowest number of another member that this release works with."""


class GroupEntry(msgspec.Struct, frozen=True):
    """The entry of a group."""

    owner: str
    start: str
    """The owner's process (`MemberBeat.start`)."""
    epoch: int
    """Rises with each change of the owner, over all groups; a holder of a lower one is outdated."""
    before: str = ""
    """The member that hands it over, and receives it until this one does; "" where nobody does."""


class RecentMove(msgspec.Struct, frozen=True):
    """A move of a member, for people."""

    at: int
    """ns since 1970."""
    kind: str
    """`taken`, `received`, `lost` or `handed over`."""
    groups: str
    other: str = ""
    """The other member; "" for none."""


class MemberBeat(msgspec.Struct, frozen=True):
    """State of a member, as it writes it itself."""

    start: str
    """Random for each start of its process."""
    weight: float = 1.0
    leaving: bool = False
    """Whether it hands over what it holds, to end."""
    epoch: int = 0
    """Highest epoch that it has seen: a lost table doesn't begin again at 1."""
    version: str = ""
    protocol: int = 0
    """`PROTOCOL` of its release; 0 of one before there was a number, as 2026.1."""
    oldest: int = 0
    """`OLDEST_PROTOCOL` of its release."""
    site: bool = False
    """Whether it may take the site role."""
    address: str = ""
    """`host:port` of its HTTP."""
    groups: int = 0
    nodes: int = 0
    load: float | None = None
    """CPU seconds of its process in a second; None before the first measurement."""
    moves: tuple[RecentMove, ...] = ()
    """Its last moves, newest last."""


_Decoded = TypeVar("_Decoded", MemberBeat, GroupEntry)


class MoveKind(StrEnum):
    """Kind of step that a member makes about a group."""

    TAKE = "take"
    """Claim it: nobody alive holds it, or this member does and the entry is lost."""
    HAND_OVER = "hand over"
    """Name another member as its owner: that one should hold it."""
    START = "start"
    """Begin to receive: the entry names this process."""
    STOP = "stop"
    """End receiving at once: another member has a higher epoch."""


def refusal(own: MemberBeat, name: str, other: MemberBeat) -> str:
    """Return why a member and another one can't be in one cluster; "" where they can."""
    if other.protocol < own.oldest:
        return (
            f"{name} runs {other.version or 'an old release'} with protocol {other.protocol}, and {own.version} "
            f"needs {own.oldest} or higher: upgrade {name}"
        )
    if own.protocol < other.oldest:
        return (
            f"{name} runs {other.version}, which needs protocol {other.oldest} or higher, and this one "
            f"runs {own.version} with {own.protocol}: upgrade this one"
        )
    return ""


class Move(NamedTuple):
    """A step of this member about one group."""

    kind: MoveKind
    group: str
    entry: GroupEntry
    """The entry to write, or the one that stands."""
    revision: int
    """The revision that the write names."""
    before: str = ""
    """The owner before; "" for none that is known."""


@lru_cache(maxsize=65_536)
def _chance(member: str, group: str) -> float:
    """Return a number between 0 and 1 that is fixed for a member and a group."""
    digest = hashlib.blake2b(f"{group}/{member}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") + 0.5) / 2**64


def target(group: str, weights: Mapping[str, float]) -> str | None:
    """Return the member that should hold a group, by weighted rendezvous hashing: where a member comes or
    goes, only its own groups move."""
    if not weights:
        return None
    return max(weights, key=lambda name: (-weights[name] / math.log(_chance(name, group)), name))


@dataclass(slots=True)
class KnownMember:
    """A member as it is known, by the observer's own clock."""

    beat: MemberBeat
    revision: int
    heard: float
    """When its entry last changed."""
    joined: float
    """When it appeared, or came back from the dead, or started anew."""
    joins: list[float] = field(default_factory=list)

    def flapping(self, now: float) -> bool:
        """Return whether it came and went too often to be given anything."""
        recent = [at for at in self.joins if self.joined - at < FLAPPING_SECONDS]
        return len(recent) >= FLAPPING_JOINS and now - self.joined < FLAPPING_SECONDS


class GroupPlanner:
    """Knowledge of one member about the others and the groups, and its next moves.

    Call `beat` for what to write as heartbeat, `observe` with what was read, or `blind` where anything
    failed, then `plan`.
    """

    def __init__(
        self, name: str, own: MemberBeat, dead_after: float, now: float, heartbeat: float | None = None
    ) -> None:
        """`now`: monotonic seconds, as in all methods. `heartbeat`: seconds between two, a sixth of
        `dead_after` by default."""
        self.name = name
        self.own = own
        self.dead_after = dead_after
        self.heartbeat = dead_after / 6 if heartbeat is None else heartbeat
        self.members: dict[str, KnownMember] = {}
        self.refused: dict[str, str] = {}
        """Members whose release this one can't work with, with the reason: they count as absent."""
        self.held: dict[str, int] = {}
        """Groups that this process holds, with their epochs."""
        self.highest = own.epoch
        """Highest epoch seen anywhere."""
        self._began = now
        self._quiet_until = now
        """No death is concluded before: there was a blackout."""
        self._blind = False
        self._behind_since = math.inf
        """Time of the first of the reads, one after the other, that were older than one before."""
        self._round = now
        self._hold: tuple[frozenset[str], float] = frozenset(), -math.inf
        """Members that went silent together, and until when that is not believed."""
        self._owners: dict[str, tuple[GroupEntry, int]] = {}
        self._read: tuple[Mapping[str, BucketEntry], dict[str, tuple[GroupEntry, int]]] = {}, {}
        """The table of owners as it was read last, and its entries: few change."""
        self._targets: tuple[dict[str, float], dict[str, str | None]] = {}, dict.fromkeys(GROUPS)
        """For weights of members, the target of each group."""
        self._budget = MOVES_PER_SECOND
        self._planned = now

    # -- What is seen ----------------------------------------------------------------------------

    def blind(self, now: float) -> None:
        """Note that a request failed: who is silent meanwhile is not known to be dead."""
        self._blind = True
        self._round = now

    def observe(self, members: Mapping[str, BucketEntry], owners: Mapping[str, BucketEntry], now: float) -> None:
        """Note what was read after this member's own heartbeat was written."""
        if now - self._round > self.dead_after / 2:  # this process stood still: as good as cut off
            self._blind = True
        if owners != self._read[0]:
            self._read = (
                owners,
                {
                    key: (decoded, seen.revision)
                    for key, seen in owners.items()
                    if key in GROUPS and (decoded := _group_entry(seen.value)) is not None
                },
            )
        entries = dict(self._read[1])
        behind = [
            key for key, (_, revision) in self._owners.items() if key not in entries or entries[key][1] < revision
        ]
        self._behind_since = min(self._behind_since, now) if behind else math.inf
        if now - self._behind_since >= BEHIND_SECONDS:  # owners have no end: the table was lost
            self._behind_since, self._blind = math.inf, True
        else:
            entries.update((key, self._owners[key]) for key in behind)
        if self._blind:
            self._blind = False
            self._quiet_until = now + self.dead_after + self.heartbeat
        self._round = now
        self._owners = entries
        self.refused = {}
        beats = {
            name: (beat, seen.revision)
            for name, seen in members.items()
            if (beat := decoded_beat(seen.value)) is not None
        }
        strictest = max([self.own, *(beat for beat, _ in beats.values())], key=lambda beat: beat.oldest)
        for name, (beat, revision) in beats.items():
            if name != self.name and (why := refusal(strictest, name, beat)):
                self.refused[name] = why
                self.members.pop(name, None)
                continue
            self._hear(name, beat, revision, now)
        self.highest = max([self.highest, *self.held.values(),
                            *(entry.epoch for entry, _ in entries.values()),
                            *(known.beat.epoch for known in self.members.values())])  # fmt: skip
        self._note_silence(now)

    def _hear(self, name: str, beat: MemberBeat, revision: int, now: float) -> None:
        known = self.members.get(name)
        if known is None:
            self.members[name] = KnownMember(beat, revision, now, now, [now])
            return
        if revision == known.revision:
            return
        if beat.start != known.beat.start or now - known.heard >= self.dead_after:
            known.joins = [at for at in known.joins if now - at < FLAPPING_SECONDS] + [now]
            known.joined = now
        known.beat, known.revision, known.heard = beat, revision, now

    def _note_silence(self, now: float) -> None:
        """Where most members go silent together, wait twice as long before that is believed."""
        others = [name for name in self.members if name != self.name]
        dead = [name for name in others if self.dead(name, now)]
        newly = frozenset(
            name for name in dead if now - self.members[name].heard < self.dead_after + 2 * self.heartbeat
        )
        believed = [name for name in dead if name not in newly]
        among = len(others) + 1 - len(believed)
        if len(newly) >= 2 and 2 * len(newly) > among and not newly <= self._hold[0]:
            self._hold = newly | self._hold[0], now + 2 * self.dead_after

    def forget_gone(self, now: float) -> None:
        """Remove members that are long dead and own nothing."""
        owning = {entry.owner for entry, _ in self._owners.values()}
        for name in [
            name
            for name, known in self.members.items()
            if name not in owning and now - known.heard > 3 * FLAPPING_SECONDS
        ]:
            del self.members[name]

    # -- What follows ----------------------------------------------------------------------------

    def beat(self, **changes: object) -> MemberBeat:
        """Return the heartbeat to write now, with what has changed of it."""
        self.own = msgspec.structs.replace(self.own, epoch=self.highest, groups=len(self.held), **changes)
        return self.own

    def dead(self, name: str, now: float) -> bool:
        """Return whether a member has been silent for too long, as far as that can be known."""
        if name == self.name:
            return False
        known = self.members.get(name)
        heard = self._began if known is None else known.heard
        return now - heard >= self.dead_after

    def quiet(self, now: float) -> bool:
        """Return whether no death may be concluded now."""
        names, until = self._hold
        return self._blind or now < self._quiet_until or (bool(names) and now < until)

    def living(self, now: float) -> dict[str, float]:
        """Return the members that may be given groups, with their weights."""
        found = {
            name: known
            for name, known in self.members.items()
            if not known.beat.leaving and (not self.dead(name, now) or self.quiet(now))
        }
        steady = {name: known for name, known in found.items() if not known.flapping(now)}
        return {name: known.beat.weight for name, known in (steady or found).items()}

    def _joining(self, name: str, now: float) -> bool:
        """Return whether a member is so new that more may come with it."""
        return now - self.members[name].joined < JOIN_SECONDS

    def targets(self, now: float) -> dict[str, str]:
        """Return which member should hold each group; empty without any that may."""
        weights = self.living(now)
        return {group: name for group in GROUPS if (name := target(group, weights)) is not None}

    def epochs(self) -> dict[str, int]:
        """Return the epoch of each group, as it was last read."""
        return {group: entry.epoch for group, (entry, _) in self._owners.items()}

    def unheld(self, now: float) -> list[str]:
        """Return the groups that nobody alive holds."""
        return [
            group
            for group in GROUPS
            if group not in self._owners or (self.dead(self._owners[group][0].owner, now) and not self.quiet(now))
        ]

    def owner(self, group: str) -> GroupEntry | None:
        """Return the entry of a group as it was last read."""
        found = self._owners.get(group)
        return None if found is None else found[0]

    def plan(self, now: float) -> list[Move]:
        """Return this member's moves: first what must end, then what it may begin. None while blind."""
        if self._blind:
            return []
        self._budget = min(MOVES_PER_SECOND, self._budget + MOVES_PER_SECOND * max(0.0, now - self._planned))
        self._planned = now
        weights, moves = self.living(now), list[Move]()
        for group in GROUPS:
            move = self._move(group, weights, now)
            if move is None:
                continue
            paced = (move.kind is MoveKind.HAND_OVER and not self.own.leaving) or (
                move.kind is MoveKind.TAKE and group not in self.held
            )
            if paced and self._budget < 1:
                continue
            self._budget -= paced
            moves.append(move)
        return sorted(moves, key=lambda move: move.kind is not MoveKind.STOP)

    def _move(self, group: str, weights: Mapping[str, float], now: float) -> Move | None:
        entry, revision = self._owners.get(group, (None, 0))
        mine = self.held.get(group)
        ours = entry is not None and (entry.owner, entry.start) == (self.name, self.own.start)
        if mine is not None and (entry is None or (not ours and entry.epoch <= mine)):
            # The table was lost, and perhaps began again: what is held is claimed anew.
            return Move(MoveKind.TAKE, group, self._next(self.name, self.own), revision, self.name)
        if mine is not None and entry is not None and not ours:
            return Move(MoveKind.STOP, group, entry, revision, self.name)
        should = self._target(group, weights)
        if entry is not None and ours:
            if mine is None or mine != entry.epoch:
                return Move(MoveKind.START, group, entry, revision)
            if should is None or should == self.name or self.dead(should, now):
                return None
            if self._joining(should, now):
                return None
            return Move(MoveKind.HAND_OVER, group, self._next(should, self.members[should].beat), revision, self.name)
        if should != self.name or self.own.leaving:
            return None
        if entry is not None and entry.owner == self.name:  # of this member's last process
            return Move(MoveKind.TAKE, group, self._next(self.name, self.own), revision)
        if self.quiet(now) or self._joining(self.name, now):
            return None
        if entry is not None and not (self.dead(entry.owner, now) or self._restarted(entry)):
            return None
        return Move(
            MoveKind.TAKE, group, self._next(self.name, self.own), revision, "" if entry is None else entry.owner
        )

    def _target(self, group: str, weights: Mapping[str, float]) -> str | None:
        """Return `target`; all are found anew where a member came or went."""
        if self._targets[0] != weights:
            self._targets = dict(weights), {each: target(each, weights) for each in GROUPS}
        return self._targets[1][group]

    def _restarted(self, entry: GroupEntry) -> bool:
        """Return whether an owner runs as another process than the one that held the group."""
        known = self.members.get(entry.owner)
        return known is not None and known.beat.start != entry.start

    def _next(self, name: str, beat: MemberBeat) -> GroupEntry:
        before = "" if name == self.name else self.name
        return GroupEntry(name, beat.start, self.highest + 1, before)

    # -- What was done ---------------------------------------------------------------------------

    def written(self, move: Move, revision: int) -> None:
        """Note that a move's entry was written."""
        self._owners[move.group] = move.entry, revision
        self.highest = max(self.highest, move.entry.epoch)
        if move.kind is MoveKind.HAND_OVER:
            self.held.pop(move.group, None)

    def started(self, group: str, epoch: int) -> None:
        """Note that this process holds a group."""
        self.held[group] = epoch

    def stopped(self, group: str) -> None:
        """Note that this process holds a group no longer."""
        self.held.pop(group, None)


def _decoded(value: bytes, kind: type[_Decoded]) -> _Decoded | None:
    """Return an entry; None for one of another release that can't be read."""
    try:
        return of_json(kind).decode(value)
    except msgspec.DecodeError:
        return None


@lru_cache(maxsize=4 * len(GROUPS))
def _group_entry(value: bytes) -> GroupEntry | None:
    """Return the entry of a group: each is read every second, and few change."""
    return _decoded(value, GroupEntry)


def decoded_beat(value: bytes) -> MemberBeat | None:
    """Return a heartbeat; None for one that can't be read."""
    return _decoded(value, MemberBeat)


def summary(groups: Iterable[str]) -> str:
    """Return groups as ranges: `00-3f, 7a`."""
    numbers: Sequence[int] = sorted(int(group, 16) for group in groups)
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(f"{a:02x}" if a == b else f"{a:02x}-{b:02x}" for a, b in parts)
