"""The present of the whole cluster in one member: what each holder knows of its groups, as a `Fleet`.

A holder answers with the states of its nodes and the rows that came since the question before. The copy
tells three things apart: what a holder answered, what its node does not say any more, and nodes whose
holder does not answer. Of these nothing is known: they are `unheard`, and their readings are stale.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from api.alerts import Alert
from telemetry.devices import Event
from telemetry.fleet import Fleet, Matrix, Node, gaps32, gaps64
from telemetry.gap import Gap
from telemetry.wire.inventory import Inventory
from telemetry.wire.jobs import NodeJobs
from telemetry.wire.topics import shard_of

_T = TypeVar("_T")

GONE_SECONDS = 15.0
"""Seconds for which a node stays that its holder does not name: it may just have got the group."""
LONG_AGO = -1e15
"""Monotonic seconds of readings that nobody vouches for."""


class FleetQuestion(msgspec.Struct, frozen=True):
    """A question for a member's nodes."""

    start: str = ""
    """The process that answered before; "" for none."""
    after: float = -math.inf
    """When it did, by its own clock: what came since is wanted."""


class HeldNode(msgspec.Struct, frozen=True, array_like=True):
    """The state of a node at its holder."""

    node: str
    inventory: Inventory | None
    """None where it is the one that was sent before."""
    interval: float
    slow_interval: float
    online: bool
    ended: bool
    age: float | None
    """Seconds since its newest frame."""
    sampled_at: int
    clock_offset: int
    session: int
    seq: int


class BlockRowsPart(msgspec.Struct, frozen=True, array_like=True):
    """The rows of one block that came since the answer before."""

    block: str
    gauges: tuple[str, ...]
    counters: tuple[str, ...]
    nodes: bytes
    """Positions of the nodes whose rows follow, int32."""
    ages: bytes
    """Seconds since each row came, float64."""
    narrow: bytes
    """float32, a row a device."""
    wide: bytes
    """float64."""


class FleetPart(msgspec.Struct, frozen=True):
    """A member's answer."""

    start: str
    at: float
    groups: dict[str, int]
    """The groups that it holds or receives, with their epochs (`ClusterMember.receives`)."""
    nodes: list[HeldNode]
    blocks: list[BlockRowsPart]
    alerts: list[Alert] = []
    events: list[Event] = []
    """The newest, newest first."""
    jobs: dict[str, NodeJobs] = {}
    """By node, the lists of who holds its GPUs that were not sent before."""


class FleetSource:
    """Parts of a member's own fleet, for questions of others."""

    def __init__(self, start: str) -> None:
        """`start`: of this process."""
        self._start = start
        self._placed: dict[str, tuple[Inventory, float]] = {}
        """When each inventory was first seen."""
        self._listed: dict[str, tuple[NodeJobs, float]] = {}
        """When each list of jobs was."""

    def part(
        self,
        fleet: Fleet,
        groups: Mapping[str, int],
        asked: FleetQuestion,
        now: float,
        alerts: list[Alert],
        events: list[Event],
        lists: Mapping[str, NodeJobs] | None = None,
    ) -> FleetPart:
        """Return what is to be answered now, monotonic seconds."""
        after = asked.after if asked.start == self._start else -math.inf
        nodes = [node for name, node in fleet.nodes.items() if shard_of(name) in groups]
        names = [node.inventory.node for node in nodes]
        placed = self._placed = _first_seen(
            self._placed, {name: node.inventory for name, node in zip(names, nodes, strict=True)}, now
        )
        its = {name: lists[name] for name in names if name in lists} if lists else {}
        listed = self._listed = _first_seen(self._listed, its, now)
        states = [_state(node, now, placed[node.inventory.node][1] > after) for node in nodes]
        blocks = [part for matrix in fleet.matrices if (part := _rows_since(matrix, nodes, after, now))]
        fresh = {name: each for name, (each, since) in listed.items() if since > after}
        return FleetPart(self._start, now, dict(groups), states, blocks, alerts, events, fresh)


def _first_seen(
    before: Mapping[str, tuple[_T, float]], known: Mapping[str, _T], now: float
) -> dict[str, tuple[_T, float]]:
    """Return with each object when it was first seen: another one of the same name is new."""
    return {name: old if (old := before.get(name)) and old[0] is each else (each, now) for name, each in known.items()}


