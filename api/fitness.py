"""Whether the fleet is good: `/api/v1/fitness`."""

from __future__ import annotations

import msgspec

from api.decoding import OpenEnum


class Fitness(OpenEnum):
    """State of a node for work."""

    FIT = "fit"
    DEGRADED = "degraded"
    """Work may go on; a person should look at it."""
    OUT = "out"
    """No work is to be placed here."""
    UNKNOWN = "not known"
    """Nothing says that it is fit: counted as not good."""


class FitnessReason(msgspec.Struct, frozen=True, kw_only=True):
    """Why a score is not 100."""

    name: str
    """Row of the table of weights in docs/fitness.md."""
    points: int
    text: str


class NodeFitness(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A node."""

    node: str
    role: str
    state: Fitness
    score: int
    """0 to 100; 0 for a node of which nothing is known."""
    gpus: int
    watts: float | None = None
    """At the wall; null where not known."""
    cost_per_hour: float | None = None
    """Of its energy; null without a tariff, and where its power is not known."""
    reasons: list[FitnessReason] = []
    """Heaviest first."""


class JobFitness(msgspec.Struct, frozen=True, kw_only=True):
    """A running job: it is as good as the worst of its nodes."""

    job: str
    """Its id."""
    scheduler: str
    state: Fitness
    score: int
    nodes: int
    worst: str
    """The node that decides."""


class FitnessShare(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes of one state."""

    nodes: int = 0
    gpus: int = 0
    watts: float | None = None
    """Sum over the nodes whose power is known; null where none is."""
    cost_per_hour: float | None = None


class FleetFitness(msgspec.Struct, frozen=True, kw_only=True):
    """The fleet as a whole."""

    score: int | None = None
    """Mean over its nodes by their GPUs, a node without any as one; not known counts as 0. Null without a node."""
    states: dict[str, FitnessShare] = {}
    """By `fit`, `degraded`, `out` and `not known`."""
    reasons: dict[str, int] = {}
    """Nodes by the name of each reason."""
    currency: str = ""


class FitnessSample(msgspec.Struct, frozen=True, array_like=True):
    """The fleet at a time."""

    at: int
    """ns since 1970."""
    score: int | None
    fit: int
    degraded: int
    out: int
    unknown: int


class FitnessReply(msgspec.Struct, frozen=True, kw_only=True):
    """The fleet, its nodes (worst first), its running jobs and its past."""

    at: int
    """ns since 1970."""
    fleet: FleetFitness
    nodes: list[NodeFitness] = []
    jobs: list[JobFitness] = []
    history: list[FitnessSample] = []
    """Oldest first, one in five minutes, 30 days at most."""
    missing: list[str] = []
    """Aggregators of the cluster that did not answer: their nodes are not known, and nothing of them is in the past."""
