"""Events that follow from changes of readings between two ticks. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from collector.source import DeviceEvent
from telemetry.catalogue import BY_NAME
from telemetry.devices import Gpu
from telemetry.wire.schema import GPU_FAST, SCHEMA

_NAMES = SCHEMA.blocks[GPU_FAST].names
_ACTION = _NAMES.index("gpu_recovery_action")
_ENERGY = _NAMES.index("gpu_energy_joules_total")
_WORDS = dict(BY_NAME["gpu_recovery_action"].states)
_BITS = {
    reason: (_NAMES.index(f"gpu_clocks_event_{reason}"), text)
    for reason, text in (
        ("hw_thermal_slowdown", "heat"),
        ("hw_power_brake_slowdown", "a power brake: the power supply requested it"),
    )
}
_THERMAL, _POWER_BRAKE = (column for column, _ in _BITS.values())


class _Seen(NamedTuple):
    """Newest numbers of one GPU; an absent one keeps its last value."""

    energy: float = 0.0
    action: float = 0.0
    reasons: frozenset[str] = frozenset()


class TransitionDetector:
    """Compares the readings of each GPU with those before."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def restart(self) -> None:
        """Accept that counters restart: the driver was reloaded, and that was reported."""
        self._seen = {uuid: seen._replace(energy=0.0) for uuid, seen in self._seen.items()}

    def detect(self, rows: Iterable[tuple[Gpu, list[float]]], now: int) -> list[DeviceEvent]:
        """Compare rows of the block `gpu_fast` with those before; `now` in ns since 1970."""
        events: list[DeviceEvent] = []
        restarted: list[str] = []
        for gpu, row in rows:
            before = self._seen.get(gpu.uuid, _Seen())
            if not (before.reasons or row[_THERMAL] or row[_POWER_BRAKE]) and (
                row[_ACTION] == before.action and row[_ENERGY] >= before.energy
            ):
                self._seen[gpu.uuid] = before._replace(energy=row[_ENERGY])
                continue  # the usual case
            reasons = frozenset(
                reason
                for reason, (column, _) in _BITS.items()
                if row[column] > 0 or (row[column] != 0 and reason in before.reasons)
            )
            events += [_clocks(gpu, reason, now, down=reason in reasons) for reason in sorted(reasons ^ before.reasons)]
            action = _newest(row[_ACTION], before.action)
            if action != before.action:
                events.append(_action(gpu, before.action, action, now))
            energy = _newest(row[_ENERGY], before.energy)
            if energy < before.energy:
                restarted.append(gpu.uuid)
            self._seen[gpu.uuid] = _Seen(energy, action, reasons)
        if restarted:
            events.append(
                DeviceEvent(
                    "driver_reloaded",
                    now,
                    gpu=restarted[0] if len(restarted) == 1 else None,
                    message="Counters restarted: the driver was reloaded, or GPUs were reset.",
                    data={"gpus": restarted},
                )
            )
        return events


def _newest(value: float, before: float) -> float:
    return value if value == value else before  # noqa: PLR0124 - NaN is a gap


def _clocks(gpu: Gpu, reason: str, now: int, *, down: bool) -> DeviceEvent:
    text = _BITS[reason][1]
    message = f"Clocks are limited by {text}." if down else f"Clocks are no longer limited by {text}."
    kind = "clocks_down" if down else "clocks_free"
    return DeviceEvent(kind, now, gpu.uuid, gpu.pci, message, {"reason": reason})


def _action(gpu: Gpu, before: float, action: float, now: int) -> DeviceEvent:
    word = _WORDS.get(int(action), f"number {int(action)}")
    return DeviceEvent(
        "recovery_action",
        now,
        gpu.uuid,
        gpu.pci,
        f"The driver requests: {word}.",
        {"from": int(before), "to": int(action)},
    )
