"""The bill of a month of a running cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from aggregator.electrical.energy_sampler import zone_text
from aggregator.electrical.month_parts import MonthElsewhere, add_idle, merge_part
from aggregator.electrical.service import ElectricalService
from api.bill import MonthBill
from power.report.bill import billed_rows, month_bill, without
from power.report.load_profile import LoadProfile
from power.report.month_ledger import NodeIdle
from power.report.months import month_at, month_named
from power.site.config import BillConfig
from telemetry.errors import ConfigError


def bill(electrical: ElectricalService, name: str | None, wall_ns: int) -> MonthBill:
    """Return the bill of a month, of the present one for None, by today's tariff and contract.

    Raises `ConfigError` for what is no month, and for one of which nothing is stored.
    """
    return bill_of(electrical, name, wall_ns)()


def month_held(electrical: ElectricalService, name: str) -> Callable[[], tuple[LoadProfile, NodeIdle]]:
    """Return the function that returns a month of one's own, which may read a file: another thread may call it.
    Raises `ConfigError` for what is no month."""
    zone, files = electrical.site.zone, electrical.months.files
    month_named(name, zone)
    for profile, idle in electrical.months.ledger.held():
        if profile.month.name == name:
            copies = profile.copied(), idle.copied()
            return lambda: copies
    return lambda: files.load(name, zone)


def bill_of(
    electrical: ElectricalService, name: str | None, wall_ns: int, elsewhere: MonthElsewhere | None = None
) -> Callable[[], MonthBill]:
    """Return the function that computes the bill of a month, which takes seconds for thousands of circuits:
    another thread may call it. `elsewhere`: what other aggregators know of it. Raises what `bill` raises."""
    site, zone = electrical.site, electrical.site.zone
    now = wall_ns / 1e9
    month = month_at(now, zone) if name is None else month_named(name, zone)
    terms, place = site.config.bill, site.config.site
    others = elsewhere or MonthElsewhere()
    held: tuple[LoadProfile, NodeIdle] | None = None
    for profile, idle in electrical.months.ledger.held():
        if profile.month.name == month.name:
            held = profile.copied(billed_rows(terms, site.layout, profile)), idle.copied()
    stored = electrical.months.files.names()
    there = held is not None or month.name in stored or any(part.rows or part.idle for part in others.parts)
    if not there and name is not None:
        known = f"Stored: {', '.join(stored[-12:])}." if stored else "The first is written within 15 minutes."
        raise ConfigError(f"month {name}", "nothing is stored of it", known)
    past_peaks = electrical.months.past_peaks(month.name)

    def compute() -> MonthBill:
        profile, idle = held or electrical.months.files.load(month.name, zone)
        for part in others.parts:
            with contextlib.suppress(ValueError):  # of another release
                for _ in merge_part(profile, part):
                    pass
            add_idle(idle, part)
        found = month_bill(
            profile,
            idle,
            min(now, float(profile.month.end)),
            place=place,
            terms=terms or BillConfig(),
            rows=billed_rows(terms, site.layout, profile),
            past_peaks=past_peaks(),
            timezone=zone_text(zone, configured=place.timezone is not None),
        )
        return without(found, others.missing)

    return compute
