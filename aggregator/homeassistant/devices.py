"""GPUs and circuits of a running aggregator as devices of Home Assistant."""

from __future__ import annotations

import logging
import math

from aggregator.homeassistant.entities import CIRCUIT_ENTITIES, COST, GPU_ENTITIES, Device, Entity, Value, slug
from aggregator.mqtt.power_topics import firing, spoken
from aggregator.register.node_status import status_of
from aggregator.view import AggregatorView, parts_of
from api.alerts import Alert, AlertState, Severity, Subject
from api.fleet import NodeStatus
from api.power import CircuitState
from power.report.energy import JOULES_PER_KWH
from power.snapshot.documents import circuit_states
from present.device.gpu import gpu_name
from telemetry.devices import Gpu
from telemetry.fleet import Floats
from telemetry.runtime.isolation import Parts

log = logging.getLogger(__name__)

MOST_DEVICES = 512
"""Devices that are published, circuits first: a home has a dozen, and each is six entities."""
MOST_LOGGED = 8
"""Ids that are logged at once."""
PAGE = "home assistant"
"""Name of these devices where one is set aside."""
METRICS = ("gpu_power_watts", "gpu_energy_joules_total", "gpu_temperature_celsius")


class DeviceReader:
    """Reads the devices; remembers which warnings were logged."""

    def __init__(self, view: AggregatorView) -> None:
        self.unmade: set[str] = set()
        """Ids of the devices that there are and that could not be made at the last reading."""
        self._view = view
        self._too_many = False
        self._repeated: frozenset[str] = frozenset()

    def read(self) -> list[Device]:
        """Return the present devices, circuits first."""
        view, parts = self._view, parts_of(self._view, PAGE)
        self.unmade = set()
        alerts = [
            alert
            for alert in spoken(view.alerts(), view.pipeline.manager.status)
            if alert.state is AlertState.FIRING and alert.severity is not Severity.INFO
        ]
        found = self._distinct([*self._circuits(alerts, parts), *self._gpus(alerts, parts)])
        self.unmade -= {device.id for device in found}
        if len(found) > MOST_DEVICES and not self._too_many:
            log.warning(
                "home assistant: %d circuits and GPUs are more than the %d that it is given; "
                "the last GPUs are left out",
                len(found),
                MOST_DEVICES,
            )
        self._too_many = len(found) > MOST_DEVICES
        return found[:MOST_DEVICES]

    def _distinct(self, devices: list[Device]) -> list[Device]:
        """Return the first device of each id: a name that a node sends takes no other's topics."""
        found: dict[str, Device] = {}
        for device in devices:
            found.setdefault(device.id, device)
        repeated = frozenset(device.id for device in devices if found[device.id] is not device)
        for identity in sorted(repeated - self._repeated)[:MOST_LOGGED]:
            log.warning("home assistant: several devices have the id %s; the first one stays", identity)
        self._repeated = repeated
        return list(found.values())

    def _circuits(self, alerts: list[Alert], parts: Parts) -> list[Device]:
        view = self._view
        electrical, price = view.electrical, self._price()
        layout, snapshots = electrical.site.layout, electrical.latest
        if layout is None:
            return []
        bad = firing(alerts, Subject.CIRCUIT)
        states: dict[str, CircuitState] = (
            {} if snapshots is None else {one.id: one for one in circuit_states(layout, snapshots.circuit, bad, parts)}
        )
        names = list(layout.circuits)
        ids = [f"{slug(view.cluster)}_circuit_{slug(name)}" for name in names]
        self.unmade.update(ids)

        def make(place: int) -> Device:
            name = names[place]
            state = states.get(name)
            values: dict[str, Value] = {} if state is None else circuit_values(state)
            return _device(
                ids[place],
                f"Circuit {name}",
                "Panel" if layout.circuits[name].is_panel else "Circuit",
                "kilowatch",
                CIRCUIT_ENTITIES,
                values,
                state is not None,
                price,
            )

        return parts.each("circuit", names, make)

    def _gpus(self, alerts: list[Alert], parts: Parts) -> list[Device]:
        view, now, price = self._view, self._view.now(), self._price()
        columns: list[Floats] = [view.fleet.column(name, now) for name in METRICS]
        bad: dict[str, list[str]] = {}
        for alert in alerts:
            if alert.gpu is not None:
                bad.setdefault(alert.gpu, []).append(alert.id or alert.rule)
        present: list[tuple[int, str, Gpu]] = [
            (row, *entry)
            for row, entry in enumerate(view.fleet.gpus)
            if entry is not None and view.fleet.by_uuid.get(entry[1].uuid) == row  # not moved to another node
        ]
        ids = [f"{slug(view.cluster)}_gpu_{slug(gpu.uuid)}" for _, _, gpu in present]
        self.unmade.update(ids)

        def make(place: int) -> Device:
            row, node, gpu = present[place]
            watts, joules, celsius = (known(float(column[row])) for column in columns)
            rules = sorted(bad.get(gpu.uuid, ()))
            values: dict[str, Value] = {
                "power": watts,
                "energy": None if joules is None else joules / JOULES_PER_KWH,
                "temperature": celsius,
                "problem": "ON" if rules else "OFF",
                "alerts": rules,
            }
            online = status_of(view.fleet.nodes[node], now) is NodeStatus.ONLINE and gpu.present
            return _device(
                ids[place],
                gpu_name(node, gpu.index),
                gpu.name.removeprefix("NVIDIA "),
                "NVIDIA",
                GPU_ENTITIES,
                values,
                online,
                price,
                gpu.serial,
            )

        return parts.each("gpu", [gpu_name(node, gpu.index) for _, node, gpu in present], make)

    def _price(self) -> tuple[float, str] | None:
        """Return the price of a kWh now, and the currency; None where no tariff is set."""
        electrical = self._view.electrical
        price = electrical.energy.price(self._view.wall())
        return None if price is None else (price, electrical.site.config.site.currency)


def _device(
    identity: str,
    name: str,
    model: str,
    manufacturer: str,
    entities: tuple[Entity, ...],
    values: dict[str, Value],
    available: bool,
    price: tuple[float, str] | None,
    serial: str | None = None,
) -> Device:
    """Return a device; with a tariff, it has a cost too."""
    currency = ""
    if price is not None:
        amount, currency = price
        watts = values.get("power")
        kwh_an_hour = watts / 1000 if isinstance(watts, float) else None
        values["cost"] = None if kwh_an_hour is None else kwh_an_hour * amount
        entities = (*entities, COST)
    return Device(
        id=identity,
        name=name,
        model=model,
        manufacturer=manufacturer,
        entities=entities,
        values=values,
        available=available,
        serial=serial,
        currency=currency,
    )


def known(value: float) -> float | None:
    """Return a reading, or None for a gap."""
    return value if math.isfinite(value) else None


def circuit_values(state: CircuitState) -> dict[str, Value]:
    """Return the values of a circuit's entities."""
    earliest = state.trip_seconds.earliest
    trip = "unknown" if not state.trip_known else "never" if earliest is None else "in time"
    return {
        "power": state.watts,
        "energy": state.energy_kwh,
        "load": None if state.load_ratio is None else 100 * state.load_ratio,
        "trip_seconds": earliest,
        "trip": trip,
        "problem": "ON" if state.alerts else "OFF",
        "alerts": state.alerts,
    }
