"""Alerts that fire on and on cost nothing at a tick: their texts and records are made once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from alerts.engine import rule_evaluator
from alerts.engine.rule_evaluator import MOST_AT_ONCE
from alerts.rules.rule import Rule
from api.alerts import AlertState
from tests.aggregator.alerting_stack import Hall

NODES = 500
HOT = {
    "name": "hot",
    "when": {"type": "above", "metric": "gpu_temperature_celsius", "level": 80},
    "hold": 10,
    "keep": 30,
    "severity": "page",
    "remediation": "facility",
    "summary": "{where} is at {value}",
    "description": "Let it cool.",
    "runbook": "hot",
}


def counted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, calls: Counter[str]) -> None:
    real: Callable[..., Any] = getattr(owner, name)

    def counting(*given: Any, **named: Any) -> Any:
        calls[name] += 1
        return real(*given, **named)

    monkeypatch.setattr(owner, name, counting)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    found: Counter[str] = Counter()
    counted(monkeypatch, rule_evaluator, "Alert", found)
    counted(monkeypatch, rule_evaluator, "AlertRecord", found)
    counted(monkeypatch, rule_evaluator, "_fill", found)
    return found


def hot_hall() -> Hall:
    """Return a hall whose GPUs are all too hot, since so long that all is notified."""
    hall = Hall(NODES, [msgspec.convert(HOT, Rule)])
    hall.hot = {(name, gpu) for name in hall.names for gpu in range(2)}
    hall.pass_by(120, every=4)
    return hall


def firing(hall: Hall) -> list[str]:
    return [one.key for one in hall.pipeline.alerts() if one.state is AlertState.FIRING]


def test_a_thousand_unchanged_alerts_make_no_text_and_no_record(calls: Counter[str]) -> None:
    hall = hot_hall()
    assert len(firing(hall)) >= 2 * NODES <= calls["Alert"]
    assert calls["AlertRecord"] >= 2 * NODES
    calls.clear()
    for _ in range(5):
        hall.pass_by(1)
        assert len(firing(hall)) >= 2 * NODES
        assert len(hall.pipeline.engine.snapshot(hall.wall)) >= 2 * NODES
    assert not calls


def test_one_change_among_a_thousand_makes_one_text_and_one_record(calls: Counter[str]) -> None:
    hall = hot_hall()
    rules = {key.partition("/")[0] for key in firing(hall)}
    calls.clear()
    hall.hot.remove(("n7", 1))
    hall.pass_by(1)
    assert calls["AlertRecord"] <= len(rules)
    assert calls["Alert"] <= len(rules)
    hall.pass_by(60, every=5)
    assert not [key for key in firing(hall) if key.endswith("GPU-n7-1")]


def test_a_number_that_grows_is_shown_of_all_within_a_few_ticks(calls: Counter[str]) -> None:
    hall = Hall(NODES)
    hall.pass_by(3)
    hall.silent = set(hall.names)
    hall.pass_by(80)
    silent = [one for one in hall.pipeline.alerts() if one.rule == "node_silent"]
    assert len(silent) == NODES
    calls.clear()
    hall.pass_by(1)
    rules = {one.rule for one in hall.pipeline.alerts()}
    assert 0 < calls["Alert"] <= MOST_AT_ONCE * len(rules)
    hall.pass_by(NODES / MOST_AT_ONCE)
    again = {one.key: one for one in hall.pipeline.alerts()}
    assert all(again[one.key].summary != one.summary for one in silent)


def test_the_tick_in_which_all_fall_silent_is_done_in_pieces() -> None:
    hall = Hall(NODES)
    hall.pass_by(3)
    hall.silent = set(hall.names)
    hall.pass_by(46)
    pieces = []
    for _ in range(20):
        hall.now, hall.wall = hall.now + 1, hall.wall + 10**9
        fired = hall.pipeline.fired
        steps = sum(1 for _ in hall.pipeline.steps(hall.fleet, hall.now, hall.wall, (), listening=True, snapshots=()))
        pieces.append((hall.pipeline.fired - fired, steps))
    [usual, *_] = [steps for fired, steps in pieces if not fired]
    both = [steps for fired, steps in pieces if fired >= NODES]
    assert len(both) == 2, "all together, and each for itself"
    assert min(both) >= usual + 3 * NODES // 50
