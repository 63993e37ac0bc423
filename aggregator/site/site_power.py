"""Power of all nodes of the site, from the messages of the members that hold them.

What is not heard because a member is gone, or the network to it, is *unheard*: for a while its last
values count, then its power commitment, as of a silent node. It is never taken for nodes that fell
silent by themselves, and `circuit_unheard_ratio` says how much of a circuit's load it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np

from aggregator.site.node_power import COLUMNS, GroupSpan, Narrow, NodePower, decode, layout_of, values_of
from power.live.inputs import PowerInputs
from power.network.flow import Ints
from power.wiring import Floats
from telemetry.fleet import Fleet
from telemetry.wire.topics import shard_of

HEARD_SECONDS = 3.0
"""Seconds without a message after which a group is unheard."""
HOLD_EXTRA_SECONDS = 5.0
"""Seconds beyond a member's death for which last values count: its groups are taken over by then."""
_FLAGS = ("module_scope",)


@dataclass(slots=True)
class SiteCounters:
    """Messages that were dropped, by reason."""

    lower_epoch: int = 0
    """From a member that no longer holds the group."""
    out_of_order: int = 0
    malformed: int = 0
    unnamed: int = 0
    """Of nodes whose names have not come yet."""


@dataclass(slots=True)
class _Group:
    """What is known of one group."""

    epoch: int = -1
    session: int = 0
    number: int = -1
    layout: int = 0
    machines: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """Machine of each of its nodes that are on a circuit."""
    rows: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """Position of each of those in `values`."""
    values: Narrow = field(default_factory=lambda: np.zeros((len(COLUMNS), 0), np.float32))
    """Columns of its last message; shape (columns, nodes)."""
    size: int = -1
    heard_at: float = -np.inf