def _state(node: Node, now: float, fresh: bool) -> HeldNode:
    return HeldNode(
        node.inventory.node,
        node.inventory if fresh else None,
        node.interval,
        node.slow_interval,
        node.online,
        node.ended,
        None if math.isinf(node.seen) else now - node.seen,
        node.sampled_at,
        node.clock_offset,
        node.session,
        node.seq,
    )


def _rows_since(matrix: Matrix, nodes: list[Node], after: float, now: float) -> BlockRowsPart | None:
    """Return the rows of those nodes of which some came after a time; None for none."""
    table = matrix.block.table
    spans = [node.rows[table] for node in nodes]
    there = np.array([place for place, span in enumerate(spans) if span.stop > span.start], np.int32)
    first = np.array([spans[place].start for place in there.tolist()], np.intp)
    chosen = there[matrix.seen[first] >= after]  # the rows of a node come together
    if not chosen.size:
        return None
    rows = np.concatenate([np.arange(spans[at].start, spans[at].stop) for at in chosen.tolist()])
    return BlockRowsPart(
        matrix.block.name,
        matrix.block.gauges,
        matrix.block.counters,
        chosen.tobytes(),
        (now - matrix.seen[rows]).tobytes(),
        matrix.gauges[rows].tobytes(),
        matrix.counters[rows].tobytes(),
    )


class Answered(NamedTuple):
    """The part of one member, and when it came."""

    part: FleetPart
    at: float
    """Monotonic seconds of the receiver."""


