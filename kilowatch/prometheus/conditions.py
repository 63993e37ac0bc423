"""Each kind of condition in PromQL, or why it can't be expressed."""

from __future__ import annotations

from alerts.rules.condition import ConditionKind
from alerts.rules.conditions import AllOf, AnyOf, OfJob, Outlasts
from alerts.rules.cooling import CoolingDrift
from alerts.rules.counters import Fraction, Rate, Rises
from alerts.rules.events import Happens, Repeats
from alerts.rules.levels import Above, Below, Formula, In
from alerts.rules.names import WORDS, home
from alerts.rules.of_jobs import BelowOwn, HeldByJob, LoadsCircuit, ProcessOutside, Quiet, SlowInJob
from alerts.rules.peers import Outlier
from alerts.rules.presence import Absent, DriverCondition, Silent, Skewed, Worked
from alerts.rules.recurs import Recurs
from alerts.rules.rule import Rule
from alerts.rules.trend import Drift, Forecast, Frozen, Worse
from api.alerts import Subject
from kilowatch.prometheus.formulas import both, either
from kilowatch.prometheus.levels import present
from kilowatch.prometheus.past import outlier, trend
from kilowatch.prometheus.vectors import STEP, NotExpressible, PromQL, identity, literal, on, series, unless_disturbed
from telemetry.metric import Unit
from telemetry.text import exact_duration
from telemetry.wire.exposition import PREFIX

SPARE = 120.0
"""Seconds for which an instant is seen: two scrapes a minute apart are within."""
_UNREAD = f"{PREFIX}gpu_unread"
_EVENT = f"{PREFIX}event_timestamp_seconds"
_REPRESENTS = "gpu_temperature_celsius"
_MISSED = "Growth during a gap of two minutes or more is missed."


def promql(kind: ConditionKind, rule: Rule) -> PromQL:
    """Return a condition of a rule in PromQL. Raises `NotExpressible` with the reason."""
    match kind:
        case Above() | Below() | In() | Formula():
            return present(kind, rule)
        case AnyOf():
            return _any(kind, rule)
        case AllOf():
            return both([promql(part, rule) for part in kind.of])
        case Rises():
            later = f" offset {exact_duration(kind.wait)}" if kind.wait else ""
            text = f"increase({series(kind.metric)}[{exact_duration(SPARE)}]{later}) > 0"
            text += unless_disturbed(kind.settle) if kind.settle else ""
            if kind.spared_by:
                explained = _last(rule) % _matcher("code", tuple(map(str, kind.spared_by)))
                text += f" unless {on(rule.table)} time() - {explained} < {literal(SPARE + 2 * kind.wait)}"
            return PromQL(text, home(kind.metric), (_MISSED,), spare=SPARE, plain=False)
        case Rate():
            text = f"rate({series(kind.metric)}[{exact_duration(kind.window)}]) >= {literal(kind.level)}"
            return PromQL(text, home(kind.metric), plain=False)
        case Fraction():
            return _fraction(kind, rule)
        case Happens():
            return _event(kind, rule)
        case Absent() | DriverCondition() | Silent() | Skewed():
            return _presence(kind)
        case Worked():
            raise NotExpressible("PromQL has no state of a node as of its last frame")
        case Outlier():
            return outlier(kind, rule)
        case Drift() | Forecast() | Frozen() | Worse():
            return trend(kind, rule)
        case CoolingDrift():
            raise NotExpressible("PromQL has no state of what is usual of a GPU at its power")
        case Recurs():
            raise NotExpressible("Prometheus does not know the incidents of a board")
        case (
            BelowOwn() | HeldByJob() | LoadsCircuit() | OfJob() | Outlasts() | ProcessOutside() | Quiet() | SlowInJob()
        ):
            raise NotExpressible("Prometheus does not know which GPUs belong to one job")
        case Repeats():
            raise NotExpressible("PromQL can't count single events")
        case _:
            raise NotExpressible(f"`{type(kind).__name__}` has no PromQL")


