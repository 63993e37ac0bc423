"""The language of `/`: `power>600 & node~=dgx`, `rack=R16 | sev>=warn`, `!job=8841`. Pure.

    filter := or        or := and ('|' and)*        and := not ('&'? not)*
    not    := '!' not | '(' or ')' | term           term := KEY OP VALUE | WORD

A bare WORD is a part of a name. `=` on text is the whole text, `~=` a regular expression. Words
that follow each other must all hold. A value that is not known fits nothing, nor its opposite `!=`.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from telemetry.errors import did_you_mean
from telemetry.text.former_names import NameKind, former_names

Mask = npt.NDArray[np.bool_]
Texts = Sequence[str]
Field = npt.NDArray[np.float64] | Texts
Fields = Mapping[str, Callable[[], Field]]
"""Columns by key, made on demand; that of `` is searched for bare words."""
Test = Callable[[Fields], Mask]

SEVERITIES = {"ok": 0.0, "stale": 1.0, "warn": 2.0, "ticket": 2.0, "crit": 3.0, "page": 3.0, "down": 4.0}
"""Names of the numbers of `sev`."""
_UNITS = {"k": 1e3, "m": 1e6, "g": 1e9, "%": 0.01}
_FORMER = {each.former: each.name for each in former_names(NameKind.FILTER_KEY)}
_TOKEN = re.compile(r'\s*(?:(~=|!=|>=|<=|[=><&|!()])|"([^"]*)"|([^\s=><&|!()"~]+(?:~(?!=)[^\s=><&|!()"~]*)*))')
_ORDER: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge,
    "<": operator.lt, "<=": operator.le,
}  # fmt: skip


class FilterError(ValueError):
    """The text is no filter; with the reason and the column."""

    def __init__(self, column: int, problem: str) -> None:
        super().__init__(f"{problem} (at sign {column + 1})")
        self.column, self.problem = column, problem


@dataclass(frozen=True, slots=True)
class Token:
    """A word or sign of the text."""

    text: str
    column: int
    is_word: bool


@dataclass(frozen=True)
class Filter:
    """A parsed filter."""

    text: str
    test: Test | None
    """None: all rows fit."""

    def mask(self, fields: Fields, count: int) -> Mask:
        """Return which of `count` rows fit."""
        return np.ones(count, bool) if self.test is None else self.test(fields)


ALL = Filter("", None)


def parse(text: str, keys: Sequence[str]) -> Filter:
    """Parse a text. Raises `FilterError`. `keys`: those of the table."""
    tokens = _tokens(text)
    if not tokens:
        return ALL
    reader = _Parser(text, tokens, keys)
    test = reader.either()
    if reader.next is not None:
        raise FilterError(reader.next.column, f"{reader.next.text!r} is not expected here")
    return Filter(text, test)


def _tokens(text: str) -> list[Token]:
    found: list[Token] = []
    place = 0
    while text[place:].strip():
        match = _TOKEN.match(text, place)
        if match is None:
            column = place + len(text[place:]) - len(text[place:].lstrip())
            what = "the quotation mark is not closed" if text[column] == '"' else f"{text[column]!r} means nothing here"
            raise FilterError(column, what)
        sign, quoted, word = match.groups()
        if sign:
            found.append(Token(sign, match.start(1), False))
        elif quoted is not None:
            found.append(Token(quoted, match.start(2), True))
        else:
            found.append(Token(word, match.start(3), True))
        place = match.end()
    return found


class _Parser:
    """A recursive descent parser; each method returns the test of what it has read."""

    def __init__(self, text: str, tokens: Sequence[Token], keys: Sequence[str]) -> None:
        self._text, self._tokens, self._keys, self._place = text, tokens, keys, 0

    @property
    def next(self) -> Token | None:
        """The next token."""
        return self._tokens[self._place] if self._place < len(self._tokens) else None

    def _accept(self, *signs: str) -> Token | None:
        token = self.next
        if token is None or token.is_word or token.text not in signs:
            return None
        self._place += 1
        return token

    def either(self) -> Test:
        """`a | b`."""
        tests = [self._all()]
        while self._accept("|"):
            tests.append(self._all())
        return tests[0] if len(tests) == 1 else lambda fields: np.logical_or.reduce([t(fields) for t in tests])

    def _all(self) -> Test:
        tests = [self._not()]
        while self._accept("&") or (self.next is not None and (self.next.is_word or self.next.text in {"!", "("})):
            tests.append(self._not())
        return tests[0] if len(tests) == 1 else lambda fields: np.logical_and.reduce([t(fields) for t in tests])

    def _not(self) -> Test:
        if self._accept("!"):
            inner = self._not()
            return lambda fields: ~inner(fields)
        if (opened := self._accept("(")) is not None:
            inner = self.either()
            if not self._accept(")"):
                raise FilterError(opened.column, "this bracket is not closed")
            return inner
        return self._term()

    def _term(self) -> Test:
        word = self.next
        if word is None:
            raise FilterError(len(self._text), "something is missing at the end")
        if not word.is_word:
            raise FilterError(word.column, f"{word.text!r} is not expected here; write KEY=VALUE or a part of a name")
        self._place += 1
        sign = self._accept("~=", *_ORDER)
        if sign is None:
            return _part(word.text)
        key = _FORMER.get(word.text, word.text)
        if key not in self._keys:
            cure = did_you_mean(word.text, self._keys) or f"Known: {', '.join(self._keys)}"
            raise FilterError(word.column, f"there is no {word.text!r} here. {cure}")
        value = self.next
        if value is None or not value.is_word:
            raise FilterError(sign.column + len(sign.text), f"a value is missing after {sign.text!r}")
        self._place += 1
        return _comparison(key, sign.text, value)


def _part(word: str) -> Test:
    small = word.casefold()
    return lambda fields: np.fromiter((small in text for text in fields[""]()), bool)


def _comparison(key: str, sign: str, value: Token) -> Test:
    if sign == "~=":
        try:
            pattern = re.compile(value.text, re.IGNORECASE)
        except re.error as error:
            raise FilterError(value.column, f"{value.text!r} is no regular expression: {error}") from error
        return lambda fields: np.fromiter((bool(pattern.search(t)) for t in _texts(fields[key]())), bool)
    number = _number(key, value.text)
    if number is None and sign not in {"=", "!="}:
        raise FilterError(value.column, f"{value.text!r} is no number")
    compare = _ORDER[sign]
    small = value.text.casefold()

    def test(fields: Fields) -> Mask:
        field = fields[key]()
        if isinstance(field, np.ndarray):
            if number is None:
                return np.zeros(len(field), bool)
            fits: Mask = ~np.isnan(field) & compare(np.round(field, 3), number)
            return fits
        wanted = sign == "="  # a node hangs on several circuits: `circuit=a` means any of them
        return np.fromiter((bool(text) and _any(text, small) is wanted for text in field), bool)

    return test


def _any(text: str, small: str) -> bool:
    folded = text.casefold()
    return folded == small or small in folded.split(",")


def _texts(field: Field) -> Texts:
    return [f"{value:g}" for value in field] if isinstance(field, np.ndarray) else field


def _number(key: str, text: str) -> float | None:
    if key == "sev" and text.casefold() in SEVERITIES:
        return SEVERITIES[text.casefold()]
    unit = _UNITS.get(text[-1:].casefold(), 1.0)
    try:
        return float(text[:-1] if unit != 1.0 else text) * unit
    except ValueError:
        return None
