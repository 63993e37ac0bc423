"""Rules as data: read the shipped ones and the operator's, and check them.

A rule of `rules.toml` has its proof beside it: example timelines that are executed as its test
(`alerts.engine.rule_tests`). An operator's file has the same form; a rule there with the name of a
shipped one replaces it.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any, Literal, get_args

import msgspec

from alerts.rules.condition import ConditionKind
from alerts.rules.conditions import Condition, OfJob, Outlasts
from alerts.rules.levels import Gate, In
from alerts.rules.names import WORDS, home, in_reach
from alerts.rules.of_jobs import BelowOwn, HeldByJob, LoadsCircuit, ProcessOutside, Quiet, SlowInJob
from alerts.rules.peers import Outlier
from alerts.rules.presence import DriverCondition, Silent, Skewed, Worked
from api.alerts import Remediation, Severity, Subject
from power import thresholds
from telemetry.errors import ConfigError, did_you_mean
from telemetry.metric import Kind as Moves
from telemetry.metric import Unit
from telemetry.text.former_names import NameKind, former_names
from telemetry.text.settings import Fault, convert, read_toml

log = logging.getLogger(__name__)
FOLDER = Path(__file__).parent
"""Folder of the shipped rules: every `*rules.toml`."""


FIELDS = (
    "where", "node", "gpu", "uuid", "index", "name", "pci", "serial", "slot", "link", "value",
    "limit", "cost", "line", "process", "meaning", "remedy", "rack", "job", "user", "account", "circuits",
)  # fmt: skip
"""Names in braces in a rule's `summary`, `act` and `description`, beside those of metrics."""


Span = Literal["gpu", "burst", "node", "rack", "circuit", "domain", "switch", "server", "job", "rule"]
"""Which alerts of a rule are one incident; `rule` is all of them, `burst` those of one GPU, or of
several GPUs of a node within a minute."""


OF_JOBS = (BelowOwn, HeldByJob, LoadsCircuit, OfJob, Outlasts, ProcessOutside, Quiet, SlowInJob)
"""Kinds of condition that need to know whose each GPU is."""


_TIMES = re.compile(r"(.+)\*([0-9]{1,18})")
MOST_STEPS = 100_000
"""Most steps of a timeline: a day of seconds and some. More is a slip, and would fill the memory."""


def words_of(text: str) -> list[str]:
    """Return the steps of a timeline: words, of which `60*144` is 144 times `60`."""
    words: list[str] = []
    for word in text.split():
        match = _TIMES.fullmatch(word)
        words += [match[1]] * int(match[2]) if match else [word]
    return words


def _too_long(text: str) -> bool:
    matches = [_TIMES.fullmatch(word) for word in text.split()]
    return sum(int(match[2]) if match else 1 for match in matches) > MOST_STEPS


class Example(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"beside": "with"}):
    """A timeline that proves a rule: readings in, states out."""

    every: float
    """Seconds between two steps."""
    given: str
    """A word a step: a number for the rule's first metric, `_` for an unread value, the name of a
    gap (`timed_out`), `.` where no frame came, `-` for nothing of note; `x79` is an XID (`x13@7` of
    process 7), `s20034` an SXID, `gpu_lost!` another event, `incident!` an earlier incident of the GPU's board, `slot_incident!`
    one of another board in its slot, `$name` one of `lines`; `65+x79` is
    both. `60*144` is 144 times `60`."""
    then: str
    """A letter a step: `-` inactive, `P` pending, `F` firing, `R` resolved; `-*144` too."""
    beside: dict[str, float | str] = {}
    """Other metrics that the rule reads: a number that is the same at every step, or words as
    in `given`. Written `with`."""
    peers: dict[str, tuple[float | str, ...]] = {}
    """Readings of the other GPUs of the node, or of a link of each: a number that is the same at every
    step, or words as in `given`. Their other readings are the first one's."""
    jobs: tuple[str, ...] = ()
    """Who has the first GPU and each of its peers: one word for all steps, or a word a step. `a` is a job that a
    scheduler gave it to, `a,b` two that share it, `a/1` one that has an instance of it, `~a` one whose
    processes use it, `serve` and `shell` a service and a person's session; `-` nobody; `_` the node does not say.
    `!` behind it is a process that belongs to no allocation, `?` one whose owner is not known."""
    circuit: float | str = ""
    """Share of its continuous limit that the circuit of all nodes carries: a number that is the same at every step, or
    words as in `given`; empty where there is no circuit."""
    asked: int = 0
    """Number of GPUs that each job asked for; 0 is not known."""
    purpose: str = ""
    """Declaration of the owner of each job: `gpus=2 idle=ok`."""
    nodes: int = 1
    """How many nodes there are of which this is given; the states are the first one's."""
    driver: str = "up"
    """State of the node's driver by its inventory."""
    lines: dict[str, str] = {}
    """Lines of the kernel's log; `$name` in `given` is the line `name`."""


