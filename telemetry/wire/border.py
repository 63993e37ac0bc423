"""The border of the bus: every message is decoded and validated here, before anything else sees it.

A peer may send any bytes: a flipped bit, another release, a stolen certificate. What passes has numbers
that the store's columns can hold, spans that a session can have, texts of bounded length without
control characters, and names that agree with each other; what comes behind the border trusts it.
A message that does not is refused whole, as a `WireError`: `malformed` when it does not decode or holds
an impossible value, `oversize`, `foreign` when it is about another node or cluster, `version`.

Texts are cleaned rather than refused: a serial number that a driver returns with a NUL in it must not
cost the node its inventory. Numbers and names are refused: no value of ours could stand for them.
Pure: the time is an argument.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sized
from collections.abc import Set as AbstractSet
from functools import cache
from typing import Any, TypeVar

import msgspec

from telemetry.devices import Event, Gpu
from telemetry.errors import WireError
from telemetry.wire import frame as frames
from telemetry.wire import inventory as messages
from telemetry.wire.frame import MAX_FRAME_BYTES, Frame
from telemetry.wire.inventory import MOST_BEFORE, CollectorStatus, Command, CommandReply, Inventory
from telemetry.wire.jobs import (
    MAX_MESSAGE_BYTES,
    MOST_JOB_LABELS,
    UNLIMITED,
    Allocation,
    GpuProcess,
    Job,
    JobKey,
    NodeJobs,
)
from telemetry.wire.schema import SCHEMA, Schema
from telemetry.wire.tables import KINDS, TableKind
from telemetry.wire.topics import Address, parse, shard_of

T = TypeVar("T")

# Sizes, bytes.

MOST_BACKFILL_BYTES = 16 * 1024 * 1024
MOST_STATUS_BYTES = 512 * 1024
MOST_EVENT_BYTES = 64 * 1024
MOST_REPLY_BYTES = 512 * 1024
MOST_COMMAND_BYTES = 64 * 1024
MOST_STATE_BYTES = 256 * 1024
"""Of a retained state of our own."""

# Counts.

MOST_GPUS = 1024
MOST_LINKS = 65_536
MOST_SPANS = 8192
"""Spans of a ring, or of lost frames in a reply."""
MOST_BLOCKS = 64
MOST_COLUMNS = 2048
"""Metrics in one block."""
MOST_EVENTS = 256
"""Events in one frame; a collector puts in a hundred."""
MOST_FACTS = 256
"""Facts of a host; also the values in the details of an event."""
MOST_SOURCES = 64
MOST_REASONS = 16
"""Reasons for which devices of a source are not attributed."""
"""Sources of jobs of a node."""
MOST_TEXT = 1024
"""Characters of any text, a raw line of the kernel log among them; longer ones are cut."""
DEPTH = 4
"""Nesting of the details of an event."""

# Numbers.

SESSIONS_END = 1 << 63
"""First number that is no session, and no version: the store's columns are signed."""
FRAMES_END = 1 << 31
"""First number that no frame has: 6.8 years at ten frames a second."""
MOST_INDEX = 65_535
"""Highest index, minor number or link number; the store's columns hold 2^31."""
MOST_BYTES = 1 << 53
"""Memory, in bytes: exact in any JSON reader."""
MOST_COUNT = (1 << 31) - 1
"""Nodes or GPUs of a job."""
MOST_WATTS = 1e6
SHORTEST_INTERVAL, LONGEST_INTERVAL = 0.001, 86_400.0
"""Seconds between two frames."""
WHOLE_END = 1 << 63
"""First whole number that JSON readers and the store do not hold."""

# Times, ns.

FIRST_CLOCK = 1_735_689_600 * 10**9
"""2025, in ns since 1970: a clock of our own that is before it can't tell whose clock is wrong."""

LIVE_WINDOW = 3600 * 10**9
"""How far the time of a live message may be from its arrival."""
OLDEST = 400 * 86_400 * 10**9
"""Age up to which a frame from a ring, or an event that waited in a queue, is believed."""


# -- Texts ---------------------------------------------------------------------------------------

