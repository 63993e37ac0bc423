"""Descriptions of NVML calls, for the rows of the catalogue; `collector.nvml` makes the calls."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Field:
    """A value of `nvmlDeviceGetFieldValues`, read in one batch with all others of its GPU."""

    id: int
    scale: float = 1.0
    scope: int = 0
    """Link number, power scope (0 GPU, 1 module, 2 memory) or the constant `EACH_LINK`."""


@dataclass(frozen=True, slots=True)
class Call:
    """A function of a device handle. Identical calls share one answer within a tick."""

    function: str
    scale: float = 1.0
    args: tuple[int, ...] = ()
    pick: str | int | None = None
    """Attribute of the answer, with dots that of an attribute, or its index when it is a tuple."""
    mask: int = 0
    """Bits to keep; the reading is 1 if any is set, unless `shift` is set: then it is the number at that bit."""
    shift: int | None = None
    first_bit: bool = False
    """Whether the answer is an array of words, and the reading the number of its lowest bit that is set: 255 for none."""


@dataclass(frozen=True, slots=True)
class Gpm:
    """A GPU Performance Monitoring metric (Hopper and newer), from two samples a tick apart."""

    id: int
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class CounterRate:
    """Growth of a counter a second: two of its readings, and the time between these themselves. For GPUs that don't
    give the rate. Counters of 32 bits wrap too often for one."""

    of: Field


_LINK_IDS = ((36, 405), (18, 212), (0, 62))
"""First link of a run of GPM ids, and the id of what it receives; the next id is what it sends."""


@dataclass(frozen=True, slots=True)
class LinkGpm:
    """A metric of GPM that each NVLink has under an id of its own: its traffic one way."""

    receive: bool
    scale: float = 1.0

    def of(self, link: int) -> Gpm:
        """Return the metric of a link, by its number."""
        first, number = next((first, number) for first, number in _LINK_IDS if link >= first)
        return Gpm(number + 2 * (link - first) + (not self.receive), self.scale)


class Bus(StrEnum):
    """The kind of links of a GPU."""

    NVLINK = "NVLink"
    C2C = "C2C link"


class Fold(StrEnum):
    """The number that those of all links are made into."""

    SUM = "sum"
    LEAST = "least"
    LEAST_LINK = "number of the link with the least"
    MOST_LINK = "number of the link with the most"
    """`NO_LINK` where all have 0."""


@dataclass(frozen=True, slots=True)
class OfLinks:
    """A number of the GPU that is made of those of its links, read for each."""

    bus: Bus
    fold: Fold
    parts: tuple[Field | LinkGpm, ...]
    """Read for each link, fields with the scope `EACH_LINK`; a link's number is their sum."""
    active: Field | None = None
    """Links for which this is not 1 are left out."""


NO_LINK = 255.0
EACH_LINK = -1
"""As a `Field.scope`: the number of the link that the row represents."""
ALL_LINKS = 0xFFFFFFFF
"""As a `Field.scope`: the sum over all links."""

NvmlReader = Field | Call | Gpm | CounterRate | LinkGpm | OfLinks
