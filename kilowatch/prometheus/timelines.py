"""The example timelines of rules as unit tests for `promtool test rules`.

A reading keeps its value until the next step, and a gap ends its series, as a scrape would. At each
step the alert must have the same state in Prometheus as in kilowatch: pending, firing, or absent.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from alerts.engine.rule_tests import ExampleStep, example_steps
from alerts.rules.counters import Fraction, Rate, Rises
from alerts.rules.levels import Above, Gate
from alerts.rules.names import WORDS, home
from alerts.rules.presence import Absent, Silent, Skewed
from alerts.rules.rule import Example, Rule, conditions_of, words_of
from alerts.xid.event import fault_of
from api.alerts import Subject
from kilowatch.prometheus.rules import AlertRule
from kilowatch.prometheus.vectors import NotExpressible, identity, literal, series
from telemetry.devices import Event
from telemetry.fleet import gaps_of
from telemetry.gap import Gap
from telemetry.metric import Kind as Moves
from telemetry.wire.exposition import PREFIX

Json = dict[str, object]
APART: dict[str, tuple[tuple[int, ...], str]] = {
    "ecc_dbe": ((1, 3), "It waits two seconds for an XID 94, and Prometheus' scrapes are further apart."),
    "gpu_init_failed": ((2,), "An event of no known GPU is the node's; the test looks at a GPU."),
    "driver_fault": ((3,), "It waits ten seconds, and an event of no known GPU is the node's."),
    "driver_oddity": ((1, 3), "It waits ten seconds, and an event of no known GPU is the node's."),
    "node_fault": ((2,), "Two seconds of waiting end at the next step, half an hour later."),
    "node_oddity": ((2,), "Two seconds of waiting end at the next step, half an hour later."),
    "thermal_hw": ((3, 4, 5), "A share of the time is counted in scrapes, 15 s apart."),
    "thermal_sw": ((6, 7, 8, 11, 12), "A share of the time is counted in scrapes, 15 s apart."),
    "power_low_cap": ((6,), "A share of the time is counted in scrapes, 15 s apart."),
    "power_brake": ((3, 4), "A share of the time is counted in scrapes, 15 s apart."),
    "cap_drift": ((2, 3), "The past is a plain mean."),
    "pcie_degraded": ((15,), "A GPU that is not compared does not interrupt the hold of another."),
    "pcie_crippled": ((8,), "A GPU that is not compared does not interrupt the hold of another."),
    "pcie_slow": ((7,), "Prometheus does not compare peers where the slot's own maximum is not read."),
    "port_down_other": ((2,), "A port that is gone has no series."),
    "readings_frozen": ((5,), "It does not wait for five intervals of a slow node."),
}
"""Examples (from 1) with other states in Prometheus, and why; a test checks that they differ."""
_WEEK = "A week of points is more than promtool is quick with."
UNPLAYED = {"thermal_drift": _WEEK, "remap_rate": _WEEK}
"""Rules whose examples are not played, and why."""
_STATES = {"P": "pending", "F": "firing"}
_HOUR = 3600


@dataclass(frozen=True, slots=True)
class Timeline:
    """An example as a unit test of promtool."""

    alert: AlertRule
    number: int
    every: int
    """Seconds between two points of its series."""
    body: Json


def timelines(alert: AlertRule) -> Iterator[Timeline]:
    """Return a test for each example of a rule."""
    for number, example in enumerate(alert.rule.example):
        every = _every(example.every, alert.rule)
        if every is not None:
            yield Timeline(alert, number, every, _test(alert, example, number, every))


def _every(step: float, rule: Rule) -> int | None:
    """Return the seconds between two points: few enough for the windows, many enough to be quick."""
    parts = list(conditions_of(rule.when))
    often = any(isinstance(part, Rises) or getattr(part, "wait", 0) for part in parts)
    most = 30 if step <= 600 else 60 if often else 120 if step <= _HOUR else 300
    if step != int(step):
        return None
    return next(
        (int(step) // n for n in range(1, int(step) + 1) if int(step) % n == 0 and int(step) // n <= most), None
    )


def _test(alert: AlertRule, example: Example, number: int, every: int) -> Json:
    rule = alert.rule
    given = example_steps(rule, example)
    found = _Points(len(given))
    for device in range(example.nodes):
        _node(found, rule, example, given, device)
    repeat = int(example.every) // every
    grows = {
        series(part.metric)
        for part in conditions_of(rule.when)
        if isinstance(part, Rate | Fraction) and WORDS[part.metric].kind is Moves.COUNTER
    }
    return {
        "name": f"{rule.name} {number + 1}",
        "interval": f"{every}s",
        "input_series": [
            {"series": name, "values": _notation(_dense(name, values, repeat, grows))}
            for name, values in sorted(found.values.items())
        ],
        "promql_expr_test": list(_expected(alert, example, every, _sure(rule, example, given))),
    }


def _sure(rule: Rule, example: Example, given: Sequence[ExampleStep]) -> int:
    """Return how many steps of an example are the same in Prometheus: all before a gap meets an alert,
    for a gap ends the alert there, and leaves it as it is in kilowatch; and all before the device is
    idle, for idle time counts there."""
    letters = words_of(example.then)
    parts = list(conditions_of(rule.when))
    silent = any(isinstance(part, Silent) for part in parts)
    remembers = any(part.remembers or isinstance(part, Rises) for part in parts)
    # That a device is lost, or does not support a metric, is an answer and no gap.
    answers = {word for part in parts if isinstance(part, Absent) for word in part.reasons}
    answers.add(Gap.NOT_SUPPORTED.word)
    for step, one in enumerate(given):
        absent = not one.heard or any(
            math.isnan(value) and value_gap(value).word not in answers for value in one.readings.values()
        )
        if rule.load is not None and not _under_load(rule.load, one.readings):
            return step
        met = letters[step] in _STATES or (step > 0 and letters[step - 1] in _STATES)
        if absent and (met or remembers) and not silent:
            return step
    return len(given)


def _under_load(load: Gate, readings: Mapping[str, float]) -> bool:
    """Return whether a device is under load by its readings; one that does not support them is."""
    if not isinstance(load, Above) or isinstance(load.level, str):
        raise NotExpressible("only a level is a load here")
    return readings.get(load.metric, math.inf) >= load.level


def value_gap(value: float) -> Gap:
    """Return the reason why a reading is absent."""
    return Gap(int(gaps_of(np.array([value]))[0]))


def _expected(alert: AlertRule, example: Example, every: int, steps: int) -> Iterator[Json]:
    rule = alert.rule
    its = ",".join(f'{name}="{word}"' for name, word in _device(rule.table, 0, 0).items())
    for step, (at, letter) in enumerate(_checked(rule, example, every, alert.spare)):
        if step >= steps:
            return
        if at is None:
            continue
        state = _STATES.get(letter)
        yield {
            "expr": f'count by (alertstate) (ALERTS{{alertname="{rule.name}",{its}}})',
            "eval_time": f"{literal(at)}s",
            "exp_samples": [] if state is None else [{"labels": f'{{alertstate="{state}"}}', "value": 1}],
        }


def _checked(rule: Rule, example: Example, every: int, spare: float) -> Iterator[tuple[float | None, str]]:
    """Return each step's letter, and when it holds in Prometheus too; None where that is not sure.

    An instant lasts a whole step in an example, and `spare` in Prometheus. So an alert that fires
    because of one may end a step earlier there, or `spare` later where states count beside instants.
    """
    letters = words_of(example.then)
    late = every * math.ceil(spare / every)
    reach = math.ceil(late / example.every)
    fired = False
    for step, letter in enumerate(letters):
        at: float | None = step * example.every
        following = letters[step + 1 : step + 2]
        if letter == "F":
            fired = True
            if rule.when.edge and following not in ([], ["F"]):
                at = None
        elif spare and not rule.when.edge and fired:
            soon = letters[step + 1 : step + 1 + reach]
            at = None if any(one in _STATES for one in soon) else step * example.every + late
        yield at, letter


def _device(subject: Subject, node: int, gpu: int) -> dict[str, str]:
    """Return the labels of a device of an example."""
    words = {
        "cluster": "lab",
        "node": f"node-{node}",
        "gpu": str(gpu),
        "uuid": f"GPU-{node}-{gpu}" if gpu else f"GPU-{node}",
        "link": "0",
        "port": "mlx5_0/1",
    }
    return {name: words.get(name, "example") for name in identity(subject)}


def _node(found: _Points, rule: Rule, example: Example, given: Sequence[ExampleStep], node: int) -> None:
    scrape = {"instance": f"node-{node}", "job": "kilowatch"}
    peers = max((len(values) for values in example.peers.values()), default=0)
    silent = any(isinstance(part, Silent) for part in conditions_of(rule.when))
    skewed = any(isinstance(part, Skewed) for part in conditions_of(rule.when))
    electrical = rule.table.snapshot_kind is not None
    last: dict[str, tuple[dict[str, str], float]] = {}
    seen = ended = 0.0
    for step, one in enumerate(given):
        at = step * example.every
        if one.heard:
            seen, ended = at, 0.0
        for event in one.events:
            if event.kind == "collector_stopped":
                ended = 1.0
            if event.node == f"node-{node}":
                its = _event_labels(event, node)
                last[str(its)] = (its, at)
        for its, moment in last.values():
            found.put(f"{PREFIX}event_timestamp_seconds", its | scrape, step, moment)
        of_node = _device(Subject.NODE, node, 0) | scrape
        if silent:
            found.put(f"{PREFIX}node_last_frame_timestamp_seconds", of_node, step, seen)
            found.put(f"{PREFIX}node_frame_interval_seconds", of_node, step, example.every)
            found.put(f"{PREFIX}node_ended", of_node, step, ended)
        if skewed:
            found.put(f"{PREFIX}node_clock_skew_seconds", of_node, step, one.ahead)
        if not electrical:
            info = of_node | {"driver_state": example.driver}
            found.put(f"{PREFIX}node_info", info, step, 1.0)
        for gpu in range(1 + peers):
            if rule.table in {Subject.GPU, Subject.LINK}:
                its = _device(Subject.GPU, node, gpu) | scrape
                found.put(f"{PREFIX}gpu_present", its, step, 1.0)
            for name, value in one.readings.items():
                _reading(found, example, name, value, step, (node, gpu), scrape, one.heard)


def _reading(
    found: _Points,
    example: Example,
    name: str,
    value: float,
    step: int,
    place: tuple[int, int],
    scrape: dict[str, str],
    heard: bool,
) -> None:
    node, gpu = place
    subject = home(name)
    if gpu and subject is not Subject.GPU:
        return
    if gpu and name in example.peers:
        peer = example.peers[name][gpu - 1]
        value = float(words_of(peer)[step]) if isinstance(peer, str) else peer
    labels = _device(subject, node, gpu) | scrape
    absent = math.isnan(value) or not heard
    found.put(series(name), labels, step, None if absent else value)
    if name == "gpu_temperature_celsius" and math.isnan(value) and heard:
        found.put(f"{PREFIX}gpu_unread", labels | {"reason": value_gap(value).word}, step, 1.0)


def _event_labels(event: Event, node: int) -> dict[str, str]:
    fault, severity = fault_of(event)
    code = event.data.get("xid", event.data.get("sxid", ""))
    subject = Subject.NODE if event.gpu is None else Subject.GPU
    more = {"kind": event.kind, "code": str(code), "fault": fault, "severity": severity.value}
    return _device(subject, node, 0) | more


# -- Points of series, in the notation of promtool


@dataclass(slots=True)
class _Points:
    """Values of some series at each step; None where there is none."""

    steps: int
    values: dict[str, list[float | None]] = field(default_factory=dict)

    def put(self, name: str, labels: dict[str, str], step: int, value: float | None) -> None:
        """Set the value of a series at a step."""
        inner = ",".join(f'{label}="{word}"' for label, word in labels.items() if word)
        its = self.values.setdefault(f"{name}{{{inner}}}", [None] * self.steps)
        its[step] = value


def _dense(name: str, values: Sequence[float | None], repeat: int, grows: Collection[str]) -> list[float | None]:
    """Return a value for each point: that of the last step, or for a counter whose growth is measured,
    one on the way to the next."""
    found: list[float | None] = []
    for here, there in zip(values, [*values[1:], None], strict=True):
        if name.split("{", maxsplit=1)[0] in grows and here is not None and there is not None and there > here:
            found += [here + (there - here) * part / repeat for part in range(repeat)]
        else:
            found += [here] * repeat
    return found


def _notation(values: Sequence[float | None]) -> str:
    """Return values in promtool's notation: `5x3` is 5 four times; a gap ends the series."""
    words: list[str] = []
    before: float | None = None
    runs: list[tuple[float | None, int]] = []
    for value in values:
        if runs and runs[-1][0] == value:
            runs[-1] = value, runs[-1][1] + 1
        else:
            runs.append((value, 1))
    for value, length in runs:
        if value is None:
            words.append("stale" if before is not None else "_")
            if length > 1:
                words.append(f"_x{length - 1}")
        elif value == math.inf:
            words.append(" ".join(["Inf"] * length))  # promtool can't repeat it
        else:
            words.append(_number(value) if length == 1 else f"{_number(value)}x{length - 1}")
        before = value
    return " ".join(words)


def _number(value: float) -> str:
    return f"{value:.12g}"
