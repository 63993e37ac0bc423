"""Measured figures of a running cluster's report, from its ledger."""

from __future__ import annotations

from api.report import IdleReport, Report, Upkeep
from power.report.energy import JOULES_PER_KWH, carbon_kg
from power.report.energy_ledger import Day
from power.site.config import SiteConfig

LIFE_HOURS_A_YEAR = 8766.0


def measured(day: Day, place: SiteConfig) -> Upkeep | None:
    """Return energy and cost of a ledger's days; None before anything was measured."""
    if day.seconds <= 0:
        return None
    kwh = day.joules / JOULES_PER_KWH
    priced = day.priced_joules >= 0.999 * day.joules
    return Upkeep(
        basis="measured",
        hours=round(day.seconds / 3600, 4),
        kwh=round(kwh, 4),
        gpu_kwh=round(day.gpu_joules / JOULES_PER_KWH, 4) if day.gpu_joules else None,
        cost=round(day.cost * place.pue, 4) if priced and day.joules else None,
        co2_kg=round(carbon_kg(kwh, place.g_per_kwh, place.pue), 4),
        estimated_ratio=round(day.estimated_seconds / day.seconds, 4),
        unknown_hours=round(day.unknown_seconds / 3600, 4),
    )


def utilisation(day: Day) -> float | None:
    """Return the mean utilisation of all GPUs that reported it; None when none did."""
    return round(day.busy_gpu_seconds / day.gpu_seconds, 4) if day.gpu_seconds else None


def idle(day: Day, report: Report, place: SiteConfig) -> IdleReport | None:
    """Return hours and cost of idle GPUs; None when no GPU reported its utilisation."""
    if not day.gpu_seconds:
        return None
    hours = day.idle_gpu_seconds / 3600
    gpus = sum(report.gpus.values())
    priced = day.priced_joules > 0
    energy = day.idle_cost * place.pue if priced else None
    if report.prices.hourly is not None and gpus:
        rate, basis = report.prices.hourly / gpus, "hourly rate"
    elif report.price_usd is not None and gpus and place.currency == "USD":  # one sum, one money
        rate = report.price_usd / gpus / (place.life_years * LIFE_HOURS_A_YEAR)
        basis = "price over life"
    else:
        rate, basis = 0.0, "energy only"
    known = rate > 0 or energy is not None
    return IdleReport(
        gpu_hours=round(hours, 4),
        ratio=round(day.idle_gpu_seconds / day.gpu_seconds, 4),
        kwh=round(day.idle_joules / JOULES_PER_KWH, 4),
        cost=round(hours * rate + (energy or 0.0), 4) if known else None,
        cost_basis=basis if known else "not known: write tariff, hourly_rate or prices",
    )
