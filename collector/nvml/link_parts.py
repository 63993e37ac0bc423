"""Numbers of a GPU that are made of those of its links, NVLinks or C2C links.

Their parts are cells behind those of the rows: they are read as all others are, folded into one number, and not sent. A
part that a link's row has too is the cell of that row. A GPU without such links has none.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from typing import NamedTuple

from collector.nvml.capability import Cell
from telemetry.catalogue.nvml import NO_LINK, Bus, Field, Fold, LinkGpm, OfLinks
from telemetry.gap import GAP, Gap, reason_of


class LinkCells(NamedTuple):
    """Cells of one link."""

    number: int
    active: Cell | None
    """Whether the link counts; None where all do."""
    parts: tuple[Cell, ...]

    @property
    def supported(self) -> tuple[Cell, ...]:
        """The parts that the GPU has."""
        if self.active is not None and self.active.gap is not None:
            return ()
        return tuple(part for part in self.parts if part.gap is None)


class Folded(NamedTuple):
    """A cell that is made of those of links."""

    cell: Cell
    fold: Fold
    links: tuple[LinkCells, ...]

    def skip(self) -> bool:
        """Go on to the next alternative where no link has the number; return whether that is so."""
        if self.cell.origin is None or any(link.supported for link in self.links):
            return False
        gaps = {part.gap for link in self.links for part in link.parts}
        self.cell.skip(denied=Gap.NO_PERMISSION in gaps)
        return True

    def of(self, values: array[float]) -> float:
        """Return the number. A gap where a link that counts has none now: a sum without it would fall, as after a reset."""
        numbers: dict[int, float] = {}
        for link in self.links:
            active = 1.0 if link.active is None else values[link.active.position]
            if reason_of(active) is Gap.ERROR:
                return active
            found = [values[part.position] for part in link.supported]
            if active != 1 or not found:
                continue
            if absent := [value for value in found if math.isnan(value)]:
                return absent[0]
            numbers[link.number] = sum(found)
        if not numbers:
            return GAP[Gap.NOT_READ]
        match self.fold:
            case Fold.SUM:
                return sum(numbers.values())
            case Fold.LEAST:
                return min(numbers.values())
            case Fold.LEAST_LINK:
                return float(min(numbers, key=numbers.__getitem__))
            case Fold.MOST_LINK:
                most = max(numbers, key=numbers.__getitem__)
                return float(most) if numbers[most] else NO_LINK


class LinkParts:
    """Parts of the numbers that are made of links, behind the cells of a GPU's rows."""

    def __init__(self, cells: list[Cell], links: Mapping[Bus, int]) -> None:
        """Add the parts to the cells, for as many links as the GPU has. Where it has none, it lacks the number."""
        self.folded: list[Folded] = []
        self._cells = cells
        self._rows = {
            (cell.metric.readers("nvml")[0], cell.link): cell
            for cell in cells
            if cell.link is not None and cell.alternatives
        }
        self._added: dict[tuple[Field | LinkGpm, Bus, int], Cell] = {}
        for cell in tuple(cells):
            (origin,) = cell.alternatives[:1] or (None,)
            if not isinstance(origin, OfLinks):
                continue
            if not links.get(origin.bus):
                cell.exclude()
                continue
            numbers = range(links[origin.bus])
            self.folded.append(Folded(cell, origin.fold, tuple(self._link(cell, origin, link) for link in numbers)))

    def _link(self, owner: Cell, origin: OfLinks, link: int) -> LinkCells:
        active = None
        if origin.active is not None:
            active = self._part(owner, origin.active, origin.bus, link)
        parts = tuple(self._part(owner, reader, origin.bus, link) for reader in origin.parts)
        return LinkCells(link, active, parts)

    def _part(self, owner: Cell, reader: Field | LinkGpm, bus: Bus, link: int) -> Cell:
        """Return the cell of a link, the same one for all that is made of it."""
        if bus is Bus.NVLINK and (row := self._rows.get((reader, link))) is not None:
            return row
        cell = self._added.get((reader, bus, link))
        if cell is None:
            cell = self._added[reader, bus, link] = Cell(owner.metric, len(self._cells), link, (reader,))
            self._cells.append(cell)
        cell.owners += (owner,)
        return cell
