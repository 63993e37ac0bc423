"""Messages of the bus as text: one line each, or one JSON document a line.

Anybody on the bus may have written them: a message that can't be shown costs its own line, and what
is kept of nodes to read their frames is bounded.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, TypeVar

from present.units import exact_watts
from telemetry.catalogue import BY_NAME
from telemetry.errors import WireError
from telemetry.gap import reason_of
from telemetry.metric import Table
from telemetry.text import rfc3339
from telemetry.wire import frame as frames
from telemetry.wire import inventory as messages
from telemetry.wire.inventory import Inventory
from telemetry.wire.mqtt import BrokerConfig, client_id, connect
from telemetry.wire.schema import SCHEMA, Schema
from telemetry.wire.tables import KINDS
from telemetry.wire.topics import ROOT, Address, Topic, parse, parse_state, pattern

Key = TypeVar("Key")
Value = TypeVar("Value")

LONGEST_LINE = 65_536
"""Bytes of a message that are shown as they are."""
MOST_KEPT = 4096
"""Inventories and schemas that are kept; frames of nodes beyond them are shown by their size."""


class TapReader:
    """Turns messages into text, with the schemas of inventories."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._schemas: dict[int, Schema] = {SCHEMA.id: SCHEMA}
        self._inventories: dict[str, Inventory] = {}

    def lines(self, topic: str, payload: bytes) -> list[str]:
        """Return the lines of one message; `kilowatch.output` makes them printable."""
        address = parse(topic)
        if address is None:
            return [self._other(topic, payload)]
        try:
            return self._known(address, payload)
        except WireError as error:
            return [f"{address.node}  {address.kind}  {error}"]
        except (ValueError, ArithmeticError, LookupError, TypeError, RecursionError) as error:
            # Of a message that no collector sends: a time of the year 60000, JSON of 10,000 levels.
            return [f"{address.node}  {address.kind}  {len(payload)} bytes can't be shown: {error}"]

    def _other(self, topic: str, payload: bytes) -> str:
        """Return the line of a message that is about no node: a state that an aggregator publishes, a
        probe of `kilowatch doctor`, or one of another program."""
        state = parse_state(topic)
        text = payload[:LONGEST_LINE].decode(errors="replace")
        if self._as_json:
            try:
                content = json.loads(text) if text else None
            except (ValueError, RecursionError):
                content = text
            known = {"topic": topic} if state is None else {"kind": state.what, "name": state.name}
            return json.dumps({**known, "content": content})
        if state is not None:
            return f"{state.what}  {state.name}  {text or 'cleared'}"
        if topic.startswith(f"{ROOT}/"):
            return f"{topic}  {text}".rstrip()
        return f"{topic}  foreign, {len(payload)} bytes"

    def _known(self, address: Address, payload: bytes) -> list[str]:
        match address.kind:
            case Topic.FRAME:
                return [self._frame(address, payload)]
            case Topic.BACKFILL:
                return [self._frame(address, part) for part in frames.decode_many(payload)]
            case Topic.INVENTORY:
                inventory = messages.decode(payload, Inventory)
                _keep(self._schemas, inventory.schema.id, inventory.schema)
                _keep(self._inventories, address.node, inventory)
                if self._as_json:
                    return [self._json(address, json.loads(payload))]
                return [
                    f"{address.node}  inventory  {len(inventory.gpus)} GPUs, "
                    f"{len(inventory.links)} links, driver {inventory.driver_state} "
                    f"{inventory.driver_version or ''}, from {inventory.source}"
                ]
            case _:
                text = payload[:LONGEST_LINE].decode(errors="replace")
                if self._as_json:
                    return [self._json(address, json.loads(payload) if payload else None)]
                return [f"{address.node}  {address.kind}  {text}"]

    def _frame(self, address: Address, payload: bytes) -> str:
        frame = frames.decode(payload)
        schema = self._schemas.get(frame.schema)
        at = rfc3339(frame.sampled_at)
        if schema is None:
            return (
                f"{address.node}  {address.kind}  {at}  #{frame.seq}  "
                f"schema {frame.schema:012x}, whose inventory has not come yet"
            )
        frames.check(frame, schema)
        if self._as_json:
            return self._json(address, self._tree(address.node, frame, schema))
        parts = [f"{schema.blocks[part.block].name} {part.rows}" for part in frame.blocks]
        power = [
            value
            for part in frame.blocks
            for row in frames.unpack(part, schema)
            for name, value in zip(schema.blocks[part.block].names, row, strict=True)
            if name == "gpu_power_watts" and reason_of(value) is None
        ]
        watts = exact_watts(sum(power) if power else None)
        return f"{address.node}  {address.kind}  {at}  #{frame.seq}  {watts}  {', '.join(parts)}  {len(payload)} bytes"

    def _tree(self, node: str, frame: frames.Frame, schema: Schema) -> dict[str, Any]:
        """Return a frame as plain values: readings by name, gaps by reason."""
        inventory = self._inventories.get(node)
        rows: list[dict[str, Any]] = []
        for part in frame.blocks:
            block = schema.blocks[part.block]
            for number, values in enumerate(frames.unpack(part, schema)):
                named = dict(zip(block.names, values, strict=True))
                rows.append(
                    {
                        "table": block.table_name,
                        "row": number,
                        "device": _device(inventory, block.table, number) if block.known else None,
                        "readings": {
                            name: _tidy(name, value) for name, value in named.items() if reason_of(value) is None
                        },
                        "gaps": {
                            name: reason.word
                            for name, value in named.items()
                            if (reason := reason_of(value)) is not None
                        },
                    }
                )
        return {
            "session": frame.session,
            "seq": frame.seq,
            "sampled_at": frame.sampled_at,
            "rows": rows,
            "events": [json.loads(event) for event in frame.events],
        }

    def _json(self, address: Address, content: object) -> str:
        return json.dumps({"node": address.node, "kind": address.kind, "content": content})