_PRINTABLE = bytes(range(0x20, 0x7F))
"""Of ASCII, of which nearly all messages are."""


def clean(text: str) -> str:
    """Return a text without control characters, those of the direction of writing among them: those
    that separate words become blanks."""
    if text.isprintable():
        return text
    shown = (each if each.isprintable() else " " if each.isspace() else "" for each in text)
    return "".join(shown).strip()


def _all_plain(payload: bytes) -> bool:
    """Return whether no text of a JSON message needs cleaning or cutting."""
    if payload.isascii():  # in a tenth of the time
        printable = not payload.translate(None, _PRINTABLE)
    else:
        printable = payload.decode(errors="replace").isprintable()
    return printable and b"\\" not in payload and not _has_long(payload)


def _has_long(payload: bytes) -> bool:
    """Return whether a quotation mark is followed by more than `MOST_TEXT` bytes without another. It leaps from the
    last mark of so many bytes to the next: a regular expression takes twenty times as long."""
    at = payload.find(b'"')
    while at >= 0:
        end = at + 1 + MOST_TEXT + 1
        found = payload.rfind(b'"', at + 1, end)
        if found < 0:
            return end <= len(payload)
        at = found
    return False


def _cleaned(value: Any) -> Any:
    """Return a decoded message with all its texts cleaned and cut; one that may be absent and of which
    nothing is left is None. Nothing but texts changes: a member of an enumeration, which may be a `str`
    too, is one of ours already."""
    kind = type(value)
    if kind is str:
        return clean(value[:MOST_TEXT])
    if issubclass(kind, msgspec.Struct):
        changed = {
            name: None if new == "" and optional else new
            for name, optional in _fields(kind)
            if (new := _cleaned(old := getattr(value, name))) is not old
        }
        return msgspec.structs.replace(value, **changed) if changed else value
    if kind is dict:
        return {_cleaned(name): _cleaned(item) for name, item in value.items()}
    if kind is tuple or kind is list:
        return kind(map(_cleaned, value))
    return value


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, bool], ...]:
    """Return the fields of a message, and whether each may be absent."""
    return tuple((field.name, field.default is None) for field in msgspec.structs.fields(kind))


def _decode(payload: bytes, kind: type[T], most: int) -> T:
    if len(payload) > most:
        raise WireError("oversize", f"{len(payload)} bytes; at most {most}")
    try:
        found = messages.decode(payload, kind)
        return found if _all_plain(payload) else _cleaned(found)
    except RecursionError as error:
        raise WireError("malformed", "nested too deep") from error


# -- Numbers -------------------------------------------------------------------------------------


def _within(where: str, value: float | None, low: float, high: float) -> None:
    """Raise `WireError` unless a number, if there is one, is within `low` to `high`; a NaN is not."""
    if value is not None and not low <= value <= high:
        raise WireError("malformed", f"{where} is {_shown(value)}; {low:g} to {high:g} are possible")


def _shown(value: object) -> str:
    big = isinstance(value, int) and not -WHOLE_END <= value < 2 * WHOLE_END
    return "of more than 64 bits" if big else f"{value}"


def _bounded(where: str, items: Sized, most: int) -> None:
    if (count := len(items)) > most:
        raise WireError("malformed", f"{where}: {count}; at most {most}")


def _check_session(where: str, number: int) -> None:
    if not 0 <= number < SESSIONS_END:
        raise WireError("malformed", f"{where} is {_shown(number)}; below 2^63 are possible")


def _check_span(where: str, session: int, first: int, last: int) -> None:
    _check_session(f"{where}: the session", session)
    if not 0 <= first <= last < FRAMES_END:
        raise WireError(
            "malformed", f"{where}: frames {_shown(first)} to {_shown(last)}; numbers below 2^31 are possible"
        )


def _check_unique(where: str, keys: Iterable[Hashable]) -> set[Hashable]:
    """Return the keys as a set. Raises `WireError` when one comes twice, or is empty."""
    listed = list(keys)
    found = set(listed)
    if len(found) < len(listed) or "" in found:
        raise WireError("malformed", f"{where}: two of one name, or one without")
    return found


