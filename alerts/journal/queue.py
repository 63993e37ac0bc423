"""Deliveries that wait, in memory."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from alerts.notice import Delivery, Notice
from api.alerts import Action, DeliveryOutcome, Severity

_SEVERITIES = tuple(Severity)


class DeliveryQueue:
    """Deliveries that wait, by channel and incident."""

    def __init__(self, waiting: Iterable[Delivery], notified: Mapping[str, Iterable[str]]) -> None:
        self._waiting: dict[int, Delivery] = {}
        self._lines: dict[str, dict[str, dict[int, Delivery]]] = {}
        """By channel, then incident: its deliveries in their order."""
        self._hidden: set[int] = set()
        """Numbers of deliveries that are being written, and not sent yet."""
        self._notified = {key: dict.fromkeys(channels) for key, channels in notified.items()}
        """By open incident, the channels that have received it, or will."""
        for delivery in waiting:
            self._put(delivery)

    # -- Additions -------------------------------------------------------------------------------

    def notified(self, incident: str) -> tuple[str, ...]:
        """Return the channels that have received an incident, or will."""
        return tuple(self._notified.get(incident, ()))

    def add(self, notice: Notice, due: Mapping[str, int], first: int) -> list[Delivery]:
        """Add deliveries of a notice, numbered from `first`. They are sent after `show`."""
        key = notice.incident.key
        added = []
        for number, (channel, at) in enumerate(due.items(), first):
            delivery = Delivery(id=number, channel=channel, notice=notice, created=notice.at, due=at)
            self._put(delivery)
            self._hidden.add(number)
            added.append(delivery)
            if notice.action is Action.TRIGGER:
                self._notified.setdefault(key, {})[channel] = None
        if notice.action is Action.RESOLVE:
            self._notified.pop(key, None)
        return added

    def show(self, numbers: Iterable[int]) -> None:
        """Release deliveries that are written, to be sent."""
        self._hidden.difference_update(numbers)

    # -- Queries ---------------------------------------------------------------------------------

    def due(self, wall_ns: int, limit: int, channel: str) -> list[Delivery]:
        """Return one delivery of each incident of which any is due: pages first, then oldest."""
        found = []
        for line in self._lines.get(channel, {}).values():
            shown = list(self._shown(line))
            if any(delivery.due <= wall_ns for delivery in shown):
                found.append(shown[0])
        return heapq.nsmallest(limit, found, key=_most_urgent)

    def chain(self, channel: str, incident: str) -> list[Delivery]:
        """Return all deliveries of an incident that wait on a channel, in their order."""
        return list(self._shown(self._lines.get(channel, {}).get(incident, {})))

    def next_due(self, channel: str) -> int | None:
        """Return when the next is due on a channel."""
        lines = self._lines.get(channel, {}).values()
        return min((one.due for line in lines for one in self._shown(line)), default=None)

    def backlog(self) -> dict[str, tuple[int, int]]:
        """Return by channel how many wait, and when the oldest was made."""
        found: dict[str, tuple[int, int]] = {}
        for delivery in self._waiting.values():
            number, oldest = found.get(delivery.channel, (0, delivery.created))
            found[delivery.channel] = number + 1, min(oldest, delivery.created)
        return found

    def waiting(self) -> list[Delivery]:
        """Return all deliveries that wait, oldest first."""
        return list(self._waiting.values())

    # -- Outcomes --------------------------------------------------------------------------------

    def tried(self, number: int, due: int, error: str, others: Sequence[int] = ()) -> list[Delivery]:
        """Count a failed try, to be repeated at `due`, before which `others` are not sent either;
        return the changed deliveries."""
        changed = []
        for other in (number, *others):
            found = self._waiting.get(other)
            if found is None:
                continue
            if other == number:
                found = msgspec.structs.replace(found, due=due, tries=found.tries + 1, error=error)
            elif found.due < due:
                found = msgspec.structs.replace(found, due=due)
            self._put(found)
            changed.append(found)
        return changed

    def ended(self, numbers: Iterable[int], outcome: DeliveryOutcome, error: str = "") -> list[Delivery]:
        """Remove deliveries that will not be sent again; return those that waited."""
        changed = []
        for number in numbers:
            found = self._waiting.pop(number, None)
            if found is None:
                continue
            lines = self._lines[found.channel]
            line = lines[found.notice.incident.key]
            del line[number]
            if not line:
                del lines[found.notice.incident.key]
            tried = outcome in {DeliveryOutcome.DELIVERED, DeliveryOutcome.REFUSED}
            changed.append(msgspec.structs.replace(found, outcome=outcome, tries=found.tries + tried, error=error))
        return changed

    def _put(self, delivery: Delivery) -> None:
        self._waiting[delivery.id] = delivery
        lines = self._lines.setdefault(delivery.channel, {})
        lines.setdefault(delivery.notice.incident.key, {})[delivery.id] = delivery

    def _shown(self, line: Mapping[int, Delivery]) -> Iterator[Delivery]:
        return (one for number, one in line.items() if number not in self._hidden)


def _most_urgent(delivery: Delivery) -> tuple[int, int]:
    return _SEVERITIES.index(delivery.notice.incident.severity), delivery.id
