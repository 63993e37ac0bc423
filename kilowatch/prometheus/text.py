"""The files themselves: YAML that people can read, from plain data."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from alerts.rules.rule import Rule
from kilowatch.prometheus.past import RECORD_SECONDS
from kilowatch.prometheus.rules import AlertRule, Untranslated, differences, recordings, translate
from telemetry.text import exact_duration

Json = dict[str, Any]
_HEAD = """\
# Rules for Prometheus 2.42 and later, made from kilowatch's own by `{made_by}`; do not edit.
# They need the pages of /sd/prometheus and /metrics (docs/prometheus.md). kilowatch evaluates the
# same rules every second by itself; use these where Prometheus is to send the alerts.
"""


def groups(made: Sequence[AlertRule], runbook: str) -> list[Json]:
    """Return the groups of a rule file: recording rules, then alerts by their subject."""
    found: list[Json] = []
    records = recordings(made)
    if records:
        rules = [{"record": name, "expr": expr} for name, expr in records.items()]
        interval = f"{RECORD_SECONDS}s"
        found.append({"name": "kilowatch-records", "interval": interval, "rules": rules})
    for subject in dict.fromkeys(alert.rule.table for alert in made):
        rules = [rule_json(alert, runbook) for alert in made if alert.rule.table is subject]
        found.append({"name": f"kilowatch-{subject}", "rules": rules})
    return found


def rule_json(alert: AlertRule, runbook: str) -> Json:
    """Return one alert as Prometheus reads it."""
    times = {"for": alert.hold, "keep_firing_for": alert.keep}
    return {
        "alert": alert.rule.name,
        "expr": alert.expr,
        **{name: exact_duration(value) for name, value in times.items() if value},
        "labels": alert.labels,
        "annotations": alert.annotations(runbook),
    }


def rule_file(rules: Sequence[Rule], runbook: str, made_by: str, more: Sequence[Json] = ()) -> str:
    """Return a rule file, with remarks on rules that are missing and on differences. `more`: further
    groups."""
    made, left = translate(rules)
    lines = [_HEAD.format(made_by=made_by) + "#"]
    lines += _remarks(made, left)
    lines += ["groups:"]
    for group in [*groups(made, runbook), *more]:
        lines += [f"- name: {group['name']}"]
        lines += [f"  interval: {group['interval']}"] if "interval" in group else []
        lines += ["  rules:"]
        for rule in group["rules"]:
            lines += _rule_lines(rule)
    return "\n".join(lines) + "\n"


def _remarks(made: Sequence[AlertRule], left: Sequence[Untranslated]) -> Iterator[str]:
    if left:
        yield "# Not here, for PromQL can't express them:"
        yield from (f"#   {one.rule.name}: {one.reason}" for one in left)
    noted: dict[str, list[str]] = {}
    for name, note in differences(made):
        noted.setdefault(note, []).append(name)
    if noted:
        yield "# With differences:"
        for note, names in noted.items():
            yield f"#   {note}"
            yield f"#     {', '.join(names)}"
    yield "# Everywhere: an absent reading ends an alert here (after keep_firing_for); in kilowatch"
    yield "# it leaves the alert as it is, for unknown is not good."


def _rule_lines(rule: Json) -> Iterator[str]:
    start = "  - "
    for key, value in rule.items():
        if isinstance(value, dict):
            yield f"{start}{key}:"
            yield from (f"      {name}: {_quoted(text)}" for name, text in value.items())
        elif key == "expr":
            yield f"{start}expr: >-"
            yield f"      {value}"
        else:
            yield f"{start}{key}: {value}"
        start = "    "


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


_EQUAL = {
    "gpu": ("cluster", "node", "uuid"),
    "node": ("cluster", "node"),
    "circuit": ("cluster", "circuit"),
    "domain": ("cluster", "node"),  # which nodes share one is no label
}
_ALERTMANAGER_HEAD = """\
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
    lines = [_ALERTMANAGER_HEAD.format(made_by=made_by), "inhibit_rules:", *_inhibitions(rules)]
    return "\n".join(lines) + "\n"


def _inhibitions(rules: Sequence[Rule]) -> Iterator[str]:
    for rule in rules:
        for scope, equal in _EQUAL.items():
            targets = "|".join(one.rule for one in rule.inhibits if one.within == scope)
            if targets:
                yield f"- source_matchers: ['alertname=\"{rule.name}\"']"
                yield f"  target_matchers: ['alertname=~\"{targets}\"']"
                yield f"  equal: [{', '.join(equal)}]"
