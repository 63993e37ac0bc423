"""Rules are data: this reads them, ours and the operator's, and says what is wrong with them.

A rule stands in `rules.toml` with its proof beside it: example timelines that are executed as its
test (`alerts.examples`). An operator's file has the same form; a rule there with the name of a
shipped one replaces it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from alerts.alert import Severity
from alerts.conditions import Absent, AnyOf, Condition, Level, Silent
from alerts.counters import Rate, Rises
from alerts.wording import FIELDS, fields_of
from telemetry.catalogue import BY_NAME
from telemetry.errors import ConfigError, did_you_mean
from telemetry.gap import Gap
from telemetry.metric import Kind, Table

SHIPPED = Path(__file__).with_name("rules.toml")
KINDS = ("above", "below", "in", "rises", "rate", "gap", "silent", "event", "any")
"""What `type` may be in a condition."""


class Example(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"beside": "with"}):
    """A timeline that proves a rule: readings in, states out."""

    every: float
    """Seconds between two steps."""
    given: str
    """A word a step: a number for the rule's first metric, `_` for an unread value, the name of a
    gap (`timed_out`), `.` where no frame came, `-` for nothing of note; `x79` is an XID
    and `gpu_lost!` another event; `65+x79` is both."""
    then: str
    """A letter a step: `-` inactive, `P` pending, `F` firing, `R` resolved."""
    beside: dict[str, float] = {}
    """Other metrics that the rule looks at, the same at every step. Written `with`."""


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is bad, how long it must be so, who hears of it, and what they read."""

    name: str
    table: Table = Table.GPU
    """What it is about: one GPU, one link or one node."""
    when: Condition
    unless: Level | None = None
    """While this is bad, the rule knows nothing: it neither fires nor clears."""
    hold: float = 0.0
    """Seconds that it must be bad before it fires."""
    keep: float = 0.0
    """Seconds that it must be good before it resolves."""
    severity: Severity
    summary: str
    """One line; `{where}` and `{value}` stand for the device and the reading."""
    description: str
    """What it means and what to do."""
    runbook: str
    """Anchor in docs/runbook.md."""
    enabled: bool = True
    example: tuple[Example, ...] = ()


def load(paths: Sequence[Path] = (), *, shipped: bool = True) -> tuple[Rule, ...]:
    """Return the shipped rules and those of the operator's files, later ones in place of earlier
    ones of the same name. Raises `ConfigError` that says where, what and what to write instead."""
    rules: dict[str, Rule] = {}
    for path in [*([SHIPPED] if shipped else []), *paths]:
        rules.update({rule.name: rule for rule in read(path)})
    return tuple(rule for rule in rules.values() if rule.enabled)


def read(path: Path) -> tuple[Rule, ...]:
    """Return the rules of one file, checked."""
    try:
        raw = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(str(path), error.strerror or str(error)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), f"not TOML: {error}") from error
    unknown = next((key for key in raw if key != "rule"), None)
    if unknown is not None or not isinstance(raw.get("rule", []), list):
        raise ConfigError(str(path), f"{unknown or 'rule'!r} can't stand here", "Write [[rule]].")
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
    try:
        rule = msgspec.convert(raw, Rule)
    except msgspec.ValidationError as error:
        raise ConfigError(where, str(error), _hint(str(error))) from error
    for problem, cure in _problems(rule):
        raise ConfigError(where, problem, cure)
    return rule


def _hint(message: str) -> str:
    """Guess what was meant by an unknown word in a decoder's message."""
    field = re.search(r"unknown field `(\w+)`", message)
    if field:
        known = [*Rule.__struct_fields__, *Example.__struct_encode_fields__]
        for member in _union(Condition):
            known.extend(member.__struct_fields__)
        return did_you_mean(field[1], known)
    kind = re.search(r"Invalid value '(\w+)'.*(?:when|unless|of\[)", message)
    return f"{did_you_mean(kind[1], KINDS)} Kinds: {', '.join(KINDS)}.".lstrip() if kind else ""


def _union(union: Any) -> tuple[type[msgspec.Struct], ...]:
    members: tuple[type[msgspec.Struct], ...] = union.__args__
    return members


_ABOVE = {
    Table.NODE: {Table.NODE},
    Table.GPU: {Table.GPU, Table.NODE},
    Table.LINK: {Table.LINK, Table.GPU, Table.NODE},
}
"""Tables whose metrics a rule can look at: those of its device and of what holds it."""


def _problems(rule: Rule) -> Iterator[tuple[str, str]]:
    """What is wrong with a rule that decodes, with its cure."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", rule.name):
        yield f"{rule.name!r} is no name", "Use lower case letters, digits and '_'."
    parts = rule.when.of if isinstance(rule.when, AnyOf) else (rule.when,)
    if not parts:
        yield "`any` of nothing can't be bad", "Name conditions in `of`."
    for part in (*parts, *([rule.unless] if rule.unless else [])):
        yield from _metric_problems(rule, part)
    if rule.hold < 0 or rule.keep < 0:
        yield "hold and keep are seconds, and not below 0", ""
    if rule.hold and rule.when.edge:
        yield "what lasts an instant can't be held", "Remove `hold`."
    if any(part.edge for part in parts) and not rule.keep:
        yield "what lasts an instant would resolve at once", "Say with `keep` how long it fires."
    for template in (rule.summary, rule.description):
        try:
            names = list(fields_of(template))
        except ValueError as error:
            yield f"{template!r}: {error}", f"Use {{name}} with one of: {', '.join(FIELDS)}."
            continue
        for name in names:
            if name not in FIELDS:
                yield f"{{{name}}} stands for nothing", f"Use one of: {', '.join(FIELDS)}."
    for example in rule.example:
        given, then = len(example.given.split()), len(example.then.split())
        if given != then:
            yield f"an example has {given} steps given and {then} then", "Write one for each."


def _metric_problems(rule: Rule, part: Condition) -> Iterator[tuple[str, str]]:
    for name in part.metrics():
        metric = BY_NAME.get(name)
        if metric is None:
            yield f"no metric is called {name!r}", did_you_mean(name, BY_NAME)
        elif metric.table not in _ABOVE[rule.table]:
            yield (
                f"{name} is a metric of a {metric.table}, and the rule is about a {rule.table}",
                f'Write table = "{metric.table}".',
            )
        elif isinstance(part, Rises | Rate) and metric.kind is not Kind.COUNTER:
            yield f"{name} is no counter", 'Use type = "above" or "in".'
    if isinstance(part, Rate) and not part.window > 0:
        yield "a rate needs a window of more than 0 s", ""
    if isinstance(part, Silent) and rule.table is not Table.NODE:
        yield "only nodes fall silent", 'Write table = "node".'
    if isinstance(part, Absent):
        known = [gap.word for gap in Gap]
        for reason in part.reasons:
            if reason not in known:
                yield f"no gap is called {reason!r}", did_you_mean(reason, known)
