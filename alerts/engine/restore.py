"""Lives that outlast a restart: what is written down of an alert, and what waits for its device.

After a restart nothing is known of the fleet until the nodes are heard. An alert that was firing
is listed at once nevertheless, goes on where it was when its device appears, and ends when the
node's inventory comes without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import msgspec

from api.alerts import Alert, AlertState, Subject

WAITS = 7 * 86_400.0
"""Seconds that an alert waits for a device that nobody has told of; then it is nobody's."""


class AlertRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One pending or firing alert, with all that is needed to go on with it."""

    alert: Alert
    device: str
    """Last part of the key: what stands in the row."""
    good_since: int | None = None
    """When it was first seen good again, ns since 1970; None while it is bad."""
    part: int = 0
    """Number of the condition that the value is of."""
    line: str = ""
    """What the event said that made it bad."""
    process: str = ""


@dataclass(slots=True)
class WaitingAlert:
    """A record whose device has not been seen since the start."""

    record: AlertRecord
    since: float
    """Monotonic seconds."""
    good_since: float | None
    waits_since: float


class RestoredAlerts:
    """All records that wait."""

    def __init__(self) -> None:
        self._waiting: dict[str, WaitingAlert] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def enter(self, records: Iterable[AlertRecord], now: float, wall: int) -> None:
        """Take records in. Time that passed counts, but a wall clock that went back does not."""
        for record in records:
            alert = record.alert

            def monotonic(at: int) -> float:
                return now - max(0, wall - at) / 1e9

            good = None if record.good_since is None else monotonic(record.good_since)
            self._waiting[alert.key] = WaitingAlert(record, monotonic(alert.since), good, now)

    def records(self) -> Iterator[AlertRecord]:
        """All that wait."""
        for waiting in self._waiting.values():
            yield waiting.record

    def leave(self, fits: Callable[[AlertRecord], bool]) -> list[WaitingAlert]:
        """Return those that fit, and forget them."""
        if not self._waiting:
            return []
        found = [one for one in self._waiting.values() if fits(one.record)]
        for one in found:
            del self._waiting[one.record.alert.key]
        return found

    def expired(self, now: float) -> list[WaitingAlert]:
        """Return those that have waited too long, and forget them."""
        late = {key for key, one in self._waiting.items() if now - one.waits_since > WAITS}
        return self.leave(lambda record: record.alert.key in late) if late else []


def subject_of(record: AlertRecord) -> Subject:
    """Return what a record is about."""
    return record.alert.subject


def ended(record: AlertRecord, wall: int) -> Alert | None:
    """Return the end of an alert whose device is no longer there; None when it never fired."""
    if record.alert.state is not AlertState.FIRING:
        return None
    return msgspec.structs.replace(record.alert, state=AlertState.RESOLVED, changed=wall)
