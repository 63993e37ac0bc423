"""The memory of windowed outliers over a restart, the growth of counters under load, of whether nodes had
work, and of how warm GPUs usually are.

A week of growth can't be counted anew after each restart of the aggregator, weeks of temperatures even less, and a node that
has died has no work to be seen. Rows are found again by node and
device; ages are kept instead of moments, for the monotonic clock begins anew. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from alerts.engine.rule_evaluator import RuleEvaluator
from alerts.rules import cooling
from alerts.rules.condition import ConditionKind
from alerts.rules.peers import Outlier
from alerts.rules.presence import IDLE_SECONDS, Worked
from alerts.rules.row_memory import Index, RowMemory
from telemetry.fleet import Fleet
from telemetry.metric import Table
from telemetry.wire.inventory import Inventory
from telemetry.wire.tables import KINDS

VERSION = 1
_ARRAYS: dict[str, tuple[str, float, int | None]] = {
    "last": ("<f8", math.nan, None),
    "current": ("<f4", 0.0, None),
    "filled": ("<f4", 0.0, None),
    "previous": ("<f4", math.nan, None),
    IDLE_SECONDS: ("<f4", math.nan, None),
    **cooling.KEPT,
}
"""Arrays that are kept as they are, each with its type, the fill value of its condition and its depth, if it is one of
several numbers a row; and `seen`, as an age."""
_SEEN = "seen"


class KeptRows(msgspec.Struct, frozen=True):
    """Rows of one table, in the order of the arrays."""

    table: Table
    nodes: list[str]
    devices: list[list[str]]
    """Keys of the devices of each node."""


class KeptRule(msgspec.Struct, frozen=True):
    """The memory of one rule."""

    part: str
    condition: str
    """Digest of the condition: another condition has nothing from it."""
    table: Table
    arrays: list[dict[str, bytes]]
    """By name, for each of its memories."""


class KeptMemory(msgspec.Struct, frozen=True):
    """The memory of all these conditions at a moment."""

    version: int
    wall: int
    """ns since 1970."""
    rows: list[KeptRows]
    rules: list[KeptRule]


@dataclass(slots=True)
class MemoryCopy:
    """A copy of the memory, which is made between two ticks; `kept` sorts it by devices in a thread, which
    takes a second for two million links."""

    wall: int
    now: float
    nodes: list[tuple[str, Inventory, dict[Table, slice]]]
    rules: list[tuple[str, str, Table, list[_Arrays]]]

    def kept(self) -> KeptMemory:
        """Return the memory by node and device."""
        rows: dict[Table, tuple[KeptRows, Index]] = {}
        rules = []
        for part, condition, table, memories in self.rules:
            if table not in rows:
                rows[table] = _rows(self.nodes, table)
            where = rows[table][1]
            if all(one.size > where.max(initial=-1) for one in memories):  # else a node has just come
                arrays = [_kept(one, where, self.now) for one in memories]
                rules.append(KeptRule(part, condition, table, arrays))
        return KeptMemory(VERSION, self.wall, [kept for kept, _ in rows.values()], rules)


@dataclass(slots=True)
class _Arrays:
    """The arrays of one memory."""

    size: int
    epoch: float
    arrays: dict[str, npt.NDArray[Any]]


def keep_memory(evaluators: Iterable[RuleEvaluator], fleet: Fleet, now: float, wall_ns: int) -> MemoryCopy:
    """Return a copy of the memory of such conditions among some rules."""
    rules = [
        (evaluator.part, evaluator.when.digest, table, [_copied(one, now) for one in memories])
        for evaluator, table, memories in _kept_rules(evaluators)
    ]
    nodes = [(name, node.inventory, dict(node.rows)) for name, node in fleet.nodes.items()]
    return MemoryCopy(wall_ns, now, nodes, rules)


def resume_memory(kept: KeptMemory, evaluators: Iterable[RuleEvaluator], fleet: Fleet, now: float, wall_ns: int) -> int:
    """Give rules the memory of before a restart, at a tick that has placed all devices; return how many
    went on. What was kept of another condition, or of devices that are not there, is left out."""
    if kept.version != VERSION:
        return 0
    pairs = {one.table: _pairs(one, fleet) for one in kept.rows}
    sizes = {one.table: sum(map(len, one.devices)) for one in kept.rows}
    passed = max(0.0, (wall_ns - kept.wall) / 1e9)
    known = {(one.part, one.condition): one for one in kept.rules}
    resumed = 0
    for evaluator, table, memories in _kept_rules(evaluators):
        one = known.get((evaluator.part, evaluator.when.digest))
        if one is None or table not in pairs or len(one.arrays) != len(memories):
            continue
        old, new = pairs[table]
        whole = [_decoded(arrays, sizes[table]) for arrays in one.arrays]
        if any(arrays is None for arrays in whole):
            continue
        for memory, arrays in zip(memories, whole, strict=True):
            _resume(memory, arrays or {}, old, new, now, passed)
        resumed += 1
    return resumed


def _kept_rules(evaluators: Iterable[RuleEvaluator]) -> Iterator[tuple[RuleEvaluator, Table, list[RowMemory]]]:
    """Yield the rules whose memory is kept, with the memories of all such conditions."""
    for evaluator in evaluators:
        table = evaluator.subject.table
        if table is not None:
            memories = list(_memories(evaluator.when, evaluator.memory.part(0)))
            if memories:
                yield evaluator, table, memories


def _memories(condition: ConditionKind, memory: RowMemory) -> Iterator[RowMemory]:
    if isinstance(condition, Outlier) and condition.window:
        yield memory
        yield from (memory.part(number) for number in range(1, len(condition.plus) + 1))
    elif isinstance(condition, Worked | cooling.CoolingDrift):
        yield memory
    for number, part in enumerate(condition.parts):
        yield from _memories(part, memory.part(number))


def _rows(known: Iterable[tuple[str, Inventory, dict[Table, slice]]], table: Table) -> tuple[KeptRows, Index]:
    """Return the devices of a table, and the row of each."""
    nodes, devices, where = [], [], []
    for name, inventory, rows in known:
        keys, its = KINDS[table].keys(inventory), rows[table]
        if len(keys) == its.stop - its.start:
            nodes.append(name)
            devices.append(keys)
            where.append(np.arange(its.start, its.stop, dtype=np.intp))
    found = np.concatenate(where) if where else np.zeros(0, np.intp)
    return KeptRows(table, nodes, devices), found


def _pairs(kept: KeptRows, fleet: Fleet) -> tuple[Index, Index]:
    """Return for each device that is still on its node its place in the arrays, and its row now."""
    old: list[Index] = []
    new: list[Index] = []
    begin = 0
    for name, keys in zip(kept.nodes, kept.devices, strict=False):
        node = fleet.nodes.get(name)
        if node is not None:
            first, present = node.rows[kept.table].start, KINDS[kept.table].keys(node.inventory)
            if present == keys:
                places = rows = np.arange(len(keys), dtype=np.intp)
            else:
                known = {key: number for number, key in enumerate(present)}
                both = [(n, known[key]) for n, key in enumerate(keys) if key in known]
                places, rows = np.array(both, np.intp).reshape(-1, 2).T
            old.append(begin + places)
            new.append(first + rows)
        begin += len(keys)
    if not old:
        return np.zeros(0, np.intp), np.zeros(0, np.intp)
    return np.concatenate(old), np.concatenate(new)


def _copied(memory: RowMemory, now: float) -> _Arrays:
    arrays = {
        name: memory.array(name, np.dtype(kind), fill, depth).copy()
        for name, (kind, fill, depth) in _ARRAYS.items()
        if name in memory
    }
    if _SEEN in memory:
        arrays[_SEEN] = memory.array(_SEEN, np.float32, -np.inf).copy()
    return _Arrays(memory.size, memory.state.get("epoch", now), arrays)


def _kept(memory: _Arrays, where: Index, now: float) -> dict[str, bytes]:
    found = {
        name: memory.arrays[name][..., where].astype(kind).tobytes()
        for name, (kind, _, _) in _ARRAYS.items()
        if name in memory.arrays
    }
    if _SEEN in memory.arrays:
        ages = now - memory.epoch - memory.arrays[_SEEN][where].astype(np.float64)
        found[_SEEN] = ages.astype("<f4").tobytes()
    return found


def _decoded(arrays: dict[str, bytes], size: int) -> dict[str, npt.NDArray[Any]] | None:
    """Return the arrays of a memory; None where one has another length."""
    found: dict[str, npt.NDArray[Any]] = {}
    for name, body in arrays.items():
        kind, _, depth = ("<f4", 0.0, None) if name == _SEEN else _ARRAYS.get(name, ("", 0.0, None))
        shape = (size,) if depth is None else (depth, size)
        if not kind or len(body) != math.prod(shape) * np.dtype(kind).itemsize:
            return None
        found[name] = np.frombuffer(body, kind).reshape(shape)
    return found


def _resume(
    memory: RowMemory,
    arrays: dict[str, npt.NDArray[Any]],
    old: Sequence[int] | Index,
    new: Index,
    now: float,
    passed: float,
) -> None:
    for name, (kind, fill, depth) in _ARRAYS.items():
        if name in arrays:
            memory.array(name, np.dtype(kind), fill, depth)[..., new] = arrays[name][..., old]
    if _SEEN in arrays:
        epoch = memory.state.setdefault("epoch", now)
        ages = arrays[_SEEN][old].astype(np.float64) + passed
        memory.array(_SEEN, np.float32, -np.inf)[new] = now - epoch - ages
