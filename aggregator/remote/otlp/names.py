"""Metrics as OTLP names them: OpenTelemetry's semantic conventions for hardware (`hw.*`), and `kilowatch.*` for what
these have no word for and a setting chooses.

The names and units are those of the official package; a test compares them.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from aggregator.settings.otlp import matching
from telemetry.catalogue import BY_NAME
from telemetry.metric import Kind, Unit

Pairs = tuple[tuple[str, str], ...]


class OtlpShape(Enum):
    """Type of a metric on the wire."""

    GAUGE = "gauge"
    COUNTER = "counter"
    """A sum since a start, which never falls."""
    UP_DOWN = "up-down counter"
    """A sum that may fall."""


class Exported(NamedTuple):
    """A metric of the catalogue under its name in OTLP."""

    metric: str
    """Name in the catalogue."""
    name: str
    unit: str
    """By UCUM."""
    shape: OtlpShape
    whole: bool = False
    """Whether its values are whole numbers."""
    attributes: Pairs = ()
    """Attributes beside those of the device; in their place where they have a `hw.id`."""
    true_from: float | None = None
    """Value from which on 1 is sent, and 0 below; None sends the value itself."""

    @property
    def is_part(self) -> bool:
        """Whether it is of a part that its attributes name, in place of those of the device."""
        return any(key == "hw.id" for key, _ in self.attributes)


def _way(direction: str) -> Pairs:
    return (("network.io.direction", direction),)


def _sensor(place: str) -> Pairs:
    return (("hw.sensor_location", place),)


def _limit(place: str, kind: str) -> Pairs:
    return (*_sensor(place), ("hw.limit_type", kind))


def _part(kind: str) -> Pairs:
    """Attributes of a part of a node whose sensors the kernel adds up."""
    return (("hw.id", kind), ("hw.type", kind), ("hw.name", kind))


def _task(task: str) -> Pairs:
    return (("hw.gpu.task", task),)


def _error(kind: str, *more: tuple[str, str]) -> Pairs:
    return (("error.type", kind), *more)


_GAUGE, _COUNTER, _UP_DOWN = OtlpShape
_UTILIZATION, _LIMIT, _USAGE = "hw.gpu.utilization", "hw.gpu.memory.limit", "hw.gpu.memory.usage"
_RECEIVE, _TRANSMIT = _way("receive"), _way("transmit")

CONVENTIONS = (
    Exported("gpu_power_watts", "hw.power", "W", _GAUGE),
    Exported("gpu_energy_joules_total", "hw.energy", "J", _COUNTER),
    Exported("gpu_temperature_celsius", "hw.temperature", "Cel", _GAUGE, attributes=_sensor("gpu")),
    Exported("gpu_memory_temperature_celsius", "hw.temperature", "Cel", _GAUGE, attributes=_sensor("memory")),
    Exported("gpu_temperature_slowdown_celsius", "hw.temperature.limit", "Cel", _GAUGE, attributes=_limit("gpu", "throttled")),
    Exported("gpu_temperature_shutdown_celsius", "hw.temperature.limit", "Cel", _GAUGE, attributes=_limit("gpu", "high.critical")),
    Exported("gpu_fan_speed_ratio", "hw.fan.speed_ratio", "1", _GAUGE),
    Exported("gpu_utilization_ratio", _UTILIZATION, "1", _GAUGE, attributes=_task("general")),
    Exported("gpu_encoder_utilization_ratio", _UTILIZATION, "1", _GAUGE, attributes=_task("encoder")),
    Exported("gpu_decoder_utilization_ratio", _UTILIZATION, "1", _GAUGE, attributes=_task("decoder")),
    Exported("gpu_memory_total_bytes", _LIMIT, "By", _UP_DOWN, True),
    Exported("gpu_memory_used_bytes", _USAGE, "By", _UP_DOWN, True),
    Exported("gpu_pcie_receive_bytes_total", "hw.gpu.io", "By", _COUNTER, True, _RECEIVE),
    Exported("gpu_pcie_transmit_bytes_total", "hw.gpu.io", "By", _COUNTER, True, _TRANSMIT),
    Exported("gpu_ecc_aggregate_corrected_total", "hw.errors", "{error}", _COUNTER, True, _error("corrected")),
    Exported("gpu_ecc_aggregate_uncorrected_total", "hw.errors", "{error}", _COUNTER, True, _error("uncorrected")),
    Exported("gpu_pcie_replays_total", "hw.errors", "{error}", _COUNTER, True, _error("pcie_replay")),
    Exported("instance_memory_total_bytes", _LIMIT, "By", _UP_DOWN, True),
    Exported("instance_memory_used_bytes", _USAGE, "By", _UP_DOWN, True),
    Exported("instance_graphics_active_ratio", _UTILIZATION, "1", _GAUGE, attributes=_task("general")),
    Exported("node_wall_power_watts", "hw.host.power", "W", _GAUGE),
    Exported("node_cpu_package_energy_joules_total", "hw.energy", "J", _COUNTER, attributes=_part("cpu")),
    Exported("node_memory_energy_joules_total", "hw.energy", "J", _COUNTER, attributes=_part("memory")),
    Exported("node_cpu_temperature_celsius", "hw.temperature", "Cel", _GAUGE, attributes=(*_part("cpu"), *_sensor("cpu"))),
    Exported("node_edac_correctable_errors_total", "hw.errors", "{error}", _COUNTER, True, (*_part("memory"), *_error("corrected"))),
    Exported("node_edac_uncorrectable_errors_total", "hw.errors", "{error}", _COUNTER, True, (*_part("memory"), *_error("uncorrected"))),
    Exported("port_state", "hw.network.up", "1", _UP_DOWN, True, true_from=4.0),
    Exported("port_speed_bytes_per_second", "hw.network.bandwidth.limit", "By/s", _UP_DOWN, True),
    Exported("port_receive_bytes_total", "hw.network.io", "By", _COUNTER, True, _RECEIVE),
    Exported("port_transmit_bytes_total", "hw.network.io", "By", _COUNTER, True, _TRANSMIT),
    Exported("port_receive_packets_total", "hw.network.packets", "{packet}", _COUNTER, True, _RECEIVE),
    Exported("port_transmit_packets_total", "hw.network.packets", "{packet}", _COUNTER, True, _TRANSMIT),
    Exported("port_receive_errors_total", "hw.errors", "{error}", _COUNTER, True, _error("receive", *_RECEIVE)),
    Exported("port_symbol_errors_total", "hw.errors", "{error}", _COUNTER, True, _error("symbol", *_RECEIVE)),
    Exported("port_transmit_discards_total", "hw.errors", "{error}", _COUNTER, True, _error("discard", *_TRANSMIT)),
)  # fmt: skip
"""Metrics that are always sent. There is no `hw.status`: whether a GPU is fit is a verdict of the rules, which alerts carry."""
UP = Exported("", "kilowatch.node.up", "1", _UP_DOWN, True)
"""1 for a node that reports, 0 for one that is known and silent, of which nothing else is sent."""
PREFIX = "kilowatch."
"""Before the catalogue's name of what the conventions have no word for."""
_UNITS = {
    Unit.WATTS: "W", Unit.AMPERES: "A", Unit.JOULES: "J", Unit.CELSIUS: "Cel", Unit.HERTZ: "Hz", Unit.RATIO: "1",
    Unit.BYTES: "By", Unit.BYTES_PER_SECOND: "By/s", Unit.SECONDS: "s", Unit.COUNT: "1", Unit.FLAG: "1",
    Unit.STATE: "1",
}  # fmt: skip
_WHOLE = frozenset({Unit.BYTES, Unit.COUNT, Unit.FLAG, Unit.STATE})


def exported(more: Iterable[str]) -> tuple[Exported, ...]:
    """Return all that is sent: the conventions, and those that some patterns name besides."""
    named = {one.metric for one in CONVENTIONS}
    chosen = dict.fromkeys(name for pattern in more for name in matching(pattern))
    return (*CONVENTIONS, *(_extension(name) for name in chosen if name not in named))


def _extension(name: str) -> Exported:
    metric = BY_NAME[name]
    shape = OtlpShape.COUNTER if metric.kind is Kind.COUNTER else OtlpShape.GAUGE
    return Exported(
        name, PREFIX + name, _UNITS[metric.unit], shape, metric.unit in _WHOLE and metric.name not in _FRACTIONS
    )


_FRACTIONS = frozenset({"node_load_1m", "node_load_5m", "node_load_15m"})
"""Counts of things that are means over time."""
