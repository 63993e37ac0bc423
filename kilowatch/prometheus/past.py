"""Conditions on how a reading differs from its peers or its own past, in PromQL."""

from __future__ import annotations

from alerts.rules.names import home
from alerts.rules.peers import Outlier
from alerts.rules.rule import Rule
from alerts.rules.trend import Drift, Forecast, Frozen, Worse
from api.alerts import Subject
from kilowatch.prometheus.levels import present
from kilowatch.prometheus.vectors import NotExpressible, PromQL, identity, literal, on, series
from telemetry.text import exact_duration

RECORD_SECONDS = 60
"""Seconds between two evaluations of recording rules."""
_NODE_PEERS = "Peers are the GPUs of the node, for Prometheus does not know the jobs."
_NODE_ALONE = "The GPUs of the model in the fleet are not compared."
_FORECAST = "The trend is a straight line through the window (`predict_linear`)."
_DRIFT = "The past is the plain mean of the window, bad readings included."
_BEST = "The best is remembered for as long as Prometheus was not down for a day."


def outlier(kind: Outlier, rule: Rule) -> PromQL:
    """Return a condition on the difference from the GPUs of the node."""
    name = series(kind.metric)
    if kind.window:
        raise NotExpressible("PromQL can't leave idle time out of a rate")
    if kind.among in {"model", "either"}:
        raise NotExpressible("the model of a GPU is a label of another series")
    there = name
    if kind.load is not None:
        load = present(kind.load, rule)
        there = f"({name} and {on(load.subject)} {load.term})"
    middle = f"quantile by (cluster, node) (0.5, {there})"
    join = "on (cluster, node) group_left ()"
    sides = []
    for share, sign, gap in ((kind.below, "<=", "<="), (kind.above, ">=", ">=")):
        if share is None:
            continue
        side = f"{there} {sign} {join} {literal(share)} * {middle}"
        if kind.least:
            least = -kind.least if share < 1 else kind.least
            side += f" and {on(Subject.GPU)} {there} - {join} {middle} {gap} {literal(least)}"
        sides.append(f"({side})")
    some = " or ".join(sides) if len(sides) == 1 else f"({' or '.join(sides)})"
    enough = f"count by (cluster, node) ({there}) > {kind.peers}"
    text = f"{some} and on (cluster, node) {enough}"
    notes = (_NODE_PEERS,) if kind.among == "job" else (_NODE_PEERS, _NODE_ALONE)
    return PromQL(text, Subject.GPU, notes, plain=False)


def trend(kind: Drift | Forecast | Frozen | Worse, rule: Rule) -> PromQL:
    """Return a condition on a change over time."""
    match kind:
        case Drift():
            return _drift(kind, rule)
        case Worse():
            return _worse(kind, rule)
        case Forecast():
            name = series(kind.metric)
            level = series(kind.level) if isinstance(kind.level, str) else literal(kind.level)
            later = f"predict_linear({name}[{exact_duration(kind.window)}], {literal(kind.within)})"
            text = f"({later} >= {level} and {name} < {level}) or ({later} <= {level} and {name} > {level})"
            return PromQL(text, home(kind.metric), (_FORECAST,), plain=False)
        case Frozen():
            subject = home(kind.of[0])
            window = exact_duration(kind.seconds)
            still = f" and {on(subject)} ".join(f"changes({series(name)}[{window}]) == 0" for name in kind.of)
            known = f"{series(kind.of[0])} offset {window}"
            text = f"{series(kind.of[0])} > 0 and {on(subject)} {still} and {on(subject)} {known}"
            return PromQL(text, subject, plain=False)


def _record(rule: Rule, metric: str, word: str) -> str:
    """Return the name of a recording rule, in the usual form level:metric:operations."""
    return f"{rule.table}:{series(metric).removesuffix('_total')}:{word}"


def _drift(kind: Drift, rule: Rule) -> PromQL:
    subject = home(kind.metric)
    name = series(kind.metric)
    records: tuple[tuple[str, str], ...] = ()
    if kind.load is not None:
        load = present(kind.load, rule)
        record = _record(rule, kind.metric, "under_load")
        records = ((record, f"{name} and {on(load.subject)} {load.term}"),)
        name = record
    lately = f"avg_over_time({name}[{exact_duration(kind.over)}])" if kind.over else name
    past = f"avg_over_time({name}[{exact_duration(kind.window)}])"
    moved = f"{lately} - {past}" if kind.by > 0 else f"{past} - {lately}"
    known = f"{name} offset {exact_duration(kind.after)}"
    if kind.load is not None:
        known = f"count_over_time({name}[{exact_duration(kind.window)}]) >= {literal(kind.after / RECORD_SECONDS)}"
    here = f" and {on(subject)} {name}" if kind.load is not None else ""
    text = f"{moved} >= {literal(abs(kind.by))} and {on(subject)} {known}{here}"
    return PromQL(text, subject, (_DRIFT,), records, plain=False)


def _worse(kind: Worse, rule: Rule) -> PromQL:
    name, subject = series(kind.metric), home(kind.metric)
    best = f"{rule.table}:{name}:best"
    before = f"last_over_time({best}[1d])"
    now = f"max by ({', '.join(identity(subject))}) ({name})"
    record = best, f"({now} > {before}) or ({before} and {now}) or {now}"
    gated = name
    if kind.load is not None:
        load = present(kind.load, rule)
        gated = f"({name} and {on(load.subject)} {load.term})"
    text = f"{gated} <= {on(subject)} {literal(kind.share)} * {best}"
    return PromQL(text, subject, (_BEST,), (record,), plain=False)
