"""The drift of the running fleet: compared when inventories change, remembered over restarts."""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np

from aggregator.folder import kinds
from aggregator.impairments import MonitorPart
from aggregator.register.drift import ComparedNode, compared, drift_of
from aggregator.register.drift_watch import KIND, DriftConfig, DriftWatch, Since
from aggregator.register.expected import ExpectedState, expected_of, shortfalls
from aggregator.register.facts import own_labels
from api.drift import DriftReply
from telemetry.files import private_file
from telemetry.files.state_file import json_of
from telemetry.fleet import Fleet
from telemetry.metric import Table
from telemetry.wire.inventory import Inventory

log = logging.getLogger(__name__)

FILE = "drift.json"
"""Its name in the aggregator's folder."""
RULE = "node_differs"
"""Rule of `monitor.toml` about what is reported."""
SHARED_SECONDS = 30.0
"""Seconds between two comparisons with the nodes of other aggregators."""
Labels = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class _Basis:
    """Input of a comparison, which takes a fifth of a second for 12,500 nodes."""

    fleet: Fleet
    version: int
    labels: Labels
    speeds: Mapping[str, float]
    others: Mapping[str, ComparedNode]

    def same(self, other: _Basis) -> bool:
        """Return whether a comparison would find the same."""
        return (
            self.fleet is other.fleet
            and self.version == other.version
            and (self.labels is other.labels or self.labels == other.labels)
            and self.speeds == other.speeds
            and self.others is other.others
        )


@dataclass(frozen=True, slots=True)
class NodesElsewhere:
    """The nodes of other aggregators."""

    nodes: Mapping[str, ComparedNode] = field(default_factory=dict)
    silent: Collection[str] = ()
    """Names of nodes of which nothing changes now: they send nothing, or their aggregator does not answer."""


