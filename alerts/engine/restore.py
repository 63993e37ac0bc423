"""Alerts across a restart: their records, and those that wait for their device.

After a restart the fleet is unknown until frames arrive. An alert that was firing is listed at once
nevertheless, goes on in its state when its device appears, and ends when the node's inventory comes
without the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import msgspec

from api.alerts import Alert, AlertState

WAITS = 7 * 86_400.0
"""Seconds that an alert waits for its device; then it ends."""


class AlertRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A pending or firing alert, with the state that is needed to go on with it."""

    alert: Alert
    device: str
    """Last part of the key: the device of the row."""
    good_since: int | None = None
    """When it was first seen good again, ns since 1970; None while it is bad."""
    part: int = 0
    """Number of the condition that the value is of."""
    line: str = ""
    """Line of the event, or the reason, that made it bad."""
    process: str = ""
    faults: tuple[str, ...] = ()
    meaning: str = ""
    remedy: str = ""
    units: dict[str, dict[str, str]] = {}


@dataclass(slots=True)
class WaitingAlert:
    """A record whose device has not been seen since the start."""

    record: AlertRecord
    since: float
    """Monotonic seconds."""
    good_since: float | None
    added: float


class RestoredAlerts:
    """Records that wait for their device."""

    def __init__(self) -> None:
        self._waiting: dict[str, WaitingAlert] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, records: Iterable[AlertRecord], now: float, wall: int) -> None:
        """Add records. The time since then counts, unless the wall clock went back."""
        for record in records:
            alert = record.alert

            def monotonic(at: int) -> float:
                return now - max(0, wall - at) / 1e9

            good = None if record.good_since is None else monotonic(record.good_since)
            self._waiting[alert.key] = WaitingAlert(record, monotonic(alert.since), good, now)

    def wait_again(self, waiting: WaitingAlert) -> None:
        """Add a record that was removed, and whose device could not be found after all."""
        self._waiting[waiting.record.alert.key] = waiting

    def forget(self, key: str) -> None:
        """Remove the record of an alert that fires again on a row of its own."""
        self._waiting.pop(key, None)

    def records(self) -> Iterator[AlertRecord]:
        """Yield the records."""
        for waiting in self._waiting.values():
            yield waiting.record

    def remove(self, fits: Callable[[AlertRecord], bool]) -> list[WaitingAlert]:
        """Remove and return the records that fit."""
        if not self._waiting:
            return []
        found = [one for one in self._waiting.values() if fits(one.record)]
        for one in found:
            del self._waiting[one.record.alert.key]
        return found

    def remove_expired(self, now: float) -> list[WaitingAlert]:
        """Remove and return the records that have waited too long."""
        late = {key for key, one in self._waiting.items() if now - one.added > WAITS}
        return self.remove(lambda record: record.alert.key in late) if late else []


def end_of(record: AlertRecord, wall: int) -> Alert | None:
    """Return the resolved alert of a device that no longer exists; None when it never fired."""
    if record.alert.state is not AlertState.FIRING:
        return None
    return msgspec.structs.replace(record.alert, state=AlertState.RESOLVED, changed=wall)
