"""Capabilities of a GPU: for each cell of its rows, which alternative of the catalogue it supports.

A cell is one metric of the GPU, or of one of its links. It starts with the first alternative; an
unsupported one is skipped until capabilities are probed again. Without an alternative the cell is
a gap, and is no longer read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from collector.nvml.growth import Growth
from telemetry.catalogue import BY_NAME
from telemetry.catalogue.nvml import EACH_LINK, Call, CounterRate, Field, Gpm, LinkGpm, NvmlReader
from telemetry.gap import GAP, Gap
from telemetry.metric import Metric, Table, Unit
from telemetry.wire.schema import SCHEMA, Block

UNKNOWN_VALUES: dict[str, frozenset[float]] = {
    "gpu_performance_state": frozenset({32}),
    "gpu_memory_temperature_celsius": frozenset({0}),  # some virtual GPUs return 0 for "none"
    "gpu_pcie_link_generation": frozenset({0}),
    "gpu_pcie_link_width": frozenset({0}),
    "gpu_fabric_state": frozenset({0}),  # "not supported", as a value
    "gpu_fabric_health": frozenset({0}),
    "gpu_fabric_configuration": frozenset({0}),
}
"""Values of the driver that mean "no value"."""
_FABRIC_FLAG = {0: GAP[Gap.NOT_SUPPORTED], 1: 1.0, 2: 0.0}
_REMAPS = ("gpu_remapped_rows_", "gpu_remap_banks_")

Convert = Callable[[float], float]


class Cell:
    """Position in the values of a reading, and the driver call that fills it."""

    __slots__ = ("alternatives", "denied", "growth", "link", "metric", "number", "owners", "position")

    def __init__(
        self, metric: Metric, position: int, link: int | None, alternatives: tuple[NvmlReader, ...] | None = None
    ) -> None:
        self.metric = metric
        self.position = position
        self.link = link
        readers = metric.readers("nvml") if alternatives is None else alternatives
        self.alternatives: tuple[NvmlReader, ...] = tuple(
            each.of(link or 0) if isinstance(each, LinkGpm) else each for each in readers
        )
        self.growth: Growth | None = None
        """Readings of the counter whose rate it is, once there were any."""
        self.owners: tuple[Cell, ...] = ()
        """Cells of which it is a part; none for a cell of a row."""
        self.number = 0
        """Alternative in use; past the last when none is supported."""
        self.denied = False
        """Whether a skipped alternative exists but may not be read."""

    @property
    def origin(self) -> NvmlReader | None:
        """The alternative in use."""
        return self.alternatives[self.number] if self.number < len(self.alternatives) else None

    def skip(self, *, denied: bool) -> None:
        """Go on to the next alternative."""
        self.number += 1
        self.denied = self.denied or denied

    def exclude(self) -> None:
        """Mark the metric as unsupported, whatever the driver returns."""
        self.alternatives = ()

    def forget(self) -> None:
        """Start over with the first alternative."""
        self.number = 0
        self.denied = False

    @property
    def gap(self) -> Gap | None:
        """Reason of an unsupported cell; None while an alternative is in use."""
        if self.number < len(self.alternatives):
            return None
        return Gap.NO_PERMISSION if self.denied else Gap.NOT_SUPPORTED

    @property
    def field(self) -> tuple[int, int]:
        """Field id and scope, where the alternative in use is a field."""
        origin = self.origin.of if isinstance(self.origin, CounterRate) else self.origin
        if not isinstance(origin, Field):
            raise TypeError(f"{self.metric.name} is not read from a field")
        if origin.scope == EACH_LINK:
            return origin.id, self.link or 0
        return origin.id, origin.scope

    def factor(self) -> float | None:
        """Return the scale, where a reading is just the driver's number times a scale."""
        origin, name = self.origin, self.metric.name
        plain = not (isinstance(origin, Call) and (origin.mask or origin.shift is not None or origin.first_bit))
        if isinstance(origin, CounterRate):
            return origin.of.scale
        if origin is None or not plain or name in UNKNOWN_VALUES or name.endswith("_ber"):
            return None
        return origin.scale if isinstance(origin, (Field, Call, Gpm)) else None

    def rate(self, number: float, at: float) -> float:
        """Return the rate of its counter, which has this number at that time."""
        if self.growth is None:
            self.growth = Growth()
        return self.growth.read(number, at)

    @property
    def wanted(self) -> bool:
        """Whether it is read: a part is not once all that is made of it has no alternative left."""
        return not self.owners or any(owner.origin is not None for owner in self.owners)

    def convert(self) -> Convert:
        """Return the function from the driver's number to a reading: scale, bits, values for "none"."""
        origin = self.origin
        name = self.metric.name
        unknown = UNKNOWN_VALUES.get(name, frozenset())
        absent = GAP[Gap.NOT_SUPPORTED]
        if name.endswith("_ber"):
            return bit_error_rate
        if isinstance(origin, Call) and origin.first_bit:
            return first_bit
        if isinstance(origin, Call) and origin.shift is not None:
            mask, shift = origin.mask, origin.shift
            if name.startswith("gpu_fabric_") and self.metric.unit is Unit.FLAG:
                return lambda raw: _FABRIC_FLAG.get((int(raw) >> shift) & mask, absent)
            values = {bits: absent if bits in unknown else float(bits) for bits in range(mask + 1)}
            return lambda raw: values[(int(raw) >> shift) & mask]
        if isinstance(origin, Call) and origin.mask:
            bits = origin.mask
            return lambda raw: 1.0 if int(raw) & bits else 0.0
        if isinstance(origin, CounterRate):
            origin = origin.of
        scale = origin.scale if isinstance(origin, (Field, Call, Gpm)) else 1.0
        if unknown:
            return lambda raw: absent if raw in unknown else raw * scale
        return lambda raw: raw * scale