def _keep(known: dict[Key, Value], key: Key, value: Value) -> None:
    """Keep a value under its key, and drop the oldest beyond `MOST_KEPT`."""
    known.pop(key, None)
    known[key] = value
    if len(known) > MOST_KEPT:
        del known[next(iter(known))]


def _device(inventory: Inventory | None, table: Table, row: int) -> str | None:
    if inventory is None or table is Table.NODE:
        return None
    if table is Table.PORT:
        return inventory.ports[row].name if row < len(inventory.ports) else None
    kind = KINDS[table]
    devices = kind.devices(inventory)
    return kind.key(devices[row]) if row < len(devices) else None


def _tidy(name: str, value: float) -> float:
    """Round a float32 to its significant digits."""
    metric = BY_NAME.get(name)
    return float(f"{value:.7g}") if metric is None or not name.endswith("_total") else value


async def run_tap(
    broker: BrokerConfig,
    cluster: str,
    node: str,
    kind: str,
    *,
    as_json: bool,
    count: int | None,
    stop: asyncio.Event,
    write: Callable[[str], None],
) -> None:
    """Print messages until `stop` is set or `count` have come. Raises `BusError`."""
    reader = TapReader(as_json=as_json)
    async with connect(broker, client_id("kilowatch-tap")) as client:
        await client.subscribe(pattern(cluster, node=node, kind=Topic.INVENTORY), qos=1)
        if kind != Topic.INVENTORY:
            await client.subscribe(pattern(cluster, node=node, kind=kind))
        stopped = asyncio.ensure_future(stop.wait())
        messages_in = aiter(client.messages)
        while count is None or count > 0:
            coming = asyncio.ensure_future(anext(messages_in))
            await asyncio.wait({coming, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                coming.cancel()
                break
            message = coming.result()
            lines = reader.lines(str(message.topic), bytes(message.payload))
            if kind not in ("+", Topic.INVENTORY) and str(message.topic).endswith("/inventory"):
                continue  # only read for its schema
            for line in lines:
                write(line)
            count = None if count is None else count - 1
        stopped.cancel()
