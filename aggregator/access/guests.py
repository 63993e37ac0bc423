"""Bounds for each guest: viewers, and tries with wrong tokens.

Pure: `now` is an argument. An IPv6 address counts as its /64, which one machine usually has all of.
"""

from __future__ import annotations

import ipaddress
from collections import Counter, OrderedDict

TRIES, TRIES_PER_SECOND = 20.0, 0.2
"""Tries with a wrong token that an address has at once, and how fast they come back."""
MOST_ADDRESSES = 10_000
"""Addresses whose tries are remembered."""


def neighbourhood(address: str) -> str:
    """Return the name under which an address is counted."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        if not found.is_loopback:
            return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)


class WrongTokens:
    """Tries with a wrong token, by address."""

    def __init__(self) -> None:
        self.count = 0
        """Count since the start."""
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Tries left, and when that was counted."""

    def add(self, address: str, now: float) -> bool:
        """Count a try; returns whether it is the first of a row, and worth a line in the log."""
        self.count += 1
        left = self._now(address, now)
        self._left[address] = max(0.0, left - 1), now
        self._left.move_to_end(address)
        while len(self._left) > MOST_ADDRESSES:
            self._left.popitem(last=False)
        return left >= TRIES

    def wait(self, address: str, now: float) -> float:
        """Return the seconds until the address may try again; 0 is now."""
        return max(0.0, 1 - self._now(address, now)) / TRIES_PER_SECOND

    def _now(self, address: str, now: float) -> float:
        left, at = self._left.get(address, (TRIES, now))
        return min(TRIES, left + (now - at) * TRIES_PER_SECOND)


class GuestCounter:
    """How many viewers there are now, in all and for each guest."""

    def __init__(self, most: int, most_each: int) -> None:
        self.most, self.most_each = most, most_each
        self._held: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """How many there are."""
        return self._held.total()

    def full(self, guest: str) -> str:
        """Return why there can't be one more, or ``."""
        if self.total >= self.most:
            return f"{self.total} viewers are connected, and no more are possible"
        if self._held[guest] >= self.most_each:
            return f"{self._held[guest]} viewers of {guest} are connected, and no more are possible"
        return ""

    def enter(self, guest: str) -> None:
        """Count one more."""
        self._held[guest] += 1

    def leave(self, guest: str) -> None:
        """Count one less."""
        self._held[guest] -= 1
        if self._held[guest] <= 0:
            del self._held[guest]
