"""Rules of kilowatch as rules of Prometheus: which can be expressed, how, and with what differences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from alerts.notifiers.labels import SEVERITY
from alerts.rules.names import WORDS
from alerts.rules.rule import Rule
from api.alerts import Subject
from kilowatch.prometheus.conditions import promql
from kilowatch.prometheus.formulas import both
from kilowatch.prometheus.vectors import NotExpressible, PromQL, identity, literal, on, series, unless_disturbed
from telemetry.metric import Unit
from telemetry.wire.exposition import PREFIX

RUNBOOK_URL = "http://127.0.0.1:9400/runbook"
"""Runbook of the shipped files: the pages of an aggregator on the machine of Prometheus. `--runbook` sets another."""
_UNLESS = "While `unless` is bad, Prometheus ends the alert; kilowatch leaves it as it is."
_LOAD = "An idle device is good here; kilowatch counts only the time under load."
_WHERE = {
    Subject.GPU: "GPU {{ $labels.gpu }} of {{ $labels.node }}",
    Subject.LINK: "link {{ $labels.link }} of GPU {{ $labels.gpu }} of {{ $labels.node }}",
    Subject.NODE: "{{ $labels.node }}",
    Subject.PORT: "port {{ $labels.port }} of {{ $labels.node }}",
    Subject.INSTANCE: "MIG {{ $labels.gpu_instance }}/{{ $labels.compute_instance }} of GPU {{ $labels.gpu }} of {{ $labels.node }}",
}
_OF_A_GPU = frozenset({Subject.GPU, Subject.LINK})
_UNITS = {
    Unit.CELSIUS: '{{ $value | printf "%.0f" }} °C',
    Unit.WATTS: '{{ $value | printf "%.0f" }} W',
    Unit.AMPERES: '{{ $value | printf "%.1f" }} A',
    Unit.RATIO: "{{ $value | humanizePercentage }}",
    Unit.SECONDS: "{{ $value | humanizeDuration }}",
    Unit.BYTES: "{{ $value | humanize1024 }}B",
}


@dataclass(frozen=True, slots=True)
class AlertRule:
    """A rule of Prometheus, with the rule of kilowatch that it is made of."""

    rule: Rule
    expr: str
    hold: float
    keep: float
    notes: tuple[str, ...]
    records: tuple[tuple[str, str], ...]
    spare: float
    """Seconds for which the expression itself stays true after an instant."""

    @property
    def labels(self) -> dict[str, str]:
        """Labels of its alerts beside the device, as the Alertmanager channel sends them."""
        rule = self.rule
        return {"severity": SEVERITY[rule.severity], "subject": rule.table.value, "remediation": rule.remediation.value}

    def annotations(self, runbook: str) -> dict[str, str]:
        """Texts of its alerts."""
        return {
            "summary": _text(self.rule.summary, self.rule),
            "description": _text(self.rule.advice, self.rule),
            "runbook_url": f"{runbook}#{self.rule.runbook}",
        }


@dataclass(frozen=True, slots=True)
class Untranslated:
    """A rule that only kilowatch can evaluate, with the reason."""

    rule: Rule
    reason: str


def translate(rules: Sequence[Rule]) -> tuple[list[AlertRule], list[Untranslated]]:
    """Return the rules that Prometheus can evaluate, and those that it can't."""
    made: list[AlertRule] = []
    left: list[Untranslated] = []
    for rule in rules:
        try:
            made.append(alert_of(rule))
        except NotExpressible as reason:
            left.append(Untranslated(rule, str(reason)))
    return made, left