# -- Topics --------------------------------------------------------------------------------------


def check_topic(topic: str, cluster: str) -> Address:
    """Return the address of a topic of a cluster. Raises `WireError` (`foreign`, `version`)."""
    address = parse(topic)
    if address is None:
        level = topic.split("/", 2)
        if len(level) > 1 and level[0] == "kilowatch" and level[1] != "1":
            raise WireError("version", f"kilowatch/{level[1][:20]} is no supported version")
        raise WireError("foreign", "no topic of ours")
    if address.cluster != cluster or address.shard != shard_of(address.node):
        raise WireError("foreign", "another cluster, or the wrong shard for the node")
    return address


# -- Frames --------------------------------------------------------------------------------------


def decode_frame(payload: bytes) -> Frame:
    """Decode a frame. Raises `WireError`.

    Whether its blocks have the sizes of its node's inventory is checked with that, and its time by
    `live` or `possible`: both are of the node, not of the message.
    """
    frame = frames.decode(payload)
    if not (
        frame.session < SESSIONS_END
        and frame.seq < FRAMES_END
        and 0 < frame.sampled_at < WHOLE_END
        and len(frame.blocks) <= MOST_BLOCKS
        and len(frame.events) <= MOST_EVENTS
    ):
        _check_span("frame", frame.session, frame.seq, frame.seq)
        _within("sampled_at", frame.sampled_at, 1, WHOLE_END - 1)
        _bounded("blocks", frame.blocks, MOST_BLOCKS)
        _bounded("events", frame.events, MOST_EVENTS)
    return frame


def decode_backfill(payload: bytes) -> list[bytes]:
    """Return the encoded frames of a backfill message. Raises `WireError`."""
    if len(payload) > MOST_BACKFILL_BYTES:
        raise WireError("oversize", f"{len(payload)} bytes; at most {MOST_BACKFILL_BYTES}")
    return frames.decode_many(payload)


def live(at: int, wall: int) -> bool:
    """Return whether the time of a live message fits its arrival at `wall`, both ns since 1970."""
    return -LIVE_WINDOW <= at - wall <= LIVE_WINDOW or wall < FIRST_CLOCK


def possible(at: int, wall: int) -> bool:
    """Return whether a message that arrived at `wall` can be of a time, both ns since 1970: a ring
    holds frames of days, and an event may have waited as long."""
    return -OLDEST <= at - wall <= LIVE_WINDOW or wall < FIRST_CLOCK


# -- Inventories ---------------------------------------------------------------------------------


def decode_inventory(payload: bytes, node: str, wall: int) -> Inventory:
    """Decode the inventory of a node that arrived at `wall`, ns since 1970. Raises `WireError`.

    An impossible time is 0, which is none: the layouts of a node are ordered by it, and those before it too.
    """
    inventory = _decode(payload, Inventory, MAX_FRAME_BYTES)
    if inventory.node != node:
        raise WireError("foreign", f"an inventory of {inventory.node[:128]!r}")
    check_inventory(inventory)
    if any(not possible(each.taken_at, wall) for each in (inventory, *inventory.before)):
        inventory = _timed(inventory, wall, before=tuple(_timed(each, wall) for each in inventory.before))
    return inventory


def _timed(inventory: Inventory, wall: int, **changes: Any) -> Inventory:
    """Return an inventory without its time where that is not possible."""
    at = inventory.taken_at if possible(inventory.taken_at, wall) else 0
    return msgspec.structs.replace(inventory, taken_at=at, **changes)


