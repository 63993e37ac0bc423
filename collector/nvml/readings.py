"""Read plan of a GPU: from catalogue rows to driver calls and back to floats.

A plan is made once for a GPU and a lane: all fields in one batch, calls that several metrics share
made once, position and unit of every result known beforehand. It is rebuilt when the capability of
a cell changes.
"""

from __future__ import annotations

import math
import struct
import sys
import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from ctypes import byref, c_int
from functools import partial
from typing import Any, NamedTuple

from collector.nvml.binding import GONE, LOST, UNSUPPORTED, Code, Handle, array_of, function
from collector.nvml.capability import Cell, Convert, is_gpm
from collector.nvml.gpm import GpmReader
from collector.nvml.link_parts import Folded
from collector.nvml.queries import Getter, Query, bind
from collector.probe.driver import Turn
from collector.probe.protocol import ProbeStatus
from telemetry.catalogue.nvml import Call, CounterRate, Field, Gpm, OfLinks
from telemetry.errors import DriverError
from telemetry.gap import GAP, Gap

# Field values: many numbers of one GPU in one call, decoded from a tagged union.


class FieldBatch:
    """Field values of one GPU, read in one call into an array that is allocated once."""

    _ENTRY = struct.Struct("=24xIIQ")  # after id, scope, timestamp, latency: type, code, value

    def __init__(self, handle: Handle, fields: list[tuple[int, int]]) -> None:
        self._array = array_of("c_nvmlFieldValue_t", len(fields))
        for entry, (number, scope) in zip(self._array, fields, strict=True):
            entry.fieldId, entry.scopeId = number, scope
        self._bytes = memoryview(self._array).cast("B")
        self.ask: Callable[[], int] = partial(
            function("nvmlDeviceGetFieldValues"), handle, c_int(len(fields)), byref(self._array)
        )
        """Call the driver; the code is that of the whole batch."""
        self._kinds: tuple[int, ...] = ()
        self._codes = (0,) * len(fields)
        self._whole = struct.Struct("")

    def steady(self) -> tuple[float, ...] | None:
        """Return all numbers at once, when every entry succeeded with the same type as at `learn`;
        None when each must be decoded by itself (`values`)."""
        if not self._kinds:
            return None
        found = self._whole.unpack(self._bytes)
        if found[0::3] != self._kinds or found[1::3] != self._codes:
            self._kinds = ()
            return None
        return found[2::3]

    def learn(self) -> None:
        """Remember the types of a result in which all entries succeeded."""
        kinds = tuple(kind for kind, _, _ in self.values())
        if all(kind in _FORMATS for kind in kinds):
            self._kinds = kinds
            self._whole = struct.Struct("=" + "".join(f"24xII{_FORMATS[kind]}" for kind in kinds))

    def values(self) -> Iterator[tuple[int, int, int]]:
        """Yield type, code and 64 raw bits of each entry."""
        return self._ENTRY.iter_unpack(self._bytes)


_FORMATS = {0: "d", 1: "I4x", 2: "Q", 3: "Q", 4: "q", 5: "i4x", 6: "H6x"}
"""Layout of the number in the eight bytes, by type."""


def decode(kind: int, raw: int) -> float | None:
    """Return the number in the raw bits of a field; None when it means "not available".

    The driver fills only as many bytes as the type has; the rest is undefined.
    """
    match kind:
        case 1:  # unsigned int
            raw &= 0xFFFF_FFFF
            return None if raw == 0xFFFF_FFFF else raw
        case 2 | 3:  # unsigned long, unsigned long long
            return None if raw == 0xFFFF_FFFF_FFFF_FFFF else raw
        case 0:  # double
            number: float = struct.unpack("=d", raw.to_bytes(8, sys.byteorder))[0]
            return number
        case 4:  # signed long long
            return raw - (1 << 64) if raw >> 63 else raw
        case 5:  # signed int
            raw &= 0xFFFF_FFFF
            return raw - (1 << 32) if raw >> 31 else raw
        case 6:  # unsigned short
            return raw & 0xFFFF
        case _:
            return None


_ERROR = GAP[Gap.ERROR]
_NOT_SUPPORTED = GAP[Gap.NOT_SUPPORTED]
_SMALLEST_BATCH = 1
_NARROW = frozenset({1, 5, 6})
"""Types of fields of 32 bits and less."""
_ALL_ONES = frozenset({0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF})
"""NVML_VALUE_NOT_AVAILABLE, as uint and as unsigned long long."""


