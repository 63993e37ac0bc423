"""What a cluster is, as its owner would compare it with another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from power.energy import homes, hours_to_drain


@dataclass(frozen=True, slots=True)
class Part:
    """One node of a cluster. Pools come from the link topology, never from a name."""

    gpu_model: str
    pools_gb: tuple[tuple[int, float], ...]
    """(GPUs, GB) of every set of GPUs that reach each other's memory."""
    sustained_watts: float
    peak_watts: float
    price_usd: float | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one cluster."""

    gpus: dict[str, int]
    mixed: bool
    memory_gb: float
    pools: tuple[tuple[int, float], ...]
    """(GPUs, GB) each, largest first."""
    verdict: str
    """`cluster` when GPUs share memory over links, else `pile`."""
    sustained_watts: float
    peak_watts: float
    homes: float
    ev_hours: float
    price_usd: float | None


def describe(parts: Sequence[Part], *, home_watts: float = 1200.0, ev_kwh: float = 90.0) -> Report:
    """Return the figures of a cluster of these parts."""
    models: Counter[str] = Counter()
    for part in parts:
        models[part.gpu_model] += sum(gpus for gpus, _ in part.pools_gb)
    pools = sorted((pool for part in parts for pool in part.pools_gb), reverse=True)
    watts = sum(part.sustained_watts for part in parts)
    prices = [part.price_usd for part in parts]
    linked = sum(gpus for gpus, _ in pools if gpus > 1)
    known = [price for price in prices if price is not None]
    return Report(
        gpus=dict(models),
        mixed=len(models) > 1,
        memory_gb=sum(gb for _, gb in pools),
        pools=tuple(pools),
        verdict="cluster" if 2 * linked > sum(models.values()) else "pile",
        sustained_watts=watts,
        peak_watts=sum(part.peak_watts for part in parts),
        homes=homes(watts, home_watts),
        ev_hours=hours_to_drain(watts, ev_kwh) if watts else float("inf"),
        price_usd=sum(known) if len(known) == len(prices) else None,
    )


def times_cheaper(one: Report, other: Report) -> float | None:
    """Return by which factor `other` costs less than `one`; None when a price is not known."""
    if one.price_usd is None or not other.price_usd:
        return None
    return one.price_usd / other.price_usd
