"""An Alertmanager configuration: routes by severity, and the inhibitions of the rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from alerts.rules.rule import Rule

_EQUAL = {
    "gpu": ("cluster", "node", "uuid"),
    "node": ("cluster", "node"),
    "circuit": ("cluster", "circuit"),
    "domain": ("cluster", "node"),  # which nodes share one is no label
}
_HEAD = """\
# Alertmanager 0.25 and later for kilowatch's alerts, whether kilowatch itself sends them or
# Prometheus does; made from `inhibits` of the rules by `{made_by}`; do not edit.
# Put receivers of your own in the place of `page`, `ticket` and `nobody`.
route:
  receiver: nobody
  group_by: [alertname, cluster, node, circuit]
  group_wait: 10s
  group_interval: 5m
  repeat_interval: 4h
  routes:
  - matchers: ['severity="critical"']
    receiver: page
  - matchers: ['severity="warning"']
    receiver: ticket
    repeat_interval: 1d

receivers:
- name: page
- name: ticket
- name: nobody
"""


def alertmanager_file(rules: Sequence[Rule], made_by: str) -> str:
    """Return the file."""
    lines = [_HEAD.format(made_by=made_by), "inhibit_rules:", *_inhibitions(rules)]
    return "\n".join(lines) + "\n"


def _inhibitions(rules: Sequence[Rule]) -> Iterator[str]:
    for rule in rules:
        if rule.inhibits:
            targets = "|".join(rule.inhibits)
            yield f"- source_matchers: ['alertname=\"{rule.name}\"']"
            yield f"  target_matchers: ['alertname=~\"{targets}\"']"
            yield f"  equal: [{', '.join(_EQUAL[rule.within])}]"