def _any(kind: AnyOf, rule: Rule) -> PromQL:
    """Join the parts that can be expressed: that is less, never more."""
    parts: list[PromQL] = []
    missing: list[str] = []
    for part in kind.of:
        try:
            parts.append(promql(part, rule))
        except NotExpressible as reason:
            missing.append(f"One of its conditions is left out: {reason}.")
    if not parts:
        raise NotExpressible(missing[0].split(": ", 1)[1].rstrip("."))
    found = either(parts)
    notes = (*found.notes, *dict.fromkeys(missing))
    return PromQL(found.expr, found.subject, notes, found.records, found.spare, plain=found.plain)


def _fraction(kind: Fraction, rule: Rule) -> PromQL:
    name, subject = series(kind.metric), home(kind.metric)
    window = exact_duration(kind.window)
    flag = WORDS[kind.metric].unit is Unit.FLAG
    if not flag and kind.load is None:
        return PromQL(f"rate({name}[{window}]) >= {literal(kind.level)}", subject, plain=False)
    points = name if flag else f"rate({name}[1m])"
    need = kind.window / STEP
    if kind.load is not None:
        load = present(kind.load, rule)
        points, need = f"({points} and {on(load.subject)} {load.term})", need / 2
    points = f"{points}[{window}:{STEP}s]"
    known = f"clamp_min(count_over_time({points}), {literal(need)})"
    text = f"sum_over_time({points}) / {known} >= {literal(kind.level)}"
    return PromQL(text, subject, plain=False)


def _event(kind: Happens, rule: Rule) -> PromQL:
    wanted = {"kind": kind.kinds, "code": tuple(map(str, kind.xids)), "fault": kind.faults}
    matchers = [_matcher(label, words) for label, words in wanted.items() if words]
    if kind.other_than:
        matchers.append(f'fault!~"{"|".join(kind.other_than)}"')
    if kind.severity is not None:
        matchers.append(f'severity="{kind.severity.value}"')
    last = _last(rule)
    its = last % ",".join(matchers)
    waits = f" >= {literal(kind.wait)}" if kind.wait else ""
    text = f"time() - {its}{waits} < {literal(SPARE)}"
    if kind.spared_by:
        others = last % _matcher("code", tuple(map(str, kind.spared_by)))
        text += f" unless {on(rule.table)} abs({its} - {others}) <= {literal(kind.wait)}"
    return PromQL(text, rule.table, spare=SPARE, plain=False)


def _last(rule: Rule) -> str:
    """Return when an event came last to each device; `%s` are the matchers of its labels."""
    return f"max by ({', '.join(identity(rule.table))}) ({_EVENT}{{%s}})"


def _matcher(label: str, words: tuple[str, ...]) -> str:
    return f'{label}="{words[0]}"' if len(words) == 1 else f'{label}=~"{"|".join(words)}"'


def _presence(kind: Absent | DriverCondition | Silent | Skewed) -> PromQL:
    node = Subject.NODE
    match kind:
        case Absent():
            if kind.metric != _REPRESENTS:
                raise NotExpressible(f"only {_REPRESENTS} is exported with the reason of a gap")
            text = f"max by ({', '.join(identity(Subject.GPU))}) ({_UNREAD}{{{_matcher('reason', kind.reasons)}}})"
            return PromQL(text, Subject.GPU)
        case DriverCondition():
            return PromQL(f"{PREFIX}node_info{{{_matcher('driver_state', kind.states)}}}", node)
        case Skewed():
            return PromQL(f"abs({PREFIX}node_clock_skew_seconds) >= {literal(kind.level)}", node, plain=False)
        case Silent():
            if kind.several > 1:
                raise NotExpressible("PromQL can't compare the moments at which nodes fell silent")
            age = f"time() - {PREFIX}node_last_frame_timestamp_seconds"
            least = f"clamp_min({literal(kind.intervals)} * {PREFIX}node_frame_interval_seconds, {literal(kind.least)})"
            ended = f"{PREFIX}node_ended == {int(kind.planned)}"
            notes = ("Its age is by the node's own clock.",)
            return PromQL(f"{age} >= {least} and {on(node)} {ended}", node, notes, plain=False)
