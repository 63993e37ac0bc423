"""Which channels receive a notice, and when: the routes of the settings."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from alerts.config import AlertsConfig, RouteConfig, hours
from alerts.incidents.matchers import parse_all
from alerts.notice import Notice
from alerts.notifiers.alertmanager import Alertmanager
from alerts.times import Hours
from api.alerts import Action, Alert, Matcher, Severity, matches_all
from telemetry.runtime.isolation import Isolation, PartKind

_NOTIFIED = (Severity.PAGE, Severity.TICKET)
"""Severities of a route that names none; information is not sent."""


@dataclass(frozen=True, slots=True)
class _Route:
    """A route, parsed."""

    severity: tuple[Severity, ...]
    matchers: tuple[Matcher, ...]
    times: Hours | None
    channels: tuple[str, ...]
    goes_on: bool


class Router:
    """Finds the channels of notices and, for Alertmanagers, of single alerts."""

    def __init__(self, config: AlertsConfig) -> None:
        channels = config.notifiers()
        self._shows_updates = {name for name, found in channels.items() if found.shows_updates}
        self._managers = {name for name, found in channels.items() if isinstance(found, Alertmanager)}
        self._known = frozenset(channels)
        self._working = hours(config.working_hours, config.timezone, "alerts.working_hours", "alerts.timezone")
        self.aside = Isolation(PartKind.DELIVERY)
        """`routes` where the last notice went to all channels, because they can't be told."""
        self._escalation = [step.channels for step in config.escalation]
        waiting = {name for names in self._escalation for name in names}
        first = tuple(name for name in channels if name not in waiting)
        routes = config.routes or (RouteConfig(channels=first),)
        self._routes = [_parsed(route, config) for route in routes]

    def route(self, notice: Notice, wall_ns: int, notified: Collection[str] = ()) -> dict[str, int]:
        """Return the channels that receive a notice, each with the time at which it is due.

        `notified`: the channels that have received its incident, or will: what follows a trigger
        goes where the trigger went, at any time and for any severity.
        """
        due = dict.fromkeys(
            notice.channels or notified or self._known, wall_ns
        )  # one page too many is better than none
        with self.aside.attempt("routes"):
            due = self._due(notice, wall_ns, notified)
        return {name: at for name, at in due.items() if name in self._known and name not in self._managers}

    def _due(self, notice: Notice, wall_ns: int, notified: Collection[str]) -> dict[str, int]:
        if notice.channels:
            return self._among(notice, wall_ns)
        if notice.escalation:
            steps = self._escalation[notice.escalation - 1 : notice.escalation]
            return {name: wall_ns for names in steps for name in names}
        if notice.action is Action.TRIGGER:
            due = self._reached(notice, wall_ns)
        elif notified:
            due = dict.fromkeys(notified, wall_ns)
        else:
            due = dict.fromkeys(self._reached(notice, wall_ns), wall_ns)
        if notice.action is Action.UPDATE:
            due = {name: at for name, at in due.items() if name in self._shows_updates}
        return due

    def _among(self, notice: Notice, wall_ns: int) -> dict[str, int]:
        """Return those of a notice's channels that have it by a route, or by a step of escalation that is past."""
        escalated = self._escalation[: notice.escalation]
        due = {name: wall_ns for names in escalated for name in names}
        due = self._reached(notice, wall_ns) | due
        return {name: at for name, at in due.items() if name in notice.channels}

    def managers_of(self, alert: Alert) -> list[str]:
        """Return the Alertmanagers that an alert is sent to; they have hours of their own."""
        if not self._managers:
            return []
        labels = alert.matched_labels()
        names: dict[str, None] = {}
        for route in self._routes:
            if alert.severity in route.severity and matches_all(route.matchers, labels):
                names.update(dict.fromkeys(route.channels))
                if not route.goes_on:
                    break
        return [name for name in names if name in self._managers]

    def _reached(self, notice: Notice, now: int) -> dict[str, int]:
        severity = notice.incident.severity
        facts = list(_facts(notice))
        due: dict[str, int] = {}
        for route in self._routes:
            if severity not in route.severity or not _any(route.matchers, facts):
                continue
            at = now
            if severity is Severity.TICKET:
                at = (route.times or self._working).next_open(now)
            elif route.times is not None and not route.times.open_at(now):
                continue
            for name in route.channels:
                due[name] = min(at, due.get(name, at))
            if not route.goes_on:
                break
        return due


def _parsed(route: RouteConfig, config: AlertsConfig) -> _Route:
    times = None
    if route.times is not None:
        zone = route.timezone or config.timezone
        times = hours(route.times, zone, "alerts.routes.times", "alerts.routes.timezone")
    return _Route(
        route.severity or _NOTIFIED, parse_all(route.match, "alerts.routes.match"), times, route.channels, route.goes_on
    )


def _facts(notice: Notice) -> Iterable[Mapping[str, str]]:
    """Yield the labels of each alert of the incident, or its group when it lists none."""
    incident = notice.incident
    if not incident.alerts:
        yield {**incident.group, "severity": incident.severity.value}
    for alert in incident.alerts:
        yield {**incident.group, **alert.matched_labels()}


def _any(matchers: tuple[Matcher, ...], facts: list[Mapping[str, str]]) -> bool:
    return not matchers or any(matches_all(matchers, labels) for labels in facts)
