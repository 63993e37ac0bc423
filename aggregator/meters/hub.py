"""The meters of a site: started and ended together, none blocking another."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable, Sequence

from aggregator.meters.mqtt import MeterBus
from aggregator.meters.nut import NutPoller
from aggregator.meters.poller import Poller
from aggregator.meters.redfish import RedfishPoller
from aggregator.meters.secrets import broker_config, secret, trust
from power.meters.base import AttachedMeter, MqttConfig
from power.meters.meter_record import MeterRecord, MeterState
from power.meters.nut import Nut
from power.meters.reading import MeterReading
from power.meters.redfish import Redfish
from power.site.attach import attach
from power.site.config import PowerConfig
from telemetry.runtime.supervision import Supervisor
from telemetry.runtime.tasks import TaskGroup
from telemetry.wire.mqtt import BrokerConfig


class MeterHub:
    """Reader of every meter of a site. Call `run` once; `readings` and `states` are cheap."""

    def __init__(
        self,
        site: PowerConfig,
        broker: BrokerConfig,
        *,
        where: str = "power",
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`broker`: kilowatch's own, for meters that name no other. Raises `ConfigError`."""
        self._broker = broker
        self._where = where
        self._now = now
        self._records: dict[str, MeterRecord] = {}
        self._site = site
        self._changed = asyncio.Event()
        self.configure(site)

    def configure(self, site: PowerConfig) -> None:
        """Replace the configured meters; unchanged ones keep their readings.

        Raises `ConfigError`, and then changes nothing.
        """
        records = {
            meter.name: self._records[meter.name]
            if meter.name in self._records and self._records[meter.name].meter == meter
            else MeterRecord(meter, self._place(meter, site), asked=not isinstance(meter.config, MqttConfig))
            for meter in attach(self._where, site)
        }
        # A password or certificate that can't be read is an error now, not in a task.
        for record in records.values():
            self._check_files(record.meter, site)
        self._records, self._site = records, site
        self._changed.set()

    async def run(self, supervisor: Supervisor | None = None) -> None:
        """Read until cancelled; `supervisor` runs the task of each meter."""
        supervisor = supervisor or Supervisor()
        while True:
            self._changed.clear()
            async with TaskGroup() as group:
                for name, work in self._work(supervisor):
                    group.create_task(supervisor.run(name, work), name=name)
                await self._changed.wait()
                group.cancel_tasks()

    def readings(self) -> Sequence[MeterReading]:
        """Return the newest reading of each meter, target and pole; stale ones too."""
        return [reading for record in self._records.values() for reading in record.readings()]

    def states(self) -> Sequence[MeterState]:
        """Return the state of each meter."""
        return [record.state for record in self._records.values()]

    def _work(self, supervisor: Supervisor) -> list[tuple[str, Callable[[], Awaitable[None]]]]:
        by_broker: dict[str | None, list[MeterRecord]] = {}
        found: list[tuple[str, Callable[[], Awaitable[None]]]] = []
        for record in self._records.values():
            config = record.meter.config
            if isinstance(config, MqttConfig):
                by_broker.setdefault(config.broker, []).append(record)
            else:
                found.append((f"meter {record.meter.name}", self._poller(record).run))
        for name, records in by_broker.items():
            where = f"meters of {name or self._site.meter_broker or 'our broker'}"
            bus = MeterBus(self._broker_of(name, self._site), records, self._now)
            found.append((where, functools.partial(bus.run, where, supervisor)))
        return found

    def _poller(self, record: MeterRecord) -> Poller:
        config = record.meter.config
        if isinstance(config, Nut):
            return NutPoller(config, record, self._now)
        assert isinstance(config, Redfish)  # noqa: S101 - the union has no other member
        return RedfishPoller(config, record, self._now)

    def _place(self, meter: AttachedMeter, site: PowerConfig) -> str:
        config = meter.config
        if isinstance(config, MqttConfig):
            broker = self._broker_of(config.broker, site)
            return f"MQTT {broker.address} {config.topic}"
        if isinstance(config, Nut):
            return f"upsd {config.host}:{config.port}"
        assert isinstance(config, Redfish)  # noqa: S101 - the union has no other member
        return config.services()[""]

    def _check_files(self, meter: AttachedMeter, site: PowerConfig) -> None:
        config = meter.config
        place = f"{self._where}: meters.{meter.name}"
        if isinstance(config, MqttConfig):
            broker = self._broker_of(config.broker, site)
            broker.password()
            broker.context()
        elif isinstance(config, Nut | Redfish):
            secret(place, config.password_file)
            if isinstance(config, Redfish):
                trust(place, config)

    def _broker_of(self, name: str | None, site: PowerConfig) -> BrokerConfig:
        named = name or site.meter_broker
        return self._broker if named is None else broker_config(site.brokers[named])
