"""UPSs: load of each, how long it bears an overload, and what hangs on it."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec.structs import replace

from api.power import SnapshotKind
from power import thresholds
from power.live.confidence import mask_uncertain, reported_load
from power.live.inputs import PowerInputs
from power.live.load_state import worst
from power.live.loads import CircuitLoads, CircuitMeters
from power.live.meter_faults import LEAST_WATTS, LOW_RATIO, LOW_SECONDS
from power.live.metering import Metering, stale_after
from power.live.wall_power import SILENT_LEAST, WallPower
from power.meters.reading import MeterReading
from power.network.flow import Ints
from power.network.topology import SiteTopology
from power.site.config import UpsConfig
from power.snapshot.snapshot import PowerSnapshot
from power.wiring import Flags, Floats
from present.units import exact_watts, percent

log = logging.getLogger(__name__)
LADDER = ((1.05, np.inf), (1.10, 600.0), (1.30, 60.0), (1.50, 3.0), (np.inf, 0.5))
"""Seconds for which a UPS bears a load up to a ratio: typical values at room temperature."""
FAR_OVER = 4.0
"""Times its rating that no UPS carries for as long as a reading takes."""
_POWER_FACTOR = 0.9
"""Watts over volt-amperes of a UPS whose second rating is not given."""


@dataclass(frozen=True, slots=True)
class UpsTopology:
    """A UPS with its machines and circuits as indices."""

    name: str
    watts: float
    volt_amps: float
    ladder: tuple[tuple[float, float], ...]
    machines: Ints
    """Machines whose only power comes through the UPS."""
    circuits: Ints
    """Circuits directly behind the UPS."""
    fed: Ints
    """Every circuit that it feeds, through others too."""
    on_bypass: bool
    """Whether the configuration has it in bypass."""


def build_ups(sites: dict[str, UpsConfig], topology: SiteTopology, in_tree: Collection[str]) -> tuple[UpsTopology, ...]:
    """Return the UPSs of a site. `in_tree`: those that are elements of the tree."""
    at = {name: number for number, name in enumerate(topology.network.names)}
    machine = {name: number for number, name in enumerate(topology.network.machines)}
    found = []
    for name, spec in sites.items():
        # The row of a UPS of the tree is what hangs on it.
        behind = (name,) if name in in_tree else spec.circuits
        circuits = np.array([at[circuit] for circuit in behind], dtype=np.int64)
        members = {machine[node] for node in spec.nodes if node in machine}
        for circuit in circuits:
            part = slice(topology.starts[circuit], topology.starts[circuit + 1])
            members |= set(topology.below[1][part][topology.whole[part]].tolist())
        found.append(
            UpsTopology(
                name,
                spec.watts,
                spec.volt_amps or spec.watts / _POWER_FACTOR,
                spec.overload or LADDER,
                np.array(sorted(members), dtype=np.int64),
                circuits,
                _fed(topology, circuits),
                spec.on_bypass,
            )
        )
    return tuple(found)


def _fed(topology: SiteTopology, circuits: Ints) -> Ints:
    """Return some circuits and all that they feed."""
    fed = np.zeros(len(topology.parent), dtype=bool)
    fed[circuits] = True
    for step in reversed(topology.network.climbs):
        fed[step.children] |= fed[step.parents]
    return np.flatnonzero(fed)


class UpsFaults:
    """UPSs that report less than half of what is measured behind them. As of any meter, only agreement with
    what is measured there ends it."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        """Monotonic time since which each UPS reads too little."""
        self._refused: dict[str, int] = {}
        """Measurements behind each UPS whose load is not used."""

    def update(
        self,
        now: float,
        ups: tuple[UpsTopology, ...],
        metering: Metering,
        tick: PowerInputs,
        meters: CircuitMeters,
        watts: Floats,
        read_at: Floats,
        left: Flags,
    ) -> None:
        """Find the UPSs at fault, and note them in `metering.ups_refused`. `watts`: measured load of each
        circuit; NaN where it is not. `read_at`: time of the last reading of each machine's own meters.
        `left`: circuits that don't carry what hangs on them by their usual input."""
        gpu = np.where(tick.silent_seconds <= SILENT_LEAST, tick.gpu_watts, np.nan)
        passed, high = set(), set()
        for one in ups:
            reading = _reporting(one, metering, now)
            reported = _reported_watts(one, reading)
            if reported is not None and reported > FAR_OVER * one.watts:
                high.add(one.name)
                continue
            drawn, nodes = watts[one.circuits], gpu[one.machines]
            measured = max(float(np.nansum(drawn)), float(np.nansum(nodes)))
            # A static bypass still measures its load; past a maintenance bypass next to nothing is right.
            agrees = measured > LEAST_WATTS and (reported or 0.0) >= LOW_RATIO * measured
            if left[one.circuits].any() or (_on_bypass(one, reading) and not agrees):
                passed.add(one.name)
                self._since.pop(one.name, None)
                self._refused.pop(one.name, None)
                continue
            if reported is None or measured <= LEAST_WATTS:
                self._since.pop(one.name, None)
                continue
            witnesses = int((~np.isnan(drawn)).sum() + (~np.isnan(nodes)).sum())
            if reported >= LOW_RATIO * measured:
                self._since.pop(one.name, None)
                most = len(one.circuits) + len(one.machines)
                if witnesses >= min(self._refused.get(one.name, 0), most):
                    self._refused.pop(one.name, None)
                continue
            since = self._since.setdefault(one.name, now)
            # What was measured before a UPS went off says nothing against its 0 W.
            frames = (now - tick.silent_seconds)[one.machines[~np.isnan(nodes)]]
            heard = np.concatenate([meters.heard_at[one.fed], frames, read_at[one.machines]])
            if heard.max(initial=-np.inf) - since >= LOW_SECONDS:
                self._refused[one.name] = witnesses
        metering.ups_refused = frozenset(self._refused.keys() | high)
        metering.ups_passed = frozenset(passed)
        metering.ups_apart = frozenset(passed | self._since.keys())

    def checkpoint(self) -> dict[str, int]:
        """Return the UPSs that are refused."""
        return dict(self._refused)

    def restore(self, refused: Mapping[str, Any]) -> None:
        """Restore what `checkpoint` returned. Raises `AttributeError`, `TypeError` or `ValueError` for anything
        else."""
        self._refused = {str(name): int(witnesses) for name, witnesses in refused.items()}


