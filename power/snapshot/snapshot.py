"""Power snapshots: computed quantities of circuits, budgets, UPSs and supplies at one instant.

A power snapshot is to the electrical side what the fleet is to the nodes: rules, pages, metrics and the
dashboard read it. All of it is computed; no node sends it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from api.power import SnapshotKind
from telemetry.metric import Kind, Unit

__all__ = ["Floats", "PowerSnapshot", "Quantity", "SnapshotKind"]

Floats = npt.NDArray[np.floating]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A column of a power snapshot; `power.snapshot.quantities` lists all of them."""

    name: str
    """Prometheus name without prefix, unit last: `circuit_amps`."""
    unit: Unit
    help: str
    """Description for operators, one sentence."""
    snapshot_kind: SnapshotKind
    kind: Kind = Kind.GAUGE
    states: tuple[tuple[int, str], ...] = ()
    """For `Unit.STATE`: number and word of each member."""


@dataclass(frozen=True, slots=True)
class PowerSnapshot:
    """Quantities of all rows of one kind at one instant."""

    kind: SnapshotKind
    version: int
    """Number of the configuration; rows may differ between versions."""
    names: tuple[str, ...]
    """Key of each row, as the operator wrote it."""
    columns: Mapping[str, Floats]
    """Array of each quantity, shape (rows,), base units. NaN is not known; inf seconds are never."""
    facts: Sequence[Mapping[str, str]] = field(default=())
    """Facts of each row in words: panel, poles, nodes, source, band. They may be made on access."""

    def column(self, name: str) -> Floats:
        """Return one quantity of every row; NaN where this power snapshot does not compute it."""
        found = self.columns.get(name)
        return np.full(len(self.names), np.nan) if found is None else found
