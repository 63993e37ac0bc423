"""Tests of rules: play their example timelines with the real engine on a small fleet or snapshot.

For the tests of the shipped rules, and for `kilowatch rules test` of an operator's rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from alerts.engine.engine import STALL, RuleEngine
from alerts.rules.names import home
from alerts.rules.presence import Silent, Skewed
from alerts.rules.rule import Example, Rule, conditions_of, words_of
from alerts.xid.event import event_data
from api.alerts import AlertState, Subject
from api.power import SnapshotKind
from power.snapshot.snapshot import PowerSnapshot
from telemetry.devices import Event, Gpu, Link
from telemetry.errors import ConfigError
from telemetry.fleet import Fleet, Node
from telemetry.gap import GAP, Gap
from telemetry.inventory import Inventory
from telemetry.kernel_log import parse_line

_EPOCH = 1_700_000_000_000_000_000
_BEFORE = 1_000_000.0
"""Monotonic seconds at the first step; any number but 0 would do."""
_LETTERS = {AlertState.PENDING: "P", AlertState.FIRING: "F", AlertState.RESOLVED: "R"}
_GAPS = {gap.word: GAP[gap] for gap in Gap} | {"_": GAP[Gap.ERROR]}
_WORD = re.compile(r"([xs])(\d+)(?:@(\w+))?|([a-z_]+)!|\$(\w+)")


def play(rule: Rule, example: Example) -> list[str]:
    """Return the states of the rule on an example, a letter a step as in `Example.then`.

    Raises `ConfigError` for an unknown word.
    """
    return list(_Play(rule, example).steps())


def failures(rule: Rule) -> list[tuple[Example, list[str]]]:
    """Return the examples of a rule that fail, with the states that they have instead."""
    played = [(example, play(rule, example)) for example in rule.example]
    return [(example, found) for example, found in played if found != words_of(example.then)]


def example_steps(rule: Rule, example: Example) -> list[ExampleStep]:
    """Return the readings and events of each step of an example, to evaluate it by other means."""
    return list(_Play(rule, example).read())


class ExampleStep(NamedTuple):
    """Readings and events of one step of an example."""

    now: float
    """Monotonic seconds."""
    wall: int
    """ns since 1970."""
    readings: dict[str, float]
    """Readings of the first device, without the metrics that it does not support."""
    events: list[Event]
    heard: bool
    """Whether a frame came."""
    ahead: float
    """Seconds by which the nodes' clocks are ahead."""


