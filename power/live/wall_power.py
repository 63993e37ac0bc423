"""Wall power of every node, from its best fresh source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from power.devices.wall_power import COMMITTED_SECONDS, SIGMA_RATIO, STALE_PENALTY, WallSource
from power.live.calibration import WallCalibrator
from power.live.inputs import PowerInputs
from power.live.last_measured import LastMeasured
from power.live.metering import NODE, RANK, SOURCES, Metering, stale_after
from power.network.curves import EfficiencyCurves
from power.network.flow import Ints
from power.network.topology import SiteTopology
from power.site.machine import CPU_SHARE, HOST_WATTS, Machine
from power.wiring import Flags, Floats

SILENT_INTERVALS, SILENT_LEAST = 3.0, 10.0
"""Time after which a node is silent: in its intervals, and at least in seconds."""
IDLE_SHARE = 0.48
"""Idle over full power of a host: 120 of 250 W of a desktop."""
_LEAST_HOST = 50.0
_SERVER_GPUS, _SERVER_WATTS, _SERVER_HOST = 8, 600.0, 0.8
"""An unconfigured node with so many GPUs of more than so many watts is a server; its fans, switches and
processors draw this part of its GPUs' limits: 4.6 of 5.6 kW on a DGX H100."""
Behind = Sequence[tuple[Ints, float, float]]
_SIGMAS = np.array([SIGMA_RATIO[source] for source in SOURCES])
_BMC, _UPS, _MODEL, _COMMITTED = (
    RANK[s] for s in (WallSource.BMC, WallSource.UPS, WallSource.MODEL, WallSource.COMMITTED)
)


@dataclass(frozen=True, slots=True)
class WallPower:
    """Power of all machines; arrays over machines, watts at the wall, NaN where nothing is known."""

    watts: Floats
    sigma: Floats
    rank: Ints
    """Of the source, as `power.snapshot.quantities.SOURCES` numbers them."""
    stale: Flags
    """Whether a meter of the machine is stale."""
    degraded: Flags
    """A better source is stale, or the node is silent and without a meter."""
    held: Floats
    """Power once silent nodes are back: never less than their last draw."""
    drawn: Floats
    """Power with silent nodes at their last draw, and unread GPUs at theirs: without what they may draw more."""
    committed: Floats
    """Power commitment: what the limits in force allow."""
    metered: Floats
    """Watts by a fresh meter; NaN without one."""
    modelled: Floats
    """Sum of GPUs and host, calibrated where a meter has provided a fit."""
    silent: Flags
    limit_watts: Floats
    """Sum of the GPUs' limits in force."""
    gpus: Floats
    floor_watts: Floats
    """Lowest cap per GPU; NaN where not known."""
    described: Flags
    """Whether the machine is known by its configured watts alone."""
    assumed: Floats
    """Assumed part of `watts`: a silent node without a meter, unread GPUs, what a silent meter knew."""
    surplus: Floats
    """Part of `assumed` above the node's last fully reported draw."""
    last_known: Floats
    """Part of `assumed` that is the node's last draw, or its meter's last reading, not what it may draw."""
    silent_meters: Floats
    """Part of `assumed` that only a silent meter of the node knew."""
    expired: Floats
    """Part of that which is too old to be the last known: unknown."""
    last_read: Floats
    """Watts by the last reading of a silent meter, moved as the model has since: where the model was too high, less than
    `watts`. NaN where a meter reads the machine, or none ever did."""
    unread: Flags
    """Whether a meter has measured the machine, itself or before it in a UPS, and does not report, or is not used."""
    unheard: Floats
    """`watts` of the machines that kilowatch itself does not hear; where nothing is known of one, the mean
    of all. 0 for the others."""