def heard(ups: tuple[UpsTopology, ...], metering: Metering, now: float) -> list[tuple[Ints, float, float]]:
    """Return machines, output watts and time of each UPS with a fresh reading that measures what hangs on it."""
    found = []
    for one in ups:
        if one.name in metering.ups_apart:
            continue
        try:
            reading = _fresh(one, metering, now)
            watts = _reported_watts(one, reading)
        except Exception:
            log.debug("UPS %s", one.name, exc_info=True)  # `ups_snapshot` meets and reports it too
            continue
        if reading is not None and watts is not None:
            found.append((one.machines, watts, reading.at))
    return found


def expected(
    ups: tuple[UpsTopology, ...], metering: Metering, metered: Collection[tuple[str, str]], machines: int
) -> Flags:
    """Return the machines whose power a UPS measures, or has measured. `metered`: what has a configured meter."""
    found = np.zeros(machines, dtype=bool)
    for one in ups:
        known = one.name in metering.ups or ("ups", one.name) in metered
        if known and one.name not in metering.ups_passed:
            found[one.machines] = True
    return found


def input_watts(ups: tuple[UpsTopology, ...], metering: Metering, now: float) -> list[tuple[int, float]]:
    """Return row and watts of each UPS with one output in the tree, believed or not: it is that circuit's meter."""
    found = [(one.circuits, _reported_watts(one, _reporting(one, metering, now))) for one in ups]
    return [(int(rows[0]), watts) for rows, watts in found if len(rows) == 1 and watts is not None]


def ups_snapshot(
    ups: tuple[UpsTopology, ...],
    metering: Metering,
    now: float,
    version: int,
    wall_power: WallPower,
    loads: CircuitLoads,
    power_factor: Floats,
    faults: dict[str, Exception],
    survivors: Mapping[str, tuple[float, str]],
) -> PowerSnapshot:
    """Return the UPS snapshot. Without a reading, a UPS' load is the sum of what hangs on it. `faults`
    receives the exceptions by the UPS whose row is unknown; `survivors` has the load of each after the worst
    loss, and that loss."""
    rows = {name: np.full(len(ups), np.nan) for name in _COLUMNS}
    facts: list[dict[str, str]] = [{} for _ in ups]

    def compute(number: int, one: UpsTopology) -> None:
        reading = _fresh(one, metering, now)
        load = _load(one, reading, wall_power, loads, power_factor)
        rows["ups_load_ratio"][number] = load
        if not np.isnan(load):
            bears = next(seconds for limit, seconds in (*one.ladder, (np.inf, 0.0)) if load <= limit)
            rows["ups_overload_seconds"][number] = bears
        if reading is not None:
            rows["ups_on_battery"][number] = "OB" in reading.flags
            rows["ups_battery_low"][number] = "LB" in reading.flags
            if reading.runtime_seconds is not None:
                rows["ups_runtime_seconds"][number] = reading.runtime_seconds
        facts[number] = _facts(one, reading, load)
        if one.name in metering.ups_refused:
            facts[number]["meter"] = (
                "it reports more than it can carry; its load is not used"
                if (_reported_watts(one, _reporting(one, metering, now)) or 0.0) > FAR_OVER * one.watts
                else "it has reported less than half of what is measured behind it; its load is not used until both agree"
            )
        if one.name in survivors:
            survivor, loss = survivors[one.name]
            rows["ups_survivor_ratio"][number] = np.nan if np.isnan(load) else survivor
            facts[number] |= {"loss": loss, "survivor": percent(survivor)}

    for number, one in enumerate(ups):
        try:
            compute(number, one)
        except Exception as error:  # noqa: BLE001 - kept by the UPS' name
            faults[one.name] = error
            for values in rows.values():
                values[number] = np.nan
    return PowerSnapshot(SnapshotKind.UPS, version, tuple(one.name for one in ups), rows, tuple(facts))


