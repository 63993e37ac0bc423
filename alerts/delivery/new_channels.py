"""Incidents that stand while a channel is configured: the channel is told of them, once.

A notice goes to the channels that there are when it is made, and the next comes hours later. So whoever sets a channel
up, or mends one, while something pages would hear nothing of it. At a start the journal says which channels are new,
which lead elsewhere than before, and of which incident a channel has refused all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from alerts.delivery.routing import Router
from alerts.incidents.manager import IncidentManager
from alerts.incidents.standing import standing
from alerts.incidents.state import IncidentChanges, IncidentRecord, RecordKey
from alerts.incidents.titles import incident_of
from alerts.notice import ChannelMemory, KnownChannel, KnownChannels, Notice
from alerts.notifiers.channel import Channel
from api.alerts import Action

SETTLE_SECONDS = 5.0
"""Seconds after a start before anything is told: what ended meanwhile is over by then."""
LOOK_SECONDS = 5.0
"""Seconds between two looks at what was not to be told before: acknowledged, silenced, or about to end."""
REASON = "new_channel"


class NewChannels:
    """The incidents of before of which channels are still to be told."""

    def __init__(
        self,
        channels: Mapping[str, Channel],
        router: Router,
        memory: ChannelMemory,
        incidents: Iterable[IncidentRecord],
        now: float,
        wall_ns: int,
    ) -> None:
        """`channels`: of the settings, by name; of Alertmanagers there is nothing to do, they are given all alerts each
        minute. `memory` and `incidents`: as the journal returns them. `now`: monotonic
        seconds."""
        self._router = router
        self._look_at = now + SETTLE_SECONDS
        channels = {name: one for name, one in channels.items() if one.shows_notices}
        self._known = _known(channels, memory.known, wall_ns)
        self._stored = memory.known
        self._started = wall_ns
        self._unnotified: dict[str, dict[str, str]] = {}
        """By key of an incident, channels that are to be told of it, each with the id of the notice."""
        for record in incidents:
            notified_at = _first_notified(record)
            if notified_at is not None and record.closed is None:
                ids = {name: self._id(record.key, name, notified_at, memory) for name in channels}
                if found := {name: number for name, number in ids.items() if number}:
                    self._unnotified[record.key] = found

    def _id(self, key: str, name: str, notified_at: int, memory: ChannelMemory) -> str:
        """Return the id of the notice by which a channel is told of an incident; "" where it need not be. All members of
        a cluster that have the channel make the same, so that one of them sends it."""
        channel, sent = self._known[name], memory.sent.get((key, name))
        if sent is not None and (sent.waits or (sent.arrived or -1) >= channel.known):
            return ""
        if notified_at < channel.since:
            return f"{key}.{name}-{channel.receiver}"
        failed = sent is not None and sent.arrived is None
        return f"{key}.{name}-{self._started}" if failed else ""

    def changes(self) -> IncidentChanges:
        """Return what the journal must know of the channels for the next start."""
        known = KnownChannels(self._known)
        if known == self._stored:
            return IncidentChanges()
        record = {RecordKey("channels", ""): msgspec.json.encode(known)}
        return IncidentChanges(records=record, wall_ns=self._started)

    def note(self, step: IncidentChanges) -> None:
        """Note what the incident manager says by itself: nobody is told twice."""
        for notice in step.notices if self._unnotified else ():
            names = self._unnotified.get(notice.incident.key)
            if names is None:
                continue
            if notice.action is Action.RESOLVE:
                del self._unnotified[notice.incident.key]
            elif notice.action is Action.TRIGGER and not notice.channels:
                for name in self._router.route(notice, notice.at):
                    names.pop(name, None)

    def notify(
        self, manager: IncidentManager, recovering: Collection[str], now: float, wall_ns: int
    ) -> IncidentChanges:
        """Return the notices that are due; cheap while there are none. `recovering`: as `IncidentManager.receive` has
        it."""
        if not self._unnotified or now < self._look_at:
            return IncidentChanges()
        self._look_at = now + LOOK_SECONDS
        notices = []
        for key, names in list(self._unnotified.items()):
            record = standing(manager.index, key, recovering)
            if record is None:
                continue
            del self._unnotified[key]
            incident = incident_of(record, manager.index)
            notices += [
                Notice(
                    id=number,
                    action=Action.TRIGGER,
                    incident=incident,
                    at=wall_ns,
                    reason=REASON,
                    escalation=record.escalated,
                    channels=(name,),
                )
                for name, number in names.items()
            ]
        return IncidentChanges(notices=tuple(notices), wall_ns=wall_ns)


def _first_notified(record: IncidentRecord) -> int | None:
    """Return when an incident was first notified, whoever received it, ns since 1970; None before."""
    if record.notified is None:
        return None
    return next((one.at for one in record.timeline if one.what == "told"), record.began)


def _known(channels: Mapping[str, Channel], before: KnownChannels | None, wall_ns: int) -> dict[str, KnownChannel]:
    """Return all channels that there were, as they are now. At a first start, and after a version that did not keep
    them, none is new."""
    began = 0 if before is None else wall_ns
    found = {
        name: msgspec.structs.replace(one, removed=True)
        for name, one in ({} if before is None else before.by_name).items()
    }
    for name, channel in channels.items():
        earlier = None if before is None else before.by_name.get(name)
        if earlier is None or earlier.receiver != channel.receiver:
            found[name] = KnownChannel(receiver=channel.receiver, known=began, since=began)
        elif earlier.removed:
            found[name] = msgspec.structs.replace(earlier, since=wall_ns, removed=False)
        else:
            found[name] = earlier
    return found
