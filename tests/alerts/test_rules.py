"""The shipped rules prove themselves, and a file with a mistake says where it is."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from msgspec.structs import replace

from alerts.engine.rule_tests import failures, first_alert, holds, play
from alerts.message.formats import text
from alerts.message.page import Links, page_of
from alerts.notice import Notice
from alerts.rules.rule import FOLDER, KINDS, Example, Rule, load, monitor_rules, read, words_of
from alerts.xid.catalogue import catalogue
from api.alerts import Action, Incident, Severity, Subject
from present.alert.incident import title_of
from telemetry.errors import ConfigError
from telemetry.statements.catalogue import statements
from telemetry.statements.node import node_statements
from tests.alerts.mutants import mutated
from tests.kit.night import size

DOCS = Path(__file__).parents[2] / "docs" / "alerts.md"
RULES = load()
MONITOR = monitor_rules()
EXAMPLES = [(rule, example) for rule in (*RULES, *MONITOR) for example in rule.example]


@pytest.mark.parametrize(("rule", "example"), EXAMPLES, ids=[f"{rule.name}: {each.given}" for rule, each in EXAMPLES])
def test_every_rule_does_what_its_examples_say(rule: Rule, example: Example) -> None:
    assert play(rule, example) == words_of(example.then)


def test_no_two_shipped_rules_have_a_name() -> None:
    """The later one would take the place of the other, as an operator's rule does on purpose."""
    names = [rule.name for path in sorted(FOLDER.glob("*rules.toml")) for rule in read(path)]
    assert [name for name in names if names.count(name) > 1] == []


@pytest.mark.parametrize("rule", [*RULES, *MONITOR], ids=lambda rule: rule.name)
def test_every_rule_has_an_example_that_fires_and_one_with_a_gap(rule: Rule) -> None:
    assert any("F" in words_of(example.then) for example in rule.example)
    if next(rule.when.metrics(), None) is not None:
        assert any("_" in steps for example in rule.example for steps in _readings(example))


def _readings(example: Example) -> list[list[str]]:
    """The words of what is given, and of all that is beside it."""
    beside = [words for words in example.beside.values() if isinstance(words, str)]
    return [words_of(words) for words in (example.given, *beside)]


@pytest.fixture(scope="module")
def unchanged() -> set[str]:
    """The names of the rules that are as they were where the change began; of none where that is not known."""
    found = set()
    for path in FOLDER.glob("*.toml"):
        command = ["git", "show", f"origin/main:./{path.name}"]
        try:
            before = subprocess.run(command, cwd=FOLDER, capture_output=True, check=False).stdout
        except OSError:  # there is no git
            return set()
        old, new = (
            {rule["name"]: rule for rule in tomllib.loads(text.decode()).get("rule", ())}
            for text in (before, path.read_bytes())
        )
        found |= {name for name in new if new[name] == old.get(name)}
    return found


@pytest.mark.nightly
@pytest.mark.parametrize("rule", [*RULES, *MONITOR], ids=lambda rule: rule.name)
def test_whatever_is_changed_in_a_rule_its_examples_notice(rule: Rule, unchanged: set[str]) -> None:
    """All that may be changed in a rule that the change touches, some of it in others; at night all in all."""
    mutants = list(mutated(rule))[:: size(8 if rule.name in unchanged else 1, 1)]
    assert [mutant for mutant in mutants if all(holds(mutant, each) for each in mutant.example)] == []


IMPERATIVES = {
    "Cap", "Check", "Checkpoint", "Do", "Drain", "End", "Find", "Follow", "Have", "Hold", "Install", "Limit", "Look", "Lower", "Make",
    "Move", "Ping", "Read", "Reboot", "Replace", "Reset", "Restart", "Run", "Shut", "Start", "Stop", "Switch", "Take", "Try", "Update",
}  # fmt: skip
"""First words of what to do."""
_FACTS = {
    name: f"the {name}" for rule in (*RULES, *MONITOR) for name in re.findall(r"{(\w+)}", "".join(rule.texts))
} | {"remedy": "cap each GPU at 400 W", "name": "R12-A", "node": "", "cluster": "lab"}