class DriftTracker:
    """Who differs now, and since when."""

    def __init__(
        self, entries: Sequence[ExpectedState] = (), config: DriftConfig | None = None, path: Path | None = None
    ) -> None:
        """`path`: its file; None keeps nothing."""
        self._entries, self._config, self._path = tuple(entries), config or DriftConfig(), path
        self._nodes: dict[str, tuple[Inventory, Mapping[str, str], ComparedNode]] = {}
        """By node: what it was compared from."""
        self._last: tuple[_Basis, DriftReply] | None = None
        """The last comparison, and what it was made from."""
        self._newest: DriftReply | None = None
        self._updated = -math.inf
        self._origin: DriftTracker | None = None
        """Whose declarations count here."""
        self.elsewhere = NodesElsewhere()
        """Nodes of other aggregators, which are compared with ours."""
        self._watch = DriftWatch()
        self._kept: Since = {}
        self._reported: dict[str, str] = {}
        self._parts: dict[str, MonitorPart] = {}

    def load(self) -> None:
        """Read since when nodes differ: from now on, where there is no file that can be used."""
        if self._path is None or (since := kinds.read(self._path, json_of(Since))) is None:
            return
        self._watch = DriftWatch(since)
        self._kept = since

    def configure(self, entries: Sequence[ExpectedState], config: DriftConfig) -> None:
        """Apply changed settings."""
        self._entries, self._config = tuple(entries), config
        self._nodes.clear()
        self._last = None

    @property
    def declared(self) -> Sequence[ExpectedState]:
        """Entries of `[[expected]]` that nodes are compared with."""
        return self._entries

    def beside(self) -> DriftTracker:
        """Return a tracker of another fleet, with the declarations of this one."""
        other = DriftTracker()
        other._origin = self
        return other

    async def compare(self, fleet: Fleet, labels: Labels, now: float, wall: int) -> DriftReply:
        """Return how the nodes differ now. `now`: the fleet's monotonic seconds."""
        if self._origin is not None and self._origin.declared is not self._entries:
            self.configure(self._origin.declared, self._config)
        entries = self._entries
        speeds = _speeds(fleet, now) if entries else {}  # only what is declared has one
        basis = _Basis(fleet, fleet.version, labels, speeds, self.elsewhere.nodes)
        if self._last is not None and self._last[0].same(basis):
            return msgspec.structs.replace(self._last[1], at=wall)
        found = [(each.inventory, _labels(each.inventory, labels)) for each in fleet.nodes.values()]
        reply = await asyncio.to_thread(self._compared, found, speeds, basis.others, wall)
        if entries is self._entries:
            self._last = basis, reply
        return reply

    def _compared(
        self,
        found: Sequence[tuple[Inventory, Mapping[str, str]]],
        speeds: Mapping[str, float],
        others: Mapping[str, ComparedNode],
        wall: int,
    ) -> DriftReply:
        nodes: dict[str, tuple[Inventory, Mapping[str, str], ComparedNode]] = {}
        entries = self._entries
        for inventory, labels in found:
            known = self._nodes.get(inventory.node)
            if known is None or known[0] is not inventory or known[1] != labels:
                wanted = expected_of(inventory, labels, entries)
                known = (inventory, labels, compared(inventory, wanted))
            _, _, node = known
            if node.wanted is not None:
                short = tuple(shortfalls(inventory, node.wanted, speeds))
                known = (inventory, labels, node._replace(shortfalls=short))
            nodes[inventory.node] = known
        if entries is self._entries:
            self._nodes = nodes
        elsewhere = (each for name, each in others.items() if name not in nodes)
        return drift_of([*(each for _, _, each in nodes.values()), *elsewhere], wall)

    @property
    def newest(self) -> DriftReply | None:
        """The last comparison; None before the first."""
        return self._newest

    async def update(self, fleet: Fleet, labels: Labels, now: float, wall: int) -> None:
        """Compare, and note what is to be reported; with the nodes of other aggregators, which may be many, every half
        minute."""
        if self.elsewhere.nodes and now - self._updated < SHARED_SECONDS:
            return
        self._updated = now
        reply = self._newest = await self.compare(fleet, labels, now, wall)
        others = self.elsewhere
        silent = {name for name, node in fleet.nodes.items() if not node.online}
        silent |= {name for name in others.silent if name not in fleet.nodes}
        self._reported = self._watch.update(reply, silent, self._config, wall)
        for name in [
            name
            for name in self._parts
            if not name.startswith(KIND) and name not in fleet.nodes and name not in others.nodes
        ]:
            del self._parts[name]
        for name in self._parts.keys() | self._reported.keys():
            self._parts[name] = _part(name, self._reported.get(name, ""))
        if self._watch.since != self._kept:
            await self._keep()

    def described(self) -> Iterator[ComparedNode]:
        """Yield our own nodes as they were compared last."""
        return (each for _, _, each in self._nodes.values())

    @property
    def since(self) -> Since:
        """Since when nodes and kinds differ."""
        return self._watch.since

    def learn(self, since: Since) -> None:
        """Take over since when another aggregator knows that nodes differ, where that is longer."""
        self._watch.learn(since)

    async def _keep(self) -> None:
        since = self._kept = self._watch.since
        if self._path is None:
            return
        try:
            await asyncio.to_thread(_write, self._path, msgspec.json.encode(since).decode())
        except OSError as error:
            log.warning("drift: %s can't be written: %s", self._path, error.strerror)

    def parts(self) -> list[MonitorPart]:
        """Return a row for each node and kind that is or was reported of, for the rule."""
        return list(self._parts.values())


def _part(name: str, why: str) -> MonitorPart:
    its = f"the kind {name.removeprefix(KIND)}" if name.startswith(KIND) else f"node {name}"
    facts = {"name": its} if name.startswith(KIND) else {"name": its, "node": name}
    return MonitorPart(f"drift/{name}", facts, {RULE: why} if why else {})


def _labels(inventory: Inventory, of_site: Labels) -> dict[str, str]:
    """Return the labels of a node: of its own settings, and those of its place."""
    return {**of_site.get(inventory.node, {}), **own_labels(inventory)}


def _speeds(fleet: Fleet, now: float) -> dict[str, float]:
    """Return the speed of each port that is up, bytes a second."""
    column = fleet.column("port_speed_bytes_per_second", now)
    return {
        port.id: float(value)
        for node in fleet.nodes.values()
        if node.inventory.ports
        for port, value in zip(node.inventory.ports, column[node.rows[Table.PORT]], strict=True)
        if np.isfinite(value)
    }


def _write(path: Path, text: str) -> None:
    private_file.make_folder(path.parent)
    os.close(private_file.write(path, text))