@dataclass(slots=True)
class FleetCopy:
    """The fleet of all members, and what each said last."""

    fleet: Fleet = field(default_factory=Fleet)
    answers: dict[str, Answered] = field(default_factory=dict)
    """By member, the last part of each."""
    heard: dict[str, str] = field(default_factory=dict)
    """The member that answered for each group, in the last round."""
    answering: frozenset[str] = frozenset()
    """The members that answered in it."""
    lists: dict[str, NodeJobs] = field(default_factory=dict)
    """The newest list of each node of who holds its GPUs."""
    _lists: dict[str, dict[str, NodeJobs]] = field(default_factory=dict)
    """The same by member."""
    _unnamed_since: dict[str, float] = field(default_factory=dict)
    _groups: dict[str, str] = field(default_factory=dict)
    _incomplete: set[str] = field(default_factory=set)
    """Members that must send all again: something of theirs is not known here."""

    def question(self, member: str) -> FleetQuestion:
        """Return what to ask a member."""
        before = self.answers.get(member)
        if before is None or member in self._incomplete:
            return FleetQuestion()
        return FleetQuestion(before.part.start, before.part.at)

    def update(self, parts: Mapping[str, FleetPart], now: float) -> None:
        """Apply the answers of one round; who is not among them did not answer. `now`: monotonic seconds."""
        self.answers |= {member: Answered(part, now) for member, part in parts.items()}
        self.answering = frozenset(parts)
        holders: dict[str, tuple[int, str]] = {}
        for member, part in parts.items():
            for group, epoch in part.groups.items():
                holders[group] = max(holders.get(group, (-2, "")), (epoch, member))
        self.heard = {group: member for group, (_, member) in holders.items()}
        named: set[str] = set()
        self._incomplete -= parts.keys()
        newest, lists = _newest(parts), dict(self.lists)
        for member, part in parts.items():
            named |= self._apply(member, part, newest, now)
            known = self._lists.get(member, {}) | part.jobs
            its = [state.node for state in part.nodes if state.node in known]
            self._lists[member] = {name: known[name] for name in its}
            lists |= {name: known[name] for name in its if newest[name] == member}
        self.lists = lists
        for name in list(self.fleet.nodes):
            self._mark(name, name in named, now)

    def lister(self, node: str) -> str:
        """Return the member that has a node and its list of jobs now; "" where none answers that does."""
        member = self.heard.get(self._group(node), "")
        return member if node in self._lists.get(member, {}) else ""

    def leave(self, member: str) -> None:
        """Forget what a member said that has left for good."""
        self.answers.pop(member, None)
        self._lists.pop(member, None)

    def vouches(self, member: str, node: str) -> bool:
        """Return whether what a member said last of a node, "" for what is of none, still counts: nobody else
        has it since."""
        if not node:
            return member in self.answering
        return self.heard.get(self._group(node), member) == member

    def _apply(self, member: str, part: FleetPart, newest: Mapping[str, str], now: float) -> set[str]:
        """Enter the nodes of which a member has the newest; return their names."""
        named: set[str] = set()
        nodes: list[Node | None] = []
        for state in part.nodes:
            node = self.fleet.nodes.get(state.node)
            if newest[state.node] != member:
                nodes.append(None)
                continue
            if state.inventory is not None and (node is None or node.inventory != state.inventory):
                node = self.fleet.place(state.inventory)
            nodes.append(node)
            if node is None:
                self._incomplete.add(member)
                continue
            named.add(state.node)
            if (node.interval, node.slow_interval) != (state.interval, state.slow_interval):
                self.fleet.set_intervals(node, state.interval, state.slow_interval)
            node.online, node.ended = state.online, state.ended
            node.seen = -math.inf if state.age is None else now - state.age
            node.sampled_at, node.clock_offset = state.sampled_at, state.clock_offset
            node.session, node.seq = state.session, state.seq
        for rows in part.blocks:
            if not self._enter(rows, nodes, now):
                self._incomplete.add(member)
        return named

    def _enter(self, part: BlockRowsPart, nodes: list[Node | None], now: float) -> bool:
        """Enter the rows of a block; return whether all had a place."""
        matrix = next((each for each in self.fleet.matrices if each.block.name == part.block), None)
        if matrix is None:
            return True  # a block of another release
        ages = np.frombuffer(part.ages, np.float64)
        narrow = np.frombuffer(part.narrow, np.float32).reshape(len(ages), len(part.gauges))
        wide = np.frombuffer(part.wide, np.float64).reshape(len(ages), len(part.counters))
        chosen = [nodes[place] for place in np.frombuffer(part.nodes, np.int32).tolist()]
        counts = [0 if node is None else _count(node, matrix) for node in chosen]
        if None in chosen or sum(counts) != len(ages):
            return all(node is not None for node in chosen) and not len(ages)
        rows = np.concatenate([np.arange(*node.rows[matrix.block.table].indices(1 << 60)) for node in chosen if node])
        matrix.gauges[rows] = _named(narrow, part.gauges, matrix.block.gauges, wide=False)
        matrix.counters[rows] = _named(wide, part.counters, matrix.block.counters, wide=True)
        matrix.seen[rows] = now - ages
        return True

    def _mark(self, name: str, named: bool, now: float) -> None:
        """Note whether somebody vouches for a node; remove one that its holder has forgotten."""
        node = self.fleet.nodes[name]
        if named:
            self._unnamed_since.pop(name, None)
            if node.unheard:  # of its slow lane too
                node.unheard = False
                self._incomplete.add(self.heard[self._group(name)])
            return
        heard = self._group(name) in self.heard
        since = self._unnamed_since.setdefault(name, now) if heard else now
        if heard and now - since > GONE_SECONDS:
            self.fleet.remove(name)
            self.lists.pop(name, None)
            self._unnamed_since.pop(name, None)
            self._groups.pop(name, None)
            return
        if not heard:
            self._unnamed_since.pop(name, None)
        node.unheard = True
        for matrix in self.fleet.matrices:
            rows = node.rows[matrix.block.table]
            seen = matrix.seen[rows]
            matrix.seen[rows] = np.where(np.isinf(seen), seen, LONG_AGO)

    def _group(self, name: str) -> str:
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = shard_of(name)
        return group


def _newest(parts: Mapping[str, FleetPart]) -> dict[str, str]:
    """Return the member that has the newest of each node: while a group moves two have it, and one that woke
    up late has only what is old."""
    found: dict[str, tuple[float, int, str]] = {}
    for member, part in parts.items():
        for state in part.nodes:
            age = math.inf if state.age is None else state.age
            key = age, -part.groups.get(shard_of(state.node), -2), member
            found[state.node] = min(found.get(state.node, key), key)
    return {node: member for node, (_, _, member) in found.items()}


def _count(node: Node, matrix: Matrix) -> int:
    rows = node.rows[matrix.block.table]
    return int(rows.stop - rows.start)


def _named(
    values: npt.NDArray[np.float32] | npt.NDArray[np.float64],
    theirs: tuple[str, ...],
    ours: tuple[str, ...],
    *,
    wide: bool,
) -> npt.NDArray[np.float32] | npt.NDArray[np.float64]:
    """Return values in our order of columns: another release may have others."""
    if theirs == ours:
        return values
    shape = (len(values), len(ours))
    found = gaps64(shape, Gap.NOT_READ) if wide else gaps32(shape, Gap.NOT_READ)
    for place, name in enumerate(ours):
        if name in theirs:
            found[:, place] = values[:, theirs.index(name)]
    return found
