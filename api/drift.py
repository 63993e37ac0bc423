"""How nodes differ from what is declared, or from nodes of their kind: `/api/v1/drift`."""

from __future__ import annotations

import msgspec


class Deviation(msgspec.Struct, frozen=True, kw_only=True):
    """A fact of a node that is another one than that which is declared, or that of most nodes of its kind."""

    node: str
    fact: str
    """`driver`, `gpu vbios`, `port firmware MT4129` ..."""
    has: str
    most_have: str
    """The value of most; of a declared fact what is declared."""
    nodes: int
    """How many nodes of its kind have what most have."""
    of: int
    """How many nodes of its kind say what they have."""
    declared: bool = False
    """Whether an entry of `[[expected]]` declares it: then `nodes` and `of` are 0."""


class MixedFact(msgspec.Struct, frozen=True, kw_only=True):
    """A fact of which a kind of nodes has several values and none for most: as while a release is rolled out."""

    fact: str
    values: dict[str, int]
    """Nodes by value, the commonest first."""


class NodeGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that should be alike: the same product and model of GPU."""

    name: str
    """Product and model: `DGXH100, NVIDIA H100 80GB HBM3`."""
    nodes: int
    evaluated: bool
    """False for fewer than five nodes: then nobody is most."""
    declared: int = 0
    """Nodes for which there is an entry of `[[expected]]`."""
    deviations: list[Deviation] = []
    mixed: list[MixedFact] = []
    unknown: dict[str, int] = {}
    """By fact, nodes that do not say what they have: unknown is never a difference."""


class DriftReply(msgspec.Struct, frozen=True, kw_only=True):
    """Kinds of nodes, those with deviations first."""

    at: int
    """ns since 1970."""
    nodes: int
    """Number of nodes with an inventory."""
    groups: list[NodeGroup]


class FactDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A fact in which two nodes differ; an empty text is one that is not known."""

    fact: str
    first: str
    second: str


class NodeDifferenceReply(msgspec.Struct, frozen=True, kw_only=True):
    """Two nodes side by side: `/api/v1/drift/{node}/{other}`."""

    first: str
    second: str
    same: list[str]
    """Facts that are the same."""
    differences: list[FactDifference]
