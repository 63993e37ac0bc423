"""Incidents that all members have in common: relay, fold, claims, and actions of people."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from aggregator.cluster.port import Bucket, CoordinationError
from aggregator.site.alert_relay import SITE, SITE_PARTS, AlertRelay, evaluator_of
from aggregator.site.delivery_claims import DeliveryClaims, claim_key
from aggregator.site.edges import AcknowledgeEdge, Edge, SilenceEdge, UnacknowledgeEdge, UnsilenceEdge
from aggregator.site.incident_candidate import IncidentCandidate
from aggregator.site.incident_fold import FoldStep, IncidentFold, position_of
from aggregator.site.unfenced import SETTLE_SECONDS, UnfencedPages
from alerts.incidents.manager import IncidentManager
from api.alerts import Alert, DeliveryOutcome, Incident, Matcher, Silence
from telemetry.errors import IncidentError, StoreError

if TYPE_CHECKING:
    from aggregator.alerting.shared_incidents import Follow
    from aggregator.impairments import MonitorPart
    from aggregator.site.role import SiteRole
    from alerts.incidents.policy import NotificationTimings, RulePolicy
    from alerts.journal.journal import Journal

log = logging.getLogger(__name__)

ACTION_SECONDS = 8.0
"""Seconds in which an action of a person must be in the log and folded."""
SWEEP_SECONDS = 30.0
"""Seconds between two looks at deliveries that wait here and may have been sent by the leader."""
SWEPT = 50
MARK_SECONDS = 1.0
"""Seconds between two looks whether NATS has the claims, and tries to mark what could not be."""
RESTORED = 500
"""The newest deliveries, which are marked again where NATS has lost the claims: older ones wait at no other member."""
FOLLOW_AGAIN_SECONDS = 1.0
TICK_SECONDS = 0.25
"""Seconds between two looks whether something is due."""
UNFENCED_TURN_SECONDS = 1.0
ANSWERS = 200
_T = TypeVar("_T", Incident, Silence)


class ClusterIncidents:
    """Incidents of a cluster, as one member has them."""

    def __init__(self, role: SiteRole, groups: Callable[[], Mapping[str, int]]) -> None:
        """`groups`: epochs of the shard groups that this member holds."""
        self._role, self._groups = role, groups
        self._coordination = role.coordination
        self.claims = DeliveryClaims(role.coordination, role.leadership)
        self.claims.unfenced = lambda: role.unfenced
        self.claims.speaks_unfenced = lambda: role.speaks_unfenced
        self._alerts = AlertRelay(role.name, self._append, self._epochs, time.monotonic)
        self._candidate: IncidentCandidate | None = None
        self._answers: OrderedDict[int, FoldStep] = OrderedDict()
        self._folded = asyncio.Event()
        self._wake: Callable[[], None] = lambda: None
        role.when_lead_changes.append(self._lead_changed)

    # -- `aggregator.alerting.shared_incidents.SharedIncidents` ------------------------------------

    @property
    def gate(self) -> DeliveryClaims:
        """The gate of the outbox."""
        return self.claims

    @property
    def actions(self) -> ClusterIncidents:
        """Actions of people, for all members."""
        return self

    @property
    def publishes(self) -> bool:
        """Whether this member publishes the incidents."""
        return self._role.leads

    def relay(
        self, changes: Sequence[Alert], firing: Callable[[], Sequence[Alert]], recovering: Collection[str]
    ) -> None:
        """Have alerts appended to the log."""
        self._alerts.receive(changes, firing, recovering)

    def own_part(self, part: MonitorPart) -> MonitorPart:
        """Return a part of kilowatch itself under a name that no other member has."""
        if part.key.startswith(SITE_PARTS):
            return part
        return replace(part, key=f"{part.key}@{self._role.name}", facts={**part.facts, "member": self._role.name})

    def open(
        self,
        journal: Journal,
        policies: Mapping[str, RulePolicy],
        timings: NotificationTimings,
        follow: Follow,
        wake: Callable[[], None],
    ) -> dict[str, Callable[[], Awaitable[None]]]:
        """Go on where the journal is, and return the tasks to run."""
        self._wake = wake
        position = position_of(journal.records)
        fold = IncidentFold(policies, journal.memory, position=position, timings=timings)

        def folded(sequence: int, step: FoldStep) -> None:
            self._answers[sequence] = step
            while len(self._answers) > ANSWERS:
                self._answers.popitem(last=False)
            self._folded.set()
            if fold.manager is not None:
                follow(fold.manager, step.changes)

        def lost() -> None:
            self.claims.note_lost(max((one.notice.at for one in journal.waiting()), default=0))
            self._alerts.begin_anew()
            self._answers.clear()  # numbers begin again

        self.claims.settled_before = partial(_settled_before, journal)
        candidate = self._candidate = IncidentCandidate(
            self._coordination, fold, self._role.leadership, wall=time.time_ns, folded=folded, lost=lost
        )
        if fold.manager is not None:
            follow(fold.manager, FoldStep().changes)

        async def again() -> None:
            while True:
                with contextlib.suppress(CoordinationError):  # reported by the member's rounds
                    await candidate.follow()
                await asyncio.sleep(FOLLOW_AGAIN_SECONDS)

        async def ticks() -> None:
            while True:
                await asyncio.sleep(TICK_SECONDS)
                await candidate.step()

        return {
            "log of incidents": again,
            "ticks of incidents": ticks,
            "alerts to the log": self._alerts.run,
            "claims of deliveries": lambda: self._settle_sent(journal),
            "marks of deliveries": self._keep_marks,
            "sweep of deliveries": lambda: self._sweep(journal),
            "pages without a quorum": lambda: self._page_unfenced(
                lambda wall: fold.manager or IncidentManager(policies, timings=timings, now=wall / 1e9, wall_ns=wall),
                follow,
            ),
        }

    # -- Actions of people --------------------------------------------------------------------------

    async def acknowledge(self, key: str, *, who: str, why: str, until: int | None, now: float, wall: int) -> Incident:
        """Acknowledge an incident."""
        del now, wall
        return await self._act(AcknowledgeEdge(key, who, why, until), Incident)

    async def unacknowledge(self, key: str, *, who: str, why: str, now: float, wall: int) -> Incident:
        """Remove an acknowledgement."""
        del now, wall
        return await self._act(UnacknowledgeEdge(key, who, why), Incident)

    async def silence(
        self,
        matchers: Sequence[Matcher],
        *,
        who: str,
        why: str,
        starts: int | None,
        ends: int,
        maintenance: bool,
        now: float,
        wall: int,
    ) -> Silence:
        """Silence alerts."""
        del now, wall
        edge = SilenceEdge(tuple(matchers), who, why, ends, starts, maintenance)
        return await self._act(edge, Silence)

    async def unsilence(self, key: str, *, who: str, why: str, now: float, wall: int) -> Silence:
        """End a silence."""
        del why, now, wall
        return await self._act(UnsilenceEdge(key, who), Silence)

    async def _act(self, edge: Edge, kind: type[_T]) -> _T:
        """Append an action, and return what it made once it is folded here."""
        name = f"action-{secrets.token_hex(8)}"
        try:
            async with asyncio.timeout(ACTION_SECONDS):
                while True:
                    try:
                        sequence = await self._append(edge, name)
                        break
                    except CoordinationError:
                        await asyncio.sleep(0.3)
                while sequence not in self._answers:
                    self._folded.clear()
                    await self._folded.wait()
        except TimeoutError as error:
            raise IncidentError(
                "the aggregators can't agree now: NATS does not answer. Try again; `kilowatch cluster` shows its state."
            ) from error
        step = self._answers[sequence]
        if step.refused or not isinstance(step.answer, kind):
            raise IncidentError(step.refused or "the request changed nothing.")
        return step.answer

    # -- Inner works --------------------------------------------------------------------------------

    async def _append(self, edge: Edge, name: str) -> int:
        if self._candidate is None:
            raise CoordinationError("the aggregator is starting")
        return await self._candidate.append(edge, name)

    def _epochs(self) -> dict[str, int]:
        """Return whom this member speaks for now, with the epochs."""
        found = {**self._groups(), f"member/{self._role.name}": 0}
        if self._role.leads:
            found[SITE] = self._role.leadership.epoch
        return found

    def _lead_changed(self) -> None:
        if self._role.leads:
            self._alerts.restate(only=SITE)
            self._wake()

    async def _page_unfenced(self, manager_at: Callable[[int], IncidentManager], follow: Follow) -> None:
        """Page while NATS has no quorum, and end what was paged about once the log has caught up.
        `manager_at`: the incident manager of the log, a new one where the log is empty."""
        pages: UnfencedPages | None = None
        until, was_unfenced = 0.0, False
        while True:
            await asyncio.sleep(UNFENCED_TURN_SECONDS)
            wall = time.time_ns()
            before, was_unfenced = was_unfenced, self._role.unfenced
            if was_unfenced:
                manager = manager_at(wall)
                if pages is None:
                    log.warning("incidents: NATS has no quorum; pages go out unfenced")
                    pages = UnfencedPages(self._role.name, manager, wall)
                elif not before:
                    pages.resume(manager, wall)
                until = time.monotonic() + SETTLE_SECONDS
                follow(manager, pages.step(self._alerts.firing(), self._speaks_for, wall))
            elif pages is not None and time.monotonic() >= until:
                manager = manager_at(wall)
                follow(manager, pages.finish(manager, wall))
                pages = None

    def _speaks_for(self, alert: Alert) -> bool:
        """Return whether this member pages about an alert while there is no quorum."""
        evaluator = evaluator_of(alert, self._role.name)
        return self._role.speaks_unfenced if evaluator == SITE else evaluator in self._epochs()

    async def _keep_marks(self) -> None:
        """Mark what is settled here, also where NATS has lost all marks."""
        while True:
            with contextlib.suppress(CoordinationError):  # reported by the member's rounds
                await self.claims.restore()
            await self.claims.mark_settled()
            await asyncio.sleep(MARK_SECONDS)

    async def _settle_sent(self, journal: Journal) -> None:
        """Settle the deliveries that the leader has sent, by the entries that it writes."""
        while True:
            try:
                async with self._coordination.watch(Bucket.CLAIMS) as keys:
                    async for key in keys:
                        if not self._role.leads:
                            await self._settle_key(journal, key)
            except CoordinationError:
                await asyncio.sleep(FOLLOW_AGAIN_SECONDS)

    async def _settle_key(self, journal: Journal, key: str) -> None:
        for one in journal.waiting():
            if claim_key(one.notice.id, one.channel) == key:
                with contextlib.suppress(CoordinationError):
                    if await self.claims.is_sent(one.notice.id, one.channel):
                        await asyncio.to_thread(journal.settle, [one.id], DeliveryOutcome.DELIVERED)

    async def _sweep(self, journal: Journal) -> None:
        """Look for what was sent while this member was away."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            if self._role.leads:
                continue
            for one in journal.waiting()[:SWEPT]:
                await self._settle_key(journal, claim_key(one.notice.id, one.channel))


async def _settled_before(journal: Journal, born: int) -> list[tuple[str, str]]:
    """Return notice and channel of the newest deliveries of before a time that are settled."""
    try:
        past = await asyncio.to_thread(journal.history, 0, RESTORED)
    except StoreError as error:  # what others have settled is marked by them
        log.warning("the claims of deliveries begin anew, and the journal can't be read: %s", error)
        return []
    return [
        (one.notice.id, one.channel)
        for one in past
        if one.outcome is not DeliveryOutcome.WAITING and one.notice.at < born
    ]
