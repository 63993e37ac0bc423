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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from aggregator.electrical import checkpoint as checkpoints
from aggregator.electrical.checkpoint import ElectricalCheckpoint
from aggregator.electrical.energy_sampler import EnergySampler, local, reported_watts
from aggregator.electrical.fleet_power import FleetPowerReader
from aggregator.electrical.site_loader import WHERE, load_site, log_notices
from aggregator.electrical.snapshot_log import SnapshotLog
from aggregator.meters import MeterHub
from api.power import SiteConfiguration
from power.devices.thermal import Heat
from power.live import LivePower, PowerSnapshots
from power.meters.meter_record import MeterState
from power.report.energy_ledger import EnergyLedger
from power.report.tariff import price_at
from telemetry.errors import ConfigError
from telemetry.fleet import Fleet
from telemetry.mqtt import BrokerConfig
from telemetry.set_aside import SetAside, reason_of
from telemetry.supervision import ProgressMarks, Supervisor

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
    ) -> None:
        """`tree`: the [power] section. `reread` reads it again. `broker`: for meters without a broker of
        their own. Raises `ConfigError`."""
        self.site = load_site(WHERE, tree)
        self.configuration = SiteConfiguration(version=1, loaded_at=clock())
        self.latest: PowerSnapshots | None = None
        """The power snapshots of the last tick; None before the first, and without circuits."""
        self.seconds = 0.0
        """Duration of the last tick."""
        self.ledger = EnergyLedger()
        self.reporting_nodes = 0
        """Nodes whose power at the wall was known at the last tick."""
        self.unmapped: tuple[str, ...] = ()
        """Nodes of the fleet on no circuit of the configuration."""
        self.failure: str | None = None
        """Why there are no power snapshots though there are circuits: a fault of kilowatch's own."""
        self._aside = SetAside("power:")
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
        self._sampler = EnergySampler()
        self._live: LivePower | None = None
        self._reader = FleetPowerReader(())
        self._ticked_at = -np.inf
        self._listening_since = -np.inf
        self._listened = True
        self._fleet_version = -1
        self._reported_unmapped: set[str] = set()
        self._hub = MeterHub(self.site.config, broker or BrokerConfig(), where=WHERE)
        self._build()

    # -- Ticks -----------------------------------------------------------------------------------

    def snapshots(
        self, fleet: Fleet, now: float, wall_ns: int, *, listening: bool = True
    ) -> PowerSnapshots | None:
        """Return the power snapshots at `now`, the fleet's monotonic seconds; None without circuits.

        `listening`: whether the aggregator is connected to the bus. While it is not, and until nodes
        had time to report again, no node is silent. Calls within a second return the same snapshots.
        """
        self._follow_bus(now, listening)
        if now - self._ticked_at < FRESH_SECONDS:
            return self.latest
        began = time.perf_counter()
        self._ticked_at = now
        if fleet.version != self._fleet_version:
            self._guarded("nodes on no circuit", now, lambda: self._update_unmapped(fleet))
        live = self._live
        if live is not None:
            restored, self._restored = self._restored, None
            if restored is not None:
                self._guarded("checkpoint", now, lambda: live.restore(restored.live, now, wall_ns))
            self.latest = self._tick(live, fleet, now, wall_ns, listening)
        self.latest_at = wall_ns
        self._guarded("energy", now, lambda: self._count(fleet, now, wall_ns))
        self.seconds = time.perf_counter() - began
        return self.latest

    def _tick(
        self, live: LivePower, fleet: Fleet, now: float, wall_ns: int, listening: bool
    ) -> PowerSnapshots | None:
        """Return the power snapshots; None when they can't be computed: circuits are then unknown, and
        everything else goes on. The nodes and meters that are the cause are set aside."""
        try:
            readings = self._guarded("meters", now, self._hub.readings) or ()
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
            reason = reason_of(error)
            if self.failure != reason:
                log.exception("power: circuits can't be computed; trying again every second")
            self.failure = reason
            return None
        self.failure = None
        return snapshots

    def _guarded(self, part: str, now: float, compute: Callable[[], T]) -> T | None:
        """Return what a step beside the circuits returns; None where it raises."""
        try:
            found = compute()
        except Exception as error:  # noqa: BLE001 - reported by its name
            self._aside.fail(f"circuits/{part}", error, now)
            return None
        self._aside.works(f"circuits/{part}")
        return found

    def faults(self) -> dict[str, str]:
        """Return the circuits, meters, nodes, UPSs, budgets and steps that are unknown because of a
        fault of kilowatch's own, with the reasons."""
        found = self._aside.recent()
        return found if self._live is None else found | self._live.aside.recent()

    def _follow_bus(self, now: float, listening: bool) -> None:
        if listening and not self._listened:
            self._listening_since = now
        self._listened = listening

    def _update_unmapped(self, fleet: Fleet) -> None:
        """Find the nodes on no circuit, and log each once."""
        self._fleet_version = fleet.version
        if self.site.layout is None:
            self.unmapped = ()
            return
        self.unmapped = tuple(sorted(fleet.nodes.keys() - self.site.layout.machines.keys()))
        fresh = [name for name in self.unmapped if name not in self._reported_unmapped]
        if fresh:
            self._reported_unmapped.update(fresh)
            more = f" and {len(fresh) - 5} more" if len(fresh) > 5 else ""
            log.info("power: %s%s hang on no circuit; name them in a circuit's nodes, and what they "
                     "draw counts", ", ".join(fresh[:5]), more)  # fmt: skip

    def forget(self, node: str) -> None:
        """Forget what a node that was removed drew last; the circuits that it hangs on stay."""
        if self._live is not None:
            self._live.forget(node)
        self._reported_unmapped.discard(node)

    def meters(self) -> Sequence[MeterState]:
        """Return the state of each meter."""
        return self._hub.states()

    def _count(self, fleet: Fleet, now: float, wall_ns: int) -> None:
        place = self.site.config.site
        day, minute = local(wall_ns, self.site.zone)
        price = price_at(place.tariff, place.tariffs, minute)
        snapshots = self.latest
        wall_watts = None if snapshots is None else reported_watts(snapshots.supply)
        names = () if snapshots is None else snapshots.supply.names
        sample = self._sampler.sample(fleet, now, names, wall_watts)
        self.reporting_nodes = sample.nodes
        self.ledger.add(sample, wall_ns / 1e9, day, 1.0, price)

    def heat(self) -> Heat | None:
        """Return the heat of every line of the layout; None before the first tick."""
        live = self._live
        return None if live is None or self.latest is None else live.breaker_heat.heat

    # -- Configuration ---------------------------------------------------------------------------

    def reload(self) -> SiteConfiguration:
        """Read the configuration again. An error is in the answer and logged once; the last valid
        configuration then stays in force with its state."""
        if self._reread is None:
            return self.configuration
        try:
            site = load_site(WHERE, self._reread())
            self._hub.configure(site.config)
        except ConfigError as error:
            if str(error) != self.configuration.error:
                log.warning("power: the new configuration is invalid, the previous one stays in force. %s", error)  # fmt: skip
            self.configuration = msgspec.structs.replace(
                self.configuration, error=str(error), refused_at=self._clock()
            )
            return self.configuration
        if site.tree != self.site.tree:
            self.site = site
            self.configuration = SiteConfiguration(
                version=self.configuration.version + 1, loaded_at=self._clock()
            )
            self._build()
            log.info("power: a new configuration is in force")
        else:
            self.configuration = msgspec.structs.replace(
                self.configuration, error=None, refused_at=None
            )
        return self.configuration

    def _build(self) -> None:
        """Start a live state for the configuration; the state of circuits that it still has is kept."""
        layout, before = self.site.layout, self._live
        if before is not None and self._restored is None:
            self._restored = ElectricalCheckpoint(live=before.checkpoint())
        self._live = None if layout is None else LivePower(layout, self.configuration.version)
        self._reader = FleetPowerReader(() if self._live is None else self._live.machines)
        self.latest, self._ticked_at, self._fleet_version = None, -np.inf, -1
        log_notices(self.site)

    # -- Checkpoint ----------------------------------------------------------------------------------

    def load_checkpoint(self) -> None:
        """Load the checkpoint of the run before; call this before the first tick."""
        self._restored = checkpoints.load(self._folder)
        self.ledger = self._restored.ledger

    def checkpoint(self) -> bytes:
        """Return the encoded checkpoint."""
        known = self._live.checkpoint() if self._live is not None and self._restored is None else {}
        if self._restored is not None:  # no tick has restored it yet
            known = self._restored.live
        return msgspec.json.encode(
            ElectricalCheckpoint(at=self._clock(), live=known, ledger=self.ledger)
        )

    async def run(
        self, supervisor: Supervisor | None = None, marks: ProgressMarks | None = None
    ) -> None:
        """Read the meters and write the checkpoint every few seconds until cancelled; then once more.

        `supervisor` runs both; `marks` are those of the aggregator.
        """
        one = supervisor or Supervisor()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(one.run("meters", lambda: self._hub.run(one)), name="meters")
                group.create_task(
                    one.run("checkpoint", lambda: self._save_regularly(marks)), name="checkpoint"
                )
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
        body = self._guarded("checkpoint", now, self.checkpoint)
        if body is not None:
            write = functools.partial(self._write, body)
            await asyncio.to_thread(self._guarded, "checkpoint on disk", now, write)
        at, snapshots = self.latest_at, self.latest
        if snapshots is not None and at != self._logged_at:
            self._logged_at = at
            version = self.configuration.version
            add = functools.partial(self.snapshot_log.add, at, version, snapshots.all())
            await asyncio.to_thread(self._guarded, "log of circuits", now, add)

    def save(self) -> None:
        """Write the checkpoint now."""
        self._write(self.checkpoint())

    def _write(self, body: bytes) -> None:
        try:
            checkpoints.save(self._folder, body)
        except OSError as error:
            log.warning("%s: %s. Heat and energy would not survive a restart now.", self._folder, error.strerror)  # fmt: skip
