"""Suggested changes of rules whose notifications were marked as false, by playing stored readings.

The readings of each alert are played through the real rule engine, as the examples of a rule are, first with
the rule as it is: only an alert that fires again is evidence. Then its level or its hold time is changed by
as little as keeps the false ones silent; the change counts only if every true one still fires.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite, log10
from typing import Any

import msgspec

from alerts.engine.rule_tests import play
from alerts.rules.condition import ConditionKind
from alerts.rules.counters import Fraction, Rate
from alerts.rules.levels import Above, Below
from alerts.rules.rule import Example, Rule
from api.quality import RuleSuggestion

MOST_FALSE, MOST_TRUE = 10, 20
"""Alerts of each kind that are played, the newest ones."""
MOST_FACTOR = 50.0
"""Largest factor by which a level is changed."""
MOST_HOLD = 3600.0
"""Longest suggested hold time, seconds."""
LOOK_AHEAD = 3600
"""Seconds after an alert began to fire of which readings are played."""
_TURNS = 14
"""Halvings of the search: to a thousandth of the way."""
_FIRES = "F"
_Level = Above | Below | Rate | Fraction


@dataclass(frozen=True, slots=True)
class AlertHistory:
    """Stored readings around one alert, on a grid of time."""

    false: bool
    """Whether it was marked as false; else a person acknowledged it."""
    every: float
    """Seconds between two readings."""
    readings: Mapping[str, Sequence[float | None]]
    """By metric; all of the same length."""


class _OverError(Exception):
    """The time for playing is over."""


@dataclass(frozen=True, slots=True)
class _Replay:
    """Plays histories until the time for that is over."""

    over: Callable[[], bool]

    def fires(self, rule: Rule, history: AlertHistory) -> bool:
        """Return whether a rule fires on the readings. Raises `_OverError`."""
        if self.over():
            raise _OverError
        return _fires(rule, history)


@dataclass(frozen=True, slots=True)
class _Change:
    setting: str
    present: float
    suggested: float
    rule: Rule

    @property
    def size(self) -> float:
        """How much it changes, relative to what there is; a hold time at least to a minute."""
        base = max(self.present, 60.0) if self.setting == "hold" else abs(self.present)
        return abs(self.suggested - self.present) / base


def lookback(rule: Rule) -> float:
    """Return for how many seconds before its condition became true an alert's readings are played."""
    windows = [getattr(part, "window", 0.0) for part in _parts(rule.when)]
    return 60.0 + 2.0 * max([*windows, 0.0])


def suggest(rule: Rule, histories: Sequence[AlertHistory], over: Callable[[], bool] = lambda: False) -> RuleSuggestion:
    """Return the smallest change of a rule that its false alerts do not fire with and its true ones do;
    where there is none, why. `over` is asked before each play whether the time for it is over."""
    try:
        return _suggest(rule, histories, _Replay(over))
    except _OverError:
        false = sum(one.false for one in histories)
        return RuleSuggestion(
            rule=rule.name,
            false_alerts=false,
            true_alerts=len(histories) - false,
            finished=False,
            reason="the replay of its alerts was not finished in time. Ask for a shorter time.",
        )


def _suggest(rule: Rule, histories: Sequence[AlertHistory], replay: _Replay) -> RuleSuggestion:
    false = [one for one in histories if one.false]
    true = [one for one in histories if not one.false]
    false_again = [one for one in false if replay.fires(rule, one)]
    true_again = [one for one in true if replay.fires(rule, one)]
    found = RuleSuggestion(
        rule=rule.name,
        false_alerts=len(false),
        true_alerts=len(true),
        false_replayed=len(false_again),
        true_replayed=len(true_again),
    )
    if not false_again:
        which = "readings" if false else "alerts"
        reason = f"none of its false {which} makes it fire again, as far as they are stored"
        return msgspec.structs.replace(found, reason=reason)
    changes = list(_changes(rule, false_again, replay))
    if not changes:
        reason = "no level or hold time within reason would have avoided the false ones"
        return msgspec.structs.replace(found, reason=reason)
    kept = {id(one): sum(replay.fires(one.rule, each) for each in true_again) for one in changes}
    whole = [one for one in changes if kept[id(one)] == len(true_again)]
    if not whole:
        lost = len(true_again) - max(kept.values())
        reason = f"each change that avoids the false ones also silences {lost} of the true ones"
        return msgspec.structs.replace(found, reason=reason)
    best = min(whole, key=lambda one: one.size)
    return msgspec.structs.replace(
        found,
        setting=best.setting,
        present=best.present,
        suggested=best.suggested,
        avoided=len(false_again),
        kept=kept[id(best)],
    )


