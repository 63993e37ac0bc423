"""Budgets: the most that one node, and the cluster, may bring; what is over is refused and counted.

No message of a node may cost the aggregator more than its share of memory, disk or time. The defaults
are several times what a cluster of 100,000 GPUs needs, so that only a fault or an attack meets them.
A refusal is a `WireError` of the reason `budget`, whose text names the setting.
"""

from __future__ import annotations

from collections.abc import Callable

from aggregator.settings.budgets import LONGEST_SESSION, IngestBudgets
from telemetry.errors import WireError
from telemetry.wire.inventory import Inventory

BURST_SECONDS = 10.0
"""Seconds of messages and bytes that may come at once: after a pause of the network, or of ours."""
EVENT_BURST = 2000
"""Events that may come at once: what a node's ring holds after a day without an aggregator."""
EVENT_BYTES = 2048
"""Bytes of an event that count as one; an XID with its line has about 500."""
NEW_SESSION_SECONDS = 10.0
"""Seconds between two new sessions of a node, once it has had as many as it may have."""
NEW_DEVICE_SECONDS = 10.0
"""Seconds between two new devices of a node, once it has had twice as many as it may have."""
NEWCOMER_SESSIONS = 16
"""Sessions of a node that has not yet sent an inventory and a frame that fits it."""
SHORTEST_INTERVAL = 0.05
"""Seconds between frames at least; a collector accepts no less."""
NUMBERS_END = round(LONGEST_SESSION / SHORTEST_INTERVAL)
"""First number that no frame can have, whatever the settings."""


def over(setting: str, detail: str) -> WireError:
    """Return the refusal of what is over a budget."""
    return WireError("budget", f"{detail} (aggregator.budgets.{setting})")


class TokenBucket:
    """A rate limit with a burst. Filled only when it is empty, so that it costs next to nothing."""

    __slots__ = ("_at", "_burst", "_left", "_rate")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._left = burst
        self._at = now

    def spend(self, amount: float, now: float) -> bool:
        """Use `amount`; False when there is not as much."""
        left = self._left - amount
        if left < 0.0:
            left = min(self._burst, self._left + (now - self._at) * self._rate) - amount
            self._at = now
            if left < 0.0:
                self._left = left + amount
                return False
        self._left = left
        return True


class NodeBudget:
    """The rates of one node."""

    __slots__ = ("_at", "_config", "_devices", "_events", "_sessions", "bytes_left", "messages_left")

    def __init__(self, config: IngestBudgets, now: float) -> None:
        self._config = config
        self.messages_left = BURST_SECONDS * config.messages_per_second
        self.bytes_left = BURST_SECONDS * config.bytes_per_second
        """The caller subtracts each message and its bytes; below 0, it calls `refill`. Not a method:
        it would be half of what a frame costs here."""
        self._at = now
        self._events: TokenBucket | None = None
        self._sessions: TokenBucket | None = None
        self._devices: TokenBucket | None = None

    def refill(self, size: int, now: float) -> None:
        """Add what the time since the last refill permits. Raises `WireError` when the message of `size`
        bytes, subtracted already, is still too much; it is then not counted."""
        config, seconds = self._config, now - self._at
        self._at = now
        messages, size_rate = config.messages_per_second, config.bytes_per_second
        self.messages_left = min(BURST_SECONDS * messages, self.messages_left + seconds * messages)
        self.bytes_left = min(BURST_SECONDS * size_rate, self.bytes_left + seconds * size_rate)
        if self.messages_left >= 0 and self.bytes_left >= 0:
            return
        few = self.messages_left < 0
        self.messages_left += 1
        self.bytes_left += size
        if few:
            raise over("messages_per_second", f"more than {messages:g} messages a second of one node")
        raise over("bytes_per_second", f"more than {size_rate:.0f} bytes a second of one node")

    def event(self, size: int, now: float) -> None:
        """Count a new event of `size` bytes: a long one counts as several. Raises `WireError`."""
        rate = self._config.events_per_second
        if self._events is None:
            self._events = TokenBucket(rate, EVENT_BURST, now)
        if not self._events.spend(max(1.0, size / EVENT_BYTES), now):
            raise over("events_per_second", f"more than {rate:g} events a second of one node")

    def session(self, now: float) -> None:
        """Count a new session. Raises `WireError`."""
        most = self._config.sessions_per_node
        if self._sessions is None:
            self._sessions = TokenBucket(1 / NEW_SESSION_SECONDS, most, now)
        if not self._sessions.spend(1.0, now):
            raise over("sessions_per_node", f"{most} new sessions, and more too fast")

    def devices(self, count: int, now: float) -> None:
        """Count devices that the node has not had before. Raises `WireError`."""
        most = self._config.gpus_per_node + self._config.links_per_node + 1
        if self._devices is None:
            self._devices = TokenBucket(1 / NEW_DEVICE_SECONDS, 2.0 * most, now)
        if not self._devices.spend(count, now):
            raise over("gpus_per_node", f"{count} new devices, after {2 * most} others")


class ClusterBudget:
    """The devices of all nodes together."""

    def __init__(self, config: IngestBudgets) -> None:
        self.config = config
        self.gpus = 0
        self.links = 0

    def check(self, inventory: Inventory, before: Inventory | None) -> None:
        """Raise `WireError` for more devices than a node or the cluster may have; `before` is what the
        node has now."""
        config, gpus, links = self.config, len(inventory.gpus), len(inventory.links)
        if gpus > config.gpus_per_node:
            raise over("gpus_per_node", f"{gpus} GPUs of one node")
        if links > config.links_per_node:
            raise over("links_per_node", f"{links} links of one node")
        if len(inventory.pools) > gpus or sum(len(pool.gpus) for pool in inventory.pools) > 4 * gpus:
            raise over("gpus_per_node", f"{len(inventory.pools)} memory pools of {gpus} GPUs")
        if before is not None:
            gpus, links = gpus - len(before.gpus), links - len(before.links)
        if gpus > 0 and self.gpus + gpus > config.gpus:
            raise over("gpus", f"more than {config.gpus} GPUs in the cluster")
        if links > 0 and self.links + links > config.links:
            raise over("links", f"more than {config.links} links in the cluster")

    def replace(self, inventory: Inventory | None, before: Inventory | None) -> None:
        """Count the devices of a node instead of those that it had before."""
        for each, sign in ((inventory, 1), (before, -1)):
            if each is not None:
                self.gpus += sign * len(each.gpus)
                self.links += sign * len(each.links)


BudgetUse = Callable[[], dict[str, int]]
"""Returns how much of each budget is used."""
