"""`kilowatch collect --once --json`: all readings of this node now, in one JSON document.

Exact numbers as the source read them (a frame rounds gauges to float32), in base units by catalogue
name; an absent value is under `gaps` with its reason. No broker and no ring.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from collector.config import CollectorConfig
from collector.sampling.reading import read
from collector.sampling.rows import blocks, filled, has_node, overlaid
from collector.sampling.sampler import BOTH, LONGEST_DEADLINE, HostRows, role_in
from collector.sampling.self_metrics import node_metrics
from collector.service import changing_facts_of, facts_of, guessed_role_of, host_of, ports_of
from collector.source import DeviceEvent, Rows, Source
from collector.sources import is_elsewhere, make_source
from telemetry.gap import NOT_READ, NOT_SUPPORTED, Gap, reason_of
from telemetry.metric import Lane, Table
from telemetry.runtime.release import release
from telemetry.wire.inventory import Inventory
from telemetry.wire.schema import SCHEMA

log = logging.getLogger(__name__)

GRACE_SECONDS = 0.5
"""Seconds after the deadline at which a source that does not return is abandoned."""
SECOND_READING = 0.25
"""Seconds between the two readings: rates, such as CPU utilisation, need two."""

ANSWER_SECONDS = 11.0
"""Seconds that readings may take which were begun: a network file system that does not answer."""
OPENING_SECONDS = 30.0
"""Seconds that a driver may take to open."""
OPENING_POLL = 0.2
ANSWER_POLL = 0.02
SLOW = frozenset({Lane.SLOW})

Document = dict[str, Any]


class NodeReading(NamedTuple):
    """Readings of a node at one moment, of both lanes."""

    inventory: Inventory
    rows: Rows
    events: list[DeviceEvent]


async def once(config: CollectorConfig, source: Source | None = None) -> Document:
    """Open the source, read both lanes, and return the document.

    Raises `ConfigError` or `SourceError` when the source can't be opened.
    """
    return document(*await read_node(config, source))


async def read_node(
    config: CollectorConfig, source: Source | None = None, longest: float = OPENING_SECONDS
) -> NodeReading:
    """Open the source, read both lanes, and close it. `longest`: seconds at most for a driver that is being opened,
    and for what answers late. Raises as `once`."""
    if source is None:
        source = make_source(config.source, config, time.time_ns() / 1e9)
    host = host_of(config)
    ports = ports_of(config)
    facts = facts_of(config)
    events: list[DeviceEvent] = []
    try:
        await source.open()
        await _opened(source, config, longest)
        rows: Rows = {}
        for reading in range(1 if is_elsewhere(config.source) else 2):
            if reading:
                await asyncio.sleep(SECOND_READING)
            now_ns = time.time_ns()
            tick = int(now_ns / 1e9 / config.interval)
            if ports is not None:
                ports.begin(source.inventory.gpus)
            fresh, problem = await read(source, BOTH, tick, now_ns, LONGEST_DEADLINE, GRACE_SECONDS)
            rows |= fresh  # a source with a longer interval has no new rows so soon
            events += source.drain_events()
            if problem:
                log.error("source=%s: %s", config.source, problem)
            has_host = not has_node(fresh)
            if has_host:
                rows |= filled(source.inventory, blocks(BOTH, Table.NODE), NOT_SUPPORTED)
                rows |= {} if host is None else host.read(BOTH, now_ns)
                rows |= {} if ports is None else await ports.finish()
        if host is not None and has_host:
            rows |= await _answered(host, min(longest, ANSWER_SECONDS))
    finally:
        await source.close()
        for part in (host, ports):
            if part is not None:
                part.close()
    found = source.inventory
    inventory = msgspec.structs.replace(
        found,
        node=config.node,
        cluster=config.cluster,
        kilowatch=release(),
        role=role_in(found, config.role, guessed_role_of(config)),
        host={**facts, **changing_facts_of(config)(), **found.host},
        taken_at=found.taken_at or now_ns,
        source=found.source or config.source,
        ports=found.ports if ports is None else ports.ports,
    )
    known = node_metrics(inventory, rows, len(inventory.gpus))
    return NodeReading(inventory, {**rows, **overlaid(rows, known)}, events)


async def _answered(host: HostRows, seconds: float) -> Rows:
    """Return the host's readings again once all that was begun has answered, or has had its time."""
    deadline = asyncio.get_running_loop().time() + seconds
    rows: Rows = {}
    while host.pending and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(ANSWER_POLL)
        rows = host.read(SLOW, time.time_ns())
    return rows


async def _opened(source: Source, config: CollectorConfig, seconds: float) -> None:
    """Wait for a driver that is still being opened: without persistence mode that takes seconds."""
    deadline = asyncio.get_running_loop().time() + seconds
    while source.inventory.driver_state == "unknown":
        if asyncio.get_running_loop().time() > deadline:
            return
        now_ns = time.time_ns()
        tick = int(now_ns / 1e9 / config.interval)
        await read(source, BOTH, tick, now_ns, OPENING_POLL, GRACE_SECONDS)
        await asyncio.sleep(OPENING_POLL)


def document(inventory: Inventory, rows: Rows, events: Sequence[DeviceEvent]) -> Document:
    """Return the document that `once` prints, in JSON's own types."""
    facts = msgspec.json.decode(msgspec.json.encode(inventory))
    facts.pop("schema")  # adds the names to the numbers
    nodes = _table(rows, Table.NODE, 1)
    return {
        "inventory": facts,
        "gpus": [
            {"uuid": gpu.uuid, "index": gpu.index, "name": gpu.name, **readings}
            for gpu, readings in zip(inventory.gpus, _table(rows, Table.GPU, len(inventory.gpus)), strict=True)
        ],
        "links": [
            {"gpu": link.gpu, "number": link.number, **readings}
            for link, readings in zip(inventory.links, _table(rows, Table.LINK, len(inventory.links)), strict=True)
        ],
        "ports": [
            {"port": port.name, **readings}
            for port, readings in zip(inventory.ports, _table(rows, Table.PORT, len(inventory.ports)), strict=True)
        ],
        "instances": [
            {"instance": each.uuid, "gpu": each.gpu, "name": each.name, **readings}
            for each, readings in zip(
                inventory.instances, _table(rows, Table.INSTANCE, len(inventory.instances)), strict=True
            )
        ],
        "node": nodes[0],
        "events": [_event(event) for event in events],
    }


def natural(value: float) -> float | int:
    """Return a whole number as an int, so that 1.0 prints as 1, and any other unchanged."""
    return int(value) if float(value).is_integer() else value


def _table(rows: Rows, table: Table, count: int) -> list[dict[str, dict[str, Any]]]:
    """Return readings and gaps of each row of a table; every metric is in one of the two."""
    found: list[dict[str, dict[str, Any]]] = [{"readings": {}, "gaps": {}} for _ in range(count)]
    for number, block in enumerate(SCHEMA.blocks):
        if block.table is not table:
            continue
        unread = [[NOT_READ] * len(block.names)] * count
        for row, into in zip(rows.get(number, unread), found, strict=True):
            for name, value in zip(block.names, row, strict=True):
                reason = Gap.ERROR if math.isinf(value) else reason_of(value)  # JSON has no infinity
                if reason is None:
                    into["readings"][name] = natural(value)
                else:
                    into["gaps"][name] = reason.word
    return found


def _event(event: DeviceEvent) -> Document:
    return {
        "kind": event.kind,
        "at": event.at,
        "gpu": event.gpu,
        "pci": event.pci,
        "message": event.message,
        "data": event.data,
    }