@pytest.mark.parametrize(
    "rule", [one for one in (*RULES, *MONITOR) if one.severity is Severity.PAGE], ids=lambda one: one.name
)
def test_a_page_says_where_and_since_and_then_what_to_do(rule: Rule) -> None:
    """A lock screen shows these: what, where and since when in the title, and below it an act in the imperative."""
    fired = first_alert(rule, node="dgx-07", gpu="GPU-7", row="R12-A", facts=_FACTS)
    incident = Incident(
        key="i-1", severity=fired.severity, title=fired.summary, began=fired.changed, alerts=(fired,), firing=1, total=1
    )
    notice = Notice(id="1", action=Action.TRIGGER, incident=incident, at=fired.changed, reason="new")
    title, first, *_ = text(page_of(notice, Links("lab"), fired.changed)).splitlines()
    place = "cluster lab" if rule.table is Subject.MONITOR else fired.node or fired.name
    assert place in title or "the failover" in title  # which names the circuit
    assert re.search(r", since (\d{4}-\d\d-\d\d )?\d\d:\d\d UTC$", title)
    assert first.split()[0].rstrip(",;:") in IMPERATIVES
    assert "unknown" not in first


def test_a_title_counts_the_gpus_of_every_rule_that_names_one() -> None:
    titles = []
    for rule in RULES:
        if rule.table not in {Subject.GPU, Subject.LINK} or "{where}" not in rule.summary:
            continue
        if all("incidents" in example.given for example in rule.example if "F" in example.then):
            continue
        first = first_alert(rule, node="dgx-07", gpu="GPU-7", row="", facts=_FACTS)
        if "gpu" in first.labels:  # else the driver has not said which one
            titles.append(title_of(first, [first, replace(first, gpu="GPU-8")]))
    assert len(titles) > 50
    for title in titles:
        assert "2 GPUs of dgx-07" in title
        assert not re.match(r"2 GPUs of dgx-07 (\w+s\b|.* its )", title)


@pytest.mark.parametrize("rule", [*RULES, *MONITOR], ids=lambda rule: rule.name)
def test_every_rule_that_notifies_names_an_act(rule: Rule) -> None:
    assert rule.act or rule.severity is Severity.INFO


def test_every_remedy_of_a_page_by_a_catalogue_begins_with_an_act() -> None:
    """The remedy is the first line of the pages of `gpu_fault`, `driver_fault` and `node_fault`."""
    stated = [*statements().values(), *node_statements().values(), *catalogue().values()]
    pages = [one.remedy for one in stated if one.severity == "page"]
    assert len(pages) > 50
    assert [one for one in pages if one.split()[0].rstrip(",;:") not in IMPERATIVES] == []


def test_names_are_unique_and_every_rule_has_a_runbook() -> None:
    rules = [*RULES, *MONITOR]
    assert len({rule.name for rule in rules}) == len(rules) >= 12
    assert all(rule.runbook for rule in rules)