class WallPowerModel:
    """Model of the machines' wall power: their data as arrays, and the last known values."""

    def __init__(self, machines: Mapping[str, Machine]) -> None:
        all_ = list(machines.values())
        count = len(all_)
        self.curves = EfficiencyCurves(all_)
        self.calibration = WallCalibrator(count)
        self._known = np.array([m.known for m in all_], dtype=bool)
        self._catalogue_gpus = np.array([float(m.gpus) for m in all_])
        self._limit = np.array([m.limit_watts for m in all_], dtype=float)
        self._floor = np.array([np.nan if m.floor_watts is None else m.floor_watts for m in all_], dtype=float)
        self._fixed = np.array(
            [m.fixed_watts if m.known and not m.gpus and not m.host_watts else np.nan for m in all_], dtype=float
        )
        """Watts of machines that are described by their watts alone."""
        self._inside_fixed = self.curves.inside(self._fixed)
        self._host = np.array([m.host_watts or HOST_WATTS for m in all_], dtype=float)
        self._cpu_share = np.array([m.cpu_share if m.known else CPU_SHARE for m in all_], dtype=float)
        self.last = np.full(count, np.nan)
        """Last reported watts of each machine."""
        self._whole = np.full(count, np.nan)
        """Last reported watts of each machine with all its GPUs read."""
        self._last_sigma = np.full(count, np.nan)
        self._last_rank = np.full(count, _MODEL, dtype=np.int64)
        self._silent = np.zeros(count, dtype=bool)
        self._at_limits: tuple[Floats, Floats] | None = None
        """Last commitment: watts inside the case, and at the wall."""
        self.limits = np.full(count, np.nan)
        """Last reported sum of limits of each machine."""
        self.gpus = np.full(count, np.nan)
        self.measured = LastMeasured(count)

    def forget(self, row: int) -> None:
        """Forget the last known values of a machine."""
        for known in (self.last, self._whole, self._last_sigma, self.limits, self.gpus):
            known[row] = np.nan
        self._last_rank[row] = _MODEL
        self._silent[row] = False
        self.measured.forget(row)

    def estimate(
        self,
        tick: PowerInputs,
        topology: SiteTopology,
        metering: Metering,
        now: float,
        ups: Behind = (),
        expected: Flags | None = None,
    ) -> WallPower:
        """Return the wall power of all machines, and remember it for when they fall silent.

        `ups`: machines behind each UPS with a fresh reading, its output watts and time. `expected`: machines
        with a configured meter, or behind a UPS with one.
        """
        silent = self._silence(tick)
        limit, gpus = self._limits(tick)
        described = ~np.isnan(self._fixed) & ~(gpus > 0)
        host = self._hosts(limit, gpus)
        modelled, own, counted_host, unread = self._model(tick, limit, gpus, host)
        modelled = np.where(described, self._fixed, np.where(silent, np.nan, modelled))
        own = np.where(silent, np.nan, own)
        committed = np.where(described, self._fixed, self._commitment(tick, limit, gpus, host))
        metered, rank, degraded, read_at = self._meters(tick, topology, metering, now, silent)
        lesson = np.where(tick.gpus_unread > 0, np.nan, own)
        self.calibration.learn(now, lesson, counted_host, metered)
        modelled, sigma_model = self._calibrated(modelled, own, counted_host)
        # The meter of its circuit holds by itself what is beyond the model.
        self.measured.forget(~np.isnan(metered) & ~np.isfinite(read_at))
        metered, rank, read_at = _behind_ups(ups, modelled, metered, rank, read_at)
        self.measured.learn(read_at, metered, modelled)

        has_meter = ~np.isnan(metered)
        watts = np.where(has_meter, metered, modelled)
        rank = np.where(has_meter, rank, _MODEL)
        sigma = np.where(has_meter, _SIGMAS[rank] * watts, sigma_model)
        sigma = sigma + np.where(degraded, STALE_PENALTY * watts, 0.0)
        spoken = ~np.isnan(watts) & (has_meter | ~silent)
        self.last = np.where(spoken & ~silent, watts, self.last)
        self._last_sigma = np.where(spoken & ~silent, sigma, self._last_sigma)
        self._last_rank = np.where(spoken & ~silent, rank, self._last_rank)

        lately = (tick.silent_seconds <= COMMITTED_SECONDS) | np.isnan(self.last)
        kept = np.where(lately & ~np.isnan(committed), committed, self.last)
        missing = ~has_meter & self._expected(metering, expected)
        # What only the meter of a node knew that is heard itself is held below, as its meter's.
        kept = np.where(missing & ~silent & np.isnan(committed) & self.measured.known, np.nan, kept)
        lost = ~spoken
        watts = np.where(lost, kept, watts)
        old_sigma = STALE_PENALTY * self.last + self._last_sigma
        sigma = np.where(lost, np.where(lately, SIGMA_RATIO[WallSource.COMMITTED] * kept, old_sigma), sigma)
        rank = np.where(lost, np.where(lately, _COMMITTED, self._last_rank), rank)
        assumed = np.where(lost, _or_zero(watts), np.where(has_meter, 0.0, unread * watts))
        self._whole = np.where(spoken & ~silent & (unread == 0), watts, self._whole)
        before = np.where(np.isnan(self._whole), self.last, self._whole)
        surplus = np.clip(_or_zero(watts - before), 0.0, assumed)
        last_known = np.where(lost & ~lately, assumed, 0.0)
        quiet = self.measured.held(now, watts, modelled, missing)
        more = quiet.watts > 0
        watts = np.where(more, _or_zero(watts) + quiet.watts, watts)
        sigma = np.where(more, np.hypot(_or_zero(sigma), quiet.sigma), sigma)
        assumed, last_known = assumed + quiet.watts, last_known + quiet.watts - quiet.expired
        held = np.where(silent, np.fmax(watts, kept), watts)
        drawn = np.where(silent, np.fmax(watts - surplus, before), watts - surplus)
        committed = np.fmax(committed, held)  # what is drawn can be drawn
        floor = np.where(np.isnan(tick.floor_watts), self._floor, tick.floor_watts)
        return WallPower(
            watts,
            sigma,
            rank.astype(np.int64),
            degraded,
            degraded | lost,
            held,
            drawn,
            committed,
            metered,
            modelled,
            silent,
            limit,
            gpus,
            floor,
            described,
            assumed,
            surplus,
            last_known,
            quiet.watts,
            quiet.expired,
            self.measured.last_read(watts - surplus, missing),
            degraded | (missing & self.measured.known),
            _unheard(tick, watts),
        )

    def _hosts(self, limit: Floats, gpus: Floats) -> Floats:
        """Return the watts of everything but the GPUs at full load, inside."""
        # A machine that is described by its watts and turns out to have GPUs: the rest is its host.
        rest = np.maximum(self._inside_fixed - limit, _LEAST_HOST)
        host = np.where(~np.isnan(self._fixed) & (gpus > 0) & ~np.isnan(limit), rest, self._host)
        with np.errstate(invalid="ignore"):
            server = ~self._known & (gpus >= _SERVER_GPUS) & (limit > _SERVER_WATTS * gpus)
        found: Floats = np.where(server, _SERVER_HOST * limit, host)
        return found

    def _expected(self, metering: Metering, configured: Flags | None) -> Flags:
        """Return the machines with a meter of their own, which may have fallen silent."""
        found = self.measured.own.copy()
        found[metering.whole("target")[metering.whole("kind") == NODE]] = True
        return found if configured is None else found | configured

    def _silence(self, tick: PowerInputs) -> Flags:
        if tick.listening:
            silent_after = np.maximum(SILENT_INTERVALS * tick.interval, SILENT_LEAST)
            self._silent = tick.silent_seconds > silent_after
        else:  # without the bus no node falls silent, and those that reported count
            self._silent = self._silent & (tick.silent_seconds > SILENT_LEAST)
        # A switch that is described by its watts runs no collector and is not missed.
        self._silent &= ~(np.isinf(tick.silent_seconds) & ~np.isnan(self._fixed))
        return self._silent

    def _limits(self, tick: PowerInputs) -> tuple[Floats, Floats]:
        self.limits = np.where(np.isnan(tick.gpu_limit_watts), self.limits, tick.gpu_limit_watts)
        self.gpus = np.where(np.isnan(tick.gpus), self.gpus, tick.gpus)
        gpus = np.where(np.isnan(self.gpus), np.where(self._known, self._catalogue_gpus, np.nan), self.gpus)
        by_model = np.where(self._known, self._limit * gpus, np.nan)
        # No GPU, no limit; GPUs without a limit of driver or catalogue: not known.
        by_model = np.where((gpus > 0) & (self._limit == 0), np.nan, by_model)
        by_model = np.where(gpus == 0, 0.0, by_model)
        return np.where(np.isnan(self.limits), by_model, self.limits), gpus

    def _model(
        self, tick: PowerInputs, limit: Floats, gpus: Floats, host: Floats
    ) -> tuple[Floats, Floats, Flags, Floats]:
        """Return wall watts, the node's own watts inside, whether those contain the host's, and the part
        of them that is limits of unread GPUs."""
        gpu, unread = _gpu_watts(tick, limit, gpus)
        with np.errstate(invalid="ignore", divide="ignore"):
            used = np.clip(np.where(limit > 0, gpu / limit, 0.0), 0.0, 1.0)
        followed = IDLE_SHARE + (1 - IDLE_SHARE) * used
        counted_host = ~np.isnan(tick.host_watts) & ~tick.module_scope
        cpu = np.where(counted_host, tick.host_watts, host * self._cpu_share * followed)
        cpu = np.where(tick.module_scope, 0.0, cpu)
        inside = gpu + cpu + host * (1 - self._cpu_share) * followed
        own = gpu + np.where(counted_host, cpu, 0.0)
        part = np.where(unread > 0, unread / np.maximum(inside, 1.0), 0.0)
        return self.curves.wall(inside), own, counted_host, part

    def _commitment(self, tick: PowerInputs, limit: Floats, gpus: Floats, host: Floats) -> Floats:
        whole = np.where(tick.module_scope, host * (1 - self._cpu_share), host)
        return np.where(np.isnan(gpus), np.nan, self._at_the_limits(limit + whole))

    def _at_the_limits(self, inside: Floats) -> Floats:
        """Return watts at the wall of limits, which rarely change: computed again for machines where they have."""
        if self._at_limits is None:
            found = self.curves.wall(inside)
        else:
            before, found = self._at_limits
            changed = ~((before == inside) | (np.isnan(before) & np.isnan(inside)))
            if changed.any():
                found = self.curves.wall_again(found, inside, changed)
        self._at_limits = inside, found
        return found

    def _calibrated(self, wall: Floats, own: Floats, counted_host: Flags) -> tuple[Floats, Floats]:
        offset, slope, spread, valid = self.calibration.fits()
        with np.errstate(invalid="ignore"):
            use = valid & (counted_host == self.calibration.with_host) & ~np.isnan(own)
            taught = np.where(use, np.maximum(offset + slope * own, 0.0), wall)
        sigma = np.where(use, np.maximum(spread, 0.01 * taught), _SIGMAS[_MODEL] * taught)
        return taught, sigma

    def _meters(
        self, tick: PowerInputs, topology: SiteTopology, metering: Metering, now: float, silent: Flags
    ) -> tuple[Floats, Ints, Flags, Floats]:
        """Return watts by the best fresh meter of each node, its rank, where a better one is stale, and the
        time of the newest reading of the node's own meters; -inf without one."""
        count = len(tick.gpu_watts)
        watts = np.full(count, np.nan)
        rank = np.full(count, _MODEL, dtype=np.int64)
        degraded = np.zeros(count, dtype=bool)
        kind, target, ranks = (metering.whole(name) for name in ("kind", "target", "rank"))
        reported, fresh = metering.number("watts"), metering.fresh(now)
        # The meter of a circuit that feeds one node and nothing else is the node's.
        only = topology.single_feed[np.where(kind == NODE, 0, target)]
        whole_circuit = (kind != NODE) & (metering.whole("pole") < 0) & (only >= 0)
        machine = np.where(kind == NODE, target, only)
        usable = ((kind == NODE) | whole_circuit) & ~np.isnan(reported)
        own_fresh = tick.wall_age <= stale_after(tick.wall_period)
        used = own_fresh & ~silent & (metering.own_faults == 0)
        own = np.where(used, np.abs(tick.wall_watts), np.nan)
        read_at = np.where(np.isnan(own), -np.inf, now - tick.wall_age)
        plugs = usable & fresh & (kind == NODE)
        self.measured.own = np.where(np.isnan(own), self.measured.own, True)
        np.maximum.at(read_at, target[plugs], metering.number("at")[plugs])
        for number in range(_MODEL):
            pick = usable & (ranks == number)
            if number != _BMC and not pick.any():
                continue
            good = pick & fresh
            # A circuit's meter beside the node's own is a second look at the same watts, no further outlet.
            mine = np.bincount(machine[good & (kind == NODE)], minlength=count) > 0
            if mine.any():
                pick = pick & ((kind == NODE) | ~mine[machine])
                good = good & pick
            total = np.bincount(machine[good], reported[good], count)
            heard = np.bincount(machine[good], minlength=count)
            stale = np.bincount(machine[pick & ~fresh], minlength=count) > 0
            total = np.where(heard > 0, total, np.nan)
            if number == _BMC:
                total = np.where(np.isnan(total), own, total)
                stale = stale | (~np.isnan(tick.wall_watts) & ~own_fresh & ~silent)
            # Some of a node's outlets without the others are no sum.
            take = np.isnan(watts) & ~np.isnan(total) & ~(stale & (heard > 0))
            degraded |= np.isnan(watts) & stale
            watts, rank = np.where(take, total, watts), np.where(take, number, rank)
        return watts, rank, degraded, read_at


