"""Conditions on present readings in PromQL: levels, states and expressions, also of a gate."""

from __future__ import annotations

from alerts.rules.levels import Above, Below, Formula, Gate, In
from alerts.rules.names import home
from alerts.rules.rule import Rule
from kilowatch.prometheus.formulas import formula
from kilowatch.prometheus.vectors import PromQL, literal, on, series

_PRIMED = "States of before are remembered for a day."


def present(kind: Gate, rule: Rule) -> PromQL:
    """Return a condition on present readings."""
    match kind:
        case Above() | Below():
            return _level(kind, rule)
        case In():
            return _state(kind, rule)
        case Formula():
            return formula(kind.expr)


def _fires(rule: Rule) -> str:
    return f'ALERTS{{alertname="{rule.name}",alertstate="firing"}}'


def _level(kind: Above | Below, rule: Rule) -> PromQL:
    name, subject = series(kind.metric), home(kind.metric)
    sign = ">=" if isinstance(kind, Above) else "<="
    if isinstance(kind.level, str):
        theirs = home(kind.level)
        match = "" if theirs is subject else f" {on(theirs)} group_left ()"
        return PromQL(f"{name} {sign}{match} {series(kind.level)}", subject, plain=False)
    text = f"{name} {sign} {literal(kind.level)}"
    if kind.clear is not None:
        text += f" or ({name} {sign} {literal(kind.clear)} and {on(subject)} {_fires(rule)})"
    return PromQL(text, subject, plain=False)


def _state(kind: In, rule: Rule) -> PromQL:
    name, subject = series(kind.metric), home(kind.metric)
    text = " or ".join(f"{name} == {value}" for value in kind.values)
    if not kind.after:
        return PromQL(text, subject, plain=False)
    shown = " or ".join(f"{name} == {value}" for value in kind.after)
    before = f"count_over_time(({shown})[1d:5m]) or {on(subject)} {_fires(rule)}"
    if len(kind.values) > 1:
        text = f"({text})"
    return PromQL(f"{text} and {on(subject)} ({before})", subject, (_PRIMED,), plain=False)