GOOD_RULE = """
[[rule]]
name = "hot"
when = { type = "above", metric = "gpu_temperature_celsius", level = 88, clear = 84 }
hold = 120
severity = "ticket"
remediation = "reset"
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
    assert {rule.name for rule in rules} - {rule.name for rule in RULES} == {"hot"}
    assert failures(rules[-1]) == []


def test_a_rule_of_the_operator_replaces_a_shipped_one_or_switches_it_off(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD_RULE.replace('"hot"\nwhen', '"thermal_limit"\nwhen'))
    replaced = {rule.name: rule for rule in load([path])}
    assert len(replaced) == len(RULES)
    assert replaced["thermal_limit"].hold == 120
    path.write_text(path.read_text().replace("hold", "enabled = false\nhold"))
    assert "thermal_limit" not in {rule.name for rule in load([path])}


def test_the_rules_that_the_documentation_shows_hold(tmp_path: Path) -> None:
    blocks = re.findall(r"^```toml\n(.*?)^```", DOCS.read_text(), re.MULTILINE | re.DOTALL)
    path = tmp_path / "mine.toml"
    path.write_text(next(block for block in blocks if "[[rule]]" in block))
    held, off = read(path)
    assert held.example
    assert failures(held) == []
    assert not off.enabled


@pytest.mark.parametrize("kind", KINDS)
def test_the_documentation_names_every_kind_of_condition(kind: str) -> None:
    assert f"`{kind}`" in DOCS.read_text() or f'type = "{kind}"' in DOCS.read_text()


@pytest.mark.parametrize(
    ("inhibits", "words"),
    [
        ('["straggler"]', 'Write inhibits = [{ rule = "gpu_hung", within = "gpu", why = "..." }]'),
        ('[{ rule = "straggler", within = "gpu" }]', "missing required field `why`. Write inhibits"),
        ('[{ rule = "straggler", why = "-" }]', "missing required field `within`. Write inhibits"),
        ('[{ rule = "straggler", within = "rack", why = "-" }]', "invalid enum value 'rack'"),
        ('[{ rule = "straggler", within = "gpu", why = " " }]', "why it inhibits 'straggler' is not"),
        ('[{ rule = "stragler", within = "gpu", why = "-" }]', "Did you mean 'straggler'"),
        (
            '[{ rule = "straggler", within = "gpu", why = "-" }, { rule = "straggler", within = "node", why = "-" }]',
            "it inhibits 'straggler' twice",
        ),
        ('[]\nwithin = "node"', "within: there is no such key. Write inhibits"),
    ],
)
def test_an_inhibition_names_its_rule_its_place_and_its_reason(tmp_path: Path, inhibits: str, words: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD_RULE.replace("hold", f"inhibits = {inhibits}\nhold"))
    with pytest.raises(ConfigError) as caught:
        load([path])
    assert words in str(caught.value)


def test_no_fault_of_one_gpu_hides_a_page_of_another() -> None:
    """Of the node it may hide what has no GPU; a place wider than the node only a fault without one."""
    pages = {rule.name: rule for rule in RULES if rule.severity is Severity.PAGE}
    for rule in RULES:
        for one in rule.inhibits:
            effect = pages.get(one.rule)
            if rule.table in {Subject.GPU, Subject.LINK} and effect is not None:
                assert one.within == "gpu" or effect.table is Subject.NODE, (rule.name, one)


def test_a_name_is_enough_to_switch_a_shipped_rule_off(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[[rule]]\nname = "thermal_limit"\nenabled = false\n')
    assert {rule.name for rule in RULES} - {rule.name for rule in load([path])} == {"thermal_limit"}
    path.write_text('[[rule]]\nname = "thermal_limi"\nenabled = false\n')
    with pytest.raises(ConfigError, match="Did you mean 'thermal_limit'"):
        load([path])


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("gpu_temperature_celsius", "gpu_temprature_celsius", "'gpu_temperature_celsius'?"),
        ("hold", "holdd", "Did you mean 'hold'?"),
        ('"above"', '"abov"', "Did you mean 'above'?"),
        ('"ticket"', '"tickets"', "severity: invalid enum value 'tickets'"),
        ("level = 88", 'level = "gpu_temp"', "there is no metric 'gpu_temp'"),
        ("level = 88", 'level = "88"', "Write a number without quotes."),
        ("level = 88, ", "", "when: object missing required field `level`"),
        ('remediation = "reset"\n', "", "missing required field `remediation`. Write what its remedy takes: reset,"),
        ('"reset"', '"ops"', "remediation: invalid enum value 'ops'"),
        ("{value}", "{valeu}", "{valeu} has no meaning"),
        ("{value}", "{value:.1f}", "no format of its own"),
        ("{value}", "{value", "Use {name} with one of"),
        ('"hot"\nwhen', '"Hot one"\nwhen', "lower case"),
        ("hold = 120", "hold = -1", "not below 0"),
        ("hold = 120", "hold = nan", "not below 0"),
        ("level = 88", "level = nan", "nan or inf"),
        ("80 90", "80*99999999999 90", "100000 steps at most"),
        ("every = ", "every = 0 # ", "more than 0"),
        (
            '"above", metric = "gpu_temperature_celsius", level = 88, clear = 84',
            '"expr", expr = "1 > 0"',
            "reads nothing",
        ),
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
        ('"above", metric = "gpu_temperature_celsius", level = 88, clear = 84', '"any", of = []', "can't be bad"),
        (
            '"above", metric = "gpu_temperature_celsius", level = 88, clear = 84',
            '"rate", metric = "gpu_energy_joules_total", level = 88, window = 0',
            "more than 0 s",
        ),
    ],
)
def test_a_mistake_is_named_with_its_place_and_its_cure(tmp_path: Path, old: str, new: str, words: str) -> None:
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
    with pytest.raises(ConfigError, match="there is no such file"):
        load([tmp_path / "none.toml"])


def test_a_word_in_an_example_that_means_nothing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD_RULE.replace("80 90", "80 hot"))
    with pytest.raises(ConfigError, match="'hot' means nothing"):
        failures(load([path])[-1])


EXACT = {
    "expr": (
        ("{m} > {c}", False), ("{m} >= {c}", True), ("{m} < {c}", False), ("{m} <= {c}", True),
        ("{m} == {c}", True), ("{m} != {c}", False), ("{c} < {m}", False), ("{m} > {c} / 1", False),
        ("{m} > max({c}, 0.1)", False), ("{m} > min({c}, 0.9)", False), ("{m} > -(-{c})", False), ("{m} > abs(-{c})", False),
        ("{m} - {c} > 0", False), ("not ({m} > {c})", True),
    ),
    "above": (("level = {c}", True),),
    "below": (("level = {c}", True),),
}  # fmt: skip
"""By kind of condition: how a reading is compared with a constant, and whether one that equals it
is bad."""


def exact_rules(constant: float) -> str:
    """Return a rules file with each comparison, and an example of a reading that equals `constant`."""
    found: list[str] = []
    for kind, rows in EXACT.items():
        for template, bad in rows:
            metric = "gpu_utilization_ratio"
            compared = template.format(m=metric, c=constant)
            its = f'expr = "{compared}"' if kind == "expr" else f'metric = "{metric}", {compared}'
            found.append(f"""
