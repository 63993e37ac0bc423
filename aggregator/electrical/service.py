"""The electrical side of a running aggregator: configuration, live state, ledger and checkpoint.

The shell around `power.live`: reads the fleet and the meters, hands power snapshots to rules, pages
and metrics, writes the checkpoint, and loads a new configuration while it runs. An invalid new
configuration changes nothing: the last valid one stays in force, and the error is reported.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from aggregator.electrical import checkpoint as checkpoints
from aggregator.electrical.checkpoint import ElectricalCheckpoint
from aggregator.electrical.energy_counter import EnergyCounter, SharedEnergy, UnmappedNodes
from aggregator.electrical.energy_sampler import reported_watts
from aggregator.electrical.fleet_power import FleetPowerReader, PowerReader
from aggregator.electrical.site_loader import WHERE, load_site, log_notices
from aggregator.electrical.site_months import SiteMonths
from aggregator.electrical.snapshot_log import SnapshotLog
from aggregator.electrical.throughput import ThroughputSampler
from aggregator.electrical.wall_sum import FleetWall
from aggregator.meters import MeterHub
from aggregator.meters.feed import MeterFeed, MeterSource
from api.power import SiteConfiguration
from power.devices.thermal import Heat
from power.live import LivePower, PowerSnapshots
from power.live.metering import problem_of
from power.plan.throughput import ThroughputLedger
from power.report.energy_ledger import EnergySample
from power.report.month_ledger import NodeIdle
from present.fleet.wall import WallSum
from telemetry.errors import ConfigError
from telemetry.fleet import Fleet
from telemetry.runtime.isolation import Isolation, PartFault, PartKind, reason_of
from telemetry.runtime.supervision import ProgressMarks, Supervisor
from telemetry.runtime.tasks import TaskGroup
from telemetry.wire.mqtt import BrokerConfig

log = logging.getLogger(__name__)
T = TypeVar("T")


SAVE_SECONDS = 10.0
"""Seconds between two checkpoints: a crash loses at most so much heat, and a breaker warms in minutes."""
BLAME_SECONDS = 60.0
"""Seconds after which the cause of a tick that fails as a whole is looked for again."""
FRESH_SECONDS = 0.9
"""Age up to which power snapshots are reused."""


class ElectricalService:
    """The electrical state of an aggregator. Owned by the event loop; only `run` waits."""

    def __init__(
        self,
        tree: Mapping[str, Any],
        folder: Path,
        reread: Callable[[], Mapping[str, Any]] | None = None,
        broker: BrokerConfig | None = None,
        clock: Callable[[], int] = time.time_ns,
        reader_of: Callable[[Sequence[str]], PowerReader] = FleetPowerReader,
        meters_of: MeterSource | None = None,
        shared: SharedEnergy | None = None,
    ) -> None:
        """`tree`: the [power] section. `reread` reads it again. `broker`: for meters without a broker of
        their own. `reader_of`: returns the reader of some machines; of a site it reads what members
        say. `meters_of`: who reads the meters now, where that may be another aggregator. `shared`: the energy of all
        aggregators' nodes. Raises `ConfigError`."""
        self.site = load_site(WHERE, tree)
        self.configuration = SiteConfiguration(version=1, loaded_at=clock())
        self.latest: PowerSnapshots | None = None
        """The power snapshots of the last tick; None before the first, and without circuits."""
        self.seconds = 0.0
        """Duration of the last tick."""
        self._samples = ThroughputSampler()
        self.throughput = ThroughputLedger()
        """Clocks of busy GPUs by power, of each model."""
        self.months = SiteMonths(folder, self.site)
        self.energy = EnergyCounter(self.months.ledger, self.site, shared)
        self.unmapped = UnmappedNodes()
        self.failure: str | None = None
        """Why there are no power snapshots though there are circuits: a fault of kilowatch's own."""
        self._aside = Isolation(PartKind.POWER)
        self._blame_at = -np.inf
        self.latest_at = 0
        """Wall clock of `latest`, ns since 1970."""
        self.snapshot_log = SnapshotLog(folder)
        """Past power snapshots, one in `SAVE_SECONDS`."""
        self._logged_at = 0
        self._folder = folder
        self._reread = reread
        self._clock = clock
        self._restored: ElectricalCheckpoint | None = None
        self._persisted: dict[str, float] = {}
        """Energy of each circuit that is on disk, joules: what is exported, so that a crash takes
        nothing back."""
        self._live: LivePower | None = None
        self._reader_of = reader_of
        self._reader: PowerReader = reader_of(())
        self._ticked_at = -np.inf
        self._listening_since, self._listened = -np.inf, True
        hub = MeterHub(self.site.config, broker or BrokerConfig(), where=WHERE)
        self.meters = MeterFeed(hub, meters_of)
        self._build()

    # -- Ticks -----------------------------------------------------------------------------------

    def snapshots(
        self, fleet: Fleet, now: float, wall_ns: int, *, listening: bool = True, count: bool = True
    ) -> PowerSnapshots | None:
        """Return the power snapshots at `now`, the fleet's monotonic seconds; None without circuits.

        `listening`: whether the aggregator is connected to the bus. While it is not, and until nodes
        had time to report again, no node is silent. Calls within a second return the same snapshots.
        `count`: count energy too; else the caller does it, in pieces (`counting`).
        """
        if listening and not self._listened:
            self._listening_since = now
        self._listened = listening
        if now - self._ticked_at < FRESH_SECONDS:
            return self.latest
        began = time.perf_counter()
        self._ticked_at = now
        if fleet.version != self.unmapped.version:
            find = functools.partial(self.unmapped.update, fleet, self.site.layout)
            self._step("nodes on no circuit", now, find)
        live = self._live
        if live is not None:
            restored, self._restored = self._restored, None
            if restored is not None:
                self._step("checkpoint", now, lambda: live.restore(restored.live, now, wall_ns), pressing=True)
                if restored.at:  # from disk, not from before a new configuration
                    self._persisted = live.counted_joules()
            self.latest = self._tick(live, fleet, now, wall_ns, listening)
        self.latest_at = wall_ns
        supply = None if self.latest is None else self.latest.supply
        self._step("power at the wall", now, lambda: self._wall.tick(fleet, now, supply))
        if count:
            for _ in self.counting(fleet, now, wall_ns):
                pass
        self.seconds = time.perf_counter() - began
        return self.latest

    def _tick(self, live: LivePower, fleet: Fleet, now: float, wall_ns: int, listening: bool) -> PowerSnapshots | None:
        """Return the power snapshots; None when they can't be computed: circuits are then unknown, and
        everything else goes on. The nodes and meters that are the cause are set aside."""
        try:
            readings = self._step("meters", now, self.meters.readings) or ()
            tick = replace(
                self._reader.read(fleet, now, self._listening_since),
                listening=listening,
                readings=readings,
                metered=self.site.metered,
            )
            for name, fault in self._reader.faults.items():
                self._aside.fail(f"node/{name}", fault, now)
            for gone in [one for one in self._aside.reasons() if one.startswith("node/")]:
                if gone.removeprefix("node/") not in self._reader.faults:
                    self._aside.works(gone)
            part = live.machines_without(tick, now)
            try:
                snapshots = live.tick(now, wall_ns, part)
            except Exception as error:
                if now < self._blame_at or not live.blame(error, part, now, wall_ns):
                    self._blame_at = max(self._blame_at, now + BLAME_SECONDS)
                    raise
                snapshots = live.tick(now, wall_ns, live.machines_without(part, now))
            live.recovered(now)
        except Exception as error:  # a fault in here must not silence the rules of GPUs
            reason = f"a fault of kilowatch's own, {reason_of(error)}"
            if self.failure != reason:
                log.exception("power: circuits can't be computed; trying again every second")
            self.failure = reason
            return None
        self.failure = None
        return self._exported(snapshots)

    def _exported(self, snapshots: PowerSnapshots) -> PowerSnapshots:
        """Return the snapshots with the counters of energy as they are on disk."""
        circuit = snapshots.circuit
        joules = np.array([self._persisted.get(name, 0.0) for name in circuit.names])
        columns = {**circuit.columns, "circuit_energy_joules": joules}
        return replace(snapshots, circuit=replace(circuit, columns=columns))

    def _step(self, name: str, now: float, step: Callable[[], T], *, pressing: bool = False) -> T | None:
        """Return what a step beside the circuits returns; None where it raises or is set aside."""
        return self._aside.run(f"circuits/{name}", now, step, None, pressing=pressing)

    def faults(self) -> Iterator[PartFault]:
        """Yield the circuits, meters, nodes, UPSs, budgets and steps that are unknown because of a fault of
        kilowatch's own, or have been since the last call."""
        yield from self._aside.faults()
        if self._live is not None:
            yield from self._live.aside.faults()

    def set_aside(self) -> dict[str, str]:
        """Return what is set aside now: as in `faults`, with the reasons."""
        found = self._aside.reasons()
        return found if self._live is None else found | self._live.aside.reasons()

    def forget(self, node: str) -> None:
        """Forget what a node that was removed drew last; the circuits that it hangs on stay."""
        if self._live is not None:
            self._live.forget(node)
        self.energy.forget(node)
        self.unmapped.forget(node)

    def meter_problems(self, now: float) -> dict[str, str]:
        """Return what is wrong with each meter, by name; empty for one that is well."""
        refused = {} if self._live is None else self._live.meter_faults.by_meter(self._live.metering)
        return {one.name: problem_of(one, now, refused) for one in self.meters.states()}

    def counting(self, fleet: Fleet, now: float, wall_ns: int) -> Iterator[None]:
        """Count energy, idle GPUs and throughput at `now`, in steps between which others may have their
        turn: at 100,000 GPUs each takes a few milliseconds."""
        sample = self._step("energy", now, lambda: self._sample(fleet, now))
        yield
        if sample is not None:
            unmapped = None if self._live is None else self.unmapped.names
            self._step("counters of energy", now, lambda: self.energy.count(sample, now, wall_ns, unmapped))
            yield
        self._step("throughput", now, lambda: self._samples.sample(self.throughput, fleet, now))

    def _sample(self, fleet: Fleet, now: float) -> EnergySample:
        machines = () if self._live is None else self._live.machines
        drawn = None if self.latest is None else reported_watts(self.latest.supply)
        return self.energy.sample(fleet, now, machines, drawn)

    def heat(self) -> Heat | None:
        """Return the heat of every line of the layout; None before the first tick."""
        live = self._live
        return None if live is None or self.latest is None else live.breaker_heat.heat

    def wall_sum(self, fleet: Fleet, now: float) -> WallSum:
        """Return the watts at the wall of the fleet at `now`: for whoever shows them beside its GPUs."""
        found = self._step("sum at the wall", now, lambda: self._wall.sum(fleet, now))
        return found or WallSum(None, 0)

    def moved_transfers(self) -> frozenset[str]:
        """Return the transfer switches that stand on their alternate input."""
        live = self._live
        if live is None:
            return frozenset()
        return frozenset(live.topology.network.names[row] for row in live.transfers.moved)

    # -- Configuration ---------------------------------------------------------------------------

    def reload(self) -> SiteConfiguration:
        """Read the configuration again. An error is in the answer and logged once; the last valid
        configuration then stays in force with its state."""
        if self._reread is None:
            return self.configuration
        try:
            site = load_site(WHERE, self._reread())
            self.meters.configure(site.config)
        except ConfigError as error:
            if str(error) != self.configuration.error:
                log.warning("power: the new configuration is invalid, the previous one stays in force. %s", error)
            self.configuration = msgspec.structs.replace(self.configuration, error=str(error), refused_at=self._clock())
            return self.configuration
        if site.tree != self.site.tree:
            self.site = site
            self.configuration = SiteConfiguration(version=self.configuration.version + 1, loaded_at=self._clock())
            self._build()
            log.info("power: a new configuration is in force")
        else:
            self.configuration = msgspec.structs.replace(self.configuration, error=None, refused_at=None)
        return self.configuration

    def _build(self) -> None:
        """Start a live state for the configuration; the state of circuits that it still has is kept."""
        layout, before = self.site.layout, self._live
        if before is not None and self._restored is None:
            self._restored = ElectricalCheckpoint(live=before.checkpoint())
        self.months.follow(self.site)
        self.energy.follow(self.site)
        self._wall = FleetWall(self.site.config.nodes)
        version = self.configuration.version
        self._live = None if layout is None else LivePower(layout, version, self.months.ledger)
        self._reader = self._reader_of(() if self._live is None else self._live.machines)
        self.latest, self._ticked_at = None, -np.inf
        self.unmapped.renew()
        log_notices(self.site)

    # -- Checkpoint ----------------------------------------------------------------------------------

    def load_checkpoint(self) -> None:
        """Load the checkpoint of the run before; call this before the first tick."""
        self._restored = checkpoints.load(self._folder)
        self.energy.restore(self._restored.ledger, self._restored.unmapped)
        restored = self._restored.throughput
        self.throughput = self._step("throughput", 0.0, lambda: ThroughputLedger.restored(restored)) or self.throughput
        wall, month = self._clock() / 1e9, self._restored.month
        self._step("month", 0.0, lambda: self.months.load(wall, month))

    def checkpoint(self) -> bytes:
        """Return the encoded checkpoint."""
        return _encoded(*self._state())

    def _state(self) -> tuple[ElectricalCheckpoint, NodeIdle]:
        """Return what a checkpoint holds; any thread may encode it."""
        known = self._live.checkpoint() if self._live is not None and self._restored is None else {}
        if self._restored is not None:  # no tick has restored it yet
            known = self._restored.live
        found = ElectricalCheckpoint(
            at=self._clock(),
            live=known,
            ledger=self.energy.ledger,
            month=self.months.ledger.tail(self.latest_at / 1e9, idle=False),
            unmapped=self.energy.unmapped(),
            throughput=self.throughput.checkpoint(),
        )
        return found, self.months.ledger.idle.copied()

    async def run(self, supervisor: Supervisor | None = None, marks: ProgressMarks | None = None) -> None:
        """Read the meters and write the checkpoint every few seconds until cancelled; then once more.

        `supervisor` runs both; `marks` are those of the aggregator.
        """
        one = supervisor or Supervisor()
        try:
            async with TaskGroup() as group:
                group.create_task(one.run("meters", lambda: self.meters.run(one)), name="meters")
                group.create_task(one.run("checkpoint", lambda: self._save_regularly(marks)), name="checkpoint")
        finally:
            self.save()

    async def _save_regularly(self, marks: ProgressMarks | None) -> None:
        while True:
            await asyncio.sleep(SAVE_SECONDS)
            await self._save()
            if marks is not None:
                marks.mark("checkpoint")

    async def _save(self) -> None:
        now = time.monotonic()
        with self._aside.attempt("circuits/past peaks", now):
            await self.months.renew_peaks(self._clock() / 1e9)
        wall = self._clock() / 1e9
        months = self._step("month", now, lambda: self.months.due(wall)) or []
        save_months = functools.partial(self.months.write, months)
        if await asyncio.to_thread(self._step, "month on disk", now, save_months):
            self.months.written(wall, months)
        state = self._step("checkpoint", now, self._state)
        counted = {} if self._live is None else self._live.counted_joules()
        if state is not None:
            write = functools.partial(self._write, *state)
            if await asyncio.to_thread(self._step, "checkpoint on disk", now, write):
                self._persist(counted)
        at, snapshots = self.latest_at, self.latest
        if snapshots is not None and at != self._logged_at:
            self._logged_at = at
            version = self.configuration.version
            add = functools.partial(self.snapshot_log.add, at, version, snapshots.all())
            await asyncio.to_thread(self._step, "log of circuits", now, add)

    def save(self) -> None:
        """Write the month and the checkpoint now."""
        wall = self._clock() / 1e9
        months = self._step("month", 0.0, lambda: self.months.due(wall, always=True), pressing=True) or []
        if self.months.write(months):
            self.months.written(wall, months)
        if self._write(*self._state()) and self._live is not None:
            self._persist(self._live.counted_joules())

    def _persist(self, counted: Mapping[str, float]) -> None:
        """Export the counters of a checkpoint that is on disk."""
        if self._restored is None:  # else it holds the counters of before the restart, as exported
            self._persisted = dict(counted)

    def _write(self, state: ElectricalCheckpoint, idle: NodeIdle) -> bool:
        """Write a checkpoint; return whether it is on disk."""
        try:
            checkpoints.save(self._folder, _encoded(state, idle))
        except OSError as error:
            log.warning(
                "%s: %s. Heat and energy would not survive a restart now, and counters of energy stand still.",
                self._folder,
                error.strerror,
            )
            return False
        return True


def _encoded(state: ElectricalCheckpoint, idle: NodeIdle) -> bytes:
    if state.month:
        state.month["idle"] = idle.totals()
    return msgspec.json.encode(state)
