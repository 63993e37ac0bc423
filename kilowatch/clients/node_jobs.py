"""Reader of the jobs that a node's collector published last, from an aggregator or from the broker."""

from __future__ import annotations

import asyncio
import time

from api.jobs import NodeJobsReply
from kilowatch.clients.api import ApiClient, ApiError, part
from telemetry.errors import BusError, WireError
from telemetry.wire import border
from telemetry.wire.inventory import Inventory
from telemetry.wire.jobs import NodeJobs
from telemetry.wire.mqtt import BrokerConfig, client_id, connect
from telemetry.wire.topics import Topic, check_name, parse, topic

NO_JOBS = "has published no jobs: its collector is of an older release, or the broker's access list is (docs/jobs.md)"
SECONDS = 5.0
"""Time within which a broker sends what it retains."""


def node_jobs(api: ApiClient, node: str) -> tuple[Inventory, NodeJobs]:
    """Return the GPUs of a node, and who uses them. Raises `ApiError`."""
    reply = api.get(f"/api/v1/nodes/{part(node)}/jobs", NodeJobsReply)
    if reply.found is None:
        raise ApiError(f"{node} {NO_JOBS}")
    inventory = Inventory(
        node=node, driver_state=reply.driver_state, driver_message=reply.driver_message, gpus=tuple(reply.gpus)
    )
    return inventory, reply.found


async def published_jobs(broker: BrokerConfig, cluster: str, node: str) -> tuple[Inventory, NodeJobs]:
    """Return the devices of a node, and who uses them. Raises `BusError` when the broker retains no such
    messages, `ConfigError` for what is no name of a node."""
    check_name("NODE", node)
    inventory: Inventory | None = None
    jobs: NodeJobs | None = None
    async with connect(broker, client_id("kilowatch-who")) as client:
        for kind in (Topic.INVENTORY, Topic.JOBS):
            await client.subscribe(topic(cluster, node, kind), qos=1)
        try:
            async with asyncio.timeout(SECONDS):
                async for message in client.messages:
                    address = parse(str(message.topic))
                    if address is None or not isinstance(message.payload, bytes):
                        continue
                    if address.kind is Topic.INVENTORY:
                        inventory = border.decode_inventory(message.payload, node, time.time_ns())
                    else:
                        jobs = border.decode_jobs(message.payload)
                    if inventory is not None and jobs is not None:
                        return inventory, jobs
        except WireError as error:
            raise BusError(f"{node}: the broker retains a message that is none: {error}") from error
        except TimeoutError:
            pass
    if inventory is None:
        raise BusError(f"no node {node} has published anything in the cluster {cluster!r}")
    raise BusError(f"{node} {NO_JOBS}")
