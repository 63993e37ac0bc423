"""Commands of an operator to a collector, and what came of them."""

from __future__ import annotations

import asyncio
import time

import aiomqtt

from telemetry.errors import BusError, WireError
from telemetry.wire import border
from telemetry.wire import inventory as messages
from telemetry.wire.inventory import Command, CommandKind
from telemetry.wire.mqtt import BrokerConfig, client_id, connect
from telemetry.wire.topics import Topic, parse, topic


async def send_command(broker: BrokerConfig, cluster: str, node: str, kind: CommandKind, seconds: float) -> str:
    """Send a command, wait for the node's next inventory, and return the state of its driver.

    Raises `BusError` when the node refuses, or does not answer within `seconds`.
    """
    async with connect(broker, client_id("kilowatch-command")) as client:
        for each in (Topic.INVENTORY, Topic.EVENT):
            await client.subscribe(topic(cluster, node, each), qos=1)
        await client.publish(topic(cluster, node, Topic.COMMAND), messages.encode(Command(kind=kind)), qos=1)
        try:
            async with asyncio.timeout(seconds):
                async for message in client.messages:
                    state = _outcome(message, kind)
                    if state is not None:
                        return state
        except TimeoutError:
            pass
    raise BusError(
        f"{node} did not answer within {seconds:g} s. Does it run, does the broker let this user send"
        " commands, and is the command in its collector.accept_commands?"
    )


def _outcome(message: aiomqtt.Message, kind: CommandKind) -> str | None:
    """Return the driver's state if a message says that the command was obeyed. Raises `BusError` if
    it says that the node refuses."""
    address = parse(str(message.topic))
    if address is None or message.retain or not isinstance(message.payload, bytes):
        return None
    try:
        if address.kind is Topic.EVENT:
            event = border.decode_event(message.payload, address.node)
            if event.kind == "command_refused":
                raise BusError(f"{address.node}: {event.message}")
            return None
        state = border.decode_inventory(message.payload, address.node, time.time_ns()).driver_state
    except WireError:
        return None
    match kind:
        case CommandKind.RELEASE if state != "released":
            return None
        case CommandKind.RESUME if state in {"released", "unknown"}:  # it is being opened
            return None
    return str(state)
