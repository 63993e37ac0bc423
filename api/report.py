"""Energy and cost: `/api/v1/report`, and `kilowatch report --json`."""

from __future__ import annotations

import msgspec

from api.quality import RuleQuality


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """Prices of the hardware; null is not known."""

    total: float | None = None
    gpus: float | None = None
    """The part for GPUs that are bought apart from the rest."""
    hosts: float | None = None
    """The part for the machines around them."""
    hourly: float | None = None
    """The rent of all GPUs for an hour."""


class Upkeep(msgspec.Struct, frozen=True, kw_only=True):
    """Energy over some time, with its cost and CO2."""

    basis: str = ""
    """Where it comes from: `sustained draw`, or `measured`."""
    hours: float = 0.0
    kwh: float = 0.0
    """At the wall of the machines; money and CO2 are of the building's energy, PUE times that."""
    gpu_kwh: float | None = None
    """The part of the GPUs, by their own counters."""
    cost: float | None = None
    co2_kg: float = 0.0
    estimated_ratio: float = 0.0
    """Part of the time that was bridged between distant readings."""
    unknown_hours: float = 0.0
    """Hours without any reading: they are in no number here."""


class IdleReport(msgspec.Struct, frozen=True, kw_only=True):
    """Unused capacity: GPUs below 5 % utilisation."""

    gpu_hours: float = 0.0
    ratio: float = 0.0
    """Of all hours of all GPUs."""
    kwh: float = 0.0
    """The energy of the idle GPUs themselves."""
    cost: float | None = None
    """Their hours at the hourly rate, else at the hardware's price over its life, and their energy."""
    cost_basis: str = ""
    """`hourly rate`, `price over life`, or `energy only`."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one cluster, for comparison with another."""

    source: str = "configuration"
    """`configuration` or `running`."""
    nodes: int = 0
    roles: dict[str, int] = {}
    """Nodes by role."""
    gpus: dict[str, int] = {}
    """By model."""
    mixed: bool = False
    memory_gb: float = 0.0
    """As vendors count; GPUs that are a pool of one can't use each other's."""
    pools: tuple[tuple[int, float], ...] = ()
    """(GPUs, GB) each, largest first."""
    verdict: str = ""
    """`cluster` when most GPUs share memory over links, else `pile`."""
    verdict_reason: str = ""
    sustained_watts: float | None = None
    """Null when no node's draw is known."""
    peak_watts: float | None = None
    wall_watts: float | None = None
    """The sustained draw at the wall: what is billed. A configured cluster's published figures are of its
    parts, without what the supplies lose."""
    committed_watts: float | None = None
    """The power commitment at the wall: what the limits in force allow; of a running cluster."""
    homes: float | None = None
    """Average homes that draw as much as `sustained_watts`."""
    home_watts: float = 0.0
    ev_hours: float | None = None
    """Hours in which it empties an electric car; null when it draws nothing, or that is not known."""
    ev_kwh: float = 0.0
    currency: str = ""
    pue: float = 1.0
    g_per_kwh: float = 0.0
    price_usd: float | None = None
    prices: Prices = Prices()
    month: Upkeep | None = None
    """A month of 730 h at the sustained draw, at the wall."""
    measured: Upkeep | None = None
    """The energy that a running cluster has taken."""
    utilisation: float | None = None
    """Mean of all GPUs over the measured time."""
    idle: IdleReport | None = None
    alerts: RuleQuality | None = None
    """Alert quality of all rules together over the measured time; null without a running cluster."""
    times_cheaper: float | None = None
    """Than the cluster that it is compared with, by price."""