def check_inventory(inventory: Inventory) -> None:
    """Raise `WireError` (`malformed`) when an inventory holds what no node has, or contradicts itself.

    Two GPUs may have one index: the driver counts anew after one is lost, whose row remains.
    """
    _bounded("before", inventory.before, MOST_BEFORE)
    for number, past in enumerate(inventory.past()):
        if past.node != inventory.node or past.before:
            raise WireError("malformed", f"before[{number}] is none of this node, or has others before it")
        check_inventory(past)
    _check_session("session", inventory.session)
    _check_session("version", inventory.version)
    _bounded("host", inventory.host, MOST_FACTS)
    _bounded("excluded", inventory.excluded or (), MOST_GPUS)
    _bounded("gpus", inventory.gpus, MOST_GPUS)
    _bounded("links", inventory.links, MOST_LINKS)
    uuids = _check_unique("gpus", (gpu.uuid for gpu in inventory.gpus))
    for number, gpu in enumerate(inventory.gpus):
        _check_gpu(f"gpus[{number}]", gpu)
    _check_unique("links", ((link.gpu, link.number) for link in inventory.links))
    for number, link in enumerate(inventory.links):
        if link.gpu not in uuids:
            raise WireError("malformed", f"links[{number}] is of no GPU of the inventory")
        if not 0 <= link.number <= MOST_INDEX:
            _within(f"links[{number}].number", link.number, 0, MOST_INDEX)
    for kind in KINDS.values():
        if kind.prefix:
            _check_devices(kind, inventory, uuids)
    _check_unique("ports", (port.name for port in inventory.ports))
    for number, port in enumerate(inventory.ports):
        _within(f"ports[{number}].number", port.number, 0, MOST_INDEX)
        _within(f"ports[{number}].numa_node", port.numa_node, 0, MOST_INDEX)
        if port.gpu is not None and port.gpu not in uuids:
            raise WireError("malformed", f"ports[{number}] is near no GPU of the inventory")
    for number, each in enumerate(inventory.instances):
        where = f"instances[{number}]"
        _within(f"{where}.gpu_instance", each.gpu_instance, 0, MOST_INDEX)
        _within(f"{where}.compute_instance", each.compute_instance, 0, MOST_INDEX)
        _within(f"{where}.placement", each.placement, 0, MOST_INDEX)
        _within(f"{where}.memory_bytes", each.memory_bytes, 0, MOST_BYTES)
        _within(f"{where}.multiprocessors", each.multiprocessors, 0, MOST_INDEX)
    pooled = [uuid for pool in inventory.pools for uuid in pool.gpus]
    if not uuids >= _check_unique("pools", pooled):
        raise WireError("malformed", "pools: one has a GPU that is none of the inventory")
    _bounded("pools", inventory.pools, MOST_GPUS)
    for pool in inventory.pools:
        _within("pools: bytes", pool.bytes, 0, MOST_BYTES)
    if inventory.schema != SCHEMA:
        _check_schema(inventory.schema)


def _check_devices(kind: TableKind, inventory: Inventory, gpus: AbstractSet[Hashable]) -> None:
    """Raise `WireError` where devices of a kind are too many, of one key, of a key of another kind, or of no GPU."""
    where = f"{kind.table}s"
    devices = kind.devices(inventory)
    _bounded(where, devices, kind.most)
    keys = kind.keys(inventory)
    _check_unique(where, keys)
    for number, (key, each) in enumerate(zip(keys, devices, strict=True)):
        if not key.startswith(kind.prefix):
            raise WireError("malformed", f"{where}[{number}] has no identity of a {kind.noun}")
        if kind.owner is not None and kind.owner(each) not in gpus:
            raise WireError("malformed", f"{where}[{number}] is of no GPU of the inventory")


def _check_gpu(where: str, gpu: Gpu) -> None:
    _within(f"{where}.index", gpu.index, 0, MOST_INDEX)
    _within(f"{where}.minor", gpu.minor, 0, MOST_INDEX)
    _within(f"{where}.numa_node", gpu.numa_node, 0, MOST_INDEX)
    _within(f"{where}.pcie_width", gpu.pcie_width, 0, MOST_INDEX)
    _within(f"{where}.memory_bytes", gpu.memory_bytes, 0, MOST_BYTES)
    _within(f"{where}.power_limit_watts", gpu.power_limit_watts, 0, MOST_WATTS)
    _bounded(f"{where}.capabilities", gpu.capabilities, MOST_COLUMNS)


def _check_schema(schema: Schema) -> None:
    _bounded("schema.blocks", schema.blocks, MOST_BLOCKS)
    _check_unique("schema.blocks", (block.name for block in schema.blocks))
    for block in schema.blocks:
        _bounded(f"schema: {block.name}", block.names, MOST_COLUMNS)
        _check_unique(f"schema: {block.name}", block.names)


