"""The binary table `gpu_metrics` of amdgpu: everything that the firmware says of a GPU, at once.

The table begins with its size and its revision. A layout is known only by its revision, so that a table
of another revision, or of another size than its revision has, has no values at all.
https://github.com/torvalds/linux/blob/master/drivers/gpu/drm/amd/include/kgd_pp_interface.h
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

HEAD = struct.Struct("<HBB")
"""Size, format revision, content revision."""
ABSENT = frozenset({0xFFFF, 0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF})
"""Numbers that mean "no value" in the firmware, the driver and the library, whatever the width of the field."""

# Fields in order: name, struct code, with the number of entries before the code. Natural alignment, as C has it.
_TEMPERATURES = "temperature_hotspot:H temperature_mem:H temperature_vrsoc:H current_socket_power:H"
_USE = "average_gfx_activity:H average_umc_activity:H"
_ENERGY = "energy_accumulator:Q system_clock_counter:Q"
_RESIDENCY = "accumulation_counter:I prochot:I ppt:I socket_thm:I vr_thm:I hbm_thm:I"
_LINKS = (
    "gfxclk_lock_status:I pcie_link_width:H pcie_link_speed:H xgmi_link_width:H xgmi_link_speed:H "
    "gfx_activity_acc:I mem_activity_acc:I pcie_bandwidth_acc:Q pcie_bandwidth_inst:Q "
    "pcie_l0_to_recov_count_acc:Q pcie_replay_count_acc:Q pcie_replay_rover_count_acc:Q"
)
_NAKS = "pcie_nak_sent_count_acc:I pcie_nak_rcvd_count_acc:I"
_XGMI = "xgmi_read_data_acc:8Q xgmi_write_data_acc:8Q"
_XGMI_STATUS = "xgmi_link_status:8H padding:H"
_CLOCKS = "firmware_timestamp:Q gfxclk:8H socclk:4H vclk0:4H dclk0:4H uclk:H num_partition:H"
_ENGINES = "vcn_activity:4H"
_JPEG = "jpeg_activity:32H"
_XCP = "gfx_busy_inst:8I jpeg_busy:32H vcn_busy:4H gfx_busy_acc:8Q"
_XCP_LIMITS = (
    "gfx_busy_inst:8I jpeg_busy:40H vcn_busy:4H gfx_busy_acc:8Q limit_ppt:8Q limit_thm:8Q "
    "low_utilization:8Q limit_total:8Q"
)


@dataclass(frozen=True, slots=True)
class Layout:
    """Layout of one revision."""

    size: int
    """Bytes of the whole table."""
    fields: Mapping[str, tuple[str, int]]
    """Struct format and offset by field."""
    partition: tuple[int, int] | None = None
    """Offset of the first record of a partition, and bytes of each."""


def _offsets(text: str) -> tuple[dict[str, tuple[str, int]], int]:
    """Return format and offset of each field, and the offset behind the last."""
    at = 0
    fields = {}
    for part in text.split():
        name, _, code = part.partition(":")
        width = struct.calcsize(f"<{code[-1]}")
        at = -(-at // width) * width
        fields[name] = (f"<{code}", at)
        at += struct.calcsize(f"<{code}")
    return fields, at


def _layout(*parts: str, partitions: str = "") -> Layout:
    fields, end = _offsets(" ".join(("head:4B", *parts)))
    if not partitions:
        return Layout(-(-end // 8) * 8, fields)
    _, record = _offsets(partitions)
    record = -(-record // 8) * 8
    first = -(-end // 8) * 8
    return Layout(-(-(first + 8 * record + 4) // 8) * 8, fields, (first, record))


_V1_3 = (
    "temperature_edge:H temperature_hotspot:H temperature_mem:H temperature_vrgfx:H temperature_vrsoc:H "
    "temperature_vrmem:H average_gfx_activity:H average_umc_activity:H average_mm_activity:H "
    "average_socket_power:H energy_accumulator:Q system_clock_counter:Q average:7H gfxclk:H socclk:H uclk:H "
    "vclk0:H dclk0:H vclk1:H dclk1:H throttle_status:I fan_speed:H pcie_link_width:H pcie_link_speed:H "
    "padding:H gfx_activity_acc:I mem_activity_acc:I temperature_hbm:4H firmware_timestamp:Q voltages:3H "
    "padding1:H indep_throttle_status:Q"
)
LAYOUTS: dict[tuple[int, int], Layout] = {
    (1, 3): _layout(_V1_3),
    (1, 4): _layout(
        _TEMPERATURES, _USE, _ENGINES, _ENERGY, "throttle_status:I", _LINKS, _XGMI, _CLOCKS
    ),
    (1, 5): _layout(
        _TEMPERATURES, _USE, _ENGINES, _JPEG, _ENERGY, "throttle_status:I", _LINKS, _NAKS, _XGMI, _CLOCKS
    ),
    (1, 6): _layout(
        _TEMPERATURES, _USE, _ENERGY, _RESIDENCY, _LINKS, _NAKS, _XGMI, _CLOCKS, partitions=_XCP
    ),
    (1, 7): _layout(
        _TEMPERATURES, _USE, "mem_max_bandwidth:Q", _ENERGY, _RESIDENCY, _LINKS, _NAKS, _XGMI,
        _XGMI_STATUS, _CLOCKS, partitions=f"{_XCP} limit_acc:8Q",
    ),
    (1, 8): _layout(
        _TEMPERATURES, _USE, "mem_max_bandwidth:Q", _ENERGY, _RESIDENCY, _LINKS, _NAKS, _XGMI,
        _XGMI_STATUS, _CLOCKS, partitions=_XCP_LIMITS,
    ),
}  # fmt: skip
"""By format and content revision: 1.3 of MI200, 1.4 and later of the MI300 family."""


class GpuMetrics:
    """A table, as it was read."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        size, *revision = HEAD.unpack_from(data) if len(data) >= HEAD.size else (0, 0, 0)
        layout = LAYOUTS.get((revision[0], revision[1]))
        fits = layout is not None and size == layout.size and len(data) >= size
        self._layout = layout if fits else None

    @property
    def known(self) -> bool:
        """Whether the layout of this table is known."""
        return self._layout is not None

    def read(self, field: str) -> list[int] | None:
        """Return the numbers of a field that are there; None where the table has no such field, or none of
        its numbers is there."""
        if field == "socket_power":  # the name of MI300's, else of MI200's; a die of MI250 counts both or none
            found = self.read("current_socket_power") or self.read("average_socket_power")
            return found if found and found[0] else None
        if field == "xcd_busy":
            return self._busy()
        layout = self._layout
        if layout is None or field not in layout.fields:
            return None
        code, offset = layout.fields[field]
        found = [each for each in struct.unpack_from(code, self._data, offset) if each not in ABSENT]
        return found or None

    def entry(self, field: str, number: int) -> int | None:
        """Return one entry of a field that is a list; None where it is not there."""
        layout = self._layout
        if layout is None or field not in layout.fields:
            return None
        code, offset = layout.fields[field]
        entries = struct.unpack_from(code, self._data, offset)
        if number >= len(entries) or entries[number] in ABSENT:
            return None
        return int(entries[number])

    def _busy(self) -> list[int] | None:
        """Return the use of each compute die, in percent, of all partitions."""
        layout = self._layout
        if layout is None or layout.partition is None:
            return None
        first, size = layout.partition
        count = (self.read("num_partition") or [0])[0]
        found: list[int] = []
        for number in range(min(count, 8)):
            entries = struct.unpack_from("<8I", self._data, first + number * size)
            found += [each for each in entries if each not in ABSENT]
        return found or None
