"""Fitness and drift of the whole cluster: each member scores its own nodes, and whoever is asked joins the scores and
compares all nodes with each other."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

import msgspec

from aggregator.alerting.node_labels import labels_of
from aggregator.cluster.ask import MemberAnswers, decoded
from aggregator.cluster.fleet_copy import FleetCopy
from aggregator.fitness.joined import joined_fitness, joined_history
from aggregator.fitness.score import NodeCondition
from aggregator.fitness.service import MOST_SAMPLES, nodes_of_jobs
from aggregator.register.drift_tracker import Labels
from aggregator.view import AggregatorView, DriftView
from api.drift import DriftReply
from api.fitness import FitnessReply, FitnessSample, FleetFitness
from telemetry.fleet import Fleet
from telemetry.text.decoders import of_msgpack
from telemetry.wire.inventory import role_of

FITNESS_SECONDS = 5.0
"""Seconds for which the scores of members serve: they compute them as often."""
DRIFT_SECONDS = 30.0
"""Seconds between two comparisons of all nodes while somebody looks."""
SECONDS = 2.0
"""Seconds in which a member must answer with its scores."""


class ClusterFitness:
    """The fitness of all members' nodes, while somebody looks."""

    def __init__(self, own: AggregatorView, name: str, answers: MemberAnswers, copy: FleetCopy) -> None:
        """`own`: this member alone, called `name`."""
        self._own, self._name, self._answers, self._copy = own, name, answers, copy
        self._asked = float("-inf")
        self._pasts: dict[str, list[FitnessSample]] = {}
        """The past that each member has sent."""
        self._history: list[FitnessSample] = []
        self.newest: FitnessReply | None = None
        """None before the first time that somebody looked."""

    async def ask(self, others: Iterable[str]) -> dict[str, FitnessReply] | None:
        """Return the scores of members; None where the last ones still serve."""
        if self._own.now() - self._asked < FITNESS_SECONDS:
            return None
        self._asked = self._own.now()
        bodies = await self._answers.ask_all(
            others, "fitness", lambda name: msgspec.msgpack.encode(self._after(name)), SECONDS
        )
        return decoded(bodies, FitnessReply) | {self._name: self._part(self._after(self._name))}

    async def join(self, parts: Mapping[str, FitnessReply], missing: list[str]) -> None:
        """Put the scores of members together, as the newest copy of the present says who has which node."""
        for name, part in parts.items():
            self._pasts[name] = [*self._pasts.get(name, ()), *part.history][-MOST_SAMPLES:]
        if any(part.history for part in parts.values()):
            self._history = await asyncio.to_thread(joined_history, list(self._pasts.values()))
        unheard = [
            NodeCondition(
                node=name, role=role_of(node.inventory) or "", online=False, unheard=True, gpus=len(node.inventory.gpus)
            )
            for name, node in self._copy.fleet.nodes.items()
            if node.unheard
        ]
        found = await asyncio.to_thread(
            joined_fitness,
            parts,
            self._copy.vouches,
            unheard,
            nodes_of_jobs(self._copy.lists),
            self._history,
            self._own.wall(),
        )
        self.newest = msgspec.structs.replace(found, missing=missing)

    def _after(self, name: str) -> int:
        past = self._pasts.get(name)
        return past[-1].at if past else 0

    def _part(self, after: int) -> FitnessReply:
        """Return the scores of this member, and its past after a time, ns since 1970."""
        newest = self._own.fitness.newest or FitnessReply(at=0, fleet=FleetFitness())
        past = [each for each in newest.history if each.at > after]
        return msgspec.structs.replace(newest, jobs=[], history=past)

    async def answer(self, body: bytes) -> bytes:
        """Answer the question of another member."""
        part = self._part(of_msgpack(int).decode(body))
        return await asyncio.to_thread(msgspec.msgpack.encode, part)


class ClusterDrift:
    """How the nodes of all members differ from what is declared, and from each other."""

    def __init__(self, own: DriftView, view: AggregatorView) -> None:
        """`own`: of this member, whose declarations count; `view`: all members."""
        self._own, self._view, self._tracker = own, view, own.beside()
        self._compared = float("-inf")
        self.newest: DriftReply | None = None
        """None before the first time that somebody looked."""

    async def compare(self, fleet: Fleet, labels: Labels, now: float, wall: int) -> DriftReply:
        """Return how the nodes differ now. `now`: the fleet's monotonic seconds."""
        self.newest = await self._tracker.compare(fleet, labels, now, wall)
        return self.newest

    async def refresh(self) -> None:
        """Compare all nodes, where that is a while ago."""
        view = self._view
        if view.now() - self._compared < DRIFT_SECONDS:
            return
        self._compared = view.now()
        labels = labels_of(view.fleet, view.electrical.site.layout)
        await self.compare(view.fleet, labels, view.now(), view.wall())

    def beside(self) -> DriftView:
        """Return the same for another fleet."""
        return self._own.beside()
