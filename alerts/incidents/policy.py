"""What the desk must know of a rule, and how patient it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Protocol

import msgspec

from telemetry.errors import ConfigError


class RuleScope(StrEnum):
    """What alerts of one cause have in common."""

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
    RULE = "rule"
    """The rule alone: one incident for the whole fleet."""


class RulePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What the desk goes by for one rule."""

    group: RuleScope = RuleScope.GPU
    inhibits: tuple[str, ...] = ()
    """Rules whose alerts are a consequence where this one fires."""
    within: RuleScope = RuleScope.NODE
    """What cause and consequence must have in common for that."""
    edge: bool = False
    """Whether it speaks of an instant, not of a state that lasts."""


class RuleFacts(Protocol):
    """A rule, as far as the desk looks at it; `alerts.rules.rule.Rule` is one."""

    @property
    def name(self) -> str:
        """Its name."""


class NotificationTimings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long the desk waits for what, in seconds."""

    page_wait: float = 1.0
    """Before a page is told, so that a burst is one, and its cause may come behind it."""
    ticket_wait: float = 15.0
    together: float = 60.0
    """Alerts of other rules on the same thing join its incident when they come no further apart."""
    more_every: float = 300.0
    """Between two updates of an incident that grows or shrinks."""
    repeat_page: float = 14_400.0
    """Until an incident that nobody took is told again; 0 is never."""
    repeat_ticket: float = 86_400.0
    settle: float = 10.0
    """For which all must be good before an incident is over."""
    settle_restless: float = 300.0
    """The same where it has been bad again within the last hour."""
    late_cause: float = 300.0
    """An alert that was told no longer ago goes below its cause when that shows up."""
    grace: float = 15.0
    """After the end of a cause, before what still fires below it is told."""
    after_maintenance: float = 120.0
    """For which a maintenance window still covers what it leaves behind."""
    flap_window: float = 300.0
    """In which changes are counted: an alert with `flap_start` of them flaps, until there is
    none any more."""
    flap_start: int = 6
    storm_size: int = 20
    """New incidents of one severity within a minute; with more than these, one notice tells all."""


PATIENCE = NotificationTimings()
"""What suits most fleets."""


def policies_of(rules: Iterable[RuleFacts]) -> dict[str, RulePolicy]:
    """Return the policy of each rule. Raises `ConfigError` where rules hide one another."""
    found: dict[str, RulePolicy] = {}
    for rule in rules:
        known = {
            name: value
            for name in ("group", "inhibits", "within")
            if (value := getattr(rule, name, None)) is not None
        }
        edge = bool(getattr(getattr(rule, "when", None), "edge", False))
        found[rule.name] = msgspec.convert(
            {**known, "edge": edge}, RulePolicy, from_attributes=True
        )
    check_inhibitions(found)
    return found


def hidden_by(policies: Mapping[str, RulePolicy]) -> dict[str, tuple[str, ...]]:
    """Return for each rule those whose alerts may be the cause of its alerts."""
    return {
        name: tuple(
            other for other, policy in policies.items() if other != name and name in policy.inhibits
        )
        for name in policies
    }


def check_inhibitions(policies: Mapping[str, RulePolicy]) -> None:
    """Raise `ConfigError` when a rule would, over others or not, be hidden by itself."""
    causes = hidden_by(policies)
    done: set[str] = set()
    for start in policies:
        path: list[str] = []
        _walk(start, causes, path, done)


def _walk(
    name: str, causes: Mapping[str, tuple[str, ...]], path: list[str], done: set[str]
) -> None:
    if name in path:
        circle = " -> ".join([*path[path.index(name) :], name])
        raise ConfigError(
            "rules",
            f"these are hidden by one another: {circle}",
            "Nobody would be told; remove one of the `inhibits`.",
        )
    if name in done:
        return
    path.append(name)
    for cause in causes.get(name, ()):
        _walk(cause, causes, path, done)
    path.pop()
    done.add(name)