def _or_zero(values: Floats) -> Floats:
    """Return values with 0 for what is not known; `nan_to_num` looks for infinities too."""
    found: Floats = np.where(np.isnan(values), 0.0, values)
    return found


def _unheard(tick: PowerInputs, watts: Floats) -> Floats:
    """Return the watts of the machines that kilowatch itself does not hear."""
    if tick.unheard is None or not tick.unheard.any():
        return np.zeros(len(watts))
    known = watts[~np.isnan(watts)]
    typical = float(known.mean()) if len(known) else 1.0
    found: Floats = np.where(tick.unheard, np.where(np.isnan(watts), typical, watts), 0.0)
    return found


def _gpu_watts(tick: PowerInputs, limit: Floats, gpus: Floats) -> tuple[Floats, Floats]:
    """Return the watts of all GPUs, and the assumed part of them: a lost or unread GPU counts with its
    limit."""
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(gpus > 0, tick.gpus_unread / gpus, 0.0)
        unread = np.where(np.isnan(tick.unread_limit_watts), limit * share, tick.unread_limit_watts)
        unread = np.where(tick.gpus_unread > 0, unread, 0.0)
        none_read = (tick.gpus_unread >= gpus) | (gpus == 0)
    read: Floats = np.where(none_read, _or_zero(tick.gpu_watts), tick.gpu_watts)
    return read + unread, unread


def _behind_ups(
    ups: Behind, modelled: Floats, metered: Floats, rank: Ints, read_at: Floats
) -> tuple[Floats, Ints, Floats]:
    """Distribute the output of a UPS, less the metered machines, over the machines without a meter."""
    for members, watts, at in ups:
        rest = members[np.isnan(metered[members])]
        parts = modelled[rest]
        if not len(rest) or np.isnan(parts).any() or parts.sum() <= 0:
            continue
        left = max(watts - float(np.nansum(metered[members])), 0.0)
        metered, rank, read_at = metered.copy(), rank.copy(), read_at.copy()
        metered[rest], rank[rest], read_at[rest] = left * parts / parts.sum(), _UPS, at
    return metered, rank, read_at
