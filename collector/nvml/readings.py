"""From catalogue rows to driver calls and back to floats: the plan by which one GPU is read.

A plan is made once for a GPU and a choice of lanes: all fields in one batch, calls that several
metrics share asked once, every answer's place and unit settled beforehand. It is made anew when
the capability of a cell changes.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

from collector.nvml.binding import GONE, LOST, UNSUPPORTED, Code, Handle
from collector.nvml.capability import Cell, Convert, is_gpm
from collector.nvml.fields import FieldBatch, decode
from collector.nvml.gpm import GpmReader
from collector.nvml.queries import Query, bind
from collector.probe.driver import Turn
from collector.probe.protocol import Status
from telemetry.errors import DriverError
from telemetry.gap import GAP, Gap
from telemetry.metric import Call, Field, Gpm

_ERROR = GAP[Gap.ERROR]
_NOT_SUPPORTED = GAP[Gap.NOT_SUPPORTED]
_SMALLEST_BATCH = 1


class _Place(NamedTuple):
    """Where an answer goes."""

    cell: Cell
    pick: str | int | None
    convert: Convert


class _UnwellError(Exception):
    """The GPU, not a metric, gave this answer."""

    def __init__(self, status: Status) -> None:
        super().__init__(status)
        self.status = status


class Plan:
    """How one GPU is read on some lanes."""

    def __init__(self, handle: Handle, cells: list[Cell], batch: int, gpm: GpmReader) -> None:
        self._gpm = gpm
        self._cells = cells
        self.batch = batch
        self.stale = False
        """A cell has changed its source: make another plan."""
        self._template = array("d", [GAP[cell.gap or Gap.NOT_READ] for cell in cells])
        self._queries = self._bind(handle)
        fields = [cell for cell in cells if isinstance(cell.origin, Field)]
        self._batches = [
            (FieldBatch(handle, [cell.field for cell in part]), self._targets(part))
            for part in (fields[start : start + batch] for start in range(0, len(fields), batch))
        ]
        self._gpm_cells = [cell for cell in cells if is_gpm(cell)]

    def _bind(self, handle: Handle) -> list[tuple[Query, list[_Place]]]:
        """One query for each distinct call, with all places that its answer goes to."""
        queries: dict[tuple[str, tuple[int, ...]], tuple[Query, list[_Place]]] = {}
        for cell in self._cells:
            call = cell.origin
            if isinstance(call, Call):
                query, pick = bind(handle, call)
                key = (call.function, call.args)
                queries.setdefault(key, (query, []))[1].append(_Place(cell, pick, cell.convert()))
        return list(queries.values())

    @staticmethod
    def _targets(cells: list[Cell]) -> list[tuple[Cell, int, Convert]]:
        return [(cell, cell.position, cell.convert()) for cell in cells]

    def read(self, turn: Turn, now: float) -> tuple[Status, array[float]]:
        """Ask everything; `now` is in seconds on a clock that only grows.

        Raises `DriverError` when the driver as a whole is gone. The values of an unwell GPU, and
        those of a turn that was abandoned, mean nothing.
        """
        values = self._template[:]
        try:
            for batch, targets in self._batches:
                if turn.abandoned:
                    return Status.HUNG, values
                self._fields(batch, targets, values)
            for query, places in self._queries:
                if turn.abandoned:
                    return Status.HUNG, values
                self._call(query, places, values)
            if self._gpm_cells and not turn.abandoned:
                self._read_gpm(values, now)
        except _UnwellError as unwell:
            return unwell.status, values
        return Status.OK, values

    def _fields(
        self, batch: FieldBatch, targets: list[tuple[Cell, int, Convert]], values: array[float]
    ) -> None:
        code = batch.ask()
        if code:
            if code in UNSUPPORTED and len(targets) > _SMALLEST_BATCH and code != 3:
                # A driver may have a limit, or choke on one id: ask in smaller portions.
                self.batch = max(len(targets) // 2, _SMALLEST_BATCH)
                self.stale = True
            for cell, position, _convert in targets:
                values[position] = self._failed(cell, code, split=self.stale)
            return
        for (cell, position, convert), (kind, failed, raw) in zip(
            targets, batch.values(), strict=True
        ):
            if failed:
                values[position] = self._failed(cell, failed)
            else:
                number = decode(kind, raw)
                values[position] = _NOT_SUPPORTED if number is None else convert(number)

    def _call(self, query: Query, places: list[_Place], values: array[float]) -> None:
        code = query.ask()
        for cell, pick, convert in places:
            if code:
                values[cell.position] = self._failed(cell, code)
            else:
                number = query.value(pick)
                if number is None or number in _ALL_ONES:
                    values[cell.position] = _NOT_SUPPORTED
                else:
                    values[cell.position] = convert(number)

    def _read_gpm(self, values: array[float], now: float) -> None:
        if not self._gpm.supported:
            for cell in self._gpm_cells:
                values[cell.position] = self._failed(cell, Code.NOT_SUPPORTED)
            return
        code, numbers = self._gpm.read(now)
        for cell in self._gpm_cells:
            origin = cell.origin
            if code:
                values[cell.position] = self._failed(cell, code)
            elif isinstance(origin, Gpm):
                values[cell.position] = numbers[origin.id] * origin.scale  # NaN keeps its reason

    def _failed(self, cell: Cell, code: int, *, split: bool = False) -> float:
        """Return the gap for an error code; note what this GPU does not support."""
        if code in LOST:
            raise _UnwellError(Status.LOST)
        if code == Code.RESET_REQUIRED:
            raise _UnwellError(Status.RESET_REQUIRED)
        if code in GONE:
            raise DriverError("the driver has gone away", code)
        denied = code == Code.NO_PERMISSION
        if denied or (code in UNSUPPORTED and not split):
            cell.pass_over(denied=denied)
            self.stale = True
            return GAP[cell.gap or Gap.NOT_READ]
        return _ERROR


_ALL_ONES = frozenset({0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF})
"""NVML_VALUE_NOT_AVAILABLE, as uint and as unsigned long long."""
