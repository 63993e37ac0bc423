"""Every GPU of the cluster, by columns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from api.columns import ColumnRows, Gaps, Numbers
from tui.kit.text import STEP, clean
from tui.state.readings import LIVELY

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class GpuRows:
    """The GPUs of the rows: parallel arrays."""

    node: list[str]
    gpu: list[int]
    """Index, for people."""
    uuid: list[str]
    name: list[str]
    present: list[bool]

    @classmethod
    def of(cls, rows: ColumnRows) -> GpuRows:
        """Return rows of an answer whose names can do a terminal no harm, each stored once. Keys stay
        what they are."""
        nodes = {node: node for node in rows.node}
        return cls(
            [nodes[node] for node in rows.node],
            rows.gpu or [],
            rows.uuid or [],
            tidy_names(rows.name or []),
            rows.present or [],
        )


@dataclass(frozen=True)
class Gpus:
    """Every GPU of the cluster, by columns."""

    version: int = -1
    who: GpuRows = field(default_factory=lambda: GpuRows([], [], [], [], []))
    columns: Mapping[str, Floats] = field(default_factory=dict)
    gaps: Gaps = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of GPUs."""
        return len(self.who.uuid)

    def column(self, name: str) -> Floats:
        """Return a metric, NaN where it is absent."""
        found = self.columns.get(name)
        return np.full(len(self), np.nan) if found is None else found

    def value(self, name: str, row: int) -> float | None:
        """Return a reading, None where it is absent."""
        column = self.columns.get(name)
        if column is None or np.isnan(column[row]):
            return None
        return float(column[row])

    def gap(self, name: str, row: int) -> str:
        """Return the reason why a reading is absent."""
        reasons = self.gaps.get(name, {})
        return reasons.get(str(row), reasons.get("*", ""))

    def known_from(self, before: Gpus) -> Gpus:
        """Reuse what was computed from the same rows: that takes as long as drawing them."""
        if before.who is self.who:
            for name in ("row_of", "order"):
                if name in before.__dict__:
                    self.__dict__[name] = before.__dict__[name]
        return self

    @cached_property
    def row_of(self) -> dict[str, int]:
        """Row by UUID."""
        return {uuid: row for row, uuid in enumerate(self.who.uuid)}

    @cached_property
    def order(self) -> npt.NDArray[np.intp]:
        """Rows by node and index; names with numbers in them as people count."""
        nodes = sorted(set(self.who.node), key=natural)
        rank = {node: place for place, node in enumerate(nodes)}
        homes = np.array([rank[node] for node in self.who.node], np.intp).reshape(len(self))
        return np.lexsort((np.array(self.who.gpu, np.intp).reshape(len(self)), homes))

    @cached_property
    def reporting(self) -> npt.NDArray[np.bool_]:
        """Whether a GPU has a reading of any metric that is read at every tick."""
        known = np.zeros(len(self), bool)
        for name in LIVELY:
            known |= ~np.isnan(self.column(name))
        return known


def numbers(values: Numbers) -> Floats:
    """Return a column of JSON numbers as an array; null becomes NaN."""
    return np.array(values, dtype=np.float64)


def unpacked(column: bytes, rows: int) -> Floats:
    """Return a packed column as an array. Raises `ValueError` where it has another number of rows."""
    found = np.frombuffer(column, "<f4" if len(column) == 4 * rows else "<f8").astype(np.float64)
    if len(found) != rows:
        raise ValueError(f"a column has {len(column)} bytes for {rows} rows")
    return found


def tidy_names(names: Sequence[str]) -> list[str]:
    """Return names that can do a terminal no harm, each kept once."""
    clear = {name: clean(name) for name in set(names)}
    return [clear[name] for name in names]


def natural(name: str) -> list[tuple[int, str]]:
    """Sort key: `n2` before `n10`."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in _NUMBERS.split(name)]


_NUMBERS = re.compile(r"([0-9]+)")


def gpu_name(uuid: str, *known: Gpus) -> str:
    """Return a GPU's node and number from the first table that has it, else `GPU`."""
    for gpus in known:
        row = gpus.row_of.get(uuid)
        if row is not None:
            return f"{clean(gpus.who.node[row])} {STEP} gpu{gpus.who.gpu[row]}"
    return "GPU"
