"""MIG instances of one GPU in the probe process: which there are, and their readings.

NVML calls them MIG devices: handles of their own below that of the GPU, with memory and processes of their
own. Activity comes from GPM, by GPU instance, through the handle of the GPU. Instances are made and
destroyed while the driver is loaded, so they are listed again after each reading.
"""

from __future__ import annotations

import time
from array import array
from typing import NamedTuple

from collector.nvml.binding import Handle, once
from collector.nvml.capability import Cell
from collector.nvml.gpm import GpmReader, gpm_ids
from collector.nvml.readings import KeptPlan
from collector.probe.driver import Turn
from collector.probe.protocol import ProbeStatus
from telemetry.catalogue import BY_NAME
from telemetry.devices import INSTANCE_PREFIX, MigInstance
from telemetry.wire.schema import INSTANCE_SLOW, SCHEMA

NAMES = SCHEMA.blocks[INSTANCE_SLOW].names
_MIB = 1 << 20
_GIB = 1 << 30


class _InstanceReader(NamedTuple):
    handle: Handle
    instance: MigInstance
    cells: list[Cell]
    gpm: GpmReader
    plan: KeptPlan


class MigReader:
    """The MIG instances of one GPU. Created without a driver call."""

    def __init__(self, gpu: Handle, uuid: str) -> None:
        self._gpu = gpu
        self._uuid = uuid
        self._parts: list[_InstanceReader] = []

    @property
    def instances(self) -> tuple[MigInstance, ...]:
        """Instances by the newest listing: the rows of the next reading."""
        return tuple(part.instance for part in self._parts)

    def update(self, turn: Turn) -> None:
        """List the instances. Raises `DriverError` when the GPU or the driver is gone."""
        found: list[tuple[Handle, MigInstance]] = []
        for number in range(once("nvmlDeviceGetMaxMigDeviceCount", self._gpu) or 0):
            handle = once("nvmlDeviceGetMigDeviceHandleByIndex", self._gpu, number)
            instance = None if handle is None else self._describe(handle)
            if turn.abandoned:
                return
            if instance is not None:
                found.append((handle, instance))
        if [instance for _, instance in found] == [part.instance for part in self._parts]:
            return
        for part in self._parts:
            part.gpm.close()
        self._parts = [self._part(handle, instance) for handle, instance in found]

    def clear(self) -> None:
        """Forget the instances: MIG is off."""
        for part in self._parts:
            part.gpm.close()
        self._parts = []

    def forget(self) -> None:
        """Probe the capabilities again."""
        for part in self._parts:
            for cell in part.cells:
                cell.forget()
            part.plan.forget()

    def read(self, turn: Turn) -> tuple[ProbeStatus, array[float]]:
        """Return a row for each instance, one behind the other. Raises `DriverError` as `update` does."""
        values = array("d")
        for part in self._parts:
            status, row = part.plan.read(turn, time.perf_counter())
            if status is not ProbeStatus.OK or turn.abandoned:
                return status, values
            values += row
        return ProbeStatus.OK, values

    def _part(self, handle: Handle, instance: MigInstance) -> _InstanceReader:
        cells = [Cell(BY_NAME[name], position, None) for position, name in enumerate(NAMES)]
        gpm = GpmReader(self._gpu, gpm_ids(cells), instance.gpu_instance)
        return _InstanceReader(handle, instance, cells, gpm, KeptPlan(handle, cells, gpm))

    def _describe(self, handle: Handle) -> MigInstance | None:
        """Return the description; None of one that is just being destroyed."""
        uuid = once("nvmlDeviceGetUUID", handle)
        number = once("nvmlDeviceGetGpuInstanceId", handle)
        if number is None or not isinstance(uuid, str) or not uuid.startswith(INSTANCE_PREFIX):
            return None
        sizes = once("nvmlDeviceGetAttributes_v2", handle)
        memory = None if sizes is None else int(sizes.memorySizeMB) * _MIB
        before = next((each for each in self.instances if each.uuid == uuid), None)
        return MigInstance(
            uuid=uuid,
            gpu=self._uuid,
            gpu_instance=number,
            compute_instance=once("nvmlDeviceGetComputeInstanceId", handle) or 0,
            profile=_profile(once("nvmlDeviceGetName", handle), sizes),
            memory_bytes=memory,
            multiprocessors=None if sizes is None else int(sizes.multiprocessorCount),
            placement=_placement(self._gpu, number) if before is None else before.placement,
        )


def _placement(gpu: Handle, number: int) -> int | None:
    """Return the first memory slice of a GPU instance, which never moves; the driver tells it to root alone."""
    instance = once("nvmlDeviceGetGpuInstanceById", gpu, number)
    facts = None if instance is None else once("nvmlGpuInstanceGetInfo", instance)
    return None if facts is None else int(facts.placement.start)


def _profile(name: object, sizes: object) -> str:
    """Return the profile as nvidia-smi writes it: the end of the name (`NVIDIA H100 80GB HBM3 MIG 1g.10gb`),
    else made of the sizes."""
    _, mark, profile = str(name or "").rpartition(" MIG ")
    if mark and profile.isprintable():
        return profile.strip()
    slices = getattr(sizes, "gpuInstanceSliceCount", 0)
    if not slices:
        return ""
    own = getattr(sizes, "computeInstanceSliceCount", slices)
    size = -(-getattr(sizes, "memorySizeMB", 0) * _MIB // _GIB)
    return f"{f'{own}c.' if own < slices else ''}{slices}g.{size}gb"
