"""The fitness of the running fleet: computed every few seconds, and its past on disk."""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
import numpy as np

from aggregator.fitness.score import NodeCondition, fleet_fitness, job_fitness, node_fitness, worst_first
from aggregator.folder import kinds
from aggregator.register.node_status import status_of
from api.alerts import Alert, AlertState, Severity
from api.drift import DriftReply
from api.fitness import Fitness, FitnessReply, FitnessSample
from api.fleet import NodeStatus
from telemetry.files import private_file
from telemetry.files.state_file import json_of
from telemetry.fleet import Fleet
from telemetry.metric import Table
from telemetry.wire.inventory import role_of
from telemetry.wire.jobs import JobKey, NodeJobs
from telemetry.wire.schema import GPU_FAST

log = logging.getLogger(__name__)

FILE = "fitness.json"
"""Its name in the aggregator's folder."""
SAMPLE_NS = 300 * 10**9
"""Between two samples of the history."""
MOST_SAMPLES = 30 * 288
"""30 days."""
OF_DRIFT = "node_differs"
"""Rule about deviations, which count by themselves."""


def node_states(
    fleet: Fleet, now: float, alerts: Iterable[Alert], drift: DriftReply | None, watts: Mapping[str, float]
) -> Iterator[NodeCondition]:
    """Yield the facts about each node; the fleet may change meanwhile."""
    firing: defaultdict[tuple[str, Severity], list[str]] = defaultdict(list)
    for alert in alerts:
        if alert.state is AlertState.FIRING and alert.node and alert.rule != OF_DRIFT:
            firing[alert.node, alert.severity].append(alert.rule)
    deviations: defaultdict[tuple[str, bool], list[str]] = defaultdict(list)
    for group in () if drift is None else drift.groups:
        for one in group.deviations:
            deviations[one.node, one.declared].append(one.fact)
    matrix = fleet.matrices[GPU_FAST]
    count = fleet.size(Table.GPU)
    fresh = now - matrix.seen[:count] <= matrix.max_age[:count]
    read = fresh & np.isfinite(matrix.gauges[:count]).any(axis=1)
    read_before = [0, *np.cumsum(read).tolist()]  # of each row: a sum of a few is 3 us in NumPy
    for name, node in list(fleet.nodes.items()):
        gpus, rows = node.inventory.gpus, node.rows[Table.GPU]
        power = watts.get(name, math.nan)
        yield NodeCondition(
            node=name,
            role=role_of(node.inventory) or "",
            online=status_of(node, now) is NodeStatus.ONLINE,
            driver=node.inventory.driver_state,
            gpus=len(gpus),
            gpus_read=read_before[rows.stop] - read_before[rows.start],
            gpus_gone=[gpu.present for gpu in gpus].count(False),
            pages=firing.get((name, Severity.PAGE), ()),
            tickets=firing.get((name, Severity.TICKET), ()),
            declared=deviations.get((name, True), ()),
            unlike=deviations.get((name, False), ()),
            watts=power if math.isfinite(power) else None,
        )


def nodes_of_jobs(lists: Mapping[str, NodeJobs]) -> dict[JobKey, set[str]]:
    """Return the nodes of each job that holds a GPU now."""
    found: defaultdict[JobKey, set[str]] = defaultdict(set)
    for name, its in lists.items():
        for allocation in its.allocations:
            if not allocation.end:
                found[allocation.job].add(name)
    return found


class FitnessTracker:
    """The fitness of the fleet now, and its past."""

    def __init__(self, path: Path | None = None) -> None:
        """`path`: file of its past; None keeps nothing."""
        self._path = path
        self._history: deque[FitnessSample] = deque(maxlen=MOST_SAMPLES)
        self.newest: FitnessReply | None = None
        """None before the first time that it was computed."""

    def load(self) -> None:
        """Read the past; one that can't be used is set aside, and it begins anew."""
        if self._path is not None:
            self._history.extend(kinds.read(self._path, json_of(list[FitnessSample])) or ())

    def compute(
        self,
        states: Iterable[NodeCondition],
        jobs: Mapping[JobKey, set[str]],
        price: float | None,
        currency: str,
        wall: int,
    ) -> FitnessReply:
        """Compute the fitness of now. `price`: of a kWh at the wall, everything included."""
        nodes = [node_fitness(state, price) for state in states]
        by_name = {one.node: one for one in nodes}
        found = [job_fitness(key.scheduler, key.id, its, by_name) for key, its in sorted(jobs.items())]
        fleet = fleet_fitness(nodes, currency if price is not None else "")
        self._note(wall, fleet.score, {state: share.nodes for state, share in fleet.states.items()})
        self.newest = FitnessReply(
            at=wall,
            fleet=fleet,
            nodes=worst_first(nodes),
            jobs=sorted(found, key=lambda one: one.score),
            history=list(self._history),
        )
        return self.newest

    def _note(self, wall: int, score: int | None, nodes: Mapping[str, int]) -> None:
        last = self._history[-1].at if self._history else None
        if score is None or (last is not None and 0 <= wall - last < SAMPLE_NS):
            return
        self._history.append(
            FitnessSample(
                wall, score, nodes[Fitness.FIT], nodes[Fitness.DEGRADED], nodes[Fitness.OUT], nodes[Fitness.UNKNOWN]
            )
        )
        self.unsaved = True

    unsaved = False
    """Whether there is a sample that is not on disk."""

    async def save(self) -> None:
        """Write the past, where it has grown."""
        if not self.unsaved or self._path is None:
            return
        self.unsaved = False
        try:
            await asyncio.to_thread(_write, self._path, msgspec.json.encode(list(self._history)))
        except OSError as error:
            log.warning("fitness: %s can't be written: %s", self._path, error.strerror)


def _write(path: Path, body: bytes) -> None:
    private_file.make_folder(path.parent)
    os.close(private_file.write(path, body.decode()))
