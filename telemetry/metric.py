"""The type of a metric: a row of the catalogue, and the types of its fields.

A row holds everything that other parts need: the frame its column, the store its type, the metrics
page its help, the dashboard its span, each source its readers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Unit(StrEnum):
    """Base units, as in Prometheus. Sources convert once, where they read."""

    WATTS = "watts"
    AMPERES = "amperes"
    JOULES = "joules"
    CELSIUS = "celsius"
    HERTZ = "hertz"
    RATIO = "ratio"
    BYTES = "bytes"
    BYTES_PER_SECOND = "bytes_per_second"
    SECONDS = "seconds"
    COUNT = "count"
    """A number of things: errors, rows, lanes, processes."""
    FLAG = "flag"
    """0 or 1."""
    STATE = "state"
    """A number from a closed list; `Metric.states` names its members."""


class Kind(StrEnum):
    """Whether a metric goes up and down or only up."""

    GAUGE = "gauge"
    COUNTER = "counter"
    """A number that only grows, except when the driver reloads: a decrease is a reset."""


class Table(StrEnum):
    """The kind of device that a row of readings belongs to."""

    GPU = "gpu"
    LINK = "link"
    NODE = "node"
    PORT = "port"
    INSTANCE = "instance"
    """Part of a GPU that MIG has split off."""


class Lane(StrEnum):
    """How often a metric is read."""

    FAST = "fast"
    """Every tick."""
    SLOW = "slow"
    """Every 15 s by default: for readings that are expensive, or seldom change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A row of the catalogue."""

    name: str
    """Prometheus name without prefix, unit last: `gpu_power_watts`."""
    unit: Unit
    help: str
    """Sentence for an operator: the meaning of the metric and its pitfalls."""
    table: Table = Table.GPU
    kind: Kind = Kind.GAUGE
    lane: Lane = Lane.FAST
    sources: Mapping[str, tuple[Any, ...]] = field(default_factory=dict, hash=False)
    """Readers by source, each in order of preference: the first that the GPU supports is used.

    `nvml`: calls (`telemetry.catalogue.nvml`). `smi`: slash paths below a GPU in `nvidia-smi -q`, whose XML
    tags and text labels are both written as words in lower case joined by `_`. `host`: files of a
    port (`telemetry.catalogue.sysfs`). `amd`: files of amdgpu and answers of libamd_smi (`telemetry.catalogue.amd`). Another vendor is another key, which its folder in `collector/` reads."""
    origin: str = ""
    """Where the number comes from, if from no source."""
    span: tuple[float, float] | None = None
    """Scale for the whole fleet, so that two GPUs compare by eye."""
    states: tuple[tuple[int, str], ...] = ()
    """For `Unit.STATE`: number and word of each member."""
    is_fault: bool = False
    """Whether each count is a fault of the device itself: lists add these up as its errors."""

    def readers(self, source: str) -> tuple[Any, ...]:
        """Return the readers of a source, preferred first; none where it lacks the metric."""
        return self.sources.get(source, ())