class SitePower:
    """The power inputs of all machines of a site: a `PowerReader`."""

    def __init__(self, machines: Sequence[str], started: float, dead_after_seconds: float = 10.0) -> None:
        """`started`: monotonic seconds; `dead_after_seconds`: after which a silent member is dead."""
        self.machines = tuple(machines)
        self.counters = SiteCounters()
        self.faults: dict[str, Exception] = {}
        """No node's rows can fail here: its member reads them."""
        self._started = started
        self._hold = dead_after_seconds + HOLD_EXTRA_SECONDS
        self._at = {name: row for row, name in enumerate(self.machines)}
        names = [shard_of(name) for name in self.machines]
        self._group_names = sorted(set(names))
        numbers = {name: number for number, name in enumerate(self._group_names)}
        self._group_of: Ints = np.array([numbers[name] for name in names], np.int64)
        self._groups: dict[str, _Group] = {}
        nothing = PowerInputs.unknown(1)
        self._nothing: Narrow = np.array([getattr(nothing, name) for name in COLUMNS], np.float32)
        self._order: Ints | None = None
        """Position of each machine in the values of all groups; None where it is to be found again."""
        self._last: tuple[Narrow, list[Floats]] | None = None
        """Values of all groups, and the columns that were made of them."""
        self._jobs: dict[str, str] = {}

    def fence(self, group: str, epoch: int) -> None:
        """Drop what comes under a lower epoch of a group, also before the first message of a higher."""
        known = self._known(group)
        known.epoch = max(known.epoch, epoch)

    def receive(self, payload: bytes, now: float) -> bool:
        """Take a message in; return whether all of it counts."""
        try:
            message = decode(payload)
        except (msgspec.MsgspecError, ValueError):
            self.counters.malformed += 1
            return False
        values, first, counts = values_of(message), 0, True
        for span in message.groups:
            end = first + span.nodes
            names = None if message.names is None else message.names[first:end]
            counts &= self._take(message, span, names, values[:, first:end], now)
            first = end
        return counts

    def _take(
        self, message: NodePower, span: GroupSpan, names: Sequence[str] | None, values: Narrow, now: float
    ) -> bool:
        """Take a group of a message in; return whether it counts."""
        known = self._known(span.group)
        if span.epoch < known.epoch:
            self.counters.lower_epoch += 1
            return False
        same = (span.epoch, message.session) == (known.epoch, known.session)
        if same and message.number <= known.number:
            self.counters.out_of_order += 1
            return False
        if names is not None:
            if layout_of(names) != span.layout:
                self.counters.malformed += 1
                return False
            self._name(known, span, names, message.jobs or {})
        if span.layout != known.layout or span.nodes != known.size:
            self.counters.unnamed += 1
            return False
        known.epoch, known.session, known.number = span.epoch, message.session, message.number
        known.heard_at, known.values = now, values
        return True

    def _known(self, group: str) -> _Group:
        known = self._groups.get(group)
        if known is None:
            known = self._groups[group] = _Group()
        return known

    def _name(self, known: _Group, span: GroupSpan, names: Sequence[str], jobs: Mapping[str, str]) -> None:
        """Follow the names of a group; a node that is gone counts as one that never reported."""
        if span.layout != known.layout or known.size != len(names):
            pairs = [(self._at[name], row) for row, name in enumerate(names) if name in self._at]
            table = np.array(pairs, np.int64).reshape(-1, 2)
            known.machines, known.rows = table[:, 0], table[:, 1]
            known.layout, known.size = span.layout, len(names)
            self._order = None
        for name in names:
            job = jobs.get(name)
            if job is not None:
                self._jobs[name] = job
            elif self._jobs:
                self._jobs.pop(name, None)

    def read(self, fleet: Fleet, now: float, listening_since: float = -np.inf) -> PowerInputs:
        """Return the inputs of all machines at `now`; without meters."""
        ages = self._ages(now)[self._group_of]
        columns = self._columns()
        columns["silent_seconds"] = columns["silent_seconds"] + np.where(ages > self._hold, ages, 0.0)
        columns["wall_age"] = columns["wall_age"] + ages
        found: dict[str, Any] = {
            name: column.astype(bool) if name in _FLAGS else column for name, column in columns.items()
        }
        nothing = PowerInputs.unknown(0)
        return replace(nothing, **found, unheard=ages > HEARD_SECONDS, jobs=dict(self._jobs))

    def _columns(self) -> dict[str, Floats]:
        """Return what each machine's member said last; of one that no member named, that nothing is known.
        Columns of which nothing has changed are those of before, and must stay as they are."""
        groups = [known for known in self._groups.values() if len(known.machines)]
        if self._order is None:
            self._last = None
            total = sum(known.size for known in groups)
            self._order = np.full(len(self.machines), total)
            first = 0
            for known in groups:
                self._order[known.machines] = first + known.rows
                first += known.size
        table = np.concatenate([*(known.values for known in groups), self._nothing], axis=1)
        columns = []
        for row, values in enumerate(table):
            if self._last is not None and _same(self._last[0][row], values):
                columns.append(self._last[1][row])
            else:
                columns.append(values.astype(np.float64)[self._order])
        self._last = table, columns
        return dict(zip(COLUMNS, columns, strict=True))

    def unheard_groups(self, now: float) -> Mapping[str, float]:
        """Return the groups with machines that are not heard now, with the seconds since when."""
        ages = self._ages(now).tolist()
        return {name: age for name, age in zip(self._group_names, ages, strict=True) if age > HEARD_SECONDS}

    def _ages(self, now: float) -> Floats:
        """Return the seconds since each group with machines was heard; since the start for one that never
        was."""
        heard = [self._groups[name].heard_at if name in self._groups else -np.inf for name in self._group_names]
        return now - np.maximum(np.array(heard, np.float64), self._started)


def _same(one: Narrow, other: Narrow) -> bool:
    """Return whether two columns have the same bits, so that NaN is as NaN."""
    return bool(np.array_equal(one.view(np.int32), other.view(np.int32)))
