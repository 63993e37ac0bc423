"""Source `none`: a node without GPUs, as head, login and storage nodes are. No driver is loaded for it.

A GPU that appears on the PCI bus later is reported as one whose driver is not read: a node does not lose
its GPUs from sight because it began without them.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from collector.host.role import PCI, gpus_on_the_bus
from collector.source import DeviceEvent, Rows
from telemetry.metric import Lane
from telemetry.wire.inventory import Inventory, NodeRole
from telemetry.wire.schema import GPU_FAST, GPU_SLOW, LINK_FAST, LINK_SLOW

LOOK_SECONDS = 60.0
"""Seconds between two looks at the PCI bus."""
NONE = "none"
"""Its name, and the state of its driver."""
_BLOCKS = {Lane.FAST: (GPU_FAST, LINK_FAST), Lane.SLOW: (GPU_SLOW, LINK_SLOW)}


class NoGpuSource:
    """Source of a node without GPUs, as in `collector.source.Source`."""

    def __init__(self, root: Path = Path("/")) -> None:
        """`root` is where sys is."""
        self._devices = root / PCI
        self._looked = 0
        """When the bus was looked at, ns since 1970."""
        self._events: list[DeviceEvent] = []
        self.inventory = Inventory(node="", source=NONE, driver_state=NONE)

    async def open(self) -> None:
        """Do nothing: there is no driver."""

    async def read(self, lanes: frozenset[Lane], tick: int, now_ns: int, deadline: float) -> Rows:
        """Return blocks without rows; look at the PCI bus now and then."""
        del tick, deadline
        if Lane.SLOW in lanes and abs(now_ns - self._looked) >= LOOK_SECONDS * 1e9:
            self._looked = now_ns
            self._look(now_ns)
        return {block: [] for lane in lanes for block in _BLOCKS[lane]}

    def _look(self, now_ns: int) -> None:
        found = gpus_on_the_bus(self._devices) or 0
        if (self.inventory.driver_state == NONE) == (not found):
            return
        state, text = NONE, ""
        if found:
            state = "missing"
            text = (
                f"GPUs on the PCI bus since the collector was started: {found}. Install their driver, then "
                "restart the collector: systemctl restart kilowatch-collector."
            )
            self._events.append(DeviceEvent("driver_down", now_ns, message=text))
        self.inventory = msgspec.structs.replace(
            self.inventory, driver_state=state, driver_message=text, role=NodeRole.GPU if found else ""
        )

    def drain_events(self) -> list[DeviceEvent]:
        """Return the events since the last call, oldest first."""
        events, self._events = self._events, []
        return events

    async def release(self) -> None:
        """Do nothing: no driver is open."""

    async def resume(self) -> None:
        """Do nothing, as `release`."""

    async def close(self) -> None:
        """Do nothing."""