_COLUMNS = ("ups_load_ratio", "ups_survivor_ratio", "ups_on_battery", "ups_battery_low", "ups_runtime_seconds", "ups_overload_seconds")  # fmt: skip


def _fresh(one: UpsTopology, metering: Metering, now: float) -> MeterReading | None:
    """Return a UPS' reading, without its load where this is refused."""
    reading = _reporting(one, metering, now)
    if reading is None or one.name not in metering.ups_refused:
        return reading
    return replace(reading, watts=None, volt_amps=None, load_ratio=None)


def _reporting(one: UpsTopology, metering: Metering, now: float) -> MeterReading | None:
    reading = metering.ups.get(one.name)
    if reading is None or now - reading.at > stale_after(reading.period):
        return None
    return reading


def ups_states(ups: tuple[UpsTopology, ...], metering: Metering, now: float, circuits: Floats, nodes: Floats) -> Floats:
    """Return the state of each UPS' load, as `power.live.load_state.STATES` numbers them: measured by itself,
    else the worst of what hangs on it. `circuits`, `nodes`: their states."""
    below = [worst(circuits, [one.circuits]) if len(one.circuits) else worst(nodes, [one.machines]) for one in ups]
    return np.array(
        [
            0.0 if _reported_watts(one, _fresh(one, metering, now)) is not None else float(state[0])
            for one, state in zip(ups, below, strict=True)
        ]
    )


def _on_bypass(one: UpsTopology, reading: MeterReading | None) -> bool:
    return one.on_bypass or (reading is not None and "BYPASS" in reading.flags)


def _reported_watts(one: UpsTopology, reading: MeterReading | None) -> float | None:
    if reading is None:
        return None
    if reading.watts is not None:
        return abs(reading.watts)
    return None if reading.load_ratio is None else reading.load_ratio * one.watts


def _load(
    one: UpsTopology, reading: MeterReading | None, wall_power: WallPower, loads: CircuitLoads, power_factor: Floats
) -> float:
    watts, assumed = _reported_watts(one, reading), 0.0
    apparent = reading.volt_amps if reading is not None else None
    if watts is None:
        if len(one.circuits):
            watts = float(loads.watts[one.circuits].sum())
            assumed = float(loads.assumed[one.circuits].sum())
            apparent = float((loads.watts[one.circuits] / power_factor[one.circuits]).sum())
        elif len(one.machines):
            watts = float(wall_power.watts[one.machines].sum())
            assumed = float(wall_power.assumed[one.machines].sum())
        else:
            return float("nan")
    apparent = watts / 0.97 if apparent is None else abs(apparent)
    # The nearer of the two ratings counts: volt-amperes include reactive power.
    load = np.array([max(watts / one.watts, apparent / one.volt_amps)])
    least = reported_load(load, np.array([watts]), np.array([assumed]))
    return float(mask_uncertain(load, least, thresholds.UPS_CLEAR, thresholds.UPS_OVER)[0])


def _facts(one: UpsTopology, reading: MeterReading | None, load: float) -> dict[str, str]:
    bears = "not known"
    if not np.isnan(load):
        seconds = next((s for limit, s in (*one.ladder, (np.inf, 0.0)) if load <= limit), 0.0)
        bears = "forever" if np.isinf(seconds) else f"for {seconds:g} s, by its table"
    return {
        "rating": f"{exact_watts(one.watts)}, {one.volt_amps:.0f} VA",
        "bears": bears,
        "source": "the UPS itself" if _reported_watts(one, reading) is not None else "the sum of what hangs on it",
        "status": " ".join(reading.flags) if reading is not None else "not reported",
    }
