"""Newcomers: names that have not yet sent an inventory and a frame that fits it.

A name costs nothing to invent where the broker has no access list. A few newcomers are treated as
nodes at once, so that a node that is dead when an aggregator is first installed is seen. Of the others
only the last status and inventory are held, compressed and bounded, until a frame comes: of a cluster
of 12,500 nodes that an aggregator sees for the first time, each sends one within its interval. The
inventory of one of the few is held as well when the fleet has no room for more without a frame.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from dataclasses import dataclass, field

from aggregator.ingest.layout import fits_inventory
from aggregator.settings.budgets import IngestBudgets
from telemetry.wire import border
from telemetry.wire.frame import Frame
from telemetry.wire.inventory import Inventory
from telemetry.wire.topics import Topic

OVERHEAD = 700
"""Bytes that a name with held messages costs beside them."""
PLACED_SHARE = 8
"""Inventories of newcomers in the fleet may have this part of `newcomer_bytes`: decoded they are
several times as large."""


@dataclass(slots=True)
class _HeldMessages:
    """The last messages of a name, compressed."""

    at: float
    """When the first came, monotonic seconds."""
    messages: dict[Topic, bytes] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return OVERHEAD + sum(map(len, self.messages.values()))


@dataclass(slots=True)
class _Newcomer:
    """A name that has a tracker already."""

    since: float
    placed: int = 0
    """Bytes of the inventories that it has placed in the fleet: each leaves device numbers behind."""


class Newcomers:
    """Names without a frame: those that have a tracker, and messages held for all."""

    def __init__(self, config: IngestBudgets) -> None:
        self._config = config
        self._known: dict[str, _Newcomer] = {}
        self._placed = 0
        self._held: OrderedDict[str, _HeldMessages] = OrderedDict()
        """Oldest first."""
        self.bytes = 0
        """Bytes of messages held."""
        self.expired = 0
        """Names that were forgotten since the start because no frame came."""

    def __len__(self) -> int:
        return len(self._known)

    @property
    def held(self) -> int:
        """Number of names with held messages."""
        return len(self._held)

    def admit(self, name: str, now: float) -> bool:
        """Return whether a name may have a tracker before its first frame."""
        if len(self._known) >= self._config.newcomers:
            return False
        self._known[name] = _Newcomer(now)
        return True

    def place(self, name: str, size: int, payload: bytes, now: float) -> bool:
        """Return whether an inventory may be in the fleet before the first frame, `size` bytes of it beside a known
        schema; hold it otherwise."""
        known = self._known.get(name)
        if known is None:  # its frame is here
            return True
        if self._placed + size > self._config.newcomer_bytes // PLACED_SHARE:
            self.hold(name, Topic.INVENTORY, payload, now)
            return False
        self._placed += size
        known.placed += size
        self.pop(name, Topic.INVENTORY)  # an older one
        return True

    def remove(self, name: str) -> None:
        """Remove a name: it is a node now, or it is forgotten."""
        known = self._known.pop(name, None)
        if known is not None:
            self._placed -= known.placed

    def hold(self, name: str, kind: Topic, payload: bytes, now: float) -> None:
        """Hold a message until `release`, instead of an earlier one of its kind."""
        held = self._held.get(name)
        if held is None:
            held = self._held[name] = _HeldMessages(now)
        else:
            self.bytes -= held.size
        held.messages[kind] = zlib.compress(payload, 1)
        self.bytes += held.size
        while self.bytes > self._config.newcomer_bytes and self._held:
            self._drop(next(iter(self._held)))

    def fitting(self, name: str, frame: Frame, wall: int) -> Inventory | None:
        """Return the inventory that is held, if a frame fits it. Raises `WireError` for one that can't be read."""
        held = self._held.get(name)
        body = None if held is None else held.messages.get(Topic.INVENTORY)
        if body is None:
            return None
        inventory = border.decode_inventory(zlib.decompress(body), name, wall)
        return inventory if fits_inventory(frame, inventory) else None

    def pop(self, name: str, kind: Topic) -> bytes:
        """Return the message of a kind that is held, and hold it no longer; empty when there is none."""
        held = self._held.get(name)
        body = None if held is None else held.messages.pop(kind, None)
        if body is None:
            return b""
        self.bytes -= len(body)
        return zlib.decompress(body)

    def release(self, name: str) -> dict[Topic, bytes]:
        """Return the messages held, and hold them no longer."""
        held = self._held.pop(name, None)
        if held is None:
            return {}
        self.bytes -= held.size
        return {kind: zlib.decompress(body) for kind, body in held.messages.items()}

    def expire(self, now: float) -> list[str]:
        """Drop what has been held too long; return the names whose trackers are to be removed."""
        late = now - self._config.newcomer_seconds
        while self._held and next(iter(self._held.values())).at < late:
            self._drop(next(iter(self._held)))
        gone = [name for name, one in self._known.items() if one.since < late and not one.placed]
        self.expired += len(gone)
        return gone

    def _drop(self, name: str) -> None:
        self.bytes -= self._held.pop(name).size
        if name not in self._known:
            self.expired += 1
