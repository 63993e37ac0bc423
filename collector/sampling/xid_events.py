"""Deduplication of XIDs, which arrive twice, from NVML and from the kernel log, and in bursts.

The first occurrence of a fault is published at once. Repetitions are counted, and published when
its minute is over as one `xid_repeated` (`sxid_repeated`, `gpu_lost_repeated`, `driver_log_repeated`, `node_log_repeated`)
with the count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from collector.source import DeviceEvent
from telemetry.statements.catalogue import statements

SECOND = 1_000_000_000
WINDOW = 60 * SECOND
"""Within this time, the same XID of the same GPU is one event."""
BETWEEN_SOURCES = 2 * SECOND
"""Longest time between the reports of one fault by NVML and by the kernel log."""
LOST_AFTER_XID = 300 * SECOND
"""Within this time after its XID 79, a message that a GPU is lost means the same loss."""
UNKNOWN_XID = 999
"""NVML's number for an XID that it does not know; the kernel log has the real one."""
MAX_OPEN = 4096

_FALLEN_OFF = 79
_KINDS = ("xid", "sxid", "gpu_lost", "node_log")

Key = tuple[str, str | None, object]


@dataclass(slots=True)
class _Open:
    """Fault whose minute is not over."""

    first: DeviceEvent
    kernel: int = 0
    """Lines seen."""
    nvml: int = 0
    """Events of NVML seen."""
    kernel_at: int = -WINDOW
    nvml_at: int = -WINDOW
    last: DeviceEvent | None = None
    """The newest line of the kernel log after the first occurrence."""


class XidEvents:
    """Merges the events of NVML and of the kernel log. Times are ns since 1970, from the events."""

    def __init__(self) -> None:
        self._open: dict[Key, dict[object, _Open]] = {}
        """By kind, GPU and number; then by the variant, as a new variant is published at once."""
        self._fallen: dict[str | None, int] = {}
        self._late: list[DeviceEvent] = []
        """Counts of faults that restarted before their end was noticed."""

    def merge(
        self, events: Iterable[DeviceEvent], now: int, gpus: Mapping[str, str] | None = None
    ) -> list[DeviceEvent]:
        """Return the events to publish, oldest first: first occurrences, counts of minutes that are
        over, and all events that are no XIDs. `gpus` gives the UUID of each PCI address."""
        published: list[DeviceEvent] = []
        for event in sorted(events, key=lambda event: event.at):
            if event.gpu is None and gpus is not None and event.pci is not None:
                event.gpu = gpus.get(event.pci)
            if not _is_counted(event) or self._is_source_loss(event) or self._is_new(event):
                published.append(event)
        late, self._late = self._late, []
        return [*published, *late, *self._close(now)]

    def _is_source_loss(self, event: DeviceEvent) -> bool:
        """Return whether this is a loss reported by the source: a state of its own, published with or
        without an XID; only a message of the kernel log may repeat an XID."""
        if event.kind != "gpu_lost" or event.data.get("source") == "kernel":
            return False
        self._fallen.setdefault(event.pci, event.at)
        return True

    def _is_new(self, event: DeviceEvent) -> bool:
        data = event.data
        if event.kind == "gpu_lost" and self._is_known_loss(event):
            return False
        if data.get("continuation"):
            return False
        from_nvml = data.get("source") == "nvml"
        number = data.get("xid", data.get("sxid", data.get("what")))
        unit = data.get("unit")
        key = (event.kind, event.pci, number if unit is None else (number, unit))
        if event.kind == "xid" and number == _FALLEN_OFF:
            self._fallen[event.pci] = event.at
        if from_nvml and number == UNKNOWN_XID:
            found = self._any_of(event)
        elif from_nvml:
            found = self._newest(key, event.at)
        else:
            found = self._of_kernel(key, event)
        if found is None:
            found = _Open(event)
            self._make_room()
            variants = self._open.setdefault(key, {})
            variant = "" if from_nvml else _variant(event)
            if variant in variants:
                self._late += _repeated(variants[variant], event.at)
            variants[variant] = found
            _count(found, event, from_nvml)
            return True
        _count(found, event, from_nvml)
        if not from_nvml:
            found.last = event
        return False

    def _is_known_loss(self, event: DeviceEvent) -> bool:
        fallen = self._fallen.get(event.pci)
        return fallen is not None and 0 <= event.at - fallen <= LOST_AFTER_XID

    def _newest(self, key: Key, at: int) -> _Open | None:
        """Find the fault that an event of NVML repeats: any variant, as NVML reports only numbers."""
        known = self._open.get(key, {}).values()
        near = [fault for fault in known if _within(fault, at, from_nvml=True)]
        return max(near, key=lambda fault: max(fault.kernel_at, fault.nvml_at), default=None)

    def _of_kernel(self, key: Key, event: DeviceEvent) -> _Open | None:
        """Find the fault that a line repeats: of the same variant, or just reported by NVML."""
        known = self._open.get(key, {})
        variant = _variant(event)
        fault = known.get(variant)
        if fault is not None and _within(fault, event.at, from_nvml=False):
            return fault
        heard = known.get("")
        if heard is None or not _within(heard, event.at, from_nvml=False):
            return None
        late = event.at - heard.nvml_at > BETWEEN_SOURCES
        if late and variant != _PLAIN:  # perhaps another variant than the one that NVML reported
            return None
        known[variant] = known.pop("")
        return known[variant]

    def _any_of(self, event: DeviceEvent) -> _Open | None:
        """Find a recent line of this GPU that may be NVML's unknown XID."""
        for (kind, pci, _), variants in self._open.items():
            if kind == "xid" and pci == event.pci:
                for fault in variants.values():
                    if 0 <= event.at - fault.kernel_at <= BETWEEN_SOURCES:
                        return fault
        return None

    def _close(self, now: int) -> list[DeviceEvent]:
        """Remove the faults whose minute is over; return the counts of those that were repeated."""
        over: list[DeviceEvent] = []
        for key in list(self._open):
            variants = self._open[key]
            for variant in [name for name, fault in variants.items() if _is_over(fault, now)]:
                over += _repeated(variants.pop(variant), now)
            if not variants:
                del self._open[key]
        self._fallen = {pci: at for pci, at in self._fallen.items() if now - at <= LOST_AFTER_XID}
        return over

    def _make_room(self) -> None:
        while len(self._open) >= MAX_OPEN:
            del self._open[next(iter(self._open))]


