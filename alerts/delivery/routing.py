"""Who is told of a notice, and when: the routes of the settings, applied."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from alerts.config import AlertsConfig, RouteConfig, hours
from alerts.incidents.matchers import parse_all
from alerts.notice import Notice
from alerts.notifiers.alertmanager import Alertmanager
from alerts.times import Hours
from api.alerts import Action, Alert, Matcher, Severity, matches_all

_TOLD = (Severity.PAGE, Severity.TICKET)
"""Who hears of a route that names no severities: information is for nobody."""


@dataclass(frozen=True, slots=True)
class _Way:
    """A route, read."""

    severity: tuple[Severity, ...]
    matchers: tuple[Matcher, ...]
    times: Hours | None
    channels: tuple[str, ...]
    goes_on: bool


class Router:
    """Decides for notices and, for Alertmanagers, for single alerts."""

    def __init__(self, config: AlertsConfig) -> None:
        channels = config.notifiers()
        self._shows_updates = {name for name, found in channels.items() if found.shows_updates}
        self._managers = {
            name for name, found in channels.items() if isinstance(found, Alertmanager)
        }
        self._known = frozenset(channels)
        self._working = hours(
            config.working_hours, config.timezone, "alerts.working_hours", "alerts.timezone"
        )
        routes = config.routes or (RouteConfig(channels=tuple(channels)),)
        self._ways = [_way(route, config) for route in routes]

    def route(self, notice: Notice, wall_ns: int, told: Collection[str] = ()) -> dict[str, int]:
        """Return the channels that hear of a notice, each with the time at which it is due.

        `told` are the channels that have heard of its incident, or will: what follows a trigger
        goes where the trigger went, whatever the time is and the incident has become.
        """
        if notice.action is Action.TRIGGER:
            due = self._reached(notice, wall_ns)
        elif told:
            due = dict.fromkeys(told, wall_ns)
        else:
            due = dict.fromkeys(self._reached(notice, wall_ns), wall_ns)
        if notice.action is Action.UPDATE:
            due = {name: at for name, at in due.items() if name in self._shows_updates}
        return {
            name: at
            for name, at in due.items()
            if name in self._known and name not in self._managers
        }

    def managers_of(self, alert: Alert) -> list[str]:
        """Return the Alertmanagers that an alert is sent to; they have hours of their own."""
        if not self._managers:
            return []
        labels = alert.matched_labels()
        names: dict[str, None] = {}
        for way in self._ways:
            if alert.severity in way.severity and matches_all(way.matchers, labels):
                names.update(dict.fromkeys(way.channels))
                if not way.goes_on:
                    break
        return [name for name in names if name in self._managers]

    def _reached(self, notice: Notice, now: int) -> dict[str, int]:
        severity = notice.incident.severity
        facts = list(_facts(notice))
        due: dict[str, int] = {}
        for way in self._ways:
            if severity not in way.severity or not _any(way.matchers, facts):
                continue
            at = now
            if severity is Severity.TICKET:
                at = (way.times or self._working).next_open(now)
            elif way.times is not None and not way.times.open_at(now):
                continue
            for name in way.channels:
                due[name] = min(at, due.get(name, at))
            if not way.goes_on:
                break
        return due


def _way(route: RouteConfig, config: AlertsConfig) -> _Way:
    times = None
    if route.times is not None:
        zone = route.timezone or config.timezone
        times = hours(route.times, zone, "alerts.routes.times", "alerts.routes.timezone")
    return _Way(
        route.severity or _TOLD,
        parse_all(route.match, "alerts.routes.match"),
        times,
        route.channels,
        route.goes_on,
    )


def _facts(notice: Notice) -> Iterable[Mapping[str, str]]:
    """The labels of each of its alerts, or what they have in common when none is listed."""
    incident = notice.incident
    if not incident.alerts:
        yield {**incident.group, "severity": incident.severity.value}
    for alert in incident.alerts:
        yield {**incident.group, **alert.matched_labels()}


def _any(matchers: tuple[Matcher, ...], facts: list[Mapping[str, str]]) -> bool:
    return not matchers or any(matches_all(matchers, labels) for labels in facts)
