"""Descriptions of what AMD's `amdgpu` driver and its library say, for the rows of the catalogue;
`collector.amd` reads them.

Paths are below the PCI device of a GPU, `/sys/bus/pci/devices/<address>`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Pick(StrEnum):
    """Part of the text of a file that is the reading."""

    NUMBER = "number"
    """The text as a number."""
    WORD = "word"
    """The number of the text among the states of the metric."""
    STARRED = "current"
    """The number of the line with a star: the level in use of `pp_dpm_*`."""
    HIGHEST = "highest"
    """The highest number among the lines of `pp_dpm_*`."""
    SPEED = "generation"
    """The PCI Express generation of a text as `32.0 GT/s PCIe`."""
    UMC = "bit 0"
    """Bit 0 of the mask of `ras/features`: error correction of the memory."""


@dataclass(frozen=True, slots=True)
class File:
    """A file of the device."""

    path: str
    scale: float = 1.0
    pick: Pick = Pick.NUMBER
    minus: str = ""
    """Another file whose number is subtracted."""


@dataclass(frozen=True, slots=True)
class Sensor:
    """A file of the device's hwmon chip: `power1_cap`, or `temp:junction/crit` for the sensor of that label."""

    name: str
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Binary:
    """A field of the binary table `gpu_metrics`."""

    field: str
    scale: float = 1.0
    fold: str = ""
    """Of a field that is a list: `mean`, `min`, `max`, or `link` for the entry of the link that the row is of."""
    times: str = ""
    """Another field by which it is multiplied."""


@dataclass(frozen=True, slots=True)
class Ras:
    """A count of `ras/<block>_err_count`."""

    severity: str
    """`ue`, `ce` or `de`: uncorrectable, correctable, deferred."""
    block: str = ""
    """Name of the block; empty for the sum of all."""


@dataclass(frozen=True, slots=True)
class Residency:
    """Time for which throttlers were active: the share of accumulated cycles of the throttler that was active
    longest, times the time since the reading before."""

    throttlers: tuple[str, ...]
    """`prochot`, `ppt`, `socket_thm`, `vr_thm`, `hbm_thm`."""
    flag: bool = False
    """Whether the reading is 1 where it was active at all since the reading before, else the sum of seconds."""


@dataclass(frozen=True, slots=True)
class BadPages:
    """Number of pages of `ras/gpu_vram_bad_pages` by their status."""

    status: str
    """`R` retired, `P` pending, `F` failed to be retired."""
    flag: bool = False
    """Whether the reading is 1 where there is any."""


@dataclass(frozen=True, slots=True)
class LibraryAnswer:
    """An answer of libamd_smi, read in a thread of its own."""

    answer: str
    """Function without `amdsmi_get_`, and field: `gpu_bad_page_threshold`, `pcie_info/nak_sent`."""
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class KfdProcesses:
    """Number of processes with a compute queue on the GPU."""


AmdReader = File | Sensor | Binary | Ras | Residency | BadPages | LibraryAnswer | KfdProcesses
