"""Nodes whose clocks are far off, and what their readings are stored under instead.

A node whose battery is empty starts in 1970, one whose clock keeps local time is hours off. Its
readings must neither vanish nor lie decades from the others': they are stored under the time at
which the first of the session came, and go on from there by the node's own clock, so that
distances, order and backfill stay right. The node's clock itself is not hidden: `clock_skew` fires on it.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from telemetry.wire.border import live, possible

log = logging.getLogger(__name__)


class ClockOffset(NamedTuple):
    """By how much a session's times are moved."""

    session: int
    ns: int


class NodeClocks:
    """The nodes whose clocks are off by more than a live message may be."""

    def __init__(self) -> None:
        self.offsets: dict[str, ClockOffset] = {}
        """By node; those of all others are right."""

    def of_live(self, node: str, session: int, at: int, wall: int) -> int:
        """Return the time of a live frame that came at `wall`, both ns since 1970."""
        known = self.offsets.get(node)
        if live(at, wall):
            if known is not None:
                del self.offsets[node]
                log.info("node=%s its clock is right again", node)
            return at
        if known is None or known.session != session or not live(at + known.ns, wall):
            if known is None:
                log.warning(
                    "node=%s its clock is off by %.0f s: its readings are stored under the time at which they come",
                    node,
                    (at - wall) / 1e9,
                )
            known = self.offsets[node] = ClockOffset(session, wall - at)
        return at + known.ns

    def of_backfilled(self, node: str, session: int, at: int, wall: int) -> int | None:
        """Return the time of a frame that was sent again; None for one that can't be known."""
        known = self.offsets.get(node)
        if known is not None and known.session == session:
            at += known.ns
        return at if possible(at, wall) else None

    def of_event(self, node: str, at: int, wall: int) -> int:
        """Return the time of an event; that of its arrival where it has none that is possible."""
        known = self.offsets.get(node)
        if known is not None and not live(at, wall):
            at += known.ns
        return at if possible(at, wall) else wall
