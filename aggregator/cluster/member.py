"""An aggregator among others: its heartbeat, its rounds, and the moves of its shard groups."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import random
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import msgspec

from aggregator.cluster.groups import (
    GROUPS,
    OLDEST_PROTOCOL,
    PROTOCOL,
    GroupEntry,
    GroupPlanner,
    MemberBeat,
    Move,
    MoveKind,
    RecentMove,
    decoded_beat,
    refusal,
    summary,
)
from aggregator.cluster.holder import GroupHolder, Marks, decode_marks, encode_marks, join_marks
from aggregator.cluster.port import Bucket, Coordination, CoordinationError
from aggregator.impairments import Impairments
from aggregator.settings.members import MembersConfig
from telemetry.runtime.release import release
from telemetry.runtime.tasks import TaskGroup
from telemetry.text import counted
from telemetry.text.decoders import of_msgpack

log = logging.getLogger(__name__)

LEAST_SECONDS = 0.2
"""Seconds between two rounds at least: hints come in crowds."""
BUSY_SECONDS = 0.5
"""Seconds between two rounds while groups move."""
HAND_OVER_SECONDS = 20.0
"""Seconds after which a group that was handed over is dropped, though its new owner never said so."""
LEAVE_SECONDS = 30.0
"""Seconds that the end may wait until others receive what this member had; it takes a few."""
MARKS_SECONDS = 60.0
"""Seconds in which the marks of each group are saved once: as much is requested again after a crash."""
ANSWER_SECONDS = 12.0
"""Seconds in which a member must answer about groups that it hands over; it stores what came first."""
WRITES_AT_ONCE = 16
"""Entries that are written at a time: each takes as long as the slowest of most servers' disks."""
GROUPS_PER_REQUEST = 16
"""Groups in one message: a server takes 1 MiB."""
REMEMBERED_MOVES = 5


class HandOver(msgspec.Struct, frozen=True):
    """A request of a group's new owner to the member that had it."""

    groups: list[str]
    release: bool
    """Whether the new owner receives the groups now; else it only wants their marks so far."""


