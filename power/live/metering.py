"""The newest reading of every meter, in arrays: thousands of outlets need no Python loop a tick.

Only new readings are written; whether a slot counts is decided by its age.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from power.devices.wall_power import WallSource
from power.meters.meter_record import MeterState
from power.meters.reading import MeterReading
from power.meters.sample import OFFLINE
from power.network.flow import Ints
from power.wiring import POLES, Flags, Floats
from telemetry.text import duration

SOURCES = tuple(WallSource)
RANK = {source: number for number, source in enumerate(SOURCES)}
STALE_PERIODS, STALE_LEAST = 3.0, 30.0
"""Age from which a reading is stale: in its periods, and at least in seconds."""
CIRCUIT, NODE = 0, 1
_FIELDS = ("watts", "volt_amps", "amps", "neutral_amps", "volts", "power_factor", "energy_joules", "limit_watts", "limit_amps")  # fmt: skip
_DEFAULT_POWER_FACTOR = 0.97
_LEAST_FACTOR = 0.2
"""Power factor below which a reading is of next to no load, or wrong."""
_LOADED_AMPS = 1.0
"""Amps from which on a load draws watts: next to none of its current is reactive."""
_STEPS = ("step_joules", "step_at", "step_growth", "step_watts")
"""Last step of a counter: its value then, its time, by how much it grew and the mean power since the step before."""
_MOVING = ("watts", "volt_amps", "amps", "energy_joules")

Key = tuple[str, str, str, str | None]


def stale_after(period: float | Floats) -> Floats:
    """Return the age from which readings of these periods are stale."""
    limit: Floats = np.maximum(STALE_PERIODS * np.asarray(period), STALE_LEAST)
    return limit


def problem_of(meter: MeterState, now: float, refused: Mapping[str, str]) -> str:
    """Return what is wrong with a meter and what to do; empty where it reports and is understood. A connection to its
    broker is no reading. `refused`: why the readings of some meters are not used."""
    if meter.message:
        return meter.message
    if meter.name in refused:
        return f"{refused[meter.name].removeprefix(f'{meter.name} ')}; it is not used"
    if meter.last_seen is None:
        return f"nothing has come from {meter.where} yet: look where the device's own settings send it"
    age = now - meter.last_seen
    return f"nothing has come for {duration(age)}" if age > stale_after(meter.period) else ""


class Metering:
    """Table with a slot for each target of a meter; slots are never freed."""

    def __init__(self, circuits: Mapping[str, int], machines: Mapping[str, int], poles: Flags | None = None) -> None:
        """`poles`: of each circuit, shape (circuits, 3). [all three]"""
        self._poles = np.ones((len(circuits), 3), bool) if poles is None else poles
        self._places = {"circuit": circuits, "node": machines}
        self._slots: dict[Key, int] = {}
        self._keys: list[Key] = []
        """Key of each slot."""
        self.ups: dict[str, MeterReading] = {}
        """Newest reading of each UPS."""
        self.ups_refused: frozenset[str] = frozenset()
        """UPSs whose load is not used (`power.live.ups.UpsFaults`); their status is."""
        self.ups_passed: frozenset[str] = frozenset()
        """UPSs that a bypass or another input of a transfer switch passes: what they measured before says nothing."""
        self.ups_apart: frozenset[str] = frozenset()
        """UPSs whose load says nothing of what hangs on them: a bypass or another input of a transfer switch feeds
        it, or they read too little, not for long enough to be refused."""
        self.unplaced: set[str] = set()
        """Targets that the configuration does not know."""
        self._numbers: dict[str, Floats] = {
            name: np.zeros(0) for name in (*_FIELDS, "at", "period", "changed_at", *_STEPS)
        }
        self._whole: dict[str, npt.NDArray[Any]] = {
            name: np.zeros(0, np.int64) for name in ("kind", "target", "pole", "rank")
        }
        self.tripped: Flags = np.zeros(0, bool)
        self.input_lost: Flags = np.zeros(0, bool)
        self.reversed: Flags = np.zeros(0, bool)
        self.faults: Ints = np.zeros(0, np.int64)
        """Fault for which the reading of each slot is not used (`power.live.meter_faults`); 0 where it is."""
        self.suspected: Flags = np.zeros(0, bool)
        """Slots that read less than their GPUs: not used, though not for long enough to be at fault."""
        self.own_faults: Ints = np.zeros(len(machines), np.int64)
        """The same fault of each machine's own meter, which its collector reads."""

    def __len__(self) -> int:
        return len(self._slots)

    def number(self, name: str) -> Floats:
        """Return one quantity of every slot; NaN is not reported."""
        return self._numbers[name][: len(self)]

    def whole(self, name: str) -> Ints:
        """Return `kind`, `target`, `pole` (-1: all) or `rank` (of its source) of every slot."""
        found: Ints = self._whole[name][: len(self)]
        return found

    def meter_of(self, slot: int) -> str:
        """Return the name of the meter of a slot."""
        return self._keys[slot][0]

    def key_of(self, slot: int) -> Key:
        """Return meter, kind and name of the target, and pole of a slot."""
        return self._keys[slot]

    def flag(self, name: str) -> Flags:
        """Return `tripped`, `input_lost` or `reversed` of every slot."""
        found: Flags = getattr(self, name)[: len(self)]
        return found

    def reporting(self, now: float) -> Flags:
        """Return which slots have a reading that is not stale."""
        found: Flags = now - self.number("at") <= stale_after(self.number("period"))
        return found

    def fresh(self, now: float) -> Flags:
        """Return which slots are used: they report, and nothing speaks against their reading."""
        used = self.reporting(now)
        used[: len(self.faults)] &= (self.faults == 0) & ~self.suspected
        return used

    def factors(self) -> Floats:
        """Return the power factor of every slot: as reported, else watts over volt-amperes; NaN without
        either, and for one that no load can have."""
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = np.abs(self.number("watts")) / self.number("volt_amps")
            factor = np.abs(self.number("power_factor"))
            factor = np.where(np.isnan(factor), ratio, factor)
            return np.where((factor > _LEAST_FACTOR) & (factor <= 1.0), factor, np.nan)

    def absorb(self, readings: Sequence[MeterReading]) -> dict[str, Exception]:
        """Store readings; of two of the same target the newer one stays. Return the exceptions by the
        meter whose reading could not be stored."""
        faults: dict[str, Exception] = {}
        for reading in readings:
            try:
                self._absorb(reading)
            except Exception as error:  # noqa: BLE001 - returned by the meter's name
                faults[reading.meter] = error
        return faults

    def drop(self, meters: Collection[str]) -> None:
        """Forget the readings of some meters: they count as never reported."""
        for (meter, *_), slot in self._slots.items():
            if meter in meters:
                for numbers in self._numbers.values():
                    numbers[slot] = np.nan
                self._numbers["at"][slot] = -np.inf
                self._numbers["period"][slot] = 0.0
                self.tripped[slot] = self.input_lost[slot] = self.reversed[slot] = False
        for name in [name for name, one in self.ups.items() if one.meter in meters]:
            del self.ups[name]

    def _absorb(self, reading: MeterReading) -> None:
        if reading.kind == "ups":
            known = self.ups.get(reading.target)
            if known is None or reading.at >= known.at:
                self.ups[reading.target] = reading
            return
        target = self._places[reading.kind].get(reading.target)
        if target is None:
            self.unplaced.add(f"{reading.kind} {reading.target}")
            return
        placed = self._placed(reading, target) if reading.parts else reading
        if placed is not None:
            self._store(placed, target)

    def _placed(self, reading: MeterReading, target: int) -> MeterReading | None:
        """Return the reading of a meter of several parts with the circuit's pole; None for a part of a
        meter that has not as many as the circuit has poles."""
        if reading.pole is None:
            return reading
        poles = np.flatnonzero(self._poles[target])
        if len(poles) != reading.parts:
            return None
        return replace(reading, pole=POLES[poles[POLES.index(reading.pole)]])

    def _store(self, reading: MeterReading, target: int) -> None:
        key = (reading.meter, reading.kind, reading.target, reading.pole)
        slot = self._slots.get(key)
        if slot is None:
            slot = self._slots[key] = len(self._slots)
            self._keys.append(key)
            self._grow(slot + 1)
            self._whole["kind"][slot] = NODE if reading.kind == "node" else CIRCUIT
            self._whole["target"][slot] = target
            self._whole["pole"][slot] = -1 if reading.pole is None else POLES.index(reading.pole)
            self._numbers["at"][slot] = -np.inf
            for name in _STEPS:
                self._numbers[name][slot] = np.nan
        if reading.at < self._numbers["at"][slot] and OFFLINE not in reading.flags:
            return  # the time of an offline device was set back on purpose
        before = [self._numbers[name][slot] for name in _MOVING]
        self._whole["rank"][slot] = RANK[reading.source]
        for name in _FIELDS:
            value = getattr(reading, name)
            self._numbers[name][slot] = np.nan if value is None else value
        # A clamp around the wrong way reads negative; the power is the same.
        for name in ("watts", "amps", "neutral_amps", "volt_amps"):
            self._numbers[name][slot] = abs(self._numbers[name][slot])
        self._numbers["watts"][slot] = _watts(self._numbers, slot)
        if np.isnan(self._numbers["watts"][slot]) and np.isnan(self._numbers["amps"][slot]):
            self._numbers["watts"][slot] = _mean_watts(self._numbers, slot, reading.at)
        if reading.parts > 1 and reading.kind == "circuit" and self._poles[target].sum() > 1 and reading.pole is None:
            # The sum of several conductors' currents is the current of none of them.
            self._numbers["amps"][slot] = np.nan
        after = [self._numbers[name][slot] for name in _MOVING]
        if not np.isfinite(self._numbers["at"][slot]) or not np.array_equal(before, after, equal_nan=True):
            self._numbers["changed_at"][slot] = reading.at
        self._numbers["at"][slot], self._numbers["period"][slot] = reading.at, reading.period
        self.tripped[slot] = "tripped" in reading.flags
        self.input_lost[slot] = "input_lost" in reading.flags
        self.reversed[slot] = "reversed" in reading.flags

    def _grow(self, size: int) -> None:
        if size <= len(self.tripped):
            return
        room = max(16, 2 * size)
        for numbers in (self._numbers, self._whole):
            for name, old in numbers.items():
                numbers[name] = np.resize(old, room) if len(old) else np.zeros(room, old.dtype)
        for name in ("tripped", "input_lost", "reversed"):
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros(room - len(old), bool)]))


