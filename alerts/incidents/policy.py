"""Grouping and inhibition of each rule, and the timings of notifications."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Protocol

import msgspec

from telemetry.errors import ConfigError


class RuleScope(StrEnum):
    """The place that alerts of one cause share."""

    GPU = "gpu"
    """The GPU, or the one thing that an alert of no GPU is about."""
    BURST = "burst"
    """The GPU; but when it happens to several GPUs of a node within a minute, these together."""
    NODE = "node"
    RACK = "rack"
    """The rack where it is known, else the circuits, else the node."""
    CIRCUIT = "circuit"
    """The circuit, or those that feed the node where they are known, else the rack, else the node."""
    DOMAIN = "domain"
    """The NVLink domain where it is known, else the node."""
    SWITCH = "switch"
    """The network switch at the far end where it is known, else the rule: one incident for the fleet."""
    SERVER = "server"
    """The server of a mount where it is known, else the rule: one incident for the fleet."""
    JOB = "job"
    """The job where it is known, else the GPU."""
    RULE = "rule"
    """The rule alone: one incident for the whole fleet."""


class RulePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Grouping and inhibition of one rule."""

    group: RuleScope = RuleScope.GPU
    inhibits: Mapping[str, RuleScope] = {}
    """Rules whose alerts are a consequence where this one fires, each with the place that cause and
    consequence must share."""
    edge: bool = False
    """Whether the rule reports an event, not a state that lasts."""
    grace: float | None = None
    """Seconds after the end of a cause, before its alerts that still fire are notified; None: those of the timings."""


class RuleFacts(Protocol):
    """The part of a rule that policies are made from; implemented by `alerts.rules.rule.Rule`."""

    @property
    def name(self) -> str:
        """Name of the rule."""


class NotificationTimings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Timings of grouping, notifications and storms, in seconds."""

    page_wait: float = 1.0
    """Before the first notification of a page, so that a burst is one incident and its cause can
    follow."""
    ticket_wait: float = 15.0
    together: float = 60.0
    """Alerts of other rules on the same thing join its incident when they come no further apart."""
    cascade: float = 3.0
    """For which a notified incident is joined by further pages of the same cause, which are an update
    of it and no page of their own."""
    cascade_wide: float = 10.0
    """The same of a rule whose incidents are of a rack, a circuit or the fleet: nodes report at
    different times."""
    again: float = 10.0
    """Before the third page of one rule at one place; doubled with each further one, up to
    `more_every`."""
    more_every: float = 300.0
    """Between two updates of an incident that grows or shrinks."""
    repeat_page: float = 14_400.0
    """Until an incident that nobody has acknowledged is notified again; 0 is never."""
    repeat_ticket: float = 86_400.0
    escalate: tuple[float, ...] = ()
    """After a page, when it escalates while nobody has acknowledged it: a step each."""
    settle: float = 10.0
    """For which no alert may fire before an incident is over."""
    settle_recurring: float = 300.0
    """The same when an alert has fired more than once within the last hour."""
    grace: float = 15.0
    """After the end of a cause, before its consequences that still fire are notified."""
    after_maintenance: float = 120.0
    """After the end of a maintenance window, for which it still suppresses alerts."""
    flap_window: float = 300.0
    """In which state changes are counted: an alert with `flap_start` of them flaps, until there
    is none within the window."""
    flap_start: int = 6
    storm_size: int = 20
    """New incidents of one severity within a minute; of more than these, one notice is sent."""


DEFAULT_TIMINGS = NotificationTimings()
"""Default timings of notifications."""


def policies_of(rules: Iterable[RuleFacts]) -> dict[str, RulePolicy]:
    """Return the policy of each rule. Raises `ConfigError` where rules inhibit one another."""
    found: dict[str, RulePolicy] = {}
    for rule in rules:
        inhibits = {one.rule: RuleScope(one.within) for one in getattr(rule, "inhibits", ())}
        group = RuleScope(getattr(rule, "group", RuleScope.GPU))
        edge = bool(getattr(getattr(rule, "when", None), "edge", False))
        grace: float | None = getattr(rule, "grace", None)
        found[rule.name] = RulePolicy(group=group, inhibits=inhibits, edge=edge, grace=grace)
    check_inhibitions(found)
    return found


def related(policies: Mapping[str, RulePolicy], one: str, other: str) -> bool:
    """Whether one rule inhibits the other, or both are the same."""
    return one == other or any(
        second in policies[first].inhibits for first, second in ((one, other), (other, one)) if first in policies
    )


def inhibited_by(policies: Mapping[str, RulePolicy]) -> dict[str, tuple[str, ...]]:
    """Return for each rule the rules that inhibit it."""
    found: dict[str, list[str]] = {name: [] for name in policies}
    for name, policy in policies.items():
        for other in policy.inhibits:
            if other != name and other in found:
                found[other].append(name)
    return {name: tuple(causes) for name, causes in found.items()}


def check_inhibitions(policies: Mapping[str, RulePolicy]) -> None:
    """Raise `ConfigError` when a rule would, directly or through others, inhibit itself."""
    causes = inhibited_by(policies)
    done: set[str] = set()
    for start in policies:
        path: list[str] = []
        _walk(start, causes, path, done)


def _walk(name: str, causes: Mapping[str, tuple[str, ...]], path: list[str], done: set[str]) -> None:
    if name in path:
        circle = " -> ".join([*path[path.index(name) :], name])
        raise ConfigError(
            "rules", f"these inhibit one another: {circle}", "No alert would be notified; remove one of the `inhibits`."
        )
    if name in done:
        return
    path.append(name)
    for cause in causes.get(name, ()):
        _walk(cause, causes, path, done)
    path.pop()
    done.add(name)