# -- Jobs ----------------------------------------------------------------------------------------


def decode_jobs(payload: bytes) -> NodeJobs:
    """Decode the jobs of a node. Raises `WireError`.

    Its list is complete, so nothing in it may come twice: an allocation is one of a job, a GPU or its
    instance, a step, a kind and a begin; a process one of a GPU, an instance and a PID. A job may be named
    by an allocation and be missing among the jobs. Whether its GPUs are those of the node is checked with
    its inventory; whether `at` is `possible`, with its arrival.
    """
    found = _decode(payload, NodeJobs, MAX_MESSAGE_BYTES)
    _check_session("session", found.session)
    _check_session("version", found.version)
    _within("at", found.at, 0, WHOLE_END - 1)
    _within("left_out", found.left_out, 0, MOST_INDEX)
    _bounded("sources", found.sources, MOST_SOURCES)
    _check_unique("sources", (source.name for source in found.sources))
    for source in found.sources:
        where = f"source {source.name}"
        _within(f"{where}: since", source.since, 0, WHOLE_END - 1)
        _bounded(f"{where}: unattributed", source.unattributed, MOST_REASONS)
        for reason, count in source.unattributed.items():
            _within(f"{where}: unattributed {reason}", count, 0, MOST_COUNT)
    _check_unique("jobs", (job.key for job in found.jobs))
    for job in found.jobs:
        _check_job(job)
    _check_unique("allocations", ((a.job, a.gpu, a.instance, a.step, a.kind, a.begin) for a in found.allocations))
    for allocation in found.allocations:
        _check_allocation(allocation)
    _check_unique("processes", ((each.gpu, each.instance, each.pid) for each in found.processes))
    for process in found.processes:
        _check_process(process)
    return found


def _check_key(where: str, key: JobKey) -> None:
    if not key.scheduler or not key.id:
        raise WireError("malformed", f"{where}: a job without a scheduler, or without an id")
    _within(f"{where}: restart", key.restart, 0, MOST_INDEX)


def _check_job(job: Job) -> None:
    where = f"job {job.key.id}"
    _check_key(where, job.key)
    _check_span_of_time(where, job.begin, job.end)
    _within(f"{where}: submitted", job.submitted, 0, WHOLE_END - 1)
    _within(f"{where}: eligible", job.eligible, 0, WHOLE_END - 1)
    if job.time_limit != UNLIMITED:
        _within(f"{where}: time_limit", job.time_limit, 0, MOST_COUNT)
    _within(f"{where}: exit_code", job.exit_code, -(1 << 31), (1 << 32) - 1)
    _within(f"{where}: nodes", job.nodes, 0, MOST_COUNT)
    _within(f"{where}: gpus", job.gpus, 0, MOST_COUNT)
    _bounded(f"{where}: labels", job.labels, MOST_JOB_LABELS)


def _check_allocation(allocation: Allocation) -> None:
    where = f"allocation of {allocation.gpu}"
    _check_key(where, allocation.job)
    _check_span_of_time(where, allocation.begin, allocation.end)
    _within(f"{where}: instance", allocation.instance, 0, MOST_INDEX)
    if not allocation.gpu or not allocation.begin:
        raise WireError("malformed", f"{where}: without a GPU, or without a begin")


def _check_process(process: GpuProcess) -> None:
    where = f"process {process.pid}"
    if process.job is not None:
        _check_key(where, process.job)
    if not process.gpu:
        raise WireError("malformed", f"{where}: without a GPU")
    _within(f"{where}: pid", process.pid, 0, WHOLE_END - 1)
    _within(f"{where}: started", process.started, 0, WHOLE_END - 1)
    _within(f"{where}: instance", process.instance, 0, MOST_INDEX)
    _within(f"{where}: memory_bytes", process.memory_bytes, 0, MOST_BYTES)
    _within(f"{where}: sm_ratio", process.sm_ratio, 0, 1)


