"""Power of a member's nodes, as it tells the site once a second.

A message has of many shard groups, node by node, what `power.live` needs of each (float32, about 60 bytes), so that
the site computes circuits as one aggregator of all nodes does. Names travel when they change and every
ten seconds; between, a hash for each group says which nodes the columns are of.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from aggregator.electrical.fleet_power import FleetPowerReader
from power.network.flow import Ints
from telemetry.fleet import Fleet
from telemetry.text.decoders import of_msgpack
from telemetry.wire.topics import shard_of

COLUMNS = (
    "gpu_watts", "gpu_limit_watts", "gpus_unread", "unread_limit_watts", "gpus", "floor_watts", "host_watts",
    "module_scope", "wall_watts", "wall_age", "wall_period", "silent_seconds", "interval",
)  # fmt: skip
"""Fields of `PowerInputs` that are arrays over machines, but for `unheard`, which only the site knows."""
NAMES_EVERY = 10
"""Seconds from one message of a group with names to the next."""
NODES_PER_MESSAGE = 2500
"""A server takes 1 MiB, and each message costs a member as much as some hundred nodes."""
Narrow = npt.NDArray[np.float32]


class GroupSpan(msgspec.Struct, frozen=True, array_like=True):
    """The part of a message that one group has. Fields are only added, with a default."""

    group: str
    epoch: int
    """Epoch under which the sender holds the group."""
    layout: int
    """Hash of the nodes' names in the order of the columns."""
    nodes: int


class NodePower(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message. Fields are only added, with a default; unknown columns are left out."""

    session: int
    """Random per start of the sender: numbers begin again."""
    number: int
    """0, 1, 2, ... within a session; the messages of one second have the same."""
    groups: tuple[GroupSpan, ...]
    columns: dict[str, bytes]
    """float32, little-endian, by name: of the nodes of all groups, one group after the other."""
    names: tuple[str, ...] | None = None
    jobs: dict[str, str] | None = None
    """Name of the job on each node that has one; with the names."""


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = of_msgpack(NodePower)


def layout_of(names: Sequence[str]) -> int:
    """Return the hash of names in their order."""
    digest = hashlib.blake2b("\0".join(names).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def encode(message: NodePower) -> bytes:
    """Return a message as MessagePack."""
    return _ENCODER.encode(message)


def decode(payload: bytes) -> NodePower:
    """Return a message whose columns have a value for every node of its groups. Raises
    `msgspec.MsgspecError` or `ValueError`."""
    message = _DECODER.decode(payload)
    nodes = sum(span.nodes for span in message.groups)
    if any(span.nodes < 0 for span in message.groups):
        raise ValueError("a group has less than no values")
    if any(len(message.columns.get(name, b"?")) != 4 * nodes for name in COLUMNS):
        raise ValueError("columns are missing or of another length than the groups have nodes")
    if message.names is not None and len(message.names) != nodes:
        raise ValueError("there are not as many values as names")
    return message


def values_of(message: NodePower) -> Narrow:
    """Return the columns of a message; shape (columns, nodes)."""
    joint = b"".join([message.columns[name] for name in COLUMNS])
    return np.frombuffer(joint, "<f4").reshape(len(COLUMNS), -1)


class _MessagePlan(NamedTuple):
    """The groups of one message, and their nodes."""

    groups: tuple[GroupSpan, ...]
    rows: Ints
    """Row of each node in the reader's columns."""
    names: tuple[str, ...]


class NodePowerSender:
    """The messages of a member about the groups that it holds."""

    def __init__(self, session: int) -> None:
        self._session = session
        self._number = -1
        self._followed: tuple[int, dict[str, int]] = -1, {}
        """Version of the fleet and epochs that the plans are of."""
        self._plans: list[_MessagePlan] = []
        self._reader = FleetPowerReader(())

    def messages(
        self, fleet: Fleet, now: float, epochs: Mapping[str, int], listening_since: float = -np.inf
    ) -> list[bytes]:
        """Return messages about all held groups, also those without nodes: that one is heard says so.
        `epochs`: epoch of each held group; `now`: the fleet's monotonic seconds."""
        self._number += 1
        changed = (fleet.version, epochs) != self._followed
        if changed:
            self._follow(fleet, epochs)
        inputs = self._reader.read(fleet, now, listening_since)
        columns = {name: np.asarray(getattr(inputs, name), "<f4") for name in COLUMNS}
        found = []
        for turn, plan in enumerate(self._plans):
            named = changed or (self._number + turn) % NAMES_EVERY == 0
            jobs = {name: inputs.jobs[name] for name in plan.names if name in inputs.jobs} if named else None
            found.append(
                encode(
                    NodePower(
                        self._session,
                        self._number,
                        plan.groups,
                        {name: column[plan.rows].tobytes() for name, column in columns.items()},
                        plan.names if named else None,
                        jobs,
                    )
                )
            )
        return found

    def _follow(self, fleet: Fleet, epochs: Mapping[str, int]) -> None:
        if fleet.version != self._followed[0]:
            self._reader = FleetPowerReader(sorted(fleet.nodes))
        self._followed = fleet.version, dict(epochs)
        machines = self._reader.machines
        rows: dict[str, list[int]] = {group: [] for group in sorted(epochs)}
        for row, name in enumerate(machines):
            mine = rows.get(shard_of(name))
            if mine is not None:
                mine.append(row)
        self._plans, spans, chosen = [], list[GroupSpan](), list[int]()
        for group, mine in rows.items():
            if spans and len(chosen) + len(mine) > NODES_PER_MESSAGE:
                self._plans.append(_plan(spans, chosen, machines))
                spans, chosen = [], []
            names = [machines[row] for row in mine]
            spans.append(GroupSpan(group, epochs[group], layout_of(names), len(mine)))
            chosen += mine
        if spans:
            self._plans.append(_plan(spans, chosen, machines))


def _plan(spans: Sequence[GroupSpan], rows: Sequence[int], machines: Sequence[str]) -> _MessagePlan:
    names = tuple(machines[row] for row in rows)
    return _MessagePlan(tuple(spans), np.array(rows, np.int64), names)
