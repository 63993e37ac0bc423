"""The register of nodes: what people have declared of them, in `nodes.json` of the data folder.

The fleet is what is heard; the register is what should be. A node that is expected and not there, and one
that was retired and sends again, are problems that only the comparison of the two can show. The register also
knows former names, so that history is found under the present one.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from aggregator.folder import kinds
from aggregator.register.node_status import age, status_of
from api.fleet import NodeStatus
from api.node_register import RegisterReply, RegisterRow, RegisterState, ReleaseDrift
from telemetry.errors import NodeError
from telemetry.files import private_file
from telemetry.files.state_file import json_of
from telemetry.fleet import Fleet, Node
from telemetry.runtime.release import release
from telemetry.text import duration, rfc3339
from telemetry.wire.intervals import IntervalSet
from telemetry.wire.inventory import machine_of, role_of
from telemetry.wire.topics import check_name

log = logging.getLogger(__name__)

FILE = "nodes.json"
MOST_RECORDS = 100_000
"""Names that the register holds at most."""
MOST_TEXT = 200
"""Characters of a reason."""
MOST_GIVEN = 10
"""New names of one name that are remembered."""
MOST_TRIES = 5
"""Times that a change is decided again because another aggregator made one meanwhile."""
STOPPED_SECONDS = 3600.0
"""Seconds after which an expected node whose collector was stopped on purpose counts as gone."""
_NUMBERS = re.compile(r"\d+(?:\.\d+)*")
_STATES = {
    NodeStatus.ONLINE: RegisterState.ONLINE,
    NodeStatus.STALE: RegisterState.STALE,
    NodeStatus.OFFLINE: RegisterState.OFFLINE,
    NodeStatus.UNHEARD: RegisterState.UNHEARD,
}


class FormerName(msgspec.Struct, frozen=True, kw_only=True):
    """A name that a node had before."""

    name: str
    until: int | None = None
    """When its present name was heard first, ns since 1970; None before."""
    renamed: int | None = None
    """When the present name was given, ns since 1970: frames of that name may be some seconds older than
    `until`. None where an older release wrote it."""


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A name, and what was declared of it."""

    name: str
    expected: bool = False
    retired: bool = False
    since: int = 0
    """When that was declared, ns since 1970."""
    by: str = ""
    why: str = ""
    machine: str = ""
    """Machine that had the name last, as far as it tells."""
    renamed_to: str = ""
    formerly: tuple[FormerName, ...] = ()
    """Oldest first."""
    given: tuple[tuple[str, int], ...] = ()
    """Newest names that machines of this one were given, and when, ns since 1970; oldest first."""


