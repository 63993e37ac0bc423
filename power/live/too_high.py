"""Meters that read more than can be: more than their machine may draw, than their breaker lets through, or volts of no mains.

A breaker is the witness that never falls silent: it carries no load for longer than the latest edge of its band. Until then an
overload is believed, and pages.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from power.devices.thermal import cold, seconds_to_trip
from power.live.inputs import PowerInputs
from power.live.loads import over_nominal
from power.live.metering import NODE, Metering
from power.network.flow import Ints
from power.network.topology import SiteTopology
from power.site.machine import HOST_WATTS
from power.wiring import Flags, Floats
from present.units import amperes, exact_watts, volts
from telemetry.text import estimated_duration

FAR_OVER, FAR_WATTS = 4.0, 10_000.0
"""A machine draws neither as many times what its GPUs' limits and its host come to, nor so many watts more than that."""
AT_THE_WALL = 1.15
"""Watts at the wall for one inside, at most."""
SHORT = 30.0
"""Times a breaker's rating from which on a current is a short circuit, which lasts for no two readings."""
MARGIN = 1.25
"""Part of the time to the latest trip after which a breaker would have opened: bands of old breakers are wider."""
LEAST_SECONDS = 6.0
"""Least time that an overload must last: a reading is a mean over seconds."""
RESTS_SECONDS = 600.0
"""Time below its rating in which a breaker that had nearly opened rests."""
_VOLTS = (0.3, 1.8)
"""Measured over nominal volts of any mains; a lost neutral of three phases makes 1.73."""
_UNITS = ((1000.0, "W taken for kW?"), (100.0, "without its decimals?"), (10.0, "a digit too many?"))
_PLAUSIBLE = (0.1, 1.3)
"""Part of what it may draw that a machine draws, to guess what a reading was meant to be."""
_MILLIAMPS = "mA taken for A?"
_VOLT_UNITS = (
    (1000.0, "mV taken for V?"),
    (100.0, "without its decimals?"),
    (10.0, "a digit too many?"),
    (2.0, "between two lines?"),
    (0.1, "a digit too few?"),
    (0.001, "kV taken for V?"),
)
_NEAR_NOMINAL = (0.8, 1.2)
"""Measured over nominal volts of mains, to guess the same of volts."""


class TooHighReason(IntEnum):
    """Reason why a reading can't be; 0 where it can."""

    NO = 0
    MACHINE = 1
    SHORT = 2
    BREAKER = 3
    VOLTS = 4


