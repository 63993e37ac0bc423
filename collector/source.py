"""A source of readings: the plug point between a tick and the hardware.

The sampler calls a source once a tick and publishes what came back, whatever it is. To add a
source, write one class that fits `Source` and name it in `collector.sources`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from telemetry.inventory import Inventory
from telemetry.metric import Lane


@dataclass(slots=True)
class DeviceEvent:
    """Something that a source noticed; the collector gives it an id and a place on the bus."""

    kind: str
    """One of the kinds of `telemetry.inventory.Event`."""
    at: int
    """ns since 1970."""
    gpu: str | None = None
    pci: str | None = None
    message: str = ""
    data: dict[str, object] = field(default_factory=dict)


Rows = dict[int, list[list[float]]]
"""Rows of readings by block number, in inventory order; every row has all columns of its block."""


class Source(Protocol):
    """Where readings come from. All methods are called by one task, never at once."""

    inventory: Inventory
    """What the node is made of now. A source replaces it (never mutates it) when that changes, and
    the collector then publishes it; node, cluster, session and version are the collector's."""

    async def open(self) -> None:
        """Get ready. A driver that is missing, mismatched or hung is a state in `inventory`, not an
        error; raises `SourceError` or `ConfigError` only for what an operator must mend in the
        configuration (no such file, no such scenario)."""

    async def read(self, lanes: frozenset[Lane], tick: int, now_ns: int, deadline: float) -> Rows:
        """Return the blocks of the `gpu` and `link` tables on these lanes (and of `node`, where the
        source knows better than the host it runs on), with gaps for what did not answer within
        `deadline` seconds. `tick` counts intervals since 1970, `now_ns` is the wall clock. Always
        returns, never raises: what went wrong is a gap, and a `DeviceEvent` if it is news."""

    def drain_events(self) -> list[DeviceEvent]:
        """Return what happened since the last call, oldest first."""

    async def release(self) -> None:
        """Let go of the driver, so that it can be upgraded."""

    async def resume(self) -> None:
        """Take the driver again."""

    async def close(self) -> None:
        """Let go of everything within a second, whatever hangs."""


@runtime_checkable
class Paced(Protocol):
    """A source that must not be read as often as others: `nvidia-smi` opens the driver each time."""

    interval: float
    """Seconds between readings, at least; the collector ticks no faster."""
