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