class ClusterMember:
    """A member; `run` it, and `leave` before the end."""

    def __init__(
        self,
        config: MembersConfig,
        coordination: Coordination,
        holder: GroupHolder,
        impairments: Impairments,
        address: Callable[[], str] = lambda: "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`address`: where HTTP listens."""
        own = MemberBeat(
            start=secrets.token_hex(8),
            weight=config.weight,
            site=config.site,
            version=release(),
            protocol=PROTOCOL,
            oldest=OLDEST_PROTOCOL,
        )
        self.name = config.name
        self.coordination = coordination
        self.planner = GroupPlanner(config.name, own, config.dead_after_seconds, clock())
        self.moves: deque[RecentMove] = deque(maxlen=REMEMBERED_MOVES)
        """Newest last."""
        self.failure = ""
        """Why the last round failed; "" where it did not."""
        self.admitted = False
        """Whether this member's release works with those of the members that it found."""
        self._holder = holder
        self._impairments = impairments
        self._address = address
        self._clock = clock
        self._received: set[str] = set()
        """Groups that come in, held or about to be handed over."""
        self._handing: dict[str, float] = {}
        """Groups that are another member's now and still come in, and when they are dropped at last."""
        self._hint = asyncio.Event()
        self._saving = 0
        self._cpu = clock(), time.process_time()
        self._left = asyncio.Event()
        self._leaving = False
        self._reported: set[str] = set()
        self._busy: set[str] = set()
        """Groups of which a step waits or is under way."""
        self._steps: asyncio.Queue[tuple[list[str], Callable[[], Awaitable[None]]]] = asyncio.Queue()
        """Steps that take time: beginnings and ends of groups, each after the one before."""

    @property
    def receives(self) -> dict[str, int]:
        """The groups that this member knows something of now, with their epochs: 0 for those that it hands over,
        -1 for those that come."""
        return dict.fromkeys(self._received, -1) | dict.fromkeys(self._handing, 0) | self.planner.held

    def others(self, now: float) -> list[str]:
        """Return the other members that hold something, or may. `now`: monotonic seconds."""
        planner = self.planner
        owners = {entry.owner for group in GROUPS if (entry := planner.owner(group)) is not None}
        living = {name for name in planner.members if not planner.dead(name, now)}
        return sorted((owners | living) - {self.name})

    async def run(self) -> None:
        """Take part until cancelled."""
        async with contextlib.AsyncExitStack() as stack:
            while True:
                try:
                    await stack.enter_async_context(self.coordination.serve(f"handover.{self.name}", self._hand_over))
                    keys = await stack.enter_async_context(self.coordination.watch(Bucket.OWNERS))
                    break
                except CoordinationError as error:
                    self._fail(error)
                    await asyncio.sleep(1.0)
            async with TaskGroup() as group:
                group.create_task(self._watch(keys), name="hints of owners")
                group.create_task(self._work(), name="beginnings and ends of groups")
                group.create_task(self._rounds(), name="rounds of the member")

    async def _rounds(self) -> None:
        while not self._left.is_set():
            busy = await self._round()
            wait = BUSY_SECONDS if busy or self._leaving else self.planner.heartbeat
            self._hint.clear()
            await asyncio.sleep(LEAST_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait * (1 - 0.1 * random.random()) - LEAST_SECONDS):  # noqa: S311 - no secret
                    await self._hint.wait()

    async def _work(self) -> None:
        """Do the steps that take time, and save marks between them."""
        saved = self._clock()
        while True:
            try:
                async with asyncio.timeout(1.0):
                    groups, step = await self._steps.get()
            except TimeoutError:
                if self._clock() - saved >= MARKS_SECONDS / len(GROUPS) * GROUPS_PER_REQUEST:
                    saved = self._clock()
                    await self._save_marks()
                continue
            try:
                await step()
            except CoordinationError as error:  # the next round plans it again
                log.warning("cluster: %s: %s", summary(groups), error)
            finally:
                self._busy.difference_update(groups)
            self._hint.set()

    def _later(self, groups: list[str], step: Callable[[], Awaitable[None]]) -> None:
        self._busy.update(groups)
        self._steps.put_nowait((groups, step))

    async def leave(self) -> None:
        """Hand over all groups, as far as others are there to receive them, and take no more."""
        self._leaving = True
        self.planner.beat(leaving=True)
        self._hint.set()
        deadline = self._clock() + LEAVE_SECONDS
        while self._clock() < deadline and (self.planner.held or self._handing):
            others = [
                name
                for name, known in self.planner.members.items()
                if name != self.name and not known.beat.leaving and not self.planner.dead(name, self._clock())
            ]
            if not others and not self._handing:
                break
            await asyncio.sleep(0.1)
        self._left.set()
        with contextlib.suppress(CoordinationError):
            if not self.planner.held:
                await self.coordination.delete(Bucket.MEMBERS, self.name)

    async def _watch(self, keys: object) -> None:
        async for _ in keys:  # type: ignore[attr-defined]
            self._hint.set()

    # -- A round ---------------------------------------------------------------------------------

    async def _round(self) -> bool:
        """Write the heartbeat, read the tables, and do what follows; return whether more is to do."""
        planner = self.planner
        planner.highest = max(planner.highest, self._holder.highest_epoch)
        beat = planner.beat(
            nodes=self._holder.nodes, address=self._address(), load=self._load(), moves=tuple(self.moves)
        )
        try:
            if not self.admitted:
                await self._admit()
            await self.coordination.put(Bucket.MEMBERS, self.name, msgspec.json.encode(beat))
            members = await self.coordination.entries(Bucket.MEMBERS)
            owners = await self.coordination.entries(Bucket.OWNERS)
            now = self._clock()
            planner.observe(members, owners, now)
            self.failure = ""
            moves = [move for move in planner.plan(now) if move.group not in self._busy]
            await self._do(moves)
        except CoordinationError as error:
            self._fail(error)
            return False
        planner.forget_gone(now)
        self._drop_overdue(now)
        self._report(now)
        return bool(moves)

    async def _admit(self) -> None:
        """Raise `CoordinationError` where a member lives whose release can't work with ours: whoever comes
        later stays out."""
        for name, entry in (await self.coordination.entries(Bucket.MEMBERS)).items():
            beat = decoded_beat(entry.value)
            if name != self.name and beat is not None and (why := refusal(self.planner.own, name, beat)):
                raise CoordinationError(why)
        self.admitted = True

    def _load(self) -> float | None:
        """Return the CPU seconds a second since the last round; None at once after it."""
        before, now = self._cpu, (self._clock(), time.process_time())
        self._cpu = now
        passed = now[0] - before[0]
        return round((now[1] - before[1]) / passed, 3) if passed > 0.05 else self.planner.own.load

    def _fail(self, error: CoordinationError) -> None:
        self.planner.blind(self._clock())
        self.failure = str(error)
        self._impairments.report("cluster_lost", f"cluster/{self.name}", f"{error}; no groups are taken over")

    def _report(self, now: float) -> None:
        """Report who is silent, and which groups nobody receives."""
        planner = self.planner
        self._impairments.clear("cluster_lost", f"cluster/{self.name}")
        silent = {
            f"member/{name}": f"nothing from it for {now - known.heard:.0f} s"
            for name, known in planner.members.items()
            if planner.dead(name, now) and not known.beat.leaving
        }
        silent |= {f"member/{name}": f"{why}; it is given nothing" for name, why in planner.refused.items()}
        for part in self._reported - silent.keys():
            self._impairments.clear("member_lost", part)
        for part, reason in silent.items():
            self._impairments.report("member_lost", part, reason)
        self._reported = set(silent)
        unheld = planner.unheld(now)
        if unheld:
            text = f"{counted(len(unheld), 'shard group')} without a member: {summary(unheld)}"
            self._impairments.report("groups_unheld", "cluster/groups", text, whole=True)
        else:
            self._impairments.clear("groups_unheld", "cluster/groups")

    async def _do(self, moves: Sequence[Move]) -> None:
        by_kind: dict[MoveKind, list[Move]] = {}
        for move in moves:
            by_kind.setdefault(move.kind, []).append(move)
        if stops := by_kind.get(MoveKind.STOP):
            groups, owner = [move.group for move in stops], stops[0].entry.owner
            for group in groups:
                self.planner.stopped(group)
            self._later(groups, lambda: self._stop(groups, owner))
        await self._claim(by_kind.get(MoveKind.TAKE, ()))
        await self._give(by_kind.get(MoveKind.HAND_OVER, ()))
        by_member: dict[str, list[Move]] = {}
        for move in by_kind.get(MoveKind.START, ()):
            by_member.setdefault(move.entry.before, []).append(move)
        for before, starts in by_member.items():
            for begin in range(0, len(starts), GROUPS_PER_REQUEST):
                part = starts[begin : begin + GROUPS_PER_REQUEST]
                self._later([move.group for move in part], functools.partial(self._start, before, part))

    async def _write(self, move: Move) -> bool:
        """Write the entry of a move; return whether no other write came first."""
        revision = await self.coordination.compare_and_set(
            Bucket.OWNERS, move.group, msgspec.json.encode(move.entry), move.revision
        )
        if revision is not None:
            self.planner.written(move, revision)
        return revision is not None

    async def _write_all(self, moves: Sequence[Move]) -> list[Move]:
        """Write the entries of moves for as long as the next heartbeat may wait, and return those that were
        written; the next round plans the others again. Else a member that claims many groups on slow servers
        is taken for dead."""
        until = self._clock() + self.planner.heartbeat
        written: list[Move] = []
        for first in range(0, len(moves), WRITES_AT_ONCE):
            if first and self._clock() >= until:
                break
            part = moves[first : first + WRITES_AT_ONCE]
            done = await asyncio.gather(*map(self._write, part), return_exceptions=True)
            written += [move for move, result in zip(part, done, strict=True) if result is True]
            for result in done:
                if isinstance(result, CoordinationError):
                    log.warning("cluster: %s", result)
                    return written
                if isinstance(result, BaseException):
                    raise result
        return written

    async def _stop(self, groups: list[str], owner: str, kind: str = "lost") -> None:
        for group in groups:
            self.planner.stopped(group)
            self._handing.pop(group, None)
            self._received.discard(group)
        await self._holder.drop(groups)
        if groups:
            self._note(kind, groups, owner)

    async def _claim(self, moves: Sequence[Move]) -> None:
        written = await self._write_all(moves)
        self._hold(move for move in written if move.group in self._received)
        fresh = [move for move in written if move.group not in self._received]
        if fresh:
            self._later([move.group for move in fresh], functools.partial(self._take, fresh))

    async def _take(self, fresh: Sequence[Move]) -> None:
        groups = [move.group for move in fresh]
        marks = await self._saved_marks(groups)
        self._holder.hold({move.group: move.entry.epoch for move in fresh})
        await self._begin(marks)
        await self._holder.confirm(marks)
        self._hold(fresh)
        self._note("taken", groups, ", ".join(sorted({move.before for move in fresh} - {""})))

    async def _give(self, moves: Sequence[Move]) -> None:
        for move in await self._write_all(moves):
            self._handing[move.group] = self._clock() + HAND_OVER_SECONDS

    async def _start(self, before: str, moves: Sequence[Move]) -> None:
        """Begin with groups that another member hands over: with its marks, then with what came until
        it ended."""
        groups = [move.group for move in moves]
        saved = await self._saved_marks(groups)
        asked = await self._ask(before, HandOver(groups, release=False))
        marks = {group: join_marks(saved[group], asked.get(group, {})) for group in groups}
        fresh = {group: its for group, its in marks.items() if group not in self._received}
        self._holder.hold({move.group: move.entry.epoch for move in moves})
        if fresh:
            await self._begin(fresh)
            await asyncio.sleep(0.2)  # other servers forward what they get a little later
        final = await self._ask(before, HandOver(groups, release=True))
        await self._holder.confirm({group: join_marks(marks[group], final.get(group, {})) for group in groups})
        self._hold(moves)
        self._note("received", groups, before)

    def _hold(self, moves: Iterable[Move]) -> None:
        for move in moves:
            self._handing.pop(move.group, None)
            self.planner.started(move.group, move.entry.epoch)
            self._holder.hold({move.group: move.entry.epoch})

    async def _begin(self, marks: Mapping[str, Marks]) -> None:
        await self._holder.acquire(marks)
        self._received.update(marks)

    def _drop_overdue(self, now: float) -> None:
        late = [group for group, until in self._handing.items() if now >= until and group not in self._busy]
        if late:
            self._later(late, lambda: self._stop(late, ""))

    def _note(self, kind: str, groups: Sequence[str], other: str) -> None:
        self.moves.append(RecentMove(time.time_ns(), kind, summary(groups), other))
        log.info("cluster: %s %s%s", kind, summary(groups), f" ({other})" if other else "")

    # -- Marks -----------------------------------------------------------------------------------

    async def _ask(self, member: str, wanted: HandOver) -> dict[str, Marks]:
        """Return the marks that a member answers with; none from one that does not."""
        if not member or member == self.name:
            return {}
        try:
            answer = await self.coordination.request(
                f"handover.{member}", msgspec.msgpack.encode(wanted), ANSWER_SECONDS
            )
            found = of_msgpack(dict[str, bytes]).decode(answer)
        except (CoordinationError, msgspec.DecodeError) as error:
            log.warning("cluster: %s does not hand over %s: %s", member, summary(wanted.groups), error)
            return {}
        return {group: decode_marks(body) for group, body in found.items()}

    async def _hand_over(self, payload: bytes) -> bytes | None:
        """Answer a new owner: the marks of its groups, once they are no longer received where it wants
        that."""
        wanted = of_msgpack(HandOver).decode(payload)
        groups = [group for group in wanted.groups if group in self._handing]
        if not wanted.release:  # with a shared storage the marks of the end are all that counts
            marks = {} if self._holder.shares else await self._holder.marks(groups)
        else:
            marks = await self._holder.unsubscribe(groups)
            await self._stop(groups, "", "handed over")
            self._hint.set()
        return msgspec.msgpack.encode({group: encode_marks(its) for group, its in marks.items()})

    async def _saved_marks(self, groups: Sequence[str]) -> dict[str, Marks]:
        """Return the marks that were last saved; none where there are none, so that all is requested."""
        if self._holder.shares:
            return await self._holder.shared_marks(list(groups))
        found = {}
        for group in groups:
            entry = await self.coordination.read(Bucket.MARKS, group)
            found[group] = {} if entry is None else decode_marks(entry.value)
        return found

    async def _save_marks(self) -> None:
        """Save the marks of the next groups."""
        held = sorted(self.planner.held)
        if not held or self.failure or self._holder.shares:
            return
        share = max(1, round(len(held) * GROUPS_PER_REQUEST / len(GROUPS)))
        groups = [held[(self._saving + number) % len(held)] for number in range(share)]
        self._saving += share
        try:
            for group, marks in (await self._holder.marks(groups)).items():
                if marks:  # without any, no entry says the same
                    await self.coordination.put(Bucket.MARKS, group, encode_marks(marks))
        except CoordinationError as error:
            self._fail(error)

    def owner(self, group: str) -> GroupEntry | None:
        """Return the entry of a group as it was last read."""
        return self.planner.owner(group)
