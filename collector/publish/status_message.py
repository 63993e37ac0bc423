"""The status that a collector publishes about itself, and the commands that it understands. Pure."""

from __future__ import annotations

from collector.config import CollectorConfig
from telemetry import inventory as messages
from telemetry.errors import WireError
from telemetry.inventory import CollectorStatus, Command, FrameSpan, NodeState

MOST_SPANS = 256
"""Spans in a status: a disk that fails every other second must not swell it."""
MOST_COMMAND_BYTES = 64 * 1024


def status(
    config: CollectorConfig,
    session: int,
    now_ns: int,
    state: NodeState,
    reason: str = "",
    spans: tuple[FrameSpan, ...] = (),
) -> bytes:
    """Return the status message."""
    return messages.encode(
        CollectorStatus(
            state=state,
            session=session,
            interval=config.interval,
            slow_interval=config.slow_interval,
            at=now_ns,
            reason=reason,
            ring=spans if len(spans) <= MOST_SPANS else outlines(spans),
        )
    )


def outlines(spans: tuple[FrameSpan, ...]) -> tuple[FrameSpan, ...]:
    """Return one span per session, from its first frame to its last. What is missing between them
    is told in the answer to a request; what is not named at all would be given up at once."""
    found: dict[int, FrameSpan] = {}
    for span in spans:
        other = found.get(span.session, span)
        found[span.session] = FrameSpan(
            span.session, min(span.first, other.first), max(span.last, other.last)
        )
    return tuple(found.values())


def shape(spans: tuple[FrameSpan, ...]) -> list[tuple[int, int]]:
    """Where spans begin: what a reader must know. Where the last ends changes with every frame."""
    return [(span.session, span.first) for span in spans]


def command(payload: object) -> Command:
    """Read a command. Raises `WireError` for what is none."""
    if not isinstance(payload, bytes) or len(payload) > MOST_COMMAND_BYTES:
        raise WireError("oversize", "a command")
    found = messages.decode(payload, Command)
    if not 0 <= found.first <= found.last or found.about < 0:
        raise WireError("malformed", f"frames {found.first} to {found.last}")
    return found