class TooHigh:
    """Upper bounds of each meter's reading; slots as in `Metering`."""

    def __init__(self, topology: SiteTopology, committed: Floats) -> None:
        """`committed`: most that each machine draws by the configuration, watts; NaN where that says nothing."""
        self._topology = topology
        self._committed = committed
        network = topology.network
        carried = network.effective * topology.volts * topology.power_factor * topology.poles.sum(axis=1)
        self._carried: Floats = np.bincount(
            network.cord_machine, carried[network.cord_circuit], len(network.machines)
        ).astype(float)
        """Watts that the breakers before each machine carry."""
        self._burnt: Floats = np.zeros(0)
        """Part of the time to the latest trip that each slot's overload has lasted."""
        self._at: float | None = None
        self.reasons: Ints = np.zeros(0, np.int64)
        self._possible_since: Floats = np.zeros(0)
        """Monotonic time since which each slot's reading can be; NaN while it can't."""
        self._most: Floats = np.zeros(0)
        """Watts that each slot's machine may draw; NaN for circuits."""
        self._ratio: Floats = np.zeros(0)
        """Current of each slot over its breaker's rating."""

    def find(self, now: float, tick: PowerInputs, metering: Metering, reporting: Flags) -> Flags:
        """Return the slots whose reading can't be; `reasons` says why."""
        count = len(metering)
        seconds = 0.0 if self._at is None else max(0.0, now - self._at)
        self._at = now
        more = count - len(self._burnt)
        self._burnt = np.concatenate([self._burnt, np.zeros(more)])
        self._possible_since = np.concatenate([self._possible_since, np.full(more, np.nan)])
        node, target = metering.whole("kind") == NODE, metering.whole("target")
        self._most, limits = (_of(node, target, of) for of in (self._machines(tick), self._limits(tick)))
        watts = metering.number("watts")
        self._ratio = self._over_rating(metering, node, target)
        ratio = np.where(reporting, self._ratio, 0.0)
        with np.errstate(invalid="ignore"):
            machine = watts > limits
            short = ratio > SHORT
            self._burn(seconds, ratio, target, ~short)
            breaker = (self._burnt > MARGIN) & (ratio > 1.0)
            measured = self._volts_over_nominal(metering, node, target)
            wrong_volts = (measured > _VOLTS[1]) | ((measured < _VOLTS[0]) & (watts > 0))
        reasons = np.select(
            [machine, short, breaker, wrong_volts],
            [TooHighReason.MACHINE, TooHighReason.SHORT, TooHighReason.BREAKER, TooHighReason.VOLTS],
            TooHighReason.NO,
        )
        self.reasons = np.where(reporting, reasons, TooHighReason.NO).astype(np.int64)
        found: Flags = self.reasons > 0
        self._possible_since = np.where(found | ~reporting, np.nan, np.fmin(self._possible_since, now))
        return found

    def possible_for(self, now: float) -> Floats:
        """Return for how long the reading of each slot has been one that can be, s; NaN where it is not."""
        return now - self._possible_since

    def words(self, metering: Metering, slot: int) -> str:
        """Return what a slot reads, and why that can't be."""
        name, target = metering.meter_of(slot), int(metering.whole("target")[slot])
        watts = float(metering.number("watts")[slot])
        match TooHighReason(int(self.reasons[slot]) if slot < len(self.reasons) else 0):
            case TooHighReason.MACHINE:
                most = float(self._most[slot])
                if np.isnan(most):
                    carried = exact_watts(float(self._carried[target]))
                    return f"{name} reads {exact_watts(watts)} where the breakers before its machine carry {carried}"
                meant = _meant(watts / most, _UNITS, _PLAUSIBLE)
                return f"{name} reads {exact_watts(watts)} where its machine may draw {exact_watts(most)}{meant}"
            case TooHighReason.VOLTS:
                nominal = float(self._topology.nominal_volts[target])
                measured = float(metering.number("volts")[slot])
                meant = _meant(measured / nominal, _VOLT_UNITS, _NEAR_NOMINAL)
                return f"{name} reads {volts(measured)} on a circuit of {volts(nominal)}{meant}"
            case TooHighReason.SHORT | TooHighReason.BREAKER:
                rated = float(self._topology.network.rated[target])
                ratio = float(self._ratio[slot])
                # A load of twice a breaker's rating says more of the breaker than of the unit.
                meant = _meant(ratio, _UNITS, _PLAUSIBLE) if ratio > FAR_OVER else ""
                if meant and np.isnan(watts):
                    meant = meant.replace(_UNITS[0][1], _MILLIAMPS)
                amps = float(ratio * self._topology.network.effective[target])
                latest = float(self._latest(np.array([target]), np.array([ratio]))[0])
                for_long = f"carries that for {estimated_duration(latest)} at most"
                return f"{name} reads {amperes(amps)}, and a breaker of {amperes(rated)} {for_long}: its unit is wrong{meant}, or the breaker is another one"
            case _:
                return f"{name} read more than can be"

    def own(self, tick: PowerInputs) -> Flags:
        """Return the machines whose own meter, which their collector reads, reads more than can be."""
        with np.errstate(invalid="ignore"):
            found: Flags = np.abs(tick.wall_watts) > self._limits(tick)
        return found

    def _limits(self, tick: PowerInputs) -> Floats:
        """Return the watts of each machine above which a reading can't be: where nothing is known of it, a short circuit."""
        most = self._machines(tick)
        far: Floats = np.fmax(FAR_OVER * most, most + FAR_WATTS)
        return np.where(np.isnan(most), SHORT * self._carried, far)

    def _machines(self, tick: PowerInputs) -> Floats:
        """Return what each machine may draw."""
        inside = tick.gpu_limit_watts + np.fmax(np.nan_to_num(tick.host_watts), HOST_WATTS)
        most: Floats = np.fmax(self._committed, AT_THE_WALL * inside)
        return most

    def _over_rating(self, metering: Metering, node: Flags, target: Ints) -> Floats:
        """Return the current of each slot over its breaker's rating; 0 of a machine's."""
        topology, pole = self._topology, metering.whole("pole")
        if not len(topology.volts):
            return np.zeros(len(node))
        row = np.where(node, 0, target)
        poles = np.where(pole >= 0, 1, topology.poles[row].sum(axis=1))
        by_watts = metering.number("watts") / (topology.volts[row] * topology.power_factor[row] * poles)
        amps = metering.number("amps")
        amps = np.where(np.isnan(amps), by_watts, amps)
        return np.where(node | np.isnan(amps), 0.0, amps / topology.network.effective[row])

    def _burn(self, seconds: float, ratio: Floats, target: Ints, believed: Flags) -> None:
        """Count how near each slot's breaker is to its latest trip."""
        rows = np.flatnonzero(believed & (ratio > 1.0))
        part = np.full(len(ratio), -seconds / RESTS_SECONDS)
        if len(rows):
            latest = np.maximum(self._latest(target[rows], ratio[rows]), LEAST_SECONDS)
            part[rows] = np.where(np.isfinite(latest), seconds / latest, part[rows])
        self._burnt = np.maximum(0.0, self._burnt + part)

    def _latest(self, target: Ints, ratio: Floats) -> Floats:
        """Return when the latest breaker of a band opens at a ratio, from cold, s; infinite for never, and where that is not known."""
        element = self._topology.network.element.part(target)
        found = seconds_to_trip(cold(len(target)), ratio, element)[:, 2]
        return np.where(np.isnan(found), np.inf, found)

    def _volts_over_nominal(self, metering: Metering, node: Flags, target: Ints) -> Floats:
        """Return the measured over the nominal volts of each slot's circuit."""
        topology = self._topology
        if not len(topology.volts):
            return np.full(len(node), np.nan)
        row = np.where(node, 0, target)
        found = over_nominal(metering.number("volts"), topology.nominal_volts[row], topology.between[row])
        return np.where(node, np.nan, found)


def _meant(ratio: float, units: tuple[tuple[float, str], ...], plausible: tuple[float, float]) -> str:
    """Return the likely slip that makes a reading so many times what it should be; empty where none fits."""
    low, high = plausible
    return next((f" ({why})" for by, why in units if low <= ratio / by <= high), "")


def _of(node: Flags, target: Ints, machines: Floats) -> Floats:
    """Return the value of each slot's machine; NaN for those of circuits."""
    found = np.full(len(node), np.nan)
    found[node] = machines[target[node]]
    return found