def _changes(rule: Rule, false: Sequence[AlertHistory], replay: _Replay) -> Iterator[_Change]:
    """Yield the smallest change of the level, and that of the hold time, that avoid all false ones."""

    def avoids(changed: Rule) -> bool:
        return not any(replay.fires(changed, one) for one in false)

    leaf = _leaf(rule.when)
    if leaf is not None and isinstance(leaf.level, float) and leaf.level:
        up = not isinstance(leaf, Below)
        level = leaf.level

        def at_factor(factor: float) -> float:
            higher = (level > 0) is up
            raw = level * factor if higher else level / factor
            rounded = _rounded(raw, up=up)
            return min(rounded, 1.0) if isinstance(leaf, Fraction) else rounded

        found = _least(1.0, MOST_FACTOR, lambda factor: avoids(_with_level(rule, leaf, at_factor(factor))))
        if found is not None:
            suggested = at_factor(found)
            yield _Change("level", level, suggested, _with_level(rule, leaf, suggested))
    if not rule.when.edge and rule.hold < MOST_HOLD:
        found = _least(rule.hold, MOST_HOLD, lambda hold: avoids(msgspec.structs.replace(rule, hold=float(ceil(hold)))))
        if found is not None:
            hold = float(ceil(found))
            yield _Change("hold", rule.hold, hold, msgspec.structs.replace(rule, hold=hold))


def _least(low: float, high: float, good: Callable[[float], bool]) -> float | None:
    """Return about the least value that is good; None where the highest is not. What is good stays so
    above it."""
    if not good(high):
        return None
    for _ in range(_TURNS):
        middle = (low + high) / 2
        low, high = (low, middle) if good(middle) else (middle, high)
    return high


def _rounded(value: float, *, up: bool) -> float:
    """Return a value with three digits, away from the side on which the rule is good."""
    step = 10.0 ** (floor(log10(abs(value))) - 2)
    return float(f"{(ceil if up else floor)(value / step) * step:.10g}")


def _parts(condition: ConditionKind) -> Iterator[ConditionKind]:
    yield condition
    for part in condition.parts:
        yield from _parts(part)


def _leaf(condition: ConditionKind) -> _Level | None:
    """Return the only part of a condition that has a level; None where there are none or several."""
    found = [one for one in _parts(condition) if isinstance(one, _Level)]
    return found[0] if len(found) == 1 else None


def _with_level(rule: Rule, leaf: _Level, level: float) -> Rule:
    """Return the rule with another level in one part, and what it clears at moved with it."""

    def changed(condition: Any) -> Any:
        if condition is leaf:
            clear = getattr(leaf, "clear", None)
            moved = {} if clear is None else {"clear": clear + level - float(leaf.level)}
            return msgspec.structs.replace(leaf, level=level, **moved)
        if condition.parts:
            return msgspec.structs.replace(condition, of=tuple(map(changed, condition.of)))
        return condition

    return msgspec.structs.replace(rule, when=changed(rule.when))


def _fires(rule: Rule, history: AlertHistory) -> bool:
    """Return whether a rule fires on the readings, by the engine that evaluates it."""
    steps = max(map(len, history.readings.values()), default=0)
    if not steps:
        return False
    words = {name: " ".join(map(_word, values)) for name, values in history.readings.items()}
    example = Example(every=history.every, given=f"-*{steps}", then=f"-*{steps}", beside=dict(words))
    return _FIRES in play(msgspec.structs.replace(rule, example=()), example)


def _word(value: float | None) -> str:
    return "_" if value is None or not isfinite(value) else repr(float(value))
