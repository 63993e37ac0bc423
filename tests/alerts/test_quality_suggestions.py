"""Suggested changes of rules: played by the engine itself, with the evidence that they rest on."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aggregator.http import quality as http
from alerts.engine.suggestion import AlertHistory, suggest
from alerts.rules.rule import Rule, load
from kilowatch.text.quality import suggestion_lines
from tests.aggregator.http_client import door, small_cluster
from tests.alerts.test_quality import Stage
from tests.kit.waiting import until

RULES = {rule.name: rule for rule in load()}
TEMPERATURE = "gpu_temperature_celsius"


@pytest.fixture
def hot(tmp_path: Path) -> Rule:
    path = tmp_path / "rules.toml"
    path.write_text("""
[[rule]]
name = "hot"
when = { type = "above", metric = "gpu_temperature_celsius", level = 80 }
hold = 60
severity = "page"
remediation = "facility"
summary = "{where} is at {value}"
description = "Let it cool."
runbook = "hot"
""")
    [rule] = load([path], shipped=False)
    return rule


def short(peak: float, seconds: int, *, false: bool) -> AlertHistory:
    """Return readings that are high for so many seconds."""
    values = [60.0] * 12 + [peak] * (seconds // 10) + [60.0] * 12
    return AlertHistory(false, 10.0, {TEMPERATURE: values})


def test_a_higher_level_is_suggested_where_it_parts_false_from_true(hot: Rule) -> None:
    found = suggest(hot, [short(83, 900, false=True), short(82, 900, false=True),
                          short(95, 120, false=False), short(91, 300, false=False)])  # fmt: skip
    assert found.setting == "level"
    assert found.present == 80
    assert found.suggested is not None
    assert 83 < found.suggested <= 84, "the least that avoids both"
    assert (found.false_replayed, found.avoided) == (2, 2)
    assert (found.true_replayed, found.kept) == (2, 2)
    [line, *_] = suggestion_lines([found])
    assert line.startswith("hot: level = 83.")
    assert "avoids 2 of 2 false alerts" in line


def test_a_longer_hold_is_suggested_where_no_level_parts_them(hot: Rule) -> None:
    found = suggest(hot, [short(92, 90, false=True), short(85, 600, false=False)])
    assert found.setting == "hold"
    assert found.present == 60
    assert found.suggested is not None
    assert 80 < found.suggested <= 100
    assert (found.avoided, found.kept) == (1, 1)


def test_no_change_is_suggested_where_it_would_cost_a_true_one(hot: Rule) -> None:
    found = suggest(hot, [short(92, 900, false=True), short(91, 600, false=False)])
    assert found.setting == ""
    assert found.suggested is None
    assert "silences 1 of the true ones" in found.reason
    assert "no change is suggested" in " ".join(suggestion_lines([found]))


def test_an_alert_that_does_not_fire_again_is_no_evidence(hot: Rule) -> None:
    found = suggest(hot, [short(70, 900, false=True), AlertHistory(True, 10.0, {TEMPERATURE: []})])
    assert (found.false_alerts, found.false_replayed) == (2, 0)
    assert found.setting == ""
    assert "as far as they are stored" in found.reason


def test_gaps_are_unknown_and_never_a_value(hot: Rule) -> None:
    values: list[float | None] = [60.0] * 6 + [90.0] * 3 + [None] * 60 + [60.0] * 6
    found = suggest(hot, [AlertHistory(True, 10.0, {TEMPERATURE: values})])
    assert found.false_replayed == 0


def test_a_lower_level_is_suggested_for_a_rule_that_fires_below() -> None:
    rule = msgspec.structs.replace(
        RULES["thermal_margin"],
        when=msgspec.convert(
            {"type": "below", "metric": "gpu_thermal_margin_celsius", "level": 10.0}, type(RULES["thermal_margin"].when)
        ),
        hold=0.0,
    )
    metric = "gpu_thermal_margin_celsius"
    false = AlertHistory(True, 10.0, {metric: [20.0] * 6 + [8.0] * 60 + [20.0] * 6})
    true = AlertHistory(False, 10.0, {metric: [20.0] * 6 + [2.0] * 60 + [20.0] * 6})
    found = suggest(rule, [false, true])
    assert found.setting == "level"
    assert found.suggested is not None
    assert 7.5 < found.suggested < 8


def test_a_rate_of_a_counter_is_replayed_with_its_window() -> None:
    metric = "gpu_pcie_replays_total"

    def grows(per_second: float, *, false: bool) -> AlertHistory:
        return AlertHistory(false, 15.0, {metric: [per_second * 15 * step for step in range(80)]})

    found = suggest(RULES["pcie_replays"], [grows(0.4, false=True), grows(3.0, false=False)])
    assert (found.setting, found.avoided, found.kept) == ("level", 1, 1)
    assert found.suggested is not None
    assert 0.4 < found.suggested < 0.6


def test_a_rule_on_events_has_neither_level_nor_hold() -> None:
    found = suggest(RULES["gsp_dead"], [AlertHistory(True, 10.0, {})])
    assert found.setting == ""
    assert found.reason


def test_nothing_marked_says_how_to_mark() -> None:
    assert "kilowatch ack KEY --false" in suggestion_lines([])[0]


def test_a_replay_that_is_not_finished_in_time_says_so(hot: Rule) -> None:
    histories = [short(83, 900, false=True), short(95, 120, false=False)]
    plays = itertools.count()
    found = suggest(hot, histories, lambda: next(plays) >= 5)
    assert next(plays) == 6, "nothing is played after it"
    assert (found.finished, found.setting, found.suggested) == (False, "", None)
    assert (found.false_alerts, found.true_alerts) == (1, 1)
    [line] = [" ".join(suggestion_lines([found]))]
    assert "not finished in time" in " ".join(line.split())
    assert "replayed)" not in line, "how many could be replayed is not known"
    assert suggest(hot, histories).finished


async def test_suggestions_are_made_one_at_a_time_and_beside_the_threads_of_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path)
    stage.set(90, 40)
    stage.false(stage.key())
    view = await small_cluster()
    view.pipeline = stage.pipeline
    names: list[str] = []
    go_on = threading.Event()

    def slow(rule: Rule, histories: Sequence[AlertHistory], over: Callable[[], bool]) -> Any:
        names.append(threading.current_thread().name)
        assert go_on.wait(30)
        monkeypatch.setattr(http, "PLAY_SECONDS", 0.0)
        return suggest(rule, histories, over)

    monkeypatch.setattr(http, "suggest", slow)
    path = "/api/v1/alerts/quality/suggestions?from=0"
    async with door(view) as opened:
        asked = asyncio.ensure_future(opened.json(path))
        try:
            await until(lambda: bool(names))
            status, body, headers = await opened.text(path)
            assert (status, headers["Retry-After"]) == (503, "30")
            assert "for another request" in body
        finally:
            go_on.set()
        status, reply = await asked
        assert status == 200
        assert [one["rule"] for one in reply["suggestions"]] == ["hot"]
        status, reply = await opened.json(path)
        assert status == 200, "the turn is given back"
        assert [one["finished"] for one in reply["suggestions"]] == [False]
    assert all(name.startswith("suggestions") for name in names)