class _Play:
    """An example with its fleet and engine."""

    def __init__(self, rule: Rule, example: Example) -> None:
        self._rule = rule
        self._example = example
        self._engine = RuleEngine([rule])
        self._metric = next(rule.when.metrics(), None)
        self._silent = any(isinstance(part, Silent) for part in conditions_of(rule.when))
        self._skewed = any(isinstance(part, Skewed) for part in conditions_of(rule.when))
        self._ahead = 0
        """ns by which the nodes' clocks are ahead, where the example gives that."""
        self._fleet = Fleet()
        self._nodes = [self._place(number) for number in range(example.nodes)]
        # The disturbance of the start is over long before the first step.
        self._engine.evaluate(self._fleet, _BEFORE - 1e6, _EPOCH - 10**15)

    def _place(self, number: int) -> Node:
        example = self._example
        others = max((len(values) for values in example.peers.values()), default=0)
        uuids = [f"GPU-{number}", *(f"GPU-{number}-{other}" for other in range(1, others + 1))]
        inventory = Inventory(
            node=f"node-{number}",
            driver_state=example.driver,
            gpus=tuple(
                Gpu(uuid=uuid, index=index, name="Example", pci=f"0000:{index + 24:02x}:00.0")
                for index, uuid in enumerate(uuids)
            ),
            links=(Link(gpu=uuids[0], number=0),),
        )
        node = self._fleet.place(inventory)
        self._fleet.set_intervals(node, example.every, example.every)
        return node

    def steps(self) -> Iterator[str]:
        """Play all steps."""
        for step in self.read():
            yield self._step(step.now, step.wall, step.readings, step.events, step.heard)

    def read(self) -> Iterator[ExampleStep]:
        """Read all steps."""
        example = self._example
        for number, words in enumerate(words_of(example.given)):
            now = _BEFORE + number * example.every
            wall = _EPOCH + int(number * example.every * 1e9)
            readings = {name: self._beside(name, number) for name in example.beside}
            events, heard = [], False
            for word in words.split("+"):
                heard = heard or word != "."
                code = _WORD.fullmatch(word)
                if code:
                    events += [self._event(node, number, wall, code) for node in self._nodes]
                elif word not in {".", "-"}:
                    value = self._number(word)
                    if self._metric is not None:
                        readings[self._metric] = value
                    elif self._skewed:
                        self._ahead = int(value * 1e9)
            yield ExampleStep(now, wall, readings, events, heard, self._ahead / 1e9)

    def _step(
        self, now: float, wall: int, readings: dict[str, float], events: list[Event], heard: bool
    ) -> str:
        snapshots = self._snapshots(readings) if heard else []
        if heard:
            for node in self._nodes:
                node.seen, node.sampled_at = now, wall + self._ahead
                node.ended = False
                self._store(node, readings, now)
        for event in events:
            if event.kind == "collector_stopped":
                self._fleet.nodes[event.node].ended = True
        engine = self._engine
        changes = engine.evaluate(self._fleet, now, wall, events, snapshots=snapshots)
        changed = {alert.state for alert in changes if self._first(alert.node)}
        listed = {alert.state for alert in engine.alerts() if self._first(alert.node)}
        state = next(iter(changed & {AlertState.RESOLVED} or listed - {AlertState.RESOLVED}), None)
        if self._silent:
            # A real engine ticks between two steps too; without that, the engine would see a stall.
            for tick in np.arange(now, now + self._example.every, STALL)[1:]:
                engine.evaluate(self._fleet, float(tick), wall)
        return "-" if state is None else _LETTERS[state]

    @staticmethod
    def _first(node: str) -> bool:
        return node in {"", "node-0"}

    def _beside(self, name: str, step: int) -> float:
        words = self._example.beside[name]
        return self._number(words_of(words)[step]) if isinstance(words, str) else float(words)

    def _number(self, word: str) -> float:
        if word in _GAPS:
            return _GAPS[word]
        try:
            return float(word)
        except ValueError as error:
            raise self._wrong(word) from error

    def _wrong(self, word: str) -> ConfigError:
        return ConfigError(
            f"rule {self._rule.name}, example",
            f"{word!r} means nothing",
            "Write a number, a gap such as `_` or `timed_out`, `.`, `-`, an XID such as `x79`, "
            "`gpu_lost!`, or `$name` of a line in `lines`.",
        )

    def _event(self, node: Node, number: int, at: int, code: re.Match[str]) -> Event:
        name = node.inventory.node
        kind, gpu = code[4], node.inventory.gpus[0].uuid
        data: dict[str, Any] = {}
        if code[5]:
            record = parse_line(self._example.lines.get(code[5], ""))
            if record is None:
                raise self._wrong(code[0])
            kind, data = event_data(record, self._example.lines[code[5]])
        elif kind is None:
            kind = "xid" if code[1] == "x" else "sxid"
            data = {kind: int(code[2]), **({"pid": int(code[3])} if code[3] else {})}
        of_gpu = kind not in {"sxid", "driver_log", "collector_stopped", "driver_reloaded"}
        return Event(
            id=f"1-{number}-{code[0]}", node=name, at=at, kind=kind, gpu=gpu if of_gpu else None,
            data=data,
        )  # fmt: skip

    def _store(self, node: Node, readings: Mapping[str, float], now: float) -> None:
        """Store the rows of every block; a device does not support the metrics that are not given."""
        for number, matrix in enumerate(self._fleet.matrices):
            block = matrix.block
            rows = node.rows[block.table]
            values = [
                [self._value(readings, name, row) for name in block.names]
                for row in range(rows.stop - rows.start)
            ]
            table = np.array(values).reshape(-1, len(block.names))
            split = len(block.gauges)
            with np.errstate(invalid="ignore"):
                gauges = table[:, :split].astype(np.float32)
            self._fleet.store(number, rows, gauges, table[:, split:].copy(), now)

    def _value(self, readings: Mapping[str, float], name: str, row: int) -> float:
        if row and name in self._example.peers:
            return self._example.peers[name][row - 1]
        return readings.get(name, GAP[Gap.NOT_SUPPORTED])

    def _snapshots(self, readings: Mapping[str, float]) -> list[PowerSnapshot]:
        subject: Subject = self._rule.table
        if subject.snapshot_kind is None:
            return []
        columns = {
            name: np.array([value]) for name, value in readings.items() if home(name) is subject
        }
        return [PowerSnapshot(SnapshotKind(subject), 1, ("example",), columns, ({},))]
