"""How a row of the catalogue names its NVML call; the calls themselves are in `collector.nvml`."""

from __future__ import annotations

from dataclasses import dataclass


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

NvmlReader = Field | Call | Gpm
