"""Status messages and commands of a collector. Pure."""

from __future__ import annotations

from collector.config import CollectorConfig
from telemetry.errors import WireError
from telemetry.wire import inventory as messages
from telemetry.wire.border import decode_command, decode_status
from telemetry.wire.inventory import CollectorStatus, Command, FrameSpan, NodeState

MOST_SPANS = 256
"""Spans in a status: bounds its size when a disk fails every other second."""


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
    """Return one span per session, from its first frame to its last. Frames missing in between are
    reported in the reply to a request; frames outside of all spans count as lost at once."""
    found: dict[int, FrameSpan] = {}
    for span in spans:
        other = found.get(span.session, span)
        found[span.session] = FrameSpan(span.session, min(span.first, other.first), max(span.last, other.last))
    return tuple(found.values())


def shape(spans: tuple[FrameSpan, ...]) -> list[tuple[int, int]]:
    """Return where spans begin, to notice changes: the end of the last changes with every frame."""
    return [(span.session, span.first) for span in spans]


def received(payload: object) -> CollectorStatus:
    """Decode a status that came on our own topic. Raises `WireError` when it is invalid."""
    if not isinstance(payload, bytes):
        raise WireError("malformed", "a status that is no bytes")
    return decode_status(payload)


def command(payload: object) -> Command:
    """Decode a command. Raises `WireError` when it is invalid."""
    if not isinstance(payload, bytes):
        raise WireError("malformed", "a command that is no bytes")
    return decode_command(payload)
