"""The `[alerts]` section: channels, routes and timings of notifications (docs/alerts.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Formatter
from typing import Any

import msgspec

from alerts.incidents.matchers import parse_all
from alerts.message.page import Links
from alerts.notifiers import channel
from alerts.notifiers.channel import Channel, url_problems
from alerts.times import Hours, parse_hours, zone_of
from api.alerts import Severity
from telemetry.errors import ConfigError, did_you_mean

HOUR = 3600.0
DASHBOARD_FIELDS = ("cluster", "node", "gpu", "uuid", "circuit", "from", "to")
"""Fields of the template `dashboard_url`; `from` and `to` are ms since 1970, as in Grafana's
URLs."""


class RouteConfig(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"goes_on": "continue"}
):
    """Which notices go to which channels. The first route that matches decides."""

    channels: tuple[str, ...]
    """Names of channels; with none, these notices are not sent."""
    severity: tuple[Severity, ...] = ()
    """Severities that match. [page and ticket]"""
    match: tuple[str, ...] = ()
    """Conditions on labels, as `node=~"dgx-.*"`: one of the incident's alerts fulfils all of them."""
    times: tuple[str, ...] | None = None
    """Hours, as `mon-fri 08:00-18:00`: outside of them a page continues to the next route, and a
    ticket waits for them. [any time for pages, `working_hours` for tickets]"""
    timezone: str | None = None
    """IANA name of the zone of `times`. [that of the section]"""
    goes_on: bool = False
    """Written `continue`: whether later routes are evaluated too."""


class HeartbeatConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A dead-man switch: a service outside that is pinged while rules and store make progress, and
    that pages when the pings end."""

    url: str = ""
    """URL that is pinged."""
    url_file: Path | None = None
    """A file with the URL: most services accept a ping from anyone who has it."""
    url_env: str = ""
    """Variable of the environment with the URL."""
    every: float = 60.0
    """Seconds between two pings."""
    limit: float = 0.0
    """Seconds without progress after which no ping is sent. [the larger of `every` and 30]"""


class RepeatConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hours after which an incident that nobody has acknowledged is notified again."""

    page: float = 4.0
    """Hours, for a page."""
    ticket: float = 24.0
    """Hours, for a ticket."""


class EscalationConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A step of escalation: who is paged next, when nobody acknowledges a page."""

    after_minutes: float
    """Minutes after the page."""
    channels: tuple[str, ...]
    """Names of channels. One that no route names receives nothing before."""


class AlertsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole section; without channels, alerts are stored and shown but not sent."""

    channels: dict[str, dict[str, Any]] = {}
    """By name, undecoded; `notifiers` decodes them."""
    routes: tuple[RouteConfig, ...] = ()
    """In order. [every page and ticket to every channel]"""
    timezone: str = "UTC"
    """IANA name of the zone of `working_hours` and of routes that name none."""
    working_hours: tuple[str, ...] = ("mon-fri 08:00-18:00",)
    """When tickets are sent."""
    escalation: tuple[EscalationConfig, ...] = ()
    """Steps, in the order of their times. [none]"""
    heartbeat: HeartbeatConfig | None = None
    group_wait_seconds: float = 0.5
    """How long a new incident collects alerts of its cause before it is notified."""
    group_interval_seconds: float = 300.0
    """Least time between two updates of an incident."""
    repeat_hours: RepeatConfig = RepeatConfig()
    page_expiry_hours: float = 6.0
    """A page that could not be delivered for so long expires; its repetition does not."""
    ticket_expiry_hours: float = 36.0
    """The same for a ticket."""
    external_url: str = ""
    """URL of the aggregator's HTTP server for people; links in pages begin with it. [none]"""
    runbook_url: str = ""
    """URL of another runbook; links add `#<anchor>`. [none: the page below `external_url`, else pages
    name docs/runbook.md]"""
    dashboard_url: str = ""
    """Template of the links to dashboards, with `{cluster}`, `{node}`, `{gpu}` (index), `{uuid}`,
    `{circuit}`, `{from}` and `{to}` (ms since 1970)."""
    proxy: str = ""
    """URL of an HTTP proxy for all channels."""

    def notifiers(self) -> dict[str, Channel]:
        """Return the channels by name. Raises `ConfigError`."""
        for name in self.channels:
            if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,63}", name):
                raise ConfigError(
                    f"alerts.channels.{name}",
                    "it is no name",
                    "Use lower case letters, digits, '-' and '_', at most 64.",
                )
        return {name: channel(name, raw) for name, raw in self.channels.items()}

    def muted(self) -> AlertsConfig:
        """Return a copy without channels, routes, escalation and heartbeat."""
        return msgspec.structs.replace(self, channels={}, routes=(), escalation=(), heartbeat=None)

    def links(self, cluster: str = "") -> Links:
        """Return the targets of the links in pages."""
        return Links(cluster, self.external_url, self.runbook_url, self.dashboard_url)

    def check(self) -> None:
        """Raise `ConfigError` for invalid settings."""
        channels = self.notifiers()
        for number, step in enumerate(self.escalation):
            self._check_escalation(f"alerts.escalation[{number}]", step, channels)
        if (
            channels
            and not self.routes
            and channels.keys() <= {name for step in self.escalation for name in step.channels}
        ):
            raise ConfigError(
                "alerts.escalation",
                "every channel waits for an escalation, so no page is sent at once",
                "Leave one channel out, or name it in [[alerts.routes]].",
            )
        for number, route in enumerate(self.routes):
            self._check_route(f"alerts.routes[{number}]", route)
        hours(self.working_hours, self.timezone, "alerts.working_hours", "alerts.timezone")
        for key, problem, cure in self._problems():
            raise ConfigError(f"alerts.{key}", problem, cure)

    def open(self) -> None:
        """Read the files and variables that channels and heartbeat name. Raises `ConfigError`."""
        for name, found in self.notifiers().items():
            found.open(f"alerts.channels.{name}")

    def _check_channels(self, where: str, names: tuple[str, ...]) -> None:
        for name in names:
            if name not in self.channels:
                hint = did_you_mean(name, self.channels) or (
                    f"Channels: {', '.join(self.channels)}." if self.channels else f"Write [alerts.channels.{name}]."
                )
                raise ConfigError(f"{where}.channels", f"there is no channel {name!r}", hint)

    def _check_escalation(self, where: str, step: EscalationConfig, channels: Mapping[str, Channel]) -> None:
        self._check_channels(where, step.channels)
        if not step.channels:
            raise ConfigError(f"{where}.channels", "it names nobody", "Name a channel.")
        if not 0 < step.after_minutes <= 1440:
            raise ConfigError(f"{where}.after_minutes", "it must be more than 0 and at most 1440")
        for name in step.channels:
            if not channels[name].shows_notices:
                raise ConfigError(
                    f"{where}.channels",
                    f"{name!r} escalates by itself",
                    "An Alertmanager receives alerts, not pages; configure it there.",
                )
        times = [one.after_minutes for one in self.escalation]
        if times != sorted(set(times)):
            raise ConfigError(
                f"{where}.after_minutes",
                "the steps are not in the order of their times",
                "Write the soonest first, and one step for each time.",
            )

    def _check_route(self, where: str, route: RouteConfig) -> None:
        self._check_channels(where, route.channels)
        parse_all(route.match, f"{where}.match")
        hours(route.times or (), route.timezone or self.timezone, f"{where}.times", f"{where}.timezone")

    def _problems(self) -> Iterator[tuple[str, str, str]]:
        for name in ("group_wait_seconds", "group_interval_seconds"):
            if getattr(self, name) < 0:
                yield name, "it can't be negative", ""
        for name in ("page", "ticket"):
            repeat, expiry = getattr(self.repeat_hours, name), getattr(self, f"{name}_expiry_hours")
            if repeat <= 0 or expiry <= 0:
                yield f"repeat_hours.{name}", "repeat and expiry must be more than 0 hours", ""
            elif expiry <= repeat:
                yield (
                    f"{name}_expiry_hours",
                    f"it must be longer than repeat_hours.{name} ({repeat:g})",
                    "Else no notification of an incident may arrive between two repetitions.",
                )
        for name in ("external_url", "runbook_url", "dashboard_url", "proxy"):
            url = getattr(self, name)
            if url:
                yield from url_problems(name, url)
        yield from _template_problems(self.dashboard_url)
        if self.heartbeat is not None:
            yield from _heartbeat_problems(self.heartbeat)


def hours(texts: tuple[str, ...], zone: str, where: str, zone_where: str) -> Hours:
    """Return parsed hours. Raises `ConfigError`."""
    return parse_hours(texts, zone_of(zone, zone_where), where)


def _template_problems(template: str) -> Iterator[tuple[str, str, str]]:
    known = ", ".join(f"{{{name}}}" for name in DASHBOARD_FIELDS)
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        yield "dashboard_url", f"its braces don't match: {error}", f"Use {known}."
        return
    for _, name, spec, conversion in parts:
        if name is not None and (name not in DASHBOARD_FIELDS or spec or conversion):
            yield "dashboard_url", f"{{{name}}} has no meaning", f"Use {known}."


def _heartbeat_problems(config: HeartbeatConfig) -> Iterator[tuple[str, str, str]]:
    given = [name for name in ("url", "url_file", "url_env") if getattr(config, name)]
    if len(given) != 1:
        yield "heartbeat", "it needs one URL", "Give one of url, url_file or url_env."
    if config.url:
        yield from url_problems("heartbeat.url", config.url)
    if not 1 <= config.every <= 86_400:
        yield "heartbeat.every", "it must be 1 to 86400 seconds", ""
    if config.limit < 0:
        yield "heartbeat.limit", "it can't be negative", ""
