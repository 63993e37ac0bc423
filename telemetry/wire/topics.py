"""Topics on the bus: `kilowatch/1/<cluster>/<shard>/<node>/<kind>`.

The shard is two hex digits from a stable hash of the node's name, so that aggregators can divide a
fleet by subscription alone.
"""

from __future__ import annotations

import hashlib
import re
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import quote, unquote

from telemetry.errors import ConfigError

ROOT = "kilowatch/1"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


class Topic(StrEnum):
    """The last level of a topic: the kind of its messages."""

    STATUS = "status"
    """Retained, QoS 1: JSON `CollectorStatus`; also the last will."""
    INVENTORY = "inventory"
    """Retained, QoS 1: JSON `Inventory`."""
    FRAME = "frame"
    """QoS 0: one encoded frame, live."""
    BACKFILL = "backfill"
    """QoS 0: several encoded frames, on request."""
    EVENT = "event"
    """QoS 1: JSON `Event`."""
    COMMAND = "command"
    """QoS 0, to the collector: JSON `Command`. What a lost one would have brought is requested again."""
    REPLY = "reply"
    """QoS 1: JSON `CommandReply` of the collector: the frames that it no longer has."""
    JOBS = "jobs"
    """Retained, QoS 1: JSON `NodeJobs`."""


class StateAddress(NamedTuple):
    """A parsed topic of a retained state."""

    cluster: str
    what: str
    name: str


class Address(NamedTuple):
    """A parsed topic."""

    cluster: str
    shard: str
    node: str
    kind: Topic


def shard_of(node: str) -> str:
    """Return the two hex digits by which aggregators divide a fleet."""
    return hashlib.blake2b(node.encode(), digest_size=1).hexdigest()


def phase_of(node: str) -> float:
    """Return the phase (0 to 1) at which a node ticks within its interval, so that a fleet never
    ticks at once."""
    digest = hashlib.blake2b(node.encode(), digest_size=8, person=b"phase").digest()
    return int.from_bytes(digest, "big") / 2**64


def topic(cluster: str, node: str, kind: Topic) -> str:
    """Return the topic of one node's messages of one kind."""
    return f"{ROOT}/{cluster}/{shard_of(node)}/{node}/{kind.value}"


def pattern(cluster: str = "+", shard: str = "+", node: str = "+", kind: Topic | str = "+") -> str:
    """Return a subscription filter; `+` matches any one level."""
    return f"{ROOT}/{cluster}/{shard}/{node}/{getattr(kind, 'value', kind)}"


def parse(text: str) -> Address | None:
    """Return the parts of a topic, or None for a topic of another program, and for names that no
    cluster and no node can have: a peer may put terminal escapes into a topic."""
    parts = text.split("/")
    if len(parts) != 6 or f"{parts[0]}/{parts[1]}" != ROOT:
        return None
    if not (is_name(parts[2]) and is_name(parts[4])):
        return None
    try:
        kind = Topic(parts[5])
    except ValueError:
        return None
    return Address(parts[2], parts[3], parts[4], kind)


def is_name(name: str) -> bool:
    """Return whether a cluster or a node can have a name."""
    return _NAME.fullmatch(name) is not None


def check_name(where: str, name: str) -> str:
    """Return a cluster's or node's name if a topic allows it; else raise `ConfigError`."""
    if not is_name(name):
        raise ConfigError(
            where,
            f"{name!r} can't be part of an MQTT topic",
            "Use letters, digits, '.', '_', ':' and '-', at most 128, a letter or digit first.",
        )
    return name


def state_topic(cluster: str, what: str, name: str) -> str:
    """Return the topic of a retained state that an aggregator publishes as JSON.

    `what` is `circuits`, `budgets`, `ups` or `alerts`; it is in the place of a node's shard, which
    is always two hex digits. Characters that a topic's level may not have are escaped as `%2F`.
    """
    return f"{ROOT}/{cluster}/{what}/{quote(name, safe=':')}/state"


def parse_state(text: str) -> StateAddress | None:
    """Return the parts of a topic as `state_topic` makes it, or None for any other."""
    parts = text.split("/")
    if len(parts) != 6 or f"{parts[0]}/{parts[1]}" != ROOT or parts[5] != "state":
        return None
    if not is_name(parts[2]) or len(parts[3]) == 2 or not is_name(parts[3]):
        return None
    return StateAddress(parts[2], parts[3], unquote(parts[4]))
