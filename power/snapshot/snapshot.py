"""Power snapshots: what is computed of circuits, budgets, UPS and supplies, a row each, at one instant.

A power snapshot is to the electrical side what the fleet is to the nodes: rules, pages, metrics and the
dashboard read it. Nothing on it was sent by a node; everything on it follows from what they sent.
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
    """One column of a power snapshot; `power.snapshot.quantities` lists all of them."""

    name: str
    """Prometheus name without prefix, unit last: `circuit_amps`."""
    unit: Unit
    help: str
    """One sentence for an operator."""
    snapshot_kind: SnapshotKind
    kind: Kind = Kind.GAUGE
    states: tuple[tuple[int, str], ...] = ()
    """For `Unit.STATE`: number and word of each member."""


@dataclass(frozen=True, slots=True)
class PowerSnapshot:
    """All rows of one kind, now."""

    kind: SnapshotKind
    version: int
    """Another number when the names are others: the configuration was read anew."""
    names: tuple[str, ...]
    """Key of each row, as the operator wrote it."""
    columns: Mapping[str, Floats]
    """One array a quantity, shape (rows,), base units. NaN is not known; inf seconds are never."""
    facts: Sequence[Mapping[str, str]] = field(default=())
    """For each row what a person should read beside it: panel, poles, nodes, source, band. They may be
    put into words only when they are read."""

    def column(self, name: str) -> Floats:
        """Return one quantity of every row; NaN where this power snapshot does not compute it."""
        found = self.columns.get(name)
        return np.full(len(self.names), np.nan) if found is None else found