class _RegisterFile(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the file."""

    version: int = 1
    nodes: list[NodeRecord] = []


class SharedRecords(Protocol):
    """Records that several aggregators have in common. Both methods raise `BusError` where nobody answers."""

    async def newest(self) -> Mapping[str, NodeRecord]:
        """Return all records, by name."""

    async def put(self, records: Sequence[NodeRecord]) -> bool:
        """Write records, one after the other; return False at the first that has changed since `newest`."""


class NodeRegister:
    """Declarations of people about nodes; every change is on disk before it is in force.

    Several aggregators have one register: a change is theirs first, and the file is a copy of it, from which what
    they lost is written again.
    """

    def __init__(self, path: Path | None = None) -> None:
        """`path`: its file; None keeps nothing."""
        self.shared: SharedRecords | None = None
        """The register of several aggregators; None for a single one."""
        self._path = path
        self._records: dict[str, NodeRecord] = {}
        self._lock = asyncio.Lock()

    def load(self) -> None:
        """Read the file; one that can't be used is set aside."""
        if self._path is not None:
            found = kinds.read(self._path, json_of(_RegisterFile)) or _RegisterFile()
            self._records = {each.name: each for each in found.nodes}

    def __len__(self) -> int:
        return len(self._records)

    # -- Changes ---------------------------------------------------------------------------------

    async def expect(self, name: str, who: str, why: str, wall: int) -> None:
        """Declare that a node belongs to the cluster; a retired one is taken back. Raises `ConfigError`,
        `NodeError`, `BusError`."""
        await self._declare(name, wall, expected=True, retired=False, renamed_to="", by=who, why=why[:MOST_TEXT])

    async def retire(self, name: str, who: str, why: str, wall: int) -> None:
        """Declare that a node has left the cluster. Raises `ConfigError`, `NodeError`, `BusError`."""
        await self._declare(name, wall, expected=False, retired=True, by=who, why=why[:MOST_TEXT])

    async def _declare(self, name: str, wall: int, **facts: object) -> None:
        check_name("node", name)

        def decide() -> list[NodeRecord]:
            before = self._records.get(name, NodeRecord(name=name))
            return [msgspec.structs.replace(before, since=self._after(wall, before), **facts)]

        await self._change(decide)

    async def rename(
        self, old: str, new: str, fleet: Fleet, who: str, why: str, wall: int, *, heard: bool = False
    ) -> None:
        """Declare that a node has another name from its next start on, or has it already (`heard`). Raises
        `ConfigError` for a name that no node can have, `NodeError` for one that is not known or is taken."""
        check_name("node", old)
        check_name("to", new)

        def decide() -> list[NodeRecord]:
            before, taken = self._records.get(old), self._records.get(new)
            if old == new:
                raise NodeError(f"{old} has that name already. Choose another.")
            if old not in fleet.nodes and before is None:
                raise NodeError(f"{old} is no node that was ever heard or expected. Look at: kilowatch nodes list")
            if before is not None and before.renamed_to:
                raise NodeError(f"{old} was renamed to {before.renamed_to}. Rename that one.")
            if (new in fleet.nodes and not heard) or (taken is not None and (taken.expected or taken.formerly)):
                raise NodeError(f"{new} is the name of another node. Choose another, or retire that one first.")
            if taken is not None and taken.renamed_to and not self.left(new):
                raise NodeError(
                    f"{new} is being renamed to {taken.renamed_to}, which was not heard yet. Wait for that, or choose another."
                )
            before = before or NodeRecord(name=old)
            known = fleet.nodes.get(old)
            machine = before.machine if known is None else (machine_of(known.inventory) or before.machine)
            past = tuple(each for each in before.formerly if each.name != new)
            since = self._after(wall, before, taken)
            return [  # the new name first: it counts once the old one says so
                NodeRecord(
                    name=new,
                    expected=before.expected,
                    since=since,
                    by=who,
                    why=why[:MOST_TEXT],
                    machine=machine,
                    formerly=(*past, FormerName(name=old, renamed=since)),
                    given=() if taken is None else taken.given,
                ),
                msgspec.structs.replace(
                    before,
                    expected=False,
                    retired=False,
                    renamed_to=new,
                    since=since,
                    by=who,
                    why=why[:MOST_TEXT],
                    machine=machine,
                    given=(*before.given, (new, since))[-MOST_GIVEN:],
                ),
            ]

        await self._change(decide)

    async def note(self, fleet: Fleet, wall: int) -> list[str]:
        """Note which new names have been heard; return the old names that can leave the fleet, and of several
        aggregators also nodes that retired elsewhere. Raises `NodeError`, `BusError`."""
        async with self._lock:
            changed: list[NodeRecord] = []
            left: list[str] = []
            for record in self._records.values():
                node = fleet.nodes.get(record.name)
                if self.shared is not None and record.retired and node is not None:
                    # Of another aggregator's time: this one has only read what it stored once.
                    left += [] if node.online or math.isfinite(node.seen) else [record.name]
                if not record.formerly or not self._came(record, node):
                    continue
                if record.formerly[-1].until is None:
                    last = msgspec.structs.replace(record.formerly[-1], until=wall)
                    changed.append(msgspec.structs.replace(record, formerly=(*record.formerly[:-1], last)))
                left += [
                    each.name
                    for each in record.formerly
                    if each.name in fleet.nodes
                    and not fleet.nodes[each.name].online
                    and self._records.get(each.name, record).renamed_to
                ]
            if changed and (self.shared is None or await self.shared.put(changed)):
                await self._put(changed)  # else at the next look
            return left

    def _came(self, record: NodeRecord, node: Node | None) -> bool:
        """Return whether the machine that was renamed has been heard under its new name, here or elsewhere."""
        if node is None or not math.isfinite(node.seen):
            return self.shared is not None and record.formerly[-1].until is not None
        return not self._conflict(record, node)

    async def follow(self) -> None:
        """Bring in what was declared at other aggregators, and write again what they lost. Raises `BusError`."""
        async with self._lock:
            await self._follow()

    async def _follow(self) -> None:
        if self.shared is None:
            return
        theirs = await self.shared.newest()
        found = dict(theirs) | {
            name: _joined(ours, theirs[name]) if name in theirs else ours for name, ours in self._records.items()
        }
        lost = [each for name, each in found.items() if theirs.get(name) is not each]
        for each in lost:
            await self.shared.put([each])
        if found != self._records:
            await self._put([*found.values()])

    async def _change(self, decide: Callable[[], Sequence[NodeRecord]]) -> None:
        """Carry out what `decide` finds by the newest records."""
        async with self._lock:
            if self.shared is None:
                await self._put(decide())
                return
            for _ in range(MOST_TRIES):
                await self._follow()
                records = decide()
                self._with(records)
                if await self.shared.put(records):
                    await self._put(records)
                    return
            raise NodeError("others change the register at the same time. Try again.")

    def _after(self, wall: int, *before: NodeRecord | None) -> int:
        """Return when a declaration is made: of several aggregators, whose clocks differ, after those before."""
        if self.shared is None:
            return wall
        return max(wall, *(each.since + 1 for each in before if each is not None))

    def _with(self, records: Sequence[NodeRecord]) -> dict[str, NodeRecord]:
        """Return all records with some newer ones. Raises `NodeError`."""
        fresh = {**self._records, **{each.name: each for each in records}}
        if len(fresh) > MOST_RECORDS:
            raise NodeError(f"the register is full: {MOST_RECORDS} names. Expect fewer nodes.")
        return fresh

    async def _put(self, records: Sequence[NodeRecord]) -> None:
        """Put records on disk, then in force; the caller holds the lock."""
        fresh = self._with(records)
        if self._path is not None:
            body = msgspec.json.encode(_RegisterFile(nodes=list(fresh.values())))
            text = msgspec.json.format(body).decode()
            try:
                await asyncio.to_thread(_write, self._path, f"{text}\n")
            except OSError as error:
                problem = f"{self._path} can't be written: {error.strerror}. Make room, and try again."
                if self.shared is None:
                    raise NodeError(problem) from error
                log.warning("the register of nodes: %s", problem)  # the others have it
        self._records = fresh

    # -- Questions -------------------------------------------------------------------------------

    def names_of(self, node: str, fleet: Fleet) -> list[tuple[str, int | None, int | None]]:
        """Return the names under which a node's history is stored, oldest first, each with the times between
        which it had it (ns since 1970; None: always, or it goes on). What another machine stored under one of
        them, before or after, is not its history; nor is a name in it that was not heard yet."""
        record = self._records.get(node)
        if record is None or self._conflict(record, fleet.nodes.get(node)):
            return [(node, None, None)]
        found: list[tuple[str, int | None, int | None]] = []
        since = None
        for each in record.formerly:
            found.append((each.name, since, each.until))
            if each.until is None:
                return found
            since = each.until if each.renamed is None else each.renamed
        return [*found, (node, since, None)]

    def names_then(self, at: int, fleet: Fleet) -> dict[str, str]:
        """Return by present name the name of each node that had another one at a time, ns since 1970."""
        found = {}
        for record in self._records.values():
            names = self.names_of(record.name, fleet) if record.formerly else []
            then = next((name for name, _, until in names if until is None or at < until), record.name)
            if then != record.name:
                found[record.name] = then
        return found

    def under_present_names(
        self, accounted: Mapping[tuple[str, int], IntervalSet]
    ) -> dict[tuple[str, int], IntervalSet]:
        """Return the frames that are accounted for by node and session, those of a former name under the
        present one too: its ring has sessions of before, whose frames are not to be stored again."""
        present = {past.name: each.name for each in self._records.values() for past in each.formerly}
        found = dict(accounted)
        for (name, session), frames in accounted.items():
            if name in present:
                key = present[name], session
                found[key] = IntervalSet([*frames, *found.get(key, ())])
        return found

    def problems(self, fleet: Fleet, now: float, started: float) -> Mapping[str, Mapping[str, str]]:
        """Return by rule of `monitor.toml` the parts with a problem, and the reasons. `started`: monotonic
        seconds of the aggregator's start."""
        missing: dict[str, str] = {}
        returned: dict[str, str] = {}
        for record in self._records.values():
            node = fleet.nodes.get(record.name)
            conflict = self._conflict(record, node)
            if conflict:
                missing[f"node/{record.name}"] = (
                    f"{conflict}. Stop the one that took its name, or retire {record.name} and rename anew"
                )
            elif record.retired or record.renamed_to:
                if node is not None and node.online and self.left(record.name):
                    returned[f"node/{record.name}"] = _returned(record)
            elif record.expected and node is None:
                missing[f"node/{record.name}"] = f"expected since {_day(record.since)}, and nothing of it is known"
            elif record.expected and node is not None and node.ended:
                silent = now - max(node.seen, started)
                if silent >= STOPPED_SECONDS:
                    missing[f"node/{record.name}"] = f"its collector was stopped {duration(silent)} ago"
        return {"node_missing": missing, "node_returned": returned}

    def reply(self, fleet: Fleet, now: float, wall: int) -> RegisterReply:
        """Return all nodes that are declared or heard, by name."""
        names = sorted({*self._records, *fleet.nodes})
        return RegisterReply(wall, release(), [self.row(name, fleet, now) for name in names])

    def row(self, name: str, fleet: Fleet, now: float) -> RegisterRow:
        """Return a node that is declared or heard."""
        record = self._records.get(name, NodeRecord(name=name))
        node = fleet.nodes.get(name)
        conflict = self._conflict(record, node)
        its = "" if node is None else node.inventory.kilowatch
        return RegisterRow(
            node=name,
            state=_state(record, node, now, left=self.left(name)),
            expected=record.expected,
            since=record.since or None,
            by=record.by,
            why=record.why,
            release=its,
            drift=drift(its, release()),
            driver_version=None if node is None else node.inventory.driver_version,
            role="" if node is None else role_of(node.inventory) or "",
            gpus=0 if node is None else len(node.inventory.gpus),
            age_seconds=None if node is None else age(node, now),
            machine=(record.machine if node is None else machine_of(node.inventory)) or record.machine,
            formerly=[each.name for each in record.formerly],
            renamed_to=record.renamed_to,
            conflict=conflict,
        )

    def left(self, name: str) -> bool:
        """Return whether a node is not to be heard under a name any more: it was retired, or its new name has
        been heard."""
        record = self._records.get(name)
        new = None if record is None else self._records.get(record.renamed_to)
        return (record is not None and record.retired) or (
            new is not None and bool(new.formerly) and new.formerly[-1].until is not None
        )

    def _conflict(self, record: NodeRecord, node: Node | None) -> str:
        """Return why a node is another machine than the one that was renamed; "" where it may be it."""
        its = "" if node is None else machine_of(node.inventory)
        if not record.formerly or not record.machine or not its or its == record.machine:
            return ""
        return f"{record.name} is another machine than {record.formerly[-1].name} was: {its}, not {record.machine}"


def drift(its: str, ours: str) -> ReleaseDrift:
    """Compare the release of a node with that of the aggregator."""
    if its and its == ours:
        return ReleaseDrift.SAME
    mine, other = _NUMBERS.match(its), _NUMBERS.match(ours)
    if mine is None or other is None:
        return ReleaseDrift.UNKNOWN
    left, right = (tuple(map(int, each[0].split("."))) for each in (mine, other))
    if left == right:  # of the same numbers with other suffixes
        builds = "+" in its and "+" in ours
        return ReleaseDrift.OTHER if builds else ReleaseDrift.UNKNOWN
    return ReleaseDrift.OLDER if left < right else ReleaseDrift.NEWER


def _state(record: NodeRecord, node: Node | None, now: float, *, left: bool) -> RegisterState:
    online = node is not None and node.online
    if online and left:
        return RegisterState.RETURNED
    if record.renamed_to and not online:
        return RegisterState.RENAMED
    if record.retired:
        return RegisterState.RETIRED
    return RegisterState.MISSING if node is None else _STATES[status_of(node, now)]


def _returned(record: NodeRecord) -> str:
    did = f"renamed to {record.renamed_to}" if record.renamed_to else "retired"
    by = f" by {record.by}" if record.by else ""
    return f"{did} on {_day(record.since)}{by}, and sends again"


def _joined(ours: NodeRecord, theirs: NodeRecord) -> NodeRecord:
    """Return the newer of two records of a name, with the new names that either knows of."""
    ages = [(each.since, sum(one.until is not None for one in each.formerly)) for each in (ours, theirs)]
    newer = ours if ages[0] > ages[1] else theirs
    given = tuple(sorted({*ours.given, *theirs.given}, key=lambda each: (each[1], each[0])))[-MOST_GIVEN:]
    return newer if newer.given == given else msgspec.structs.replace(newer, given=given)


def _day(at: int) -> str:
    return rfc3339(at)[:10]


def _write(path: Path, text: str) -> None:
    private_file.make_folder(path.parent)
    os.close(private_file.write(path, text))
