"""One GPU as the probe reads it: its handle, what it is, what it can tell, and how it is asked."""

from __future__ import annotations

import time
from array import array

import msgspec

from collector.nvml.binding import LOST, Code, Handle, device
from collector.nvml.capability import absent_for_good, blocks_of, cells, exclude_remaps
from collector.nvml.gpm import GpmReader
from collector.nvml.inventory import can_remap_rows, describe, links
from collector.nvml.readings import Plan
from collector.probe.driver import Turn
from collector.probe.protocol import FAST, SLOW, Description, Reading, Status
from telemetry.errors import DriverError
from telemetry.inventory import Gpu
from telemetry.metric import Gpm, Lane, Table
from telemetry.schema import SCHEMA

PROBE_AGAIN = 600.0
"""Seconds after which what was not supported is tried once more."""
MEET_AGAIN = 5.0
"""Seconds between attempts to get to know a GPU that was lost before the start."""
LARGEST_BATCH = 100_000
_LANES = {FAST: Lane.FAST, SLOW: Lane.SLOW}
_BLOCKS = {bit: blocks_of(lane) for bit, lane in _LANES.items()}
_GPU_FAST = SCHEMA.blocks[SCHEMA.index(Table.GPU, Lane.FAST)].names
_GPU_SLOW = SCHEMA.blocks[SCHEMA.index(Table.GPU, Lane.SLOW)].names
_LATENCY = _GPU_FAST.index("gpu_driver_latency_seconds")
_MIG = _GPU_SLOW.index("gpu_mig_mode")


class GpuReader:
    """Reads one GPU. Made before the GPU is touched: a sick one may hang on its first call."""

    def __init__(self, index: int) -> None:
        self.handle: Handle | None = None
        self.gpm: GpmReader | None = None
        self.asked_at: float | None = None
        """Monotonic time at which the reading under way began."""
        self._index = index
        self._gpu: Gpu | None = None
        self._status = Status.OK
        self._meet_at = 0.0
        self._described: Description | None = None
        self._said: Description | None = None

    def describe(self, turn: Turn) -> Description | None:
        """Return what the GPU is, when that has changed since the last call."""
        if self._gpu is None and time.monotonic() >= self._meet_at:
            self._meet_at = time.monotonic() + MEET_AGAIN
            try:
                self._meet(turn)
            except DriverError as error:
                self._status = status_of(error)
                self._described = Description(
                    Gpu(uuid="", index=self._index, name="", present=False)
                )
            if turn.abandoned:
                self._meet_at = 0.0
                return None
        if self._described is self._said or self._described == self._said:
            return None
        self._said = self._described
        return self._described

    def presence(self) -> Reading:
        """Return how the GPU is, without asking it."""
        return Reading(self._status)

    def read(self, lanes: int, turn: Turn) -> Reading:
        """Return the readings on `lanes`. Raises `DriverError` when the driver is gone."""
        if self._gpu is None or (self._status is not Status.OK and not lanes & SLOW):
            return Reading(self._status)  # a lost GPU is asked again on the slow lane only
        self.asked_at = time.monotonic()
        try:
            return self._read(lanes, turn)
        finally:
            self.asked_at = None

    def _read(self, lanes: int, turn: Turn) -> Reading:
        values = array("d")
        status = Status.OK
        for bit in (FAST, SLOW):
            if lanes & bit and status is Status.OK:
                status, part = self._read_lane(bit, turn)
                values += part
        if turn.abandoned:
            return Reading(Status.HUNG)  # nobody waits for it
        self._status = status
        if status is not Status.OK:
            return Reading(status)
        if lanes & SLOW:
            self._notice_mig(values[-self._widths[SLOW] + _MIG])
        return Reading(status, values.tobytes())

    def _meet(self, turn: Turn) -> None:
        handle = device(self._index)
        gpu = describe(handle, self._index)
        if turn.abandoned:
            return
        found = links(handle, gpu.uuid)
        self._cells = {bit: cells(blocks, len(found)) for bit, blocks in _BLOCKS.items()}
        self._widths = {bit: len(parts) for bit, parts in self._cells.items()}
        if not can_remap_rows(handle, gpu.name):
            for parts in self._cells.values():
                exclude_remaps(parts)
        ids = {
            origin.id
            for cell in self._cells[FAST]
            for origin in cell.alternatives
            if isinstance(origin, Gpm)
        }
        self.gpm = GpmReader(handle, sorted(ids))
        self._plans: dict[int, Plan] = {}
        self._batch = LARGEST_BATCH
        self._settled: set[int] = set()
        self._probe_at = time.monotonic() + PROBE_AGAIN
        self.handle, self._gpu = handle, gpu
        self._described = Description(gpu, found)
        self._status = Status.OK

    def _read_lane(self, bit: int, turn: Turn) -> tuple[Status, array[float]]:
        """Read one lane, and again while cells find out what they can be read from."""
        if bit == SLOW and time.monotonic() >= self._probe_at:
            self._forget()
        while True:
            plan = self._plans.get(bit)
            if plan is None or plan.stale:
                if plan is not None:
                    self._batch = min(self._batch, plan.batch)
                if self.gpm is None:
                    return Status.LATE, array("d")
                plan = Plan(self.handle, self._cells[bit], self._batch, self.gpm)
                self._plans[bit] = plan
            begin = time.perf_counter()
            status, values = plan.read(turn, begin)
            if bit == FAST:
                values[_LATENCY] = time.perf_counter() - begin
            if not plan.stale or status is not Status.OK or turn.abandoned:
                break
        if status is Status.OK and bit not in self._settled:
            self._settled.add(bit)
            self._tell_capabilities()
        return status, values

    def _tell_capabilities(self) -> None:
        """What the GPU will never have goes into the inventory, once both lanes are known."""
        if self._described is None or self._settled != {FAST, SLOW}:
            return
        absent: dict[str, str] = {}
        for parts in self._cells.values():
            absent |= absent_for_good(parts)
        gpu = msgspec.structs.replace(self._described.gpu, capabilities=absent)
        self._described = Description(gpu, self._described.links)

    def _notice_mig(self, mode: float) -> None:
        if self._described is None or mode not in {0.0, 1.0}:
            return
        mig = mode == 1.0
        if mig != self._described.gpu.mig:
            gpu = msgspec.structs.replace(self._described.gpu, mig=mig)
            self._described = Description(gpu, self._described.links)
            self._forget()  # split GPUs refuse what whole ones tell, and back

    def _forget(self) -> None:
        """Find out anew what the GPU can tell."""
        for parts in self._cells.values():
            for cell in parts:
                cell.forget()
        self._plans.clear()
        self._settled.clear()
        self._probe_at = time.monotonic() + PROBE_AGAIN


def status_of(error: DriverError) -> Status:
    """Return what an error says of the GPU. Raises it again when the driver as a whole is gone."""
    if error.code in LOST:
        return Status.LOST
    if error.code == Code.RESET_REQUIRED:
        return Status.RESET_REQUIRED
    raise error