NO_BIT = 255.0


def first_bit(words: Any) -> float:
    """Return the number of the lowest bit that is set in an array of words of 32 bits; `NO_BIT` for none."""
    for place, word in enumerate(words):
        if word:
            return float(32 * place + (word & -word).bit_length() - 1)
    return NO_BIT


def bit_error_rate(raw: float) -> float:
    """Return the number that the driver encodes as mantissa (bits 8 to 11) and exponent (0 to 7)."""
    bits = int(raw)
    return float(((bits >> 8) & 0xF) * 10.0 ** -(bits & 0xFF))


def cells(blocks: list[Block], links: int) -> list[Cell]:
    """Return the cells of one GPU: for each block one row, or a row for each link."""
    places: list[tuple[str, int | None]] = []
    for block in blocks:
        rows: list[int | None] = [None] if block.table == Table.GPU else list(range(links))
        places.extend((name, link) for link in rows for name in block.names)
    return [Cell(BY_NAME[name], position, link) for position, (name, link) in enumerate(places)]


def blocks_of(lane: str) -> list[Block]:
    """Return the blocks that a GPU fills on a lane: its own, then those of its links."""
    return [
        block
        for table in (Table.GPU, Table.LINK)
        for block in SCHEMA.blocks
        if block.table == table and block.lane == lane
    ]


def exclude_remaps(found: list[Cell]) -> None:
    """Exclude row remaps, which boards that can't remap (without ECC, and GeForce) report as 0."""
    for cell in found:
        if cell.metric.name.startswith(_REMAPS):
            cell.exclude()


def absent_for_good(found: list[Cell]) -> dict[str, str]:
    """Return the gap word of each unsupported metric that NVML has, for the inventory."""
    return {
        cell.metric.name: cell.gap.word
        for cell in found
        if cell.link is None and cell.gap is not None and cell.metric.readers("nvml")
    }


def is_gpm(cell: Cell) -> bool:
    """Return whether the alternative in use is a GPM metric."""
    return isinstance(cell.origin, Gpm)
