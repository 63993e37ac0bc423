"""Actions of people on incidents: of a single aggregator on its own incident manager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from alerts.incidents.manager import IncidentManager
from api.alerts import Incident, Matcher, Silence


class IncidentActions(Protocol):
    """Actions of people; each returns what it made or changed. They raise `IncidentError`."""

    async def acknowledge(self, key: str, *, who: str, why: str, until: int | None, now: float, wall: int) -> Incident:
        """Acknowledge an incident."""

    async def unacknowledge(self, key: str, *, who: str, why: str, now: float, wall: int) -> Incident:
        """Remove an acknowledgement."""

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

    async def unsilence(self, key: str, *, who: str, why: str, now: float, wall: int) -> Silence:
        """End a silence."""


class LocalActions:
    """Actions on the incident manager of this process."""

    def __init__(self, manager: Callable[[], IncidentManager], commit: Callable[[tuple[Any, Any]], Any]) -> None:
        """`commit` stores the changes of an action, and returns what it made."""
        self._manager, self._commit = manager, commit

    async def acknowledge(self, key: str, *, who: str, why: str, until: int | None, now: float, wall: int) -> Incident:
        """Acknowledge an incident."""
        found: Incident = self._commit(
            self._manager().acknowledge(key, who=who, why=why, until=until, now=now, wall_ns=wall)
        )
        return found

    async def unacknowledge(self, key: str, *, who: str, why: str, now: float, wall: int) -> Incident:
        """Remove an acknowledgement."""
        found: Incident = self._commit(self._manager().unacknowledge(key, who=who, why=why, now=now, wall_ns=wall))
        return found

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
        found: Silence = self._commit(
            self._manager().silence(
                matchers, who=who, why=why, starts=starts, ends=ends, maintenance=maintenance, now=now, wall_ns=wall
            )
        )
        return found

    async def unsilence(self, key: str, *, who: str, why: str, now: float, wall: int) -> Silence:
        """End a silence."""
        found: Silence = self._commit(self._manager().unsilence(key, who=who, why=why, now=now, wall_ns=wall))
        return found
