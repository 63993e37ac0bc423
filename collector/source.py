"""A source of readings: the plug point between a tick and the hardware.

The sampler calls a source once a tick and publishes the result. To add a source, write one class
that fits `Source` and name it in `collector.sources`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

from telemetry.metric import Lane
from telemetry.wire.inventory import Inventory


@dataclass(slots=True)
class DeviceEvent:
    """An event that a source noticed; the collector gives it an id and publishes it."""

    kind: str
    """Kind as in `telemetry.wire.inventory.Event`."""
    at: int
    """ns since 1970."""
    gpu: str | None = None
    pci: str | None = None
    message: str = ""
    data: dict[str, object] = field(default_factory=dict)


Rows = dict[int, list[list[float]]]
"""Rows of readings by block number, in inventory order; every row has all columns of its block."""


class Source(Protocol):
    """Source of readings. All methods are called by one task, never concurrently."""

    inventory: Inventory
    """Devices of the node now. A source replaces it (never mutates it) when they change, and the
    collector then publishes it; node, cluster, session and version are filled in by the collector."""

    async def open(self) -> None:
        """Open the source. A driver that is missing, mismatched or hung is a state in `inventory`,
        not an error; raises `SourceError` or `ConfigError` only for a fault in the settings (no
        such file, no such scenario)."""

    async def read(self, lanes: frozenset[Lane], tick: int, now_ns: int, deadline: float) -> Rows:
        """Return the blocks of the `gpu`, `link` and `instance` tables on these lanes (and of `node`, where the
        source knows better than the host it runs on), with gaps for devices that did not answer
        within `deadline` seconds. `tick` counts intervals since 1970, `now_ns` is the wall clock.
        Always returns, never raises: a failure is a gap, and a `DeviceEvent` when it begins."""

    def drain_events(self) -> list[DeviceEvent]:
        """Return the events since the last call, oldest first."""

    async def release(self) -> None:
        """Close the driver, so that it can be upgraded."""

    async def resume(self) -> None:
        """Open the driver again after `release`."""

    async def close(self) -> None:
        """Close everything within a second, whatever hangs."""


@runtime_checkable
class Pausable(Protocol):
    """Source that can leave a single GPU alone."""

    def pause(self, gpu: str, reason: str) -> None:
        """Read a GPU seldom, until it is reset, the driver is loaded again, or `resume` is called."""


class ListedProcess(NamedTuple):
    """Process with a context on a GPU, as its driver lists it."""

    pid: int
    """In the driver's PID namespace."""
    type: str
    """`compute`, `mps` or `graphics`."""
    memory_bytes: int | None
    instance: int | None
    """MIG GPU instance."""
    sm_ratio: float | None
    """Use of the multiprocessors since the reading before, 0 to 1."""


class ListedProcesses(NamedTuple):
    """Processes of one GPU at their newest reading."""

    read_at: int
    """ns since 1970."""
    processes: tuple[ListedProcess, ...] = ()
    problem: str = ""
    """Why they are unknown: `no permission`, `not supported`, `NVML error 999`; empty where they are
    known."""


@runtime_checkable
class ListsProcesses(Protocol):
    """Source that lists the processes of GPUs."""

    def list_processes(self, seconds: float) -> None:
        """Read the processes of each GPU once in so many seconds, from the next reading on."""

    def listed_processes(self) -> Mapping[str, ListedProcesses]:
        """Return the processes by UUID of the GPU. A GPU that has not answered is missing, or has an old
        time."""


@runtime_checkable
class Paced(Protocol):
    """Source with a minimum interval of its own: each run of `nvidia-smi` opens the driver."""

    interval: float
    """Minimum seconds between readings; the collector ticks no faster."""
