"""The shipped rules prove themselves, and a file with a mistake says where it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from alerts.conditions import Above, Absent, AnyOf, Below, Condition, Happens, In, Silent
from alerts.counters import Rate, Rises
from alerts.examples import failures, play
from alerts.rules import Example, Rule, load, read
from telemetry.errors import ConfigError

RULES = load()
EXAMPLES = [(rule, example) for rule in RULES for example in rule.example]


@pytest.mark.parametrize(
    ("rule", "example"), EXAMPLES, ids=[f"{rule.name}: {each.given}" for rule, each in EXAMPLES]
)
def test_every_rule_does_what_its_examples_say(rule: Rule, example: Example) -> None:
    assert play(rule, example) == example.then.split()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_has_an_example_that_fires_and_one_with_a_gap(rule: Rule) -> None:
    assert any("F" in example.then.split() for example in rule.example)
    if next(rule.when.metrics(), None) is not None:
        assert any("_" in example.given.split() for example in rule.example)


def mutants(condition: Condition) -> Iterator[Condition]:
    """A condition with one thing changed, for each thing."""
    change = msgspec.structs.replace
    match condition:
        case Above() | Below():
            other = Below if isinstance(condition, Above) else Above
            yield other(condition.metric, condition.level, condition.clear)
            if isinstance(condition.level, float):
                yield change(condition, level=condition.level * 1.1 + 1)
                yield change(condition, level=condition.level * 0.9 - 1)
        case In():
            for value in condition.values:
                yield change(condition, values=tuple(v for v in condition.values if v != value))
            for value in set(range(8)) - set(condition.values):
                if value in range(2) or "recovery" in condition.metric:
                    yield change(condition, values=(*condition.values, value))
            if condition.after:
                yield change(condition, after=())
        case Rate():
            yield change(condition, level=condition.level * 1.1)
            yield change(condition, level=condition.level * 0.9)
            yield change(condition, window=condition.window * 2)
        case Rises():
            yield Above(condition.metric, 1.0)
        case Absent():
            for reason in {"device_lost", "timed_out", "error"} - set(condition.reasons):
                yield change(condition, reasons=(*condition.reasons, reason))
            for reason in condition.reasons:
                yield change(condition, reasons=tuple(r for r in condition.reasons if r != reason))
        case Silent():
            yield change(condition, intervals=condition.intervals + 1)
            yield change(condition, intervals=condition.intervals - 1)
            yield change(condition, least=condition.least * 1.5)
            yield change(condition, least=condition.least * 0.5)
        case Happens():
            yield change(condition, kinds=("nothing",))
            for xid in condition.xids:
                yield change(condition, xids=(*(x for x in condition.xids if x != xid), 999))
            if condition.xids:
                yield change(condition, xids=())
        case AnyOf():
            for at, part in enumerate(condition.of):
                for mutant in mutants(part):
                    of = (*condition.of[:at], mutant, *condition.of[at + 1 :])
                    yield AnyOf(of)  # type: ignore[arg-type]


def mutated(rule: Rule) -> Iterator[Rule]:
    """A rule with one number, word or comparison changed, for each of them."""
    change = msgspec.structs.replace
    for when in mutants(rule.when):
        yield change(rule, when=when)
    if rule.hold:
        yield change(rule, hold=rule.hold * 2)
        yield change(rule, hold=rule.hold / 2)
    if rule.keep:
        yield change(rule, keep=rule.keep * 2)
        yield change(rule, keep=rule.keep / 2)
    if rule.unless is not None:
        yield change(rule, unless=None)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_whatever_is_changed_in_a_rule_its_examples_notice(rule: Rule) -> None:
    unnoticed = [mutant for mutant in mutated(rule) if not failures(mutant)]
    assert unnoticed == []


def test_names_are_unique_and_every_rule_has_a_runbook() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES) >= 12
    assert all(rule.runbook for rule in RULES)


GOOD_RULE = """
[[rule]]
name = "hot"
when = { type = "above", metric = "gpu_temperature_celsius", level = 88, clear = 84 }
hold = 120
severity = "ticket"
summary = "{where} is at {value}"
description = "Look at the fans."
runbook = "hot"
[[rule.example]]
every = 60
given = "80 90 90 90 86 _ 83 86"
then = "- P P F F F R -"
"""


def test_a_rule_of_the_operator_joins_the_shipped_ones(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD_RULE)
    rules = load([path])
    assert [rule.name for rule in rules if rule not in RULES] == ["hot"]
    assert failures(rules[-1]) == []


def test_a_rule_of_the_operator_replaces_a_shipped_one_or_switches_it_off(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD_RULE.replace('"hot"\nwhen', '"thermal_limit"\nwhen'))
    replaced = {rule.name: rule for rule in load([path])}
    assert len(replaced) == len(RULES)
    assert replaced["thermal_limit"].hold == 120
    path.write_text(path.read_text().replace("hold", "enabled = false\nhold"))
    assert "thermal_limit" not in {rule.name for rule in load([path])}


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("gpu_temperature_celsius", "gpu_temprature_celsius", "'gpu_temperature_celsius'?"),
        ("hold", "holdd", "Did you mean 'hold'?"),
        ('"above"', '"abov"', "Did you mean 'above'?"),
        ('"ticket"', '"tickets"', "Invalid enum value 'tickets'"),
        ("level = 88", 'level = "gpu_temp"', "no metric is called 'gpu_temp'"),
        ("level = 88, ", "", "`level` - at `$.when`"),
        ("{value}", "{valeu}", "{valeu} stands for nothing"),
        ("{value}", "{value:.1f}", "no format of its own"),
        ("{value}", "{value", "Use {name} with one of"),
        ('"hot"\nwhen', '"Hot one"\nwhen', "lower case"),
        ("hold = 120", "hold = -1", "not below 0"),
        ("- P P F F F R -", "- P P F F F R", "8 steps given and 7 then"),
        ("gpu_temperature_celsius", "link_state", 'table = "link"'),
        (
            '"above", metric = "gpu_temperature_celsius", level = 88, clear = 84',
            '"rises", metric = "gpu_temperature_celsius"',
            "is no counter",
        ),
        (
            '"above", metric = "gpu_temperature_celsius", level = 88, clear = 84',
            '"event", xids = [79]',
            "can't be held",
        ),
        (
            '"above", metric = "gpu_temperature_celsius", level = 88, clear = 84',
            '"silent", intervals = 3',
            "only nodes fall silent",
        ),
        (
            '"above", metric = "gpu_temperature_celsius", level = 88, clear = 84',
            '"gap", metric = "gpu_temperature_celsius", reasons = ["timedout"]',
            "'timed_out'?",
        ),
        (
            '"above", metric = "gpu_temperature_celsius", level = 88, clear = 84',
            '"any", of = []',
            "can't be bad",
        ),
        (
            '"above", metric = "gpu_temperature_celsius", level = 88, clear = 84',
            '"rate", metric = "gpu_energy_joules_total", level = 88, window = 0',
            "more than 0 s",
        ),
    ],
)
def test_a_mistake_is_named_with_its_place_and_its_cure(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    path = tmp_path / "mine.toml"
    assert old in GOOD_RULE
    path.write_text(GOOD_RULE.replace(old, new, 1))
    with pytest.raises(ConfigError) as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert "rule" in caught.value.where
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[rule]\n", "line 1"),
        ("[[rul]]\n", "Write [[rule]]"),
        ("rule = 3\n", "Write [[rule]]"),
        ("rule = [3]\n", "rule 1"),
        (GOOD_RULE + GOOD_RULE, "two of this name"),
    ],
)
def test_a_file_that_is_no_list_of_rules_says_so(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"mine\.toml") as caught:
        read(path)
    assert words in str(caught.value)


def test_a_file_that_is_not_there_is_an_error_of_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load([tmp_path / "none.toml"])


def test_a_word_in_an_example_that_means_nothing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD_RULE.replace("80 90", "80 hot"))
    with pytest.raises(ConfigError, match="'hot' means nothing"):
        failures(load([path])[-1])
