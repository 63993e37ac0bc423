"""Whether an incident would page if it were new."""

from __future__ import annotations

from collections.abc import Collection

from alerts.incidents.index import IncidentIndex
from alerts.incidents.state import IncidentRecord
from api.alerts import NotificationState


def standing(index: IncidentIndex, key: str, recovering: Collection[str]) -> IncidentRecord | None:
    """Return an open incident that would page if it were new: nobody has acknowledged it, no storm stands for it, and an
    alert of it fires on that nothing suppresses, nor would if it began now. None for any other. `recovering`: as
    `IncidentManager.receive` has it."""
    record = index.incidents.get(key)
    if record is None or record.closed is not None or record.ack is not None or record.storm:
        return None
    for tracked in index.active(record):
        ends = tracked.alert.key in recovering and not index.policy(tracked.alert.rule).edge
        free = tracked.state is NotificationState.NOTIFIED and not index.cause_of(tracked)
        if tracked.firing and free and not ends:
            return record
    return None