[[rule]]
name = "exact_{len(found)}"
when = {{ type = "{kind}", {its} }}
severity = "info"
remediation = "reset"
summary = "{{where}}"
description = "d"
runbook = "r"
[[rule.example]]
every = 60
given = "{constant} {constant}"
then = "{"F F" if bad else "- -"}"
""")
    return "".join(found)


@pytest.mark.parametrize("constant", [0.2, 0.7, 0.1, 1e-5], ids=str)
def test_a_float32_reading_equals_the_constant_that_it_was_rounded_from(constant: float, tmp_path: Path) -> None:
    """0.2 is rounded up and 0.7 down in a float32; neither is above or below the constant."""
    path = tmp_path / "exact.toml"
    path.write_text(exact_rules(constant))
    rules = read(path)
    assert len(rules) == sum(map(len, EXACT.values()))
    assert {rule.when: failures(rule) for rule in rules if failures(rule)} == {}


@pytest.mark.parametrize(
    ("when", "peers"),
    [
        ('{ type = "outlier", metric = "gpu_utilization_ratio", below = 0.7 }', 1.0),
        ('{ type = "outlier", metric = "gpu_utilization_ratio", below = 0.2 }', 1.0),
        ('{ type = "outlier", metric = "gpu_utilization_ratio", above = 1.4 }', 0.5),
    ],
)
def test_a_share_of_the_median_is_compared_in_the_precision_of_the_reading(
    when: str, peers: float, tmp_path: Path
) -> None:
    share = float(re.search(r"= ([\d.]+) }", when)[1])  # type: ignore[index]
    path = tmp_path / "exact.toml"
    path.write_text(
        exact_rules(share * peers).split("\n[[rule]]")[1].join(["[[rule]]", ""]).replace("- -", "F F")
        + f"peers = {{ gpu_utilization_ratio = [{peers}, {peers}, {peers}] }}\n"
    )
    text = re.sub(r"when = .*", f"when = {when}", path.read_text())
    path.write_text(text)
    (rule,) = read(path)
    assert failures(rule) == []