def _is_counted(event: DeviceEvent) -> bool:
    """Return whether repetitions of an event are counted: those of faults, and of statements of the
    driver; the states of the reader itself are of the same kind, and in no catalogue."""
    return event.kind in _KINDS or (event.kind == "driver_log" and event.data.get("what") in statements())


_DISTINGUISHING = ("action_to", "fatal", "reset", "gpu_instance")
_PLAIN = (None,) * len(_DISTINGUISHING)


def _variant(event: DeviceEvent) -> object:
    """Return the fields that a repetition has in common with the first occurrence."""
    return tuple(event.data.get(name) for name in _DISTINGUISHING)


def _within(fault: _Open, at: int, from_nvml: bool) -> bool:
    """Return whether an event at this time belongs to a fault: within its minute, or a late report
    by the other source."""
    if at - fault.first.at < WINDOW:
        return True
    behind = fault.kernel - fault.nvml if from_nvml else fault.nvml - fault.kernel
    other_at = fault.kernel_at if from_nvml else fault.nvml_at
    return behind > 0 and at - other_at <= BETWEEN_SOURCES


def _is_over(fault: _Open, now: int) -> bool:
    return now - fault.first.at >= WINDOW + BETWEEN_SOURCES


def _count(fault: _Open, event: DeviceEvent, from_nvml: bool) -> None:
    if from_nvml:
        fault.nvml += 1
        fault.nvml_at = event.at
    else:
        fault.kernel += 1
        fault.kernel_at = event.at


def _repeated(fault: _Open, now: int) -> list[DeviceEvent]:
    """Return an event with the count, unless it would add nothing to the first occurrence."""
    count = max(fault.kernel, fault.nvml)
    if count < 2 and (fault.last is None or "line" in fault.first.data):
        return []
    line = fault.first.data.get("line") or (fault.last and fault.last.data.get("line"))
    first = fault.first
    data = {**first.data, "count": count, "first_at": first.at, "line": line}
    if line is None:
        del data["line"]
    times = "once" if count == 1 else f"{count} times within a minute"
    return [replace(first, kind=f"{first.kind}_repeated", at=now, data=data, message=f"{first.message} ({times})")]
