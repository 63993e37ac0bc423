"""Inputs of rules beside readings, for alerts in Prometheus: silence, clocks, why a GPU is not read, and
when each event last came.

An event is no reading. It is exported as the second in which one of its kind last came, so that
`time() - kilowatch_event_timestamp_seconds{code="79"} < 600` is true for ten minutes after it.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from aiohttp import web

from aggregator.http.columns import WORDS
from aggregator.register.node_status import status_of
from aggregator.view import AggregatorView
from alerts.xid.event import fault_of, unit_labels
from api.fleet import NodeStatus
from telemetry.devices import Event
from telemetry.fleet import Node, gaps_of
from telemetry.metric import Table
from telemetry.wire.exposition import GAUGE, PREFIX, Family, Sample, gpu_pairs, labels, node_pairs

ALWAYS_READ = "gpu_temperature_celsius"
"""A metric that every GPU has; when it can't be read, nothing can."""
MOST_KINDS = 64
"""Kinds of event that are remembered of a node; the oldest is dropped."""
EVENT = "event_timestamp_seconds"

_Key = tuple[str | None, str, str, str, str, str]
"""GPU, kind, code, fault, severity, unit."""


class RuleInputMetrics:
    """The time of the last event of each kind and device since the start."""

    def __init__(self) -> None:
        self._last: dict[str, OrderedDict[_Key, float]] = {}
        self._newest: Event | None = None

    def update(self, recent: Sequence[Event]) -> None:
        """Add the events since the last update. `recent`: the newest events, the newest first."""
        newest, before = self._newest, len(recent)
        if not recent or recent[0] is newest:
            return
        for place, event in enumerate(recent):  # newest first
            if event is newest:
                before = place
                break
        self._newest = recent[0]
        for event in reversed(recent[:before]):
            self._add(event)

    def _add(self, event: Event) -> None:
        fault, severity = fault_of(event)
        code = event.data.get("xid", event.data.get("sxid", ""))
        key = (event.gpu, event.kind, str(code), fault, severity.value, unit_labels(event).get("unit", ""))
        its = self._last.setdefault(event.node, OrderedDict())
        its[key] = max(event.at / 1e9, its.pop(key, 0.0))
        if len(its) > MOST_KINDS:
            its.popitem(last=False)

    def of(self, node: Node, scope: bool) -> list[Sample]:
        """Return a sample for each kind of event that came to a node."""
        inventory = node.inventory
        gpus = {gpu.uuid: gpu for gpu in inventory.gpus}
        found = []
        for (uuid, kind, code, fault, severity, unit), at in self._last.get(inventory.node, {}).items():
            gpu = gpus.get(uuid or "")
            its = {**node_pairs(inventory, scope), "uuid": uuid} if gpu is None else gpu_pairs(inventory, gpu, scope)
            more = {
                "kind": kind,
                "code": code,
                "fault": fault,
                "severity": severity,
                **({"unit": unit} if unit else {}),
            }
            found.append((labels({**its, **more}), at))
        return found


RULE_INPUTS = web.AppKey("rule inputs", RuleInputMetrics)


def rule_input_families(view: AggregatorView, inputs: RuleInputMetrics, nodes: list[Node], scope: bool) -> list[Family]:
    """Return the inputs of rules of some nodes beside their readings."""
    inputs.update(view.recent_events())
    now, wall = view.now(), view.wall()
    gaps = gaps_of(view.fleet.column(ALWAYS_READ, now))
    heard = [node for node in nodes if node.sampled_at and not math.isinf(node.seen)]

    def each(name: str, text: str, samples: list[Sample]) -> Family:
        return Family(PREFIX + name, text, GAUGE, samples)

    return [
        each("node_ended", "1 when the node's collector has signed off.",
             [(_of(node, scope), float(node.ended and not node.online)) for node in nodes]),
        each("node_frame_interval_seconds", "Time between two frames, as the node announces it.",
             [(_of(node, scope), node.interval) for node in nodes]),
        each("node_clock_skew_seconds",
             "How far the node's clock was ahead of the aggregator's when its newest frame came.",
             [(_of(node, scope), round((node.sampled_at - node.clock_offset - wall) / 1e9 + now - node.seen, 3))
              for node in heard]),
        each("gpu_unread", "1 for a GPU whose temperature can't be read, and why.",
             [sample for node in nodes if status_of(node, now) is NodeStatus.ONLINE
              for sample in _unread(gaps, node, scope)]),
        each(EVENT, "When an event of this kind last came to the device, by the node's clock.",
             [sample for node in nodes for sample in inputs.of(node, scope)]),
    ]  # fmt: skip


def _of(node: Node, scope: bool) -> str:
    return labels(node_pairs(node.inventory, scope))


def _unread(gaps: npt.NDArray[np.uint8], node: Node, scope: bool) -> list[Sample]:
    inventory = node.inventory
    return [
        (labels({**gpu_pairs(inventory, gpu, scope), "reason": WORDS[reason]}), 1.0)
        for gpu, reason in zip(inventory.gpus, gaps[node.rows[Table.GPU]].tolist(), strict=True)
        if reason in WORDS
    ]