class Inhibition(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A rule whose alerts are a consequence of another one's: shown below it and not notified."""

    rule: str
    """The consequence."""
    within: Literal["gpu", "node", "circuit", "domain"]
    """Place that cause and consequence must share: the GPU; the node, where the cause concerns all of
    it (power, driver, silence); the circuit; the node's NVLink domain."""
    why: str
    """Why it is a consequence, in one line."""


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A condition, its hold time, its severity, and the texts of its alerts."""

    name: str
    id: str = ""
    """Of the electrical rules: `E02`."""
    table: Subject = Subject.GPU
    """Subject of its alerts: a GPU, link, port or node, or a row of a snapshot: circuit, budget, UPS,
    supply."""
    when: Condition
    unless: Condition | None = None
    """While this is bad, the rule is unknown: it neither fires nor clears."""
    load: Gate | None = None
    """Only while this is bad, the device under load, is the rule ever good; and `hold` and `keep`
    count only the time in which the rule is known. An idle GPU makes no memory errors, which proves
    nothing. A device that does not support the metric is always under load."""
    hold: float = 0.0
    """Seconds that it must be bad before it fires."""
    keep: float = 0.0
    """Seconds that it must be good before it resolves."""
    settle: float = 0.0
    """Seconds after a reset, a reload of the driver or a start of the aggregator in which the rule is
    unknown: counters restart, links train, clocks rise."""
    grace: float | None = None
    """Seconds after the end of a cause that inhibited it, before it is notified if it still fires. [the notifications'
    `grace`, 15]"""
    worse: tuple[float, ...] = ()
    """Values of its metric from the mildest to the worst. An alert that fires and gets a worse one notifies again, as
    a fault of its own."""
    severity: Severity
    remediation: Remediation
    """The means that ends it: reset, reboot, cold_start, replace, facility, application or monitor. This release still
    reads its former name `owner`."""
    summary: str
    """Alert text of one line; `{where}` and `{value}` are the device and the reading."""
    act: str = ""
    """The act that is asked for, in the imperative, the gentlest first: the first line that the person who is woken reads. [the
    first of `steps`]"""
    description: str
    """Meaning of the alert, for the person who is woken."""
    causes: str = ""
    """Usual causes, the likeliest first. For the runbook."""
    steps: tuple[str, ...] = ()
    """Steps in order. For the runbook."""
    replace: str = ""
    """When to have the part replaced. For the runbook."""
    runbook: str
    """Anchor in docs/runbook.md."""
    group: Span = "gpu"
    """Which of its alerts are one incident; by default `gpu` for a GPU or a link, `node` for a node or a port,
    `circuit` for a row of a power snapshot."""
    inhibits: tuple[Inhibition, ...] = ()
    """Rules whose alerts are a consequence of this one's, each with the place and the reason."""
    enabled: bool = True
    example: tuple[Example, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """Texts of its alerts that have fields."""
        return self.summary, self.act, self.description

    @property
    def advice(self) -> str:
        """Act and meaning in one text."""
        return " ".join(filter(None, (self.act, self.description)))


_SPANS = {
    Subject.GPU: "gpu",
    Subject.LINK: "gpu",
    Subject.NODE: "node",
    Subject.PORT: "node",
    Subject.INSTANCE: "gpu",
    Subject.MONITOR: "gpu",
}


def load(paths: Sequence[Path] = (), *, shipped: bool = True) -> tuple[Rule, ...]:
    """Return the shipped rules and those of the operator's files, later ones in place of earlier
    ones of the same name. Raises `ConfigError` with place, problem and cure."""
    rules: dict[str, Rule] = {}
    for path in [*(sorted(FOLDER.glob("*rules.toml")) if shipped else []), *paths]:
        rules.update({rule.name: rule for rule in read(path)})
    for rule in rules.values():
        for name in (one.rule for one in rule.inhibits):
            if name not in rules:
                hint = did_you_mean(name, rules)
                raise ConfigError(f"rule {rule.name}", f"it inhibits {name!r}, which is no rule", hint)
    return tuple(rule for rule in rules.values() if rule.enabled)


@cache
def monitor_rules() -> tuple[Rule, ...]:
    """Return the rules about kilowatch itself."""
    return read(FOLDER / "monitor.toml")


def read(path: Path) -> tuple[Rule, ...]:
    """Return the rules of one file, checked. A shipped file is read once: it does not change while we run."""
    return _shipped(path) if path.parent == FOLDER else _read(path)


@cache
def _shipped(path: Path) -> tuple[Rule, ...]:
    return _read(path)


def _read(path: Path) -> tuple[Rule, ...]:
    raw = read_toml(path)
    unknown = next((key for key in raw if key != "rule"), None)
    if unknown is not None or not isinstance(raw.get("rule", []), list):
        raise ConfigError(str(path), f"{unknown or 'rule'!r} can't be used here", "Write [[rule]].")
    rules: list[Rule] = []
    for number, table in enumerate(raw.get("rule", []), 1):
        rule = _rule(path, number, table)
        if any(rule.name == other.name for other in rules):
            raise ConfigError(f"{path}, rule {rule.name}", "there are two of this name")
        rules.append(rule)
    return tuple(rules)


def _rule(path: Path, number: int, raw: Any) -> Rule:
    name = raw.get("name", number) if isinstance(raw, dict) else number
    where = f"{path}, rule {name}"
    if isinstance(raw, dict) and raw.keys() == {"name", "enabled"} and raw["enabled"] is False:
        return _switched_off(where, name)
    rule = convert(Rule, _with_numbers(_renamed(raw, where)), f"{where}:", hint=_hint)
    if "group" not in raw:
        span: Any = _SPANS.get(rule.table, "circuit")
        rule = msgspec.structs.replace(rule, group=span)
    if not rule.act and rule.steps and not any(_field_problems(rule.steps[0], facts=False)):
        rule = msgspec.structs.replace(rule, act=rule.steps[0])
    for problem, cure in _problems(rule):
        raise ConfigError(where, problem, cure)
    return rule


def _renamed(raw: Any, where: str) -> Any:
    """Replace the former names of keys."""
    if not isinstance(raw, dict):
        return raw
    names = {}
    for each in former_names(NameKind.RULE_KEY):
        if each.former in raw and each.name not in raw:
            log.warning("%s: %s", where, each.warning)
            names[each.former] = each.name
    return {names.get(key, key): value for key, value in raw.items()}


def _with_numbers(raw: Any) -> Any:
    """Replace each level that names a constant of `power.thresholds` by its number."""
    if isinstance(raw, list):
        return [_with_numbers(part) for part in raw]
    if not isinstance(raw, dict):
        return raw
    return {
        key: getattr(thresholds, value, value)
        if key in {"level", "clear"} and isinstance(value, str) and value.isupper()
        else _with_numbers(value)
        for key, value in raw.items()
    }


def _switched_off(where: str, name: Any) -> Rule:
    """Return a shipped rule that an operator's file names only to switch it off."""
    shipped = {rule.name: rule for path in sorted(FOLDER.glob("*rules.toml")) for rule in read(path)}
    if name not in shipped:
        raise ConfigError(where, "no shipped rule of this name to switch off", did_you_mean(str(name), shipped))
    return msgspec.structs.replace(shipped[name], enabled=False)


def _hint(fault: Fault) -> str:
    """Return the closest word to an unknown key or kind of condition."""
    if fault.place.partition("[")[0] == "inhibits" or fault.unknown == "within":
        return (
            'Write inhibits = [{ rule = "gpu_hung", within = "gpu", why = "..." }], where `within` is '
            '"gpu", "node", "circuit" or "domain", and `why` one line.'
        )
    if fault.missing == "remediation":
        return f"Write what its remedy takes: {', '.join(Remediation)}."
    return fault.hint


KINDS = tuple(str(member.__struct_config__.tag) for member in get_args(Condition))
"""Values of `type` in a condition."""


def conditions_of(condition: ConditionKind) -> Iterator[ConditionKind]:
    """Yield a condition and all its parts."""
    yield condition
    for part in condition.parts:
        yield from conditions_of(part)


def _problems(rule: Rule) -> Iterator[tuple[str, str]]:
    """Yield the mistakes of a rule that decodes, each with its cure."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", rule.name):
        yield f"{rule.name!r} is no name", "Use lower case letters, digits and '_'."
    unless = list(conditions_of(rule.unless)) if rule.unless else []
    load = list(conditions_of(rule.load)) if rule.load else []
    for part in (*conditions_of(rule.when), *unless, *load):
        yield from _part_problems(rule, part)
    for part in unless:
        if part.edge or part.remembers:
            yield "`unless` can only read the present", "Use above, below, in, expr, any or all."
    yield from _time_problems(rule)
    yield from _order_problems(rule)
    yield from _inhibition_problems(rule)
    for template in rule.texts:
        yield from _field_problems(template, facts=rule.table.snapshot_kind is not None)
    for example in rule.example:
        yield from _example_problems(example)


def _example_problems(example: Example) -> Iterator[tuple[str, str]]:
    if not 0 < example.every < math.inf:
        yield "`every` of an example is the seconds from step to step", "Write more than 0."
    beside = [words for words in example.beside.values() if isinstance(words, str)]
    of_peers = [(name, words) for name, of in example.peers.items() for words in of]
    beside += [words for _, words in of_peers if isinstance(words, str)]
    if any(_too_long(text) for text in (example.given, example.then, *beside, *example.jobs)):
        yield f"an example has {MOST_STEPS} steps at most", "Make `every` longer."
    given, then = len(words_of(example.given)), len(words_of(example.then))
    if given != then:
        yield f"an example has {given} steps given and {then} then", "Write one for each."
    if any(len(words_of(words)) not in {1, given} for words in example.jobs):
        yield (f"an example has {given} steps, and other ones of its jobs", "Write one for each, or one.")
    for name, words in (*example.beside.items(), *of_peers):
        if name not in WORDS:
            yield f"an example gives {name!r}, which is no metric", did_you_mean(name, WORDS)
        elif isinstance(words, str) and len(words_of(words)) != given:
            yield f"an example has {given} steps, and other ones of {name}", "Write one for each."


def _time_problems(rule: Rule) -> Iterator[tuple[str, str]]:
    if not all(0 <= seconds < math.inf for seconds in (rule.hold, rule.keep, rule.settle, rule.grace or 0.0)):
        yield "hold, keep, settle and grace are seconds, and not below 0", ""
    edge = any(part.edge for part in conditions_of(rule.when))
    if rule.hold and rule.when.edge:
        yield "what lasts an instant can't be held", "Remove `hold`."
    if edge and not rule.keep:
        yield "what lasts an instant would resolve at once", "Set with `keep` how long it fires."
    if edge and rule.settle:
        yield "what lasts an instant would be missed while it settles", "Remove `settle`."


def _order_problems(rule: Rule) -> Iterator[tuple[str, str]]:
    if not rule.worse:
        return
    of_state = [part for part in conditions_of(rule.when) if isinstance(part, In)]
    values = {value for part in of_state for value in part.values}
    if len(of_state) != 1 or set(rule.worse) - values or len(set(rule.worse)) < len(rule.worse):
        yield (
            '`worse` puts in order the values of one condition of type "in"',
            "Write each of them once, the mildest first.",
        )


def _inhibition_problems(rule: Rule) -> Iterator[tuple[str, str]]:
    names = [one.rule for one in rule.inhibits]
    for one in rule.inhibits:
        if not one.why.strip() or "\n" in one.why:
            yield (
                f"why it inhibits {one.rule!r} is not said in one line",
                "Write in `why` how this alert's cause leads to that alert.",
            )
        if names.count(one.rule) > 1:
            yield f"it inhibits {one.rule!r} twice", "Keep the one with the larger place."


def _part_problems(rule: Rule, part: ConditionKind) -> Iterator[tuple[str, str]]:
    reach = in_reach(rule.table)
    for name in part.metrics() if not part.parts else ():
        word = WORDS.get(name)
        if word is None:
            number = re.fullmatch(r"[-+]?\d+(\.\d+)?", name)
            cure = "Write a number without quotes." if number else did_you_mean(name, WORDS)
            yield f"there is no metric {name!r}", cure
        elif home(name) not in reach:
            yield (
                f"{name} is of a {home(name)}, and the rule is about a {rule.table}",
                f'Write table = "{home(name)}".',
            )
    for name in part.counters():
        word = WORDS.get(name)
        if word is not None and word.kind is not Moves.COUNTER and word.unit is not Unit.COUNT:
            yield f"{name} is no counter", 'Use type = "above" or "in".'
    numbers = [each for each in msgspec.structs.astuple(part) if isinstance(each, float)]
    if not all(math.isfinite(number) for number in numbers):
        yield "nothing can be compared with nan or inf", "Write a number."
    yield from part.problems()
    if isinstance(part, OF_JOBS) and rule.table is not Subject.GPU:
        yield "only GPUs belong to jobs", 'Write table = "gpu".'
    if isinstance(part, Outlier) and rule.table not in {Subject.GPU, Subject.LINK}:
        yield "only GPUs and links have peers", 'Write table = "gpu".'
    if isinstance(part, Silent | Skewed | Worked | DriverCondition) and rule.table is not Subject.NODE:
        yield "only nodes fall silent, have work, a clock or a driver", 'Write table = "node".'


def _field_problems(template: str, *, facts: bool) -> Iterator[tuple[str, str]]:
    """Yield the mistakes of a text, each with its cure. `facts`: whether any word may be in braces,
    for the facts of a snapshot's row."""
    try:
        names = list(_fields_of(template))
    except ValueError as error:
        yield f"{template!r}: {error}", f"Use {{name}} with one of: {', '.join(FIELDS)}."
        return
    for name in names:
        if name not in FIELDS and name not in WORDS and not (facts and name.isidentifier()):
            hint = did_you_mean(name, [*FIELDS, *WORDS])
            yield (f"{{{name}}} has no meaning", hint or f"Use the name of a metric, or one of: {', '.join(FIELDS)}.")


def _fields_of(template: str) -> Iterator[str]:
    """Yield the names in braces. Raises `ValueError` when the braces don't match."""
    for _, name, spec, conversion in Formatter().parse(template):
        if name is not None:
            if spec or conversion:
                raise ValueError(f"{{{name}}} may have no format of its own")
            yield name