class _Place(NamedTuple):
    """Getter, conversion and target position of one number of a result."""

    position: int
    get: Getter
    result: Any
    convert: Convert


class _BoundCall:
    """Driver call and the cells that its result fills."""

    def __init__(self, query: Query) -> None:
        self.query = query
        self.cells: list[tuple[Cell, str | int | None]] = []
        self.places: list[_Place] = []
        self.absent: list[int] = []
        """Positions of numbers that this form of the result lacks."""

    def settle(self) -> None:
        """Locate the numbers in the result."""
        self.places, self.absent = [], []
        for cell, pick in self.cells:
            found = self.query.answer(pick)
            if found is None:
                self.absent.append(cell.position)
            else:
                self.places.append(_Place(cell.position, *found, cell.convert()))


class _Batch:
    """Call for many fields and the cells that it fills."""

    def __init__(self, handle: Handle, cells: list[Cell]) -> None:
        self.fields = FieldBatch(handle, [cell.field for cell in cells])
        self.cells = cells
        self.converts = [cell.convert() for cell in cells]
        factors = [cell.factor() for cell in cells]
        self.positions = [cell.position for cell in cells]
        self.factors = [1.0 if factor is None else factor for factor in factors]
        self.special = [
            (cell.position, at, cell.convert())
            for at, (cell, factor) in enumerate(zip(cells, factors, strict=True))
            if factor is None
        ]
        """Position, index in the batch and conversion of cells that need more than a scale."""
        self.rates = [cell for cell in cells if isinstance(cell.origin, CounterRate)]


class _UnwellError(Exception):
    """Error code that concerns the GPU, not a metric."""

    def __init__(self, status: ProbeStatus) -> None:
        super().__init__(status)
        self.status = status


