"""Plays a rule's example timelines: the real engine on a real fleet of one node, one GPU, one link.

Used by the tests of the shipped rules, and by whoever checks rules of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from alerts.alert import State
from alerts.conditions import Silent
from alerts.engine import STALL, Engine
from alerts.rules import Example, Rule
from telemetry.catalogue import BY_NAME
from telemetry.errors import ConfigError
from telemetry.fleet import Fleet
from telemetry.gap import GAP, Gap
from telemetry.inventory import Event, Gpu, Inventory, Link

_INVENTORY = Inventory(
    node="node",
    gpus=(Gpu(uuid="GPU-0", index=0, name="Example", pci="0000:18:00.0"),),
    links=(Link(gpu="GPU-0", number=0),),
)
_EPOCH = 1_700_000_000_000_000_000
_BEFORE = 1_000.0
"""Monotonic seconds at the first step; any number but 0 would do."""
_LETTERS = {State.PENDING: "P", State.FIRING: "F", State.RESOLVED: "R"}
_GAPS = {gap.word: GAP[gap] for gap in Gap} | {"_": GAP[Gap.ERROR]}


def play(rule: Rule, example: Example) -> list[str]:
    """Return what the rule makes of an example, a letter a step as in `Example.then`.

    Raises `ConfigError` for a word that means nothing.
    """
    fleet = Fleet()
    node = fleet.place(_INVENTORY)
    fleet.pace(node, example.every, example.every)
    engine = Engine([rule])
    return list(_steps(rule, example, fleet, engine))


def failures(rule: Rule) -> list[tuple[Example, list[str]]]:
    """Return the examples of a rule that it does not fulfil, with what it does instead."""
    played = [(example, play(rule, example)) for example in rule.example]
    return [(example, found) for example, found in played if found != example.then.split()]


def _steps(rule: Rule, example: Example, fleet: Fleet, engine: Engine) -> Iterator[str]:
    metric = next(rule.when.metrics(), None)
    node = fleet.nodes[_INVENTORY.node]
    for number, words in enumerate(example.given.split()):
        now = _BEFORE + number * example.every
        wall = _EPOCH + int(number * example.every * 1e9)
        readings, events, heard = dict(example.beside), [], False
        for word in words.split("+"):
            heard = heard or word != "."
            code = re.fullmatch(r"x(\d+)|([a-z_]+)!", word)
            if code:
                events.append(_event(number, wall, code[2] or "xid", code[1]))
            elif word != ".":
                value = _number(rule, word)
                if metric is not None and value is not None:
                    readings[metric] = value
        if heard:
            node.seen = now
            _store(fleet, readings, now)
        changed = {alert.state for alert in engine.evaluate(fleet, now, wall, events)}
        listed = {alert.state for alert in engine.alerts()} - {State.RESOLVED}
        state = next(iter(changed & {State.RESOLVED} or listed), None)
        yield "-" if state is None else _LETTERS[state]
        if isinstance(rule.when, Silent):
            # A real engine ticks between two steps too; this one must not think that it slept.
            for tick in np.arange(now, now + example.every, STALL)[1:]:
                engine.evaluate(fleet, float(tick), wall)


def _number(rule: Rule, word: str) -> float | None:
    if word == "-":
        return None
    if word in _GAPS:
        return _GAPS[word]
    try:
        return float(word)
    except ValueError as error:
        raise ConfigError(
            f"rule {rule.name}, example",
            f"{word!r} means nothing",
            "Write a number, a gap such as `_` or `timed_out`, `.`, `-`, an XID such as `x79` or `gpu_lost!`.",
        ) from error


def _event(number: int, at: int, kind: str, xid: str | None) -> Event:
    data = {} if xid is None else {"xid": int(xid)}
    return Event(id=f"1-{number}-{kind}", node="node", at=at, kind=kind, gpu="GPU-0", data=data)


def _store(fleet: Fleet, readings: dict[str, float], now: float) -> None:
    """Store one row in every block: what is not named is a gap."""
    for number, matrix in enumerate(fleet.matrices):
        block = matrix.block
        row = np.array([[readings.get(name, GAP[Gap.NOT_READ]) for name in block.names]])
        split = len(block.gauges)
        rows = fleet.nodes["node"].rows[block.table]
        with np.errstate(invalid="ignore"):
            gauges = row[:, :split].astype(np.float32)
        fleet.store(number, rows, gauges, row[:, split:].copy(), now)
    unknown = [name for name in readings if name not in BY_NAME]
    if unknown:
        raise ConfigError("example", f"no metric is called {unknown[0]!r}")
