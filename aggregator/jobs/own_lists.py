"""The lists of jobs as the nodes said them, and which of them another listing of the scheduler can't change. Pure.

A listing has all jobs again and again, of which few are other than before. A list with the word of the scheduler depends on
what the node itself said, on its rows, and on the listed jobs that one of these names: while all of that is the same, it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from aggregator.jobs.scheduled import Changed, short
from api.jobs import AllocationRow
from telemetry.wire.jobs import JobKey, NodeJobs

QUESTIONS = 20
"""Questions to the scheduler, five minutes by default, within which each node is compared all the same: the order of its
GPUs may be another one since."""


class OwnLists:
    """Newest list of each node without the word of the scheduler."""

    def __init__(self) -> None:
        self.of: dict[str, NodeJobs] = {}
        self._quiet: dict[str, frozenset[str]] = {}
        """Nodes for which the last comparison with that word changed nothing, and the ids of the jobs by which another listing
        may."""
        self._turn = 0

    def put(self, node: str, own: NodeJobs) -> None:
        """Take a list that a node has sent."""
        self.of[node] = own
        self.disturb([node])

    def remove(self, node: str) -> None:
        """Forget a node."""
        self.of.pop(node, None)
        self.disturb([node])

    def rest(self, node: str, rows: Iterable[tuple[JobKey, AllocationRow]]) -> None:
        """Note that nothing has changed by a comparison. `rows`: all that are known of the node."""
        own = self.of[node]
        keys = {key for key, _ in rows} | {job.key for job in own.jobs}
        keys |= {each.job for each in own.allocations}
        keys |= {each.job for each in own.processes if each.job is not None}
        self._quiet[node] = frozenset(key.id for key in keys)

    def disturb(self, nodes: Iterable[str]) -> None:
        """Note that something else than a listing has changed on nodes."""
        for node in nodes:
            self._quiet.pop(node, None)

    def due(self, changed: Changed) -> Iterator[tuple[str, NodeJobs]]:
        """Yield the nodes that are to be compared with a listing, with their lists."""
        self._turn = (self._turn + 1) % QUESTIONS
        for number, node in enumerate(list(self.of)):
            ids = self._quiet.get(node)
            if (
                ids is None
                or changed.all
                or number % QUESTIONS == self._turn
                or short(node) in changed.nodes
                or not ids.isdisjoint(changed.ids)
            ) and node in self.of:  # another one had its turn in between
                yield node, self.of[node]
