"""Table of the GPUs that this node has had: present or gone, and the row of each device.

A GPU keeps its row while the collector runs, even when it is lost, unless another GPU is found at
its PCI address. Pure: descriptions and statuses in, events out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from collector.probe.protocol import ProbeDescription, ProbeStatus
from collector.source import DeviceEvent
from telemetry.devices import Gpu, Link, MigInstance

HUNG_TICKS = 2
"""Ticks in a row without an answer after which a GPU is reported as hung."""
_LOST = {
    ProbeStatus.LOST: "The GPU has left the bus: reset it, or reboot the node.",
    ProbeStatus.RESET_REQUIRED: "The GPU answers nothing until it is reset",
}


class Row:
    """Row of a GPU."""

    __slots__ = ("gpu", "hung", "instances", "links", "silent")

    def __init__(self, gpu: Gpu, links: tuple[Link, ...] = (), instances: tuple[MigInstance, ...] = ()) -> None:
        self.gpu = gpu
        self.links = links
        self.instances = instances
        self.silent = 0
        """Ticks in a row without an answer."""
        self.hung = False


class GpuTable:
    """Rows of all GPUs, and the devices of the current probe process."""

    def __init__(self, expected: Iterable[Gpu] = (), links: Iterable[Link] = (), reset_hint: str = "") -> None:
        """`reset_hint` names the command that resets a GPU."""
        linked = list(links)
        self._reset_hint = f" ({reset_hint})." if reset_hint else "."
        self.rows = [Row(gpu, tuple(link for link in linked if link.gpu == gpu.uuid)) for gpu in expected]
        self._descriptions: dict[int, ProbeDescription] = {}
        self._devices = 0
        self._nameless: set[int] = set()
        """Devices reported as hung that could not be identified."""
        self.row_of: dict[int, int] = {}
        """Row number by device of the probe."""
        self.changed = False
        """Whether the inventory must be rebuilt; cleared by the source."""

    def start(self, devices: int, now: int) -> list[DeviceEvent]:
        """Start over with a new probe that has so many devices; return events."""
        self._devices = devices
        self._descriptions.clear()
        self._nameless.clear()
        return self._map(now)

    def apply_descriptions(self, described: Mapping[int, ProbeDescription], now: int) -> list[DeviceEvent]:
        """Apply changed descriptions; return events. `now` in ns since 1970."""
        if not described:
            return []
        self._descriptions.update(described)
        events = self._map(now)
        for device, description in described.items():
            if not description.gpu.uuid and device not in self.row_of:
                text = f"GPU {device} does not answer, and could not be identified since the start."
                events.append(DeviceEvent("gpu_lost", now, message=text, data={"index": device}))
        return events

    def _map(self, now: int) -> list[DeviceEvent]:
        """Assign a row to each device."""
        events: list[DeviceEvent] = []
        claimed: dict[int, int] = {}
        for device, description in sorted(self._descriptions.items()):
            if description.gpu.uuid:
                claimed[device] = self._adopt(description, now, events)
        taken = set(claimed.values())
        for device in range(self._devices):
            # An unidentified device gets the row of the GPU that had its index, if that is free.
            if device not in claimed:
                for number, row in enumerate(self.rows):
                    if row.gpu.index == device and number not in taken:
                        claimed[device] = number
                        taken.add(number)
                        break
        self.row_of = claimed
        if len(self._descriptions) == self._devices:
            for number, row in enumerate(self.rows):
                if number not in taken:
                    self._lose(row, "The driver does not list the GPU any more.", now, events)
        return events

    def apply_statuses(self, statuses: Sequence[ProbeStatus], now: int) -> list[DeviceEvent]:
        """Apply the status of each device; return events."""
        events: list[DeviceEvent] = []
        for device, status in enumerate(statuses):
            number = self.row_of.get(device)
            if number is None:
                if status is ProbeStatus.HUNG and device not in self._nameless:
                    self._nameless.add(device)
                    text = f"A call for GPU {device} hangs before it could be identified."
                    events.append(DeviceEvent("gpu_hung", now, message=text, data={"index": device}))
                continue
            row = self.rows[number]
            match status:
                case ProbeStatus.OK:
                    self._answers(row, now, events)
                case ProbeStatus.LOST | ProbeStatus.RESET_REQUIRED:
                    text = _LOST[status]
                    if status is ProbeStatus.RESET_REQUIRED:
                        text += self._reset_hint
                    self._lose(row, text, now, events)
                case ProbeStatus.HUNG:
                    row.silent += 1
                    if row.silent >= HUNG_TICKS and not row.hung:
                        row.hung = True
                        text = "A driver call for this GPU does not return; the others are read on."
                        events.append(_event("gpu_hung", row.gpu, now, text))
                case ProbeStatus.LATE | ProbeStatus.FAILED | ProbeStatus.PAUSED:
                    pass
        return events

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """GPUs in the order of their rows."""
        return tuple(row.gpu for row in self.rows)

    @property
    def links(self) -> tuple[Link, ...]:
        """Links in the order of their rows."""
        return tuple(link for row in self.rows for link in row.links)

    @property
    def instances(self) -> tuple[MigInstance, ...]:
        """MIG instances in the order of their rows."""
        return tuple(each for row in self.rows for each in row.instances)

    @property
    def missing(self) -> set[str]:
        """UUIDs of GPUs that are gone."""
        return {row.gpu.uuid for row in self.rows if not row.gpu.present}

    def _adopt(self, description: ProbeDescription, now: int, events: list[DeviceEvent]) -> int:
        """Return the row number of a GPU; add a row for a new one."""
        gpu = description.gpu
        for number, row in enumerate(self.rows):
            if row.gpu.uuid != gpu.uuid:
                continue
            if row.gpu.mig != gpu.mig:
                text = f"MIG was switched {'on' if gpu.mig else 'off'}."
                events.append(_event("mig_changed", gpu, now, text, mig=int(gpu.mig)))
            if not gpu.capabilities:  # not known yet: keep the old ones
                gpu = msgspec.structs.replace(gpu, capabilities=row.gpu.capabilities)
            # Only its first reading tells whether it is present.
            gpu = msgspec.structs.replace(gpu, present=row.gpu.present)
            found = gpu, description.links, description.instances
            if (row.gpu, row.links, row.instances) != found:
                row.gpu, row.links, row.instances = found
                self.changed = True
            return number
        self.changed = True
        place = self._replaced(gpu)
        if place is None:
            self.rows.append(Row(gpu, description.links, description.instances))
            return len(self.rows) - 1
        before = self.rows[place].gpu.uuid
        text = f"It replaces {before}."
        events.append(_event("gpu_replaced", gpu, now, text, replaced=before))
        self.rows[place] = Row(gpu, description.links, description.instances)
        return place

    def _replaced(self, gpu: Gpu) -> int | None:
        """Return the row of a GPU that is gone and had the PCI address of a new one."""
        there = {description.gpu.uuid for description in self._descriptions.values()}
        for number, row in enumerate(self.rows):
            if gpu.pci is not None and row.gpu.pci == gpu.pci and row.gpu.uuid not in there:
                return number
        return None

    def _answers(self, row: Row, now: int, events: list[DeviceEvent]) -> None:
        row.silent = 0
        if row.hung:
            row.hung = False
            events.append(_event("gpu_answers", row.gpu, now, "The GPU answers again."))
        if not row.gpu.present:
            row.gpu = msgspec.structs.replace(row.gpu, present=True)
            self.changed = True
            events.append(_event("gpu_back", row.gpu, now, "The GPU is back."))

    def _lose(self, row: Row, text: str, now: int, events: list[DeviceEvent]) -> None:
        if row.gpu.present:
            row.gpu = msgspec.structs.replace(row.gpu, present=False)
            self.changed = True
            events.append(_event("gpu_lost", row.gpu, now, text))


def _event(kind: str, gpu: Gpu, now: int, text: str, **data: object) -> DeviceEvent:
    return DeviceEvent(kind, now, gpu.uuid, gpu.pci, text, data)