def _check_span_of_time(where: str, begin: int, end: int) -> None:
    """Raise `WireError` for times that no store holds, and for an end before its begin."""
    _within(f"{where}: begin", begin, 0, WHOLE_END - 1)
    _within(f"{where}: end", end, 0, WHOLE_END - 1)
    if end and end < begin:
        raise WireError("malformed", f"{where} ends before it begins")


# -- Status, events, replies, commands -----------------------------------------------------------


def decode_status(payload: bytes) -> CollectorStatus:
    """Decode a collector's status. Raises `WireError`."""
    status = _decode(payload, CollectorStatus, MOST_STATUS_BYTES)
    _check_session("session", status.session)
    _within("interval", status.interval, SHORTEST_INTERVAL, LONGEST_INTERVAL)
    _within("slow_interval", status.slow_interval, SHORTEST_INTERVAL, LONGEST_INTERVAL)
    _bounded("ring", status.ring, MOST_SPANS)
    for span in status.ring:
        _check_span("ring", span.session, span.first, span.last)
    return status


def decode_event(payload: bytes, node: str) -> Event:
    """Decode an event of a node. Raises `WireError`. Its time is checked by `possible`."""
    event = _decode(payload, Event, MOST_EVENT_BYTES)
    if event.node != node:
        raise WireError("foreign", f"an event of {event.node[:128]!r}")
    if not event.id or not event.kind:
        raise WireError("malformed", "an event without an id, or without a kind")
    for name, value in event.data.items():
        kind = _DETAILS.get(name)
        if kind is not None and value is not None and type(value) is not kind:
            raise WireError("malformed", f"data.{name} is no {kind.__name__}")
    _check_details(event.data, DEPTH, MOST_FACTS)
    return event


_DETAILS: Mapping[str, type] = {
    **dict.fromkeys(
        ("xid", "sxid", "pid", "gpu_instance", "compute_instance", "action_from", "action_to",
         "link", "switch", "count", "first_at", "ticks"), int),
    **dict.fromkeys(("fatal", "reset", "drain_and_reset", "continuation"), bool),
    **dict.fromkeys(("process", "line", "what", "source", "state"), str),
    "registers": list,
}  # fmt: skip
"""Types of the details that rules and pages read."""


def _check_details(value: object, depth: int, left: int) -> int:
    """Return how many more values there may be. Raises `WireError`."""
    left -= 1
    if left < 0 or depth < 0:
        raise WireError("malformed", f"data: more than {MOST_FACTS} values, or nested too deep")
    match value:
        case dict() | list():
            for item in value.values() if isinstance(value, dict) else value:
                left = _check_details(item, depth - 1, left)
        case int() if not -WHOLE_END <= value < WHOLE_END:
            raise WireError("malformed", "data: a number of more than 64 bits")
    return left


def decode_reply(payload: bytes) -> CommandReply:
    """Decode a collector's reply to a request for frames. Raises `WireError`."""
    reply = _decode(payload, CommandReply, MOST_REPLY_BYTES)
    _check_span("reply", reply.about, reply.first, reply.last)
    _within("sent", reply.sent, 0, FRAMES_END)
    _bounded("gone", reply.gone, MOST_SPANS)
    for span in reply.gone:
        _check_span("gone", span.session, span.first, span.last)
    return reply


def decode_command(payload: bytes) -> Command:
    """Decode a command to a collector. Raises `WireError`."""
    command = _decode(payload, Command, MOST_COMMAND_BYTES)
    _check_span("frames", command.about, command.first, command.last)
    return command


class StateOwner(msgspec.Struct, frozen=True):
    """The part of a retained state on the bus that its aggregator reads again."""

    by: str
    """The aggregator that published it: its shards, or `all`."""


def decode_owner(topic: str, prefix: str, payload: bytes) -> str:
    """Return the aggregator that published a retained state below `prefix`. Raises `WireError`."""
    name = topic.removeprefix(prefix).removesuffix("/state")
    plain = name.isascii() and name.isprintable() and 0 < len(name) <= MOST_TEXT
    if topic != f"{prefix}{name}/state" or "/" in name or not plain:
        raise WireError("foreign", "no topic of a state")
    return _decode(payload, StateOwner, MOST_STATE_BYTES).by