def alert_of(rule: Rule) -> AlertRule:
    """Return one rule as Prometheus evaluates it. Raises `NotExpressible` when it can't."""
    detail = len(identity(rule.table))
    bad = promql(rule.when, rule)
    if bad.subject is not rule.table:
        if len(identity(bad.subject)) > detail:
            raise NotExpressible(f"its condition is about a {bad.subject}")
        bad = both([PromQL(_there(rule.table), rule.table), bad])
    text, notes, records = bad.expr, list(bad.notes), list(bad.records)
    if rule.unless is not None:
        unless = promql(rule.unless, rule)
        text = f"{bad.term} unless {on(unless.subject)} {unless.term}"
        notes.append(_UNLESS)
        records += unless.records
    if rule.load is not None:
        notes.append(_LOAD)
    if rule.settle and rule.table in {Subject.GPU, Subject.LINK, Subject.NODE, Subject.PORT, Subject.INSTANCE}:
        text = f"({text}){unless_disturbed(rule.settle)}"
    keep = rule.keep - bad.spare if rule.when.edge else rule.keep
    return AlertRule(rule, text, rule.hold, max(0.0, keep), tuple(notes), tuple(records), bad.spare)


def _there(subject: Subject) -> str:
    """Return the series of every device of a kind."""
    if subject is Subject.GPU:
        return f"{PREFIX}gpu_present"
    return f"{PREFIX}{subject}_info"


def recordings(made: Sequence[AlertRule]) -> dict[str, str]:
    """Return the recording rules of some alerts, each once."""
    return {name: expr for alert in made for name, expr in alert.records}


def _text(template: str, rule: Rule) -> str:
    """Return a rule's text as a template of Prometheus, which knows no catalogue: meaning and remedy are left out."""
    known = re.sub(r"(?:: )?\{(?:meaning|remedy)\} ?", "", template).strip()
    return re.sub(r"\{(\w+)\}", lambda found: _field(found[1], rule), known)


def _field(name: str, rule: Rule) -> str:
    metric = next(rule.when.metrics(), None)
    match name:
        case "where":
            return _WHERE.get(rule.table, f"{{{{ $labels.{identity(rule.table)[-1]} }}}}")
        case "node" | "link" | "uuid":
            return f"{{{{ $labels.{name} }}}}"
        case "gpu":
            return "GPU {{ $labels.gpu }}"
        case "index":
            return "{{ $labels.gpu }}"
        case "value" if metric is not None:
            return _UNITS.get(_unit(metric), "{{ $value | humanize }}")
        case "limit" if metric is not None and isinstance(limit := getattr(rule.when, "level", None), float):
            return literal(limit)
        case _ if name in WORDS:
            return _asked(name, rule)
        case "name" | "pci" | "serial" | "slot" if rule.table in _OF_A_GPU:
            # A GPU that is gone has no facts; the last ones are queried.
            facts = f"last_over_time({PREFIX}gpu_info{{uuid='%s'}}[1d])"
            return _label(facts, "$labels.uuid", name)
        case "value" if rule.table in _OF_A_GPU:
            last = f"topk(1, {PREFIX}event_timestamp_seconds{{uuid='%s',code!=''}})"
            return _label(last, "$labels.uuid", "code")
        case "value":
            last = f"topk(1, {PREFIX}event_timestamp_seconds{{node='%s',code!=''}})"
            return _label(last, "$labels.node", "code")
        case "line":
            return "see the kernel's log"
        case _:
            return f"({name.replace('_', ' ')}: see kilowatch)"


def _label(question: str, its: str, label: str) -> str:
    """Return a label of a series that is queried when the alert fires."""
    query = f'{{{{ with printf "{question}" {its} | query }}}}'
    return f'{query}{{{{ . | first | label "{label}" }}}}{{{{ end }}}}'


def _unit(name: str) -> Unit:
    return WORDS[name].unit


def _asked(name: str, rule: Rule) -> str:
    """Return another metric of the same device, queried when the alert fires."""
    labels = [label for label in identity(rule.table) if label != "gpu"]
    matchers = ",".join(f"{label}='%s'" for label in labels)
    values = " ".join(f"$labels.{label}" for label in labels)
    question = f'printf "{series(name)}{{{matchers}}}" {values} | query'
    shown = _UNITS.get(_unit(name), "{{ $value | humanize }}").replace("$value", ". | first | value")
    return f"{{{{ with {question} }}}}{shown}{{{{ end }}}}"


def differences(made: Sequence[AlertRule]) -> Iterator[tuple[str, str]]:
    """Yield rule and note for each difference from kilowatch."""
    for alert in made:
        for note in alert.notes:
            yield alert.rule.name, note
