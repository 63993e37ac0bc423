"""Rules with one number, word or comparison changed: each must be noticed by the rule's examples."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from alerts.rules.condition import ConditionKind
from alerts.rules.conditions import AllOf, AnyOf, OfJob, Outlasts
from alerts.rules.cooling import CoolingDrift
from alerts.rules.counters import Fraction, Rate, Rises
from alerts.rules.events import Happens, Repeats
from alerts.rules.levels import Above, Below, Formula, In
from alerts.rules.of_jobs import BelowOwn, Quiet, SlowInJob
from alerts.rules.peers import Outlier
from alerts.rules.presence import Absent, DriverCondition, Silent, Skewed
from alerts.rules.recurs import Recurs
from alerts.rules.rule import Rule
from alerts.rules.trend import Drift, Forecast, Frozen, Worse
from api.alerts import Severity

_NUMBERS: dict[type[ConditionKind], dict[str, tuple[float, ...]]] = {
    Rate: {"level": (1.1, 0.9), "window": (2.0,)},
    Fraction: {"level": (1.1, 0.9), "window": (2.0,)},
    Silent: {"least": (1.5, 0.5)},
    Skewed: {"level": (1.1, 0.9)},
    Outlier: {"below": (1.1, 0.9), "above": (1.1, 0.9), "least": (1.1, 0.9), "window": (2.0, 0.5)},
    Drift: {"by": (1.2, 0.8, -1.0), "window": (2.0,), "over": (3.0, 0.0), "after": (2.0, 0.5)},
    CoolingDrift: {"by": (1.2, 0.8), "clear": (1.3, 0.7), "after": (2.0, 0.5), "cooler": (1.5, 0.6)},
    Forecast: {"level": (1.1, 0.9), "within": (2.0, 0.5), "window": (2.0,)},
    Worse: {"share": (1.15, 0.9)},
    Frozen: {"seconds": (2.0, 0.5)},
    Repeats: {"window": (2.0, 0.5), "apart": (2.0, 0.5)},
    Recurs: {"window": (0.5,)},
    BelowOwn: {"share": (1.04, 0.93)},
    Outlasts: {"first": (1.2, 0.8), "least": (1.2, 0.8), "factor": (1.2, 0.8), "seen": (2.0, 0.5)},
    Quiet: {"share": (1.3, 0.4)},
    SlowInJob: {"below": (1.03, 0.97), "above": (2.0, 0.5), "least": (2.0, 0.5)},
    Happens: {"wait": (2.0, 0.4)},
}
"""Fields of each kind that are numbers, and what they are multiplied by."""


def mutated(rule: Rule) -> Iterator[Rule]:
    """A rule with one thing changed, for each thing."""
    change = msgspec.structs.replace
    for when in mutants(rule.when):
        yield change(rule, when=when)
    for field in ("hold", "keep"):
        for factor in (2.0, 0.5) if getattr(rule, field) else ():
            yield change(rule, **{field: getattr(rule, field) * factor})
    if rule.settle:
        yield change(rule, settle=0.0)
        yield change(rule, settle=rule.settle * 2)
    if rule.load is not None:
        yield change(rule, load=None)
        own = getattr(rule.when, "load", None)
        for load in mutants(rule.load) if own != rule.load or getattr(rule.when, "window", 0) else ():
            yield change(rule, load=load)  # else it is unknown where its own gate is closed
    if rule.unless is not None:
        yield change(rule, unless=None)
        for unless in mutants(rule.unless):
            yield change(rule, unless=unless)


def mutants(condition: ConditionKind) -> Iterator[Any]:
    """A condition with one thing changed, for each thing."""
    change = msgspec.structs.replace
    for field, factors in _NUMBERS.get(type(condition), {}).items():
        value = getattr(condition, field)
        if field == "apart" and isinstance(condition, Repeats) and (condition.programs or condition.ports):
            continue  # then it is the programs, or the ports, that are counted
        for factor in factors if isinstance(value, int | float) and value else ():
            yield change(condition, **{field: value * factor})
    load = getattr(condition, "load", None)
    if load is not None:
        yield change(condition, load=None)
        for gate in mutants(load):
            yield change(condition, load=gate)
    yield from _words(condition)


def _words(condition: ConditionKind) -> Iterator[Any]:
    """What is no number, or a number that needs more than a factor."""
    change = msgspec.structs.replace
    match condition:
        case Above() | Below():
            other = Below if isinstance(condition, Above) else Above
            yield other(condition.metric, condition.level, condition.clear)
            if isinstance(condition.level, float):
                yield change(condition, level=condition.level * 1.1)
                yield change(condition, level=condition.level * 0.9)
            if condition.clear is not None:
                yield change(condition, clear=None)
                yield change(condition, clear=(condition.clear + float(condition.level)) / 2)
                if condition.clear:  # no reading is below 0
                    yield change(condition, clear=condition.clear * 1.5 - float(condition.level) / 2)
        case In():
            yield from _of_states(condition)
        case Formula():
            for expr in _formulas(condition.expr):
                yield Formula(expr)
        case Rises():
            yield Above(condition.metric, 1.0)
            if condition.settle:
                yield change(condition, settle=0.0)
                yield change(condition, settle=condition.settle * 2)
        case Absent():
            for reason in {"device_lost", "timed_out", "error"} - set(condition.reasons):
                yield change(condition, reasons=(*condition.reasons, reason))
            for reason in condition.reasons:
                yield change(condition, reasons=tuple(r for r in condition.reasons if r != reason))
        case Silent():
            yield change(condition, intervals=condition.intervals + 1)
            yield change(condition, intervals=condition.intervals - 1)
            yield change(condition, planned=not condition.planned)
            if condition.several > 1:
                yield change(condition, several=condition.several + 1)
                yield change(condition, several=condition.several - 1)
        case DriverCondition():
            for state in condition.states:
                yield change(condition, states=tuple(s for s in condition.states if s != state))
            yield change(condition, states=(*condition.states, "missing", "up"))
        case Happens() | Repeats():
            yield from _of_events(condition)
        case Outlier():
            yield from _of_peers(condition)
        case Recurs():
            yield from _of_incidents(condition)
        case Frozen():
            yield from (change(condition, of=of) for of in (condition.of[:1], condition.of[1:]))
        case AnyOf() | AllOf():
            yield (AllOf if isinstance(condition, AnyOf) else AnyOf)(condition.of)
            for at, part in enumerate(condition.of):
                yield type(condition)((*condition.of[:at], *condition.of[at + 1 :]))
                for mutant in mutants(part):
                    yield type(condition)((*condition.of[:at], mutant, *condition.of[at + 1 :]))
        case _:
            yield from _of_jobs(condition)


def _of_states(condition: In) -> Iterator[In]:
    change = msgspec.structs.replace
    for value in condition.values:
        yield change(condition, values=tuple(v for v in condition.values if v != value))
    for value in set(range(8)) - set(condition.values):
        if value in range(2) or "recovery_action" in condition.metric:
            yield change(condition, values=(*condition.values, value))
    if condition.after:
        yield change(condition, after=())


def _of_incidents(condition: Recurs) -> Iterator[Recurs]:
    change = msgspec.structs.replace
    yield change(condition, count=condition.count + 1)
    yield change(condition, count=condition.count - 1)
    yield change(condition, of="slot" if condition.of == "board" else "board")


def _of_jobs(condition: ConditionKind) -> Iterator[ConditionKind]:
    change = msgspec.structs.replace
    if isinstance(condition, Quiet):
        for name in condition.of:
            yield change(condition, of=tuple(each for each in condition.of if each != name))
        return
    if isinstance(condition, SlowInJob):
        yield change(condition, windows=condition.windows * 2)
        yield change(condition, windows=condition.windows // 2)
        return
    if not isinstance(condition, OfJob | Outlasts):
        return  # its numbers are all there is to it
    for of in mutants(condition.of):
        yield change(condition, of=of)
    if isinstance(condition, Outlasts):
        return
    if condition.without is not None:
        yield change(condition, without=None)
        for without in mutants(condition.without):
            yield change(condition, without=without)
    yield change(condition, share=0.6 if condition.share > 0.5 else 0.9)
    if condition.after:
        yield change(condition, after=condition.after * 2)
        yield change(condition, after=condition.after / 2)
    yield change(condition, anybody=not condition.anybody)
    if condition.each:
        yield change(condition, each=False)
    if condition.least > 1:
        yield change(condition, least=condition.least - 1)
        yield change(condition, least=condition.least + 1)


def _of_peers(condition: Outlier) -> Iterator[Outlier]:
    change = msgspec.structs.replace
    yield change(condition, peers=condition.peers + 1)
    yield change(condition, peers=condition.peers - 1)
    for name in condition.plus:
        yield change(condition, plus=tuple(p for p in condition.plus if p != name))


def _of_events(condition: Happens | Repeats) -> Iterator[Happens | Repeats]:
    change = msgspec.structs.replace
    yield change(condition, kinds=("nothing",))
    for xid in condition.xids:
        yield change(condition, xids=(*(x for x in condition.xids if x != xid), 999))
    if condition.xids:
        yield change(condition, xids=())
    for fault in condition.faults:
        yield change(condition, faults=(*(f for f in condition.faults if f != fault), "nothing"))
    if condition.faults:
        yield change(condition, faults=())
    for fault in condition.other_than:
        yield change(condition, other_than=tuple(f for f in condition.other_than if f != fault))
    if condition.severity is not None:
        other = Severity.TICKET if condition.severity is Severity.PAGE else Severity.PAGE
        yield change(condition, severity=other)
        yield change(condition, severity=None)
    if isinstance(condition, Repeats):
        yield change(condition, count=condition.count + 1)
        yield change(condition, count=condition.count - 1)
        if condition.ports:
            yield change(condition, ports=False)
        else:
            yield change(condition, programs=not condition.programs)
    elif condition.spared_by:
        yield change(condition, spared_by=())


_TURNED = {">": "<", "<": ">", ">=": "<", "<=": ">", "==": "!=", "!=": "=="}


def _formulas(expr: str) -> Iterator[str]:
    for found in re.finditer(r"[<>=!]=|[<>]", expr):
        yield expr[: found.start()] + _TURNED[found[0]] + expr[found.end() :]
    for found in re.finditer(r"\b(and|or)\b", expr):
        other = "or" if found[0] == "and" else "and"
        yield expr[: found.start()] + other + expr[found.end() :]
    for found in re.finditer(r"(?<![\w.])\d[\d.]*(e-?\d+)?", expr):
        number = float(found[0])
        for other_number in (number * 1.1, number * 0.9) if number else (number + 1,):
            yield expr[: found.start()] + repr(other_number) + expr[found.end() :]
