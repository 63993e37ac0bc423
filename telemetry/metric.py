"""What a metric is: one row of the catalogue, and the words such a row is made of.

A row says everything that other parts need: the frame its column, the store its type, the metrics
page its help, the dashboard its span, the NVML source its call, the nvidia-smi source its path.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
    """How a metric moves."""

    GAUGE = "gauge"
    COUNTER = "counter"
    """Only grows, except when the driver reloads: a decrease is a reset, not a negative rate."""


class Table(StrEnum):
    """What a row of readings belongs to."""

    GPU = "gpu"
    LINK = "link"
    NODE = "node"


class Lane(StrEnum):
    """How often a metric is read."""

    FAST = "fast"
    """Every tick."""
    SLOW = "slow"
    """Every 15 s by default: what is expensive to read, or seldom changes."""


@dataclass(frozen=True, slots=True)
class Field:
    """One value of `nvmlDeviceGetFieldValues`, read in one batch with all others of its GPU."""

    id: int
    scale: float = 1.0
    scope: int = 0
    """Link number, power scope (0 GPU, 1 module, 2 memory) or the constant `EACH_LINK`."""


@dataclass(frozen=True, slots=True)
class Call:
    """One NVML function of a device handle. Identical calls share one answer within a tick."""

    function: str
    scale: float = 1.0
    args: tuple[int, ...] = ()
    pick: str | int | None = None
    """Attribute of the answer, or its index when it is a tuple."""
    mask: int = 0
    """Bits to keep; the reading is 1 if any is set, unless `shift` says which number to cut out."""
    shift: int | None = None


@dataclass(frozen=True, slots=True)
class Gpm:
    """One GPU Performance Monitoring metric (Hopper and newer), from two samples a tick apart."""

    id: int
    scale: float = 1.0


EACH_LINK = -1
"""As a `Field.scope`: the number of the link that the row stands for."""
ALL_LINKS = 0xFFFFFFFF
"""As a `Field.scope`: the sum over all links."""

Nvml = Field | Call | Gpm


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One row of the catalogue."""

    name: str
    """Prometheus name without prefix, unit last: `gpu_power_watts`."""
    unit: Unit
    help: str
    """One sentence for an operator: what it is and what to beware of."""
    table: Table = Table.GPU
    kind: Kind = Kind.GAUGE
    lane: Lane = Lane.FAST
    nvml: tuple[Nvml, ...] = ()
    """Where NVML has it: the first that the GPU supports is used."""
    smi: tuple[str, ...] = ()
    """Where `nvidia-smi -q` has it, as slash paths below a GPU: the first that is there is used.
    XML tags and text labels are both written as words in lower case joined by `_`."""
    origin: str = ""
    """Where the number comes from, when neither NVML nor nvidia-smi has it."""
    span: tuple[float, float] | None = None
    """One scale for the whole fleet, so that two GPUs compare by eye."""
    states: tuple[tuple[int, str], ...] = ()
    """For `Unit.STATE`: number and word of each member."""
