"""The schema in InfluxDB: retention policies, measurements, tags, types of fields. Pure.

A tag is a name, never a value: each set of tags is a series for as long as the server keeps it, so that
errors, jobs and texts are fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aggregator.settings.influx import InfluxConfig
from aggregator.store.protocol import StoredDevice
from telemetry.catalogue import CATALOGUE
from telemetry.gap import Gap
from telemetry.metric import Kind, Lane, Metric, Table, Unit
from telemetry.text import exact_duration

RAW = "raw"
EVENTS = "events"
HOLES = "holes"
JOBS = "jobs"

METRICS: dict[str, Metric] = {metric.name: metric for metric in CATALOGUE}
_WHOLE = (Unit.COUNT, Unit.BYTES)

ANNOUNCED = (
    Gap.UNKNOWN,
    Gap.NO_PERMISSION,
    Gap.TIMED_OUT,
    Gap.DEVICE_LOST,
    Gap.ERROR,
    Gap.STALE,
    Gap.PAUSED,
    Gap.SATURATED,
    Gap.LATE,
)
"""Reasons that are written; a metric that a device does not have at all is no gap to report."""


def frames_field(lane: Lane) -> str:
    """Return the field with the number of frames of a point: `readings`, and for metrics of the slow
    lane `slow_readings`, since one point may be of both lanes."""
    return "readings" if lane is Lane.FAST else "slow_readings"


def gap_field(reason: Gap, lane: Lane) -> str:
    """Return the field that counts the readings absent for a reason."""
    return f"gap_{reason.word}" if lane is Lane.FAST else f"slow_gap_{reason.word}"


def whole(metric: Metric) -> bool:
    """Return whether a metric is an integer field. The type of a field never changes: the server
    refuses an integer where it has a float."""
    return metric.kind is Kind.COUNTER and metric.unit in _WHOLE


def keeps_last(metric: Metric) -> bool:
    """Return whether the last reading represents a span of time, instead of the mean."""
    return metric.kind is Kind.COUNTER or metric.unit is Unit.STATE


def discrete(metric: Metric) -> bool:
    """Return whether each change of a metric is written at its own time."""
    return metric.kind is Kind.GAUGE and metric.unit in {Unit.STATE, Unit.FLAG}


def measurement(table: Table, step: int = 0) -> str:
    """Return `gpu` for readings and means, `gpu_1m` for a roll-up."""
    return f"{table}_{exact_duration(step)}" if step else str(table)


def changes(table: Table) -> str:
    """Return the measurement of changes of states."""
    return f"{table}_changes"


def policy(step: int = 0) -> str:
    """Return the retention policy of readings and means, or of a roll-up."""
    return f"rollup_{exact_duration(step)}" if step else RAW


def policies(config: InfluxConfig) -> dict[str, float]:
    """Return all retention policies and their seconds; the first is the database's default."""
    rollups = zip(config.rollup_seconds, config.rollup_age_seconds, strict=True)
    return {
        RAW: config.raw_age_seconds,
        **{policy(step): age for step, age in rollups},
        EVENTS: config.events_age_seconds,
    }


def bucket(database: str, retention: str) -> str:
    """Return the bucket of 2.x: its name makes the server map database and policy by itself."""
    return f"{database}/{retention}"


# -- Line protocol -------------------------------------------------------------------------------


def escape(text: str) -> str:
    """Return a tag's value escaped for a line; an empty one stays empty, and is to be left out."""
    text = " ".join(text.split("\n")).replace("\r", " ").rstrip("\\")
    for letter in (",", "=", " "):
        text = text.replace(letter, f"\\{letter}")
    return text


def text_field(text: str) -> str:
    """Return a string field's value, quoted."""
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + " ".join(text.splitlines()) + '"'


def tags(values: Mapping[str, str | int | None]) -> str:
    """Return `,cluster=home,gpu=0`: in order of their keys, as the server requires."""
    parts = []
    for key, value in sorted(values.items()):
        escaped = "" if value is None else escape(str(value))
        if escaped:
            parts.append(f",{key}={escaped}")
    return "".join(parts)


@dataclass(frozen=True, slots=True)
class TableTags:
    """Tags of the devices of a table, beside `cluster` and `node`."""

    key: tuple[str, ...]
    """The tags that are its key, where there are several joined by `/`."""
    number: str = ""
    """The tag that is its number."""
    name: str = ""
    gpu: str = ""
    """The tag that is the index of the GPU that it belongs to."""

    def all(self) -> tuple[str, ...]:
        """Return the tags of a series of a device, without its cluster."""
        return tuple(dict.fromkeys(("node", *self.key, *filter(None, (self.number, self.name)))))

    def of_key(self, key: str) -> dict[str, str]:
        """Return the tags of a device of this key; of a part that it lacks an empty one."""
        parts = key.rsplit("/", len(self.key) - 1)
        lacking = [""] * (len(self.key) - len(parts))
        return dict(zip(self.key, lacking + parts, strict=True))

    def key_of(self, found: Mapping[str, str]) -> tuple[str, str]:
        """Return node and key of a device with these tags."""
        return found.get("node", ""), "/".join(found[tag] for tag in self.key)


TAGS = {table: TableTags(("id",), name=str(table)) for table in Table} | {
    Table.GPU: TableTags(("uuid",), "gpu", "model"),
    Table.LINK: TableTags(("uuid", "link"), "link", gpu="gpu"),
    Table.NODE: TableTags(("node",)),
    Table.PORT: TableTags(("id",), name="port"),
    Table.INSTANCE: TableTags(("id",), "gpu_instance", "instance"),
}


def device_tags(cluster: str, table: Table, device: StoredDevice, gpu: StoredDevice | None) -> str:
    """Return the tags of a device; `gpu` is the GPU that a link belongs to, where it is known."""
    its = TAGS[table]
    named: dict[str, str | int | None] = {
        its.number: device.index, its.name: device.name, its.gpu: None if gpu is None else gpu.index,
        **its.of_key(device.key), "cluster": cluster, "node": device.node,
    }  # fmt: skip
    return tags({tag: value for tag, value in named.items() if tag})
