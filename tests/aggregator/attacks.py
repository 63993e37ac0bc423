"""Messages of a peer that wants to exhaust the aggregator's memory, as an iterator of topics and bodies."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import msgspec

from telemetry.devices import Event
from telemetry.wire import frame as frames
from telemetry.wire import inventory as messages
from telemetry.wire.inventory import CollectorStatus, FrameSpan, NodeState
from telemetry.wire.topics import Topic, topic
from tests.aggregator.feed import Feed
from tests.aggregator.node import START, inventory, payload

Messages = Iterator[tuple[str, bytes]]


def status(session: int, *ring: FrameSpan) -> bytes:
    """The status of a collector that runs."""
    return messages.encode(CollectorStatus(state=NodeState.ONLINE, session=session, ring=tuple(ring)))


def invented_names(count: int = 60_000) -> Messages:
    """Each name once, with a status."""
    body = status(1, FrameSpan(1, 0, 10))
    for number in range(count):
        yield topic("default", f"invented-{number}", Topic.STATUS), body


def invented_frames(count: int = 20_000) -> Messages:
    """Each name once, with a frame that waits for an inventory that never comes."""
    body = payload("x", 1, 1, 5)
    for number in range(count):
        yield topic("default", f"invented-{number}", Topic.FRAME), body


def one_gpu_inventories(count: int = 10_000) -> Messages:
    """Each name once, with an inventory of one GPU and no frame."""
    for number in range(count):
        name = f"invented-{number}"
        yield topic("default", name, Topic.INVENTORY), messages.encode(inventory(name, 1))


def changing_gpus(count: int = 400) -> Messages:
    """A node with other GPUs in each inventory."""
    for number in range(count):
        body = msgspec.structs.replace(
            inventory(f"x{number}", 256, version=number), node="mallory", taken_at=START + number
        )
        yield topic("default", "mallory", Topic.INVENTORY), messages.encode(body)


def crowded_node(count: int = 40) -> Messages:
    """A node with as many links as it may have, other ones in each inventory."""
    from telemetry.devices import Link

    for number in range(count):
        found = inventory("mallory", 256, version=number)
        links = tuple(Link(gpu=gpu.uuid, number=32 * number + link) for gpu in found.gpus for link in range(32))
        body = msgspec.structs.replace(found, links=links)
        yield topic("default", "mallory", Topic.INVENTORY), messages.encode(body)


def ring_spans(statuses: int = 12, spans: int = 60_000) -> Messages:
    """The spans of a ring that no node has: 15 MB in 12 statuses of one node."""
    for number in range(statuses):
        found = [FrameSpan(1_000_000 + number * spans + session, 5, 9) for session in range(spans)]
        yield topic("default", "mallory", Topic.STATUS), status(1, *found)


def allowed_spans(statuses: int = 300, spans: int = 1000) -> Messages:
    """The same in statuses that are within the limits of a message."""
    for number in range(statuses):
        found = [FrameSpan(1_000_000 + number * spans + session, 5, 9) for session in range(spans)]
        yield topic("default", "mallory", Topic.STATUS), status(1, *found)


def new_sessions(count: int = 5000) -> Messages:
    """A node with another session in each frame."""
    for number in range(count):
        yield topic("default", "mallory", Topic.FRAME), payload("mallory", 2, 10 + number, 3)


def every_other_frame(count: int = 10_000) -> Messages:
    """A node whose frames are never neighbours."""
    for number in range(count):
        yield (topic("default", "mallory", Topic.FRAME), frames.encode(frames.build(1, 2 * number, START, {})))


def lost_spans(replies: int = 20, spans: int = 8000) -> Messages:
    """A node whose every other frame is lost, by its answers."""
    ring = FrameSpan(77, 0, 1_000_000)
    yield topic("default", "mallory", Topic.STATUS), status(1, ring)
    for number in range(replies):
        gone = tuple(FrameSpan(77, at, at) for at in range(number * spans, (number + 2) * spans, 2))
        reply = messages.CommandReply(about=77, first=0, last=1_000_000, gone=gone)
        yield topic("default", "mallory", Topic.REPLY), messages.encode(reply)


def long_events(count: int = 3000) -> Messages:
    """A node with a new event in each message, as long as an event may be."""
    text = "x" * 1000
    for number in range(count):
        event = Event(id=f"1-{number}", node="mallory", at=START, kind="xid", data={f"k{at}": text for at in range(50)})
        yield topic("default", "mallory", Topic.EVENT), messages.encode(event)


def frames_of_events(count: int = 300) -> Messages:
    """The same in frames."""
    for number in range(count):
        events = [
            messages.encode(Event(id=f"1-{number}-{at}", node="mallory", at=START, kind="xid")) for at in range(250)
        ]
        readings = frames.build(1, number, START + number * 10**9, {}, events)
        yield topic("default", "mallory", Topic.FRAME), frames.encode(readings)


def schemas(count: int = 500) -> Messages:
    """A node with another schema in each inventory."""
    found = inventory("mallory", 1)
    ours = found.schema.blocks
    for number in range(count):
        first = msgspec.structs.replace(ours[0], gauges=tuple(f"m{number}_{at}" for at in range(1000)))
        body = msgspec.structs.replace(
            found, version=number, schema=msgspec.structs.replace(found.schema, blocks=(first,))
        )
        yield topic("default", "mallory", Topic.INVENTORY), messages.encode(body)


def resident() -> int:
    """The memory of this process, bytes."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def attack(feed: Feed, sent: Messages, *, seconds: float = 0.0005) -> None:
    """Deliver messages, `seconds` of the feed's clock apart, with the flushes and commits between."""
    for number, (name, body) in enumerate(sent):
        feed.now += seconds
        feed.wall += int(seconds * 1e9)
        feed.ingest.receive(name, body, feed.now, feed.wall)
        if number % 2000 == 1999:
            feed.ingest.drain_commands(feed.now)
            feed.ingest.drain_events()
            feed.commit()
            feed.ingest.drain_sample_times()
    feed.commit()
    feed.ingest.expire(feed.now)
