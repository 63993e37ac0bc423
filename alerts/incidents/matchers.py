"""Parser of matchers on an alert's labels, in the syntax of Alertmanager: `node=~"a.*"`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from api.alerts import Matcher, Remediation, compiled
from telemetry.errors import ConfigError

_FORM = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*(=~|!~|!=|=)\s*(.*?)\s*", re.DOTALL)
LABELS = (
    "rule", "id", "node", "severity", "state", "subject", "remediation", "owner", "name", "cluster", "rack", "circuits",
    "circuit", "nodes", "panel", "ups", "budget", "supply", "gpu", "uuid", "serial", "pci", "slot",
    "model", "link", "domain", "port", "role", "rail", "switch", "switch_port", "unit", "server", "job", "user", "account", "process", "channel",
)  # fmt: skip
"""Labels that alerts may have; one that is absent counts as empty."""
_PARTS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?(?:P?[<!=:][\w=!]*>?)?|\{\d*,?\d*\}|.", re.DOTALL)
"""An escape, a class, the beginning of a group, a count, or a character."""
_MOST_REPEATS = 3
_LONGEST = 512
"""Most characters of a pattern."""


def parse(text: str, where: str = "matcher") -> Matcher:
    """Return the matcher that a text states. Raises `ConfigError`."""
    form = _FORM.fullmatch(text)
    if form is None:
        raise ConfigError(
            where,
            f"{text!r} is no condition on a label",
            "Write label=value, label!=value, label=~regex or label!~regex, as node=~'dgx-.*'.",
        )
    label, sign, value = form[1], form[2], _unquoted(form[3])
    if label == "owner" and value in set(Remediation):
        raise ConfigError(where, f"{text!r}: an owner is a person or team", f"Write remediation{sign}{value}.")
    if sign.endswith("~"):
        _checked(value, where)
    return Matcher(label, value, is_regex=sign.endswith("~"), is_equal=not sign.startswith("!"))


def parse_all(texts: Iterable[str], where: str = "matcher") -> tuple[Matcher, ...]:
    """Return matchers, all of which an alert must fulfil."""
    return tuple(parse(text, where) for text in texts)


def _checked(pattern: str, where: str) -> None:
    if len(pattern) > _LONGEST:
        raise ConfigError(where, f"a pattern of {len(pattern)} characters is too long", f"Use at most {_LONGEST}.")
    try:
        compiled(pattern)
    except re.error as error:
        raise ConfigError(where, f"{pattern!r} is no regular expression: {error}") from error
    if _is_slow(pattern):
        raise ConfigError(
            where,
            f"{pattern!r} may take for ever: it repeats what has a choice or a repetition inside, or "
            f"more than {_MOST_REPEATS} things",
            "Write several matchers, or silences, in place of one.",
        )


def _is_slow(pattern: str) -> bool:
    """Whether a pattern, on a label that almost fulfils it, may take more than a power of the label's
    length: every tick of the rules waits for it.

    Cautious: some patterns that would do are refused, as `(a|b)*`.
    """
    repeats, choices, ended = [0], [0], False
    for part in _PARTS.findall(pattern):
        inside = ended
        ended = False
        if part[0] == "(":
            repeats.append(0)
            choices.append(0)
        elif part == ")":
            within, options = repeats.pop(), choices.pop()
            repeats[-1] += within
            choices[-1] += options
            ended = within + options > 0
        elif part == "|" and len(repeats) == 1:
            repeats[0] = 0
        elif part in {"|", "?"}:
            choices[-1] += 1
        elif part in {"*", "+"} or (part[0] == "{" and len(part) > 1):
            repeats[-1] += 1
            if inside:
                return True
        if repeats[-1] > _MOST_REPEATS:
            return True
    return False


def _unquoted(text: str) -> str:
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1].replace('\\"', '"').replace("\\\\", "\\") if text[0] == '"' else text[1:-1]
    return text
