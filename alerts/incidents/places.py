"""Places of an alert: its subject, what contains or feeds that, and what it shares with others."""

from __future__ import annotations

from functools import lru_cache

from alerts.incidents.policy import RuleScope
from api.alerts import Alert, Subject

Place = tuple[str, str]
"""Kind and name: `("node", "dgx-01")`."""
_ABOVE = (("circuit", "circuits"), ("circuit", "panel"), ("ups", "ups"))
"""Kinds of supply, and the labels that name them."""


def own(alert: Alert) -> Place:
    """Return the subject of an alert as a place."""
    match alert.subject:
        case Subject.NODE:
            return ("node", alert.node)
        case Subject.GPU:
            return ("gpu", alert.gpu or alert.key)
        case Subject.LINK | Subject.PORT | Subject.INSTANCE:
            return (alert.subject.value, alert.key.partition("/")[2])
        case subject:
            return (subject.value, alert.name)


def around(alert: Alert) -> tuple[Place, ...]:
    """Return the subject of an alert and all that contains or feeds it: where its cause may be."""
    labels = alert.labels
    found = [own(alert), ("gpu", alert.gpu or ""), ("node", _node(alert)), _domain(alert)]
    for kind, label in _ABOVE:
        if label in labels:
            found.extend((kind, name) for name in names(labels[label]))
    return tuple(place for place in dict.fromkeys(found) if place[1])


def reach(alert: Alert, within: RuleScope) -> tuple[Place, ...]:
    """Return where the consequences of an alert may be."""
    match within:
        case RuleScope.GPU:
            found = [("gpu", alert.gpu or "")]
        case RuleScope.NODE:
            found = [("node", _node(alert))]
        case RuleScope.DOMAIN:
            found = [_domain(alert)]
        case _:
            joined = alert.labels.get("circuits", "") if alert.subject.snapshot_kind is None else ""
            found = [("circuit", name) for name in names(joined)]
    if alert.subject.snapshot_kind is not None:  # a circuit may name the nodes that hang on it
        found.append(own(alert))
        found.extend(("node", node) for node in names(alert.labels.get("nodes", "")))
    known = tuple(place for place in dict.fromkeys(found) if place[1])
    return known or (own(alert),)


def common(alert: Alert, scope: RuleScope) -> Place:
    """Return the place that an alert shares with others of its incident."""
    match scope:
        case RuleScope.RULE:
            return ("rule", alert.rule)
        case RuleScope.GPU | RuleScope.BURST:
            wanted = [("gpu", alert.gpu or "")]
        case RuleScope.NODE:
            wanted = [("node", _node(alert))]
        case RuleScope.JOB:
            wanted = [("job", alert.labels.get("job", "")), ("gpu", alert.gpu or "")]
        case RuleScope.DOMAIN:
            wanted = [_domain(alert)]
        case RuleScope.SWITCH:
            wanted = [("switch", alert.labels.get("switch", "")), ("rule", alert.rule)]
        case RuleScope.SERVER:
            wanted = [("server", alert.labels.get("server", "")), ("rule", alert.rule)]
        case RuleScope.RACK:
            wanted = [_rack(alert), _circuits(alert), ("node", _node(alert))]
        case RuleScope.CIRCUIT if alert.subject.snapshot_kind is None:
            wanted = [_circuits(alert), _rack(alert), ("node", alert.node)]
        case RuleScope.CIRCUIT:
            wanted = []
    return next((place for place in wanted if place[1]), own(alert))


def same_kind(alert: Alert) -> Place:
    """Return the place that alerts of one rule on several GPUs of a node share."""
    return ("alike", f"{alert.node}/{alert.rule}")


def paged_node(alert: Alert) -> Place:
    """Return the place at which the incidents of a node's pages are found."""
    return ("pages", alert.node)


def moved(before: Alert, alert: Alert) -> bool:
    """Return whether a board is in another node or slot than before: by the physical slot, else by the PCI
    address, where both are known."""
    if before.node != alert.node:
        return True
    for label in ("slot", "pci"):
        was, now = before.labels.get(label), alert.labels.get(label)
        if was and now:
            return was != now
    return False


def _rack(alert: Alert) -> Place:
    return ("rack", alert.labels.get("rack", ""))


def _circuits(alert: Alert) -> Place:
    return ("circuit", ",".join(names(alert.labels.get("circuits", ""))))


def _node(alert: Alert) -> str:
    return alert.name if alert.subject is Subject.SUPPLY else alert.node


def _domain(alert: Alert) -> Place:
    name = alert.labels.get("domain", "")
    return ("domain", name) if name else ("node", _node(alert))


def group(alert: Alert, place: Place) -> dict[str, str]:
    """Return the labels of a group: a place, and the rule that opened the incident."""
    kind, name = place
    found = {"rule": alert.rule, kind: name}
    if kind in {"gpu", "link", "port"}:
        found["node"] = alert.node
    return found


@lru_cache(maxsize=4096)
def names(joined: str) -> tuple[str, ...]:
    """Return the names that a label joins by commas."""
    return tuple(name for part in joined.split(",") if (name := part.strip()))