def _mean_watts(numbers: Mapping[str, Floats], slot: int, at: float) -> float:
    """Return the mean power by a counter alone: between its last two steps, and less while the next step is due; NaN
    before there are two, as the first reading lies between steps."""
    energy = numbers["energy_joules"][slot]
    joules, since, growth, mean = (float(numbers[name][slot]) for name in _STEPS)
    if np.isnan(energy):
        return float("nan")
    if np.isnan(joules) or energy < joules:
        numbers["step_joules"][slot] = energy
        for name in _STEPS[1:]:
            numbers[name][slot] = np.nan
        return float("nan")
    if energy > joules:
        mean = (energy - joules) / (at - since) if at > since else float("nan")
        growth = energy - joules
        for name, value in zip(_STEPS, (energy, at, growth, mean), strict=True):
            numbers[name][slot] = value
        return float(mean)
    return float(min(mean, growth / (at - since))) if at > since else float(mean)


def _watts(numbers: Mapping[str, Floats], slot: int) -> float:
    """Return the watts of a slot, or those that follow from its other quantities."""
    watts, factor = numbers["watts"][slot], numbers["power_factor"][slot]
    # Amps without watts are a channel that is not read, and no load of that kind.
    if not np.isnan(watts) and not (watts == 0 and numbers["amps"][slot] >= _LOADED_AMPS):
        return float(watts)
    apparent = numbers["volt_amps"][slot]
    if np.isnan(apparent):
        apparent = numbers["amps"][slot] * numbers["volts"][slot]
    return float(apparent * (abs(factor) if abs(factor) > _LEAST_FACTOR else _DEFAULT_POWER_FACTOR))
