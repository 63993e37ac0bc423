"""Groups of GPUs that may be compared: of the same model, in the same job or on the same node.

The job is that of the GPU as its node says; where that is not known, the node's label `job`, else the
node itself. A GPU that several jobs share, or that is cut in instances, has no peers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping

import numpy as np
import numpy.typing as npt

from alerts.engine.isolation import NodeFaults
from alerts.engine.job_index import JobIndex
from alerts.engine.row_index import RowIndex
from alerts.rules.gpu_jobs import GpuHolding
from alerts.rules.row_memory import Index
from telemetry.fleet import Fleet, Node
from telemetry.metric import Table

FORGOTTEN = 1000
"""Numbers of ended jobs and removed nodes before all numbers are assigned again."""
_PODS = "kubernetes"
"""Scheduler whose jobs are each on one node."""


class PeerGroups:
    """Numbers of the GPU rows, equal for GPUs that may be compared, for each way of comparing."""

    def __init__(self) -> None:
        self.jobs = JobIndex()
        self._ways = {"job": _Groups(), "model": _Groups()}
        self._jobs: dict[str, str] = {}
        self._places: Mapping[str, Mapping[str, str]] | None = None
        self._changed: set[str] = set()
        """Nodes whose groups are not up to date."""
        self._rows_version = -1
        self.version = 0
        """Rises with any change of the groups."""
        self._identified: bool | None = None
        """Whether the groups of all nodes have identities; None where nobody wants these."""

    def identify(self) -> None:
        """Give groups of jobs identities that all aggregators have in common, from the next `follow` on."""
        self._identified = self._identified or False

    @property
    def identities(self) -> npt.NDArray[np.uint64]:
        """Identity of each group that may be on nodes of other aggregators, by its number; 0 for all others."""
        return self._ways["job"].identities

    def groups(self, among: str) -> tuple[Index, int]:
        """Return the number of each row's group, 0 for a free row, and how many numbers there are."""
        groups = self._ways[among]
        return groups.of, len(groups.numbers) + 1

    def follow(self, fleet: Fleet, index: RowIndex, places: Mapping[str, Mapping[str, str]]) -> None:
        """Bring the groups up to date; work only for nodes that have changed. Raises `NodeFaults` for
        nodes whose groups or jobs can't be told; those of the others are up to date then."""
        changed = self._changed
        changed.update(index.arrived)
        self.jobs.follow(fleet, index, changed)
        if places is not self._places:
            self._places = places
            jobs = {node: labels["job"] for node, labels in places.items() if "job" in labels}
            changed |= {node for node in jobs | self._jobs if jobs.get(node) != self._jobs.get(node)}
            self._jobs = jobs
        if self._identified is False:
            changed |= set(fleet.nodes)
            self._identified = True
        moved = index.version != self._rows_version
        self.version += bool(changed) or moved
        for groups in self._ways.values():
            groups.grow(fleet.size(Table.GPU))
            if moved:
                groups.of[np.flatnonzero(index.owner[Table.GPU] < 0)] = 0
            if len(groups.numbers) > FORGOTTEN + 4 * len(fleet.nodes):  # jobs that ended long ago
                groups.numbers.clear()
                changed |= set(fleet.nodes)
        faults: dict[str, Exception] = {}
        self._rows_version = index.version
        for name in changed & fleet.nodes.keys():
            try:
                self._put(name, fleet.nodes[name])
            except Exception as error:  # noqa: BLE001 - raised below, by the node's name
                faults[name] = error
        self._changed = set()
        if faults:
            raise NodeFaults(faults)

    def _put(self, name: str, node: Node) -> None:
        rows, held = node.rows[Table.GPU], self.jobs.rows
        label = self._jobs.get(name)
        unknown = ("node", name) if label is None else ("job", label)
        gpus = node.inventory.gpus
        models = [gpu.name for gpu in gpus]
        keys: list[Hashable] = []
        for gpu, holding, job in zip(gpus, held.holding[rows].tolist(), held.job[rows].tolist(), strict=True):
            match holding:
                case GpuHolding.ONE_JOB:
                    keys.append((gpu.name, job))
                case GpuHolding.SHARED:
                    keys.append((gpu.name, gpu.uuid))
                case GpuHolding.FREE if label is None:
                    keys.append((gpu.name, "free", name))
                case _:
                    keys.append((gpu.name, *unknown))
        self._ways["job"].put(rows, keys)
        self._ways["model"].put(rows, models)
        if self._identified:
            self._ways["job"].identify({key: self._identity(key) for key in set(keys)})

    def _identity(self, key: Hashable) -> int:
        """Return the identity of a group; 0 for one that is on one node."""
        match key:
            case (str(model), int(number)):
                job = self.jobs.rows.jobs[number]
                alone = job.gpus == 0 and job.nodes == 1
                if alone or job.key.scheduler == _PODS:
                    return 0
                its = job.key
                words = ["job", model, its.scheduler, its.cluster, its.id, str(its.restart)]
            case (str(model), "job", str(label)):
                words = ["label", model, label]
            case _:
                return 0
        digest = hashlib.blake2b("\0".join(words).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") or 1


class _Groups:
    def __init__(self) -> None:
        self.numbers: dict[Hashable, int] = {}
        self.of: Index = np.zeros(0, np.intp)
        self.identities = np.zeros(1, np.uint64)

    def identify(self, identities: Mapping[Hashable, int]) -> None:
        """Set the identities of groups."""
        missing = len(self.numbers) + 1 - len(self.identities)
        if missing > 0:
            self.identities = np.append(self.identities, np.zeros(missing, np.uint64))
        for key, identity in identities.items():
            self.identities[self.numbers[key]] = identity

    def grow(self, size: int) -> None:
        if size > len(self.of):
            larger = np.zeros(size, np.intp)
            larger[: len(self.of)] = self.of
            self.of = larger

    def put(self, rows: slice, keys: list[Hashable] | list[str] | list[tuple[str, str, str]]) -> None:
        self.of[rows] = [self.numbers.setdefault(key, len(self.numbers) + 1) for key in keys]
