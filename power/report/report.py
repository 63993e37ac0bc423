"""The report of a cluster: size, pools, power and cost, comparable with another's."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from api.report import Prices, Report, Upkeep
from power.report.energy import carbon_kg, homes, hours_to_drain
from power.site.config import SiteConfig
from power.site.tariff import mean_price
from present.units import quoted

MONTH_HOURS = 730.0
"""Hours of a mean month."""
_PREFERRED = ("gpu", "support")


@dataclass(frozen=True, slots=True)
class ReportPart:
    """A node of a cluster. Pools come from the link topology, never from a name."""

    gpus: dict[str, int]
    """GPUs by model."""
    pools_gb: tuple[tuple[int, float], ...]
    """(GPUs, GB) of every set of GPUs that reach each other's memory."""
    sustained_watts: float
    """NaN where not known."""
    peak_watts: float
    wall_watts: float = math.nan
    """`sustained_watts` at the wall, with what the supplies lose: what is billed."""
    gpu_price: float | None = None
    """Of its GPUs, where they are bought apart from the rest."""
    host_price: float | None = None
    """Of all but the GPUs."""
    price: float | None = None
    """Of the whole."""
    hourly_rate: float | None = None
    """Rent of one GPU per hour."""
    role: str = "gpu"


def describe(
    parts: Sequence[ReportPart],
    place: SiteConfig | None = None,
    *,
    source: str = "configuration",
    sustained: float | None = None,
    peak: float | None = None,
    committed: float | None = None,
) -> Report:
    """Return the report of a cluster of these parts. `sustained` and `peak` replace the sums over the
    parts where the whole cluster was measured."""
    place = place or SiteConfig()
    models: Counter[str] = Counter()
    roles: Counter[str] = Counter()
    for part in parts:
        models.update(part.gpus)
        roles[part.role] += 1
    pools = sorted((pool for part in parts for pool in part.pools_gb), reverse=True)
    verdict, reason = classify(pools)
    watts = _sum([part.sustained_watts for part in parts]) if sustained is None else sustained
    highest = _sum([part.peak_watts for part in parts]) if peak is None else peak
    # What was measured was measured at the wall.
    billed = _sum([part.wall_watts for part in parts]) if sustained is None else sustained
    prices = _prices(parts)
    hours = math.inf if watts is None else hours_to_drain(watts, place.ev_kwh)
    return Report(
        source=source,
        nodes=len(parts),
        roles=dict(sorted(roles.items(), key=lambda role: (role[0] not in _PREFERRED, role))),
        gpus=dict(models.most_common()),
        mixed=len(models) > 1,
        memory_gb=round(sum(gb for _, gb in pools), 1),
        pools=tuple(pools),
        verdict=verdict,
        verdict_reason=reason,
        sustained_watts=None if watts is None else round(watts, 1),
        peak_watts=None if highest is None else round(highest, 1),
        committed_watts=None if committed is None else round(committed, 1),
        homes=None if watts is None else homes(watts, place.home_watts),
        home_watts=place.home_watts,
        ev_hours=hours if math.isfinite(hours) else None,
        ev_kwh=place.ev_kwh,
        currency=place.currency,
        pue=place.pue,
        g_per_kwh=place.g_per_kwh,
        price_usd=prices.total,
        prices=prices,
        wall_watts=None if billed is None else round(billed, 1),
        month=None if billed is None else at_draw(billed, MONTH_HOURS, place),
    )


def classify(pools: Sequence[tuple[int, float]]) -> tuple[str, str]:
    """Return `cluster` or `pile`, and why: whether most GPUs reach another's memory over a link."""
    total = sum(gpus for gpus, _ in pools)
    linked = [pool for pool in pools if pool[0] > 1]
    together = sum(gpus for gpus, _ in linked)
    if not total:
        return "pile", "there are no GPUs"
    if not linked:
        apart = (
            "the GPU is not in a pool" if total == 1 else f"none of {total} GPUs reaches another's memory over a link"
        )
        return "pile", apart
    largest = max(gb for _, gb in linked)
    reason = (
        f"{together} of {total} GPUs share memory over links, in {len(linked)} "
        f"{'pool' if len(linked) == 1 else 'pools'} of up to {quoted(largest, 'GB')}"
    )
    return "cluster" if 2 * together > total else "pile", reason


def at_draw(watts: float, hours: float, place: SiteConfig) -> Upkeep:
    """Return energy and cost of a constant draw."""
    kwh = watts * hours / 1000
    price = mean_price(place.tariff, place.tariffs)
    return Upkeep(
        basis="sustained draw",
        hours=hours,
        kwh=round(kwh, 1),
        cost=None if price is None else round(kwh * place.pue * price, 2),
        co2_kg=round(carbon_kg(kwh, place.g_per_kwh, place.pue), 1),
    )


def times_cheaper(one: Report, other: Report) -> float | None:
    """Return by which factor `other` costs less than `one`; None when a price is not known."""
    if one.price_usd is None or not other.price_usd:
        return None
    return one.price_usd / other.price_usd


def _prices(parts: Sequence[ReportPart]) -> Prices:
    rates = [
        None if part.hourly_rate is None else part.hourly_rate * sum(part.gpus.values()) for part in parts if part.gpus
    ]
    apart = [part for part in parts if part.gpu_price is not None or part.host_price is not None]
    return Prices(
        total=_all([part.price for part in parts]),
        gpus=_all([part.gpu_price for part in apart]) if apart else None,
        hosts=_all([part.host_price for part in apart]) if apart else None,
        hourly=_all(rates),
    )


def _all(values: Sequence[float | None]) -> float | None:
    """Return the sum; None when a value is missing."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _sum(values: Sequence[float]) -> float | None:
    known = [value for value in values if math.isfinite(value)]
    return math.fsum(known) if known else None
