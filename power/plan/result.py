"""The answer to a what-if, as `kilowatch plan --json` prints it."""

from __future__ import annotations

import msgspec


class Cap(msgspec.Struct, frozen=True, kw_only=True):
    """The limit per GPU that brings a circuit back under its continuous limit."""

    watts_per_gpu: int
    floor_watts: float | None
    """Lowest that all cards here accept; None when not known."""
    reachable: bool
    instead: tuple[str, ...] = ()
    """What else would do, when it is below the floor."""


class CircuitPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One circuit under the supposed load."""

    id: str
    watts: float
    amps: dict[str, float]
    neutral_amps: float | None = None
    rated_amps: float
    continuous_amps: float
    load_ratio: float
    """Amps of the highest pole over the rating."""
    trip_seconds: dict[str, float | None]
    """An estimate from a cold breaker, unless a preload was given; None is never, or not known."""
    committed_watts: float
    survivor_amps: float | None = None
    """Amps after the worst loss of another feed of its group."""
    alerts: list[str]
    cap: Cap | None = None
    lost: bool = False
    """It is off, as supposed."""


class NodePlan(msgspec.Struct, frozen=True, kw_only=True):
    """One node under the supposed load."""

    id: str
    watts: float
    committed_watts: float
    supply_load: float | None = None
    """Load of the supplies that must carry all, over their rating."""
    alerts: list[str]
    dark: bool = False
    """None of its cords has power."""


class BudgetPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One budget under the supposed load."""

    id: str
    kw: float
    limit_kw: float | None
    alerts: list[str]


class PlanResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer."""

    circuits: list[CircuitPlan]
    panels: list[CircuitPlan]
    nodes: list[NodePlan]
    budgets: list[BudgetPlan]
    notices: list[str]
    """What is allowed and probably wrong in the configuration (E24)."""