class ReadPlan:
    """Calls by which one GPU is read on a lane."""

    def __init__(
        self, handle: Handle, cells: list[Cell], batch: int, gpm: GpmReader, folded: Iterable[Folded] = ()
    ) -> None:
        self._gpm = gpm
        self._folded = [each for each in folded if isinstance(each.cell.origin, OfLinks)]
        self._cells = cells
        self.batch = batch
        self.stale = False
        """Whether a cell has skipped an alternative: then make another plan."""
        self._template = array("d", [GAP[cell.gap or Gap.NOT_READ] for cell in cells])
        self._calls = self._bind(handle)
        cells = [cell for cell in cells if cell.wanted]
        fields = [cell for cell in cells if isinstance(cell.origin, (Field, CounterRate))]
        self._batches = [_Batch(handle, fields[start : start + batch]) for start in range(0, len(fields), batch)]
        self._gpm_cells = [(cell, cell.origin) for cell in cells if is_gpm(cell) and isinstance(cell.origin, Gpm)]

    def _bind(self, handle: Handle) -> list[_BoundCall]:
        """Return each distinct call, with all cells that its result fills."""
        calls: dict[tuple[str, tuple[int, ...]], _BoundCall] = {}
        for cell in self._cells:
            call = cell.origin
            if isinstance(call, Call):
                query, pick = bind(handle, call)
                key = (call.function, call.args)
                calls.setdefault(key, _BoundCall(query)).cells.append((cell, pick))
        for bound in calls.values():
            bound.settle()
        return list(calls.values())

    def read(self, turn: Turn, now: float) -> tuple[ProbeStatus, array[float]]:
        """Make all calls; `now` is in seconds on a monotonic clock.

        Raises `DriverError` when the driver as a whole is gone. The values are undefined unless the
        status is OK.
        """
        values = self._template[:]
        try:
            for batch in self._batches:
                if turn.abandoned:
                    return ProbeStatus.HUNG, values
                self._read_fields(batch, values)
            for call in self._calls:
                if turn.abandoned:
                    return ProbeStatus.HUNG, values
                code = call.query.ask()
                if code:
                    code = call.query.insist(code)
                    call.settle()
                if code:
                    for cell, _ in call.cells:
                        values[cell.position] = self._failed(cell, code)
                    continue
                for position, get, result, convert in call.places:
                    number = get(result)
                    values[position] = _NOT_SUPPORTED if number in _ALL_ONES else convert(number)
                for position in call.absent:
                    values[position] = _NOT_SUPPORTED
            if self._gpm_cells and not turn.abandoned:
                self._read_gpm(values, now)
            for folded in self._folded:
                if folded.skip():
                    self.stale = True
                values[folded.cell.position] = folded.of(values)
        except _UnwellError as unwell:
            return unwell.status, values
        return ProbeStatus.OK, values

    def _read_fields(self, batch: _Batch, values: array[float]) -> None:
        asked = time.perf_counter() if batch.rates else 0.0
        code = batch.fields.ask()
        if code:
            if code in UNSUPPORTED and len(batch.cells) > _SMALLEST_BATCH and code != 3:
                # A driver may have a limit, or fail because of one id: use smaller batches.
                self.batch = max(len(batch.cells) // 2, _SMALLEST_BATCH)
                self.stale = True
            for cell in batch.cells:
                values[cell.position] = self._failed(cell, code, split=self.stale)
            return
        numbers = batch.fields.steady()
        if numbers is None or not _ALL_ONES.isdisjoint(numbers):
            self._read_each(batch, values)
            if batch.rates:
                self._make_rates(batch, values, asked)
            return
        for position, number, factor in zip(batch.positions, numbers, batch.factors, strict=True):
            values[position] = number * factor
        for position, at, convert in batch.special:
            values[position] = convert(numbers[at])
        if batch.rates:
            self._make_rates(batch, values, asked)

    def _read_each(self, batch: _Batch, values: array[float]) -> None:
        """Decode each field by itself: one has failed, has no value, or is read for the first
        time."""
        whole = True
        for cell, convert, (kind, failed, raw) in zip(batch.cells, batch.converts, batch.fields.values(), strict=True):
            if failed:
                whole = False
                values[cell.position] = self._failed(cell, failed)
            else:
                if kind in _NARROW and isinstance(cell.origin, CounterRate):
                    whole = False
                    values[cell.position] = self._failed(cell, Code.NOT_SUPPORTED)
                    continue
                number = decode(kind, raw)
                values[cell.position] = _NOT_SUPPORTED if number is None else convert(number)
        if whole:
            batch.fields.learn()

    @staticmethod
    def _make_rates(batch: _Batch, values: array[float], asked: float) -> None:
        """Turn the counters of a batch, which was asked for at that time and is here now, into rates."""
        at = (asked + time.perf_counter()) / 2
        for cell in batch.rates:
            number = values[cell.position]
            if not math.isnan(number):
                values[cell.position] = cell.rate(number, at)

    def _read_gpm(self, values: array[float], now: float) -> None:
        if not self._gpm.supported:
            for cell, _ in self._gpm_cells:
                values[cell.position] = self._failed(cell, Code.NOT_SUPPORTED)
            return
        code, numbers = self._gpm.read(now)
        for cell, origin in self._gpm_cells:
            if code:
                values[cell.position] = self._failed(cell, code)
            else:
                values[cell.position] = numbers[origin.id] * origin.scale  # NaN keeps its reason

    def _failed(self, cell: Cell, code: int, *, split: bool = False) -> float:
        """Return the gap for an error code; note what this GPU does not support."""
        if code in LOST:
            raise _UnwellError(ProbeStatus.LOST)
        if code == Code.RESET_REQUIRED:
            raise _UnwellError(ProbeStatus.RESET_REQUIRED)
        if code in GONE:
            raise DriverError("the driver was unloaded", code)
        denied = code == Code.NO_PERMISSION
        if denied or (code in UNSUPPORTED and not split):
            cell.skip(denied=denied)
            self.stale = True
            return GAP[cell.gap or Gap.NOT_READ]
        return _ERROR


LARGEST_BATCH = 100_000


class KeptPlan:
    """Read plan of some cells, made anew while cells skip unsupported alternatives."""

    def __init__(self, handle: Handle, cells: list[Cell], gpm: GpmReader, folded: Iterable[Folded] = ()) -> None:
        self._handle, self._cells, self._gpm = handle, cells, gpm
        self._folded = tuple(folded)
        self._batch = LARGEST_BATCH
        self._plan: ReadPlan | None = None

    def forget(self) -> None:
        """Make another plan at the next reading: the cells have started over."""
        self._plan = None

    def read(self, turn: Turn, now: float) -> tuple[ProbeStatus, array[float]]:
        """Read all cells, as `ReadPlan.read` does."""
        while True:
            plan = self._plan
            if plan is None or plan.stale:
                if plan is not None:
                    self._batch = min(self._batch, plan.batch)
                plan = self._plan = ReadPlan(self._handle, self._cells, self._batch, self._gpm, self._folded)
            status, values = plan.read(turn, now)
            if not plan.stale or status is not ProbeStatus.OK or turn.abandoned:
                return status, values
