"""Counted energy of all nodes at the wall: energy and cost by day, and in the month the idle GPUs and the nodes on no circuit.

Circuits count themselves in the month.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from aggregator.electrical.energy_sampler import EnergySampler, local
from aggregator.electrical.month_parts import EnergyElsewhere
from aggregator.electrical.site_loader import LoadedSite
from power.report.energy import GAP_PERIODS, JOULES_PER_KWH
from power.report.energy_ledger import EnergyLedger, EnergySample
from power.report.month_ledger import UNMAPPED, MonthLedger
from power.site.layout import SiteLayout
from power.site.tariff import price_at
from power.wiring import Floats
from telemetry.fleet import Fleet

log = logging.getLogger(__name__)


class UnmappedNodes:
    """The nodes of the fleet on no circuit of the configuration."""

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()
        self.version = -1
        """Version of the fleet that `names` are of: at another one they are to be updated."""
        self._logged: set[str] = set()

    def renew(self) -> None:
        """Have them found again: the circuits may be others."""
        self.version = -1

    def update(self, fleet: Fleet, layout: SiteLayout | None) -> None:
        """Find them, and log each once; none without circuits."""
        self.version = fleet.version
        self.names = () if layout is None else tuple(sorted(fleet.nodes.keys() - layout.machines.keys()))
        fresh = [name for name in self.names if name not in self._logged]
        if fresh:
            self._logged.update(fresh)
            more = f" and {len(fresh) - 5} more" if len(fresh) > 5 else ""
            log.info(
                "power: %s%s hang on no circuit; name them in a circuit's nodes, and what they draw counts",
                ", ".join(fresh[:5]),
                more,
            )

    def forget(self, node: str) -> None:
        """Log a node again should it come back."""
        self._logged.discard(node)


class SharedEnergy(Protocol):
    """The sums of all aggregators of a cluster."""

    def joined(self, sample: EnergySample, now: float) -> EnergySample:
        """Return the sample of all nodes for that of our own, which has its sums by node."""


class EnergyCounter:
    """Samples of the watts at the wall, and what they add up to."""

    def __init__(self, months: MonthLedger, site: LoadedSite, shared: SharedEnergy | None = None) -> None:
        """`shared`: of several aggregators, each of which counts all nodes."""
        self._shared = shared
        self.elsewhere: EnergyElsewhere | None = None
        """Energy known to other aggregators; None for a single one."""
        self._months = months
        self._site = site
        self._sampler = EnergySampler(site.config.nodes)
        self.ledger = EnergyLedger()
        """Energy and cost by day, and the watts of now."""
        self.reporting_nodes = 0
        """Nodes whose power at the wall was known at the last sample."""
        self._node_watts: tuple[tuple[str, ...], Floats] = (), np.zeros(0)
        self._counted_at = -np.inf

    def follow(self, site: LoadedSite) -> None:
        """Go on by a new configuration."""
        last = self._sampler.unmapped()
        self._site, self._sampler = site, EnergySampler(site.config.nodes)
        self._sampler.last_unmapped = last

    def restore(self, ledger: EnergyLedger, unmapped: Mapping[str, float]) -> None:
        """Go on with what a checkpoint had. `unmapped`: what nodes on no circuit drew last, W."""
        self.ledger = ledger
        self._sampler.last_unmapped = dict(unmapped)

    def unmapped(self) -> dict[str, float]:
        """Return what nodes on no circuit drew last, W."""
        return self._sampler.unmapped()

    def forget(self, node: str) -> None:
        """Forget what a node that was removed drew last."""
        self._sampler.forget(node)

    def sample(self, fleet: Fleet, now: float, machines: tuple[str, ...], wall_watts: Floats | None) -> EnergySample:
        """Return what the nodes draw. `machines`: those on circuits; `wall_watts`: what the circuits know of them, W."""
        shared = self._shared
        sample = self._sampler.sample(fleet, now, machines, wall_watts, by_node=shared is not None)
        self._node_watts = sample.node_names, sample.node_watts
        if shared is not None:
            sample = shared.joined(sample, now)
        self.reporting_nodes = sample.nodes
        return sample

    def count(self, sample: EnergySample, now: float, wall_ns: int, unmapped: Sequence[str] | None) -> None:
        """Add a sample to the day and the month. `unmapped`: nodes on no circuit; None where there are no circuits."""
        place = self._site.config.site
        day, minute = local(wall_ns, self._site.zone)
        price = price_at(place.tariff, place.tariffs, minute)
        self.ledger.add(sample, wall_ns / 1e9, day, 1.0, price)
        self._count_month(sample, now, wall_ns / 1e9, price, unmapped)

    def _count_month(
        self, sample: EnergySample, now: float, wall: float, price: float | None, unmapped: Sequence[str] | None
    ) -> None:
        """Add the nodes on no circuit and the idle GPUs to the month; the circuits add themselves."""
        seconds, self._counted_at = now - self._counted_at, now
        profile = self._months.at(wall)
        if unmapped is None:
            profile.end([name for name in profile.names if name != UNMAPPED], wall)
        if seconds > GAP_PERIODS:  # the first sample, or one after a gap
            return
        self._count_unmapped(sample, seconds, wall, unmapped)
        if len(sample.node_idle):
            known, idle, joules = (seconds * sample.node_idle).T
            money = joules / JOULES_PER_KWH * (price or 0.0)
            rows = self._months.idle.rows(sample.node_names)
            self._months.idle.add(rows, np.stack([known, idle, joules, money], axis=1))

    def _count_unmapped(
        self, sample: EnergySample, seconds: float, wall: float, unmapped: Sequence[str] | None
    ) -> None:
        """Add the nodes on no circuit. Their row ends when there are none; what silent ones drew last stands
        in for them beside those that report."""
        watts, silent = sample.unmapped_watts, sample.silent_watts
        if not sample.whole:  # there may be some
            return
        others = self._shared is not None and math.isfinite(watts)
        if unmapped is not None and not unmapped and not others and not silent:
            self._months.at(wall).end([UNMAPPED], wall - seconds)
            return
        for profile in self._months.between(wall - seconds, wall):
            rows = profile.rows([UNMAPPED], wall - seconds)
            known = np.array([math.isfinite(watts)])
            profile.add(rows, wall, seconds, np.array([watts * seconds]), known, np.array([np.nan]))
            if silent and known[0]:
                profile.stand_in(UNMAPPED, wall, seconds, silent * seconds)

    def node_watts(self) -> Mapping[str, float]:
        """Return the watts at the wall by node, as sampled last; NaN where not known."""
        names, watts = self._node_watts
        return dict(zip(names, watts.tolist(), strict=False))

    def price(self, wall_ns: int) -> float | None:
        """Return the price of a kWh at a time, in the currency of the site; None without a tariff."""
        place = self._site.config.site
        return price_at(place.tariff, place.tariffs, local(wall_ns, self._site.zone)[1])
