"""Edges: what the replicated log of incidents has, one after the other.

Members and the site append what their rules find, people's acknowledgements and silences, and ticks of
time. Every candidate for the site role folds the same edges through the same incident manager.
"""

from __future__ import annotations

import msgspec

from api.alerts import Alert, Matcher
from telemetry.text.decoders import of_msgpack

SUBJECT = "edges"
"""First word of the log's subjects of edges."""


class AlertEdge(msgspec.Struct, frozen=True, tag="alerts", omit_defaults=True):
    """Alerts that began to fire, changed or resolved."""

    evaluator: str
    """Who evaluated the rules: `site`, or a shard group."""
    epoch: int
    """Epoch under which it does; what comes under a lower one afterwards is left out."""
    alerts: tuple[Alert, ...]
    recovering: tuple[str, ...] = ()
    """Keys of alerts that fire only because their `keep` has not passed."""


class RestatedEdge(msgspec.Struct, frozen=True, tag="restated", omit_defaults=True):
    """The alerts that fire by one evaluator, repeated every 30 s: nothing in the log is the only copy."""

    evaluator: str
    epoch: int
    firing: tuple[Alert, ...]
    complete: bool = False
    """Whether what the evaluator said before and does not say now is over; not until its rules have run for
    longer than they hold an alert back."""


class AcknowledgeEdge(msgspec.Struct, frozen=True, tag="acknowledge", omit_defaults=True):
    """A person acknowledges an incident."""

    key: str
    who: str
    why: str = ""
    until: int | None = None


class UnacknowledgeEdge(msgspec.Struct, frozen=True, tag="unacknowledge", omit_defaults=True):
    """A person removes an acknowledgement."""

    key: str
    who: str
    why: str = ""


class SilenceEdge(msgspec.Struct, frozen=True, tag="silence", omit_defaults=True):
    """A person silences alerts, or plans a maintenance window."""

    matchers: tuple[Matcher, ...]
    who: str
    why: str
    ends: int
    starts: int | None = None
    maintenance: bool = False


class UnsilenceEdge(msgspec.Struct, frozen=True, tag="unsilence"):
    """A person ends a silence."""

    key: str
    who: str


class TickEdge(msgspec.Struct, frozen=True, tag="tick"):
    """Time passes: the leader appends one when something is due, so that all see it due at once."""


Edge = AlertEdge | RestatedEdge | AcknowledgeEdge | UnacknowledgeEdge | SilenceEdge | UnsilenceEdge | TickEdge

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[Edge] = of_msgpack(Edge)


def encode(edge: Edge) -> bytes:
    """Return an edge as MessagePack."""
    return _ENCODER.encode(edge)


def decode(payload: bytes) -> Edge:
    """Return an edge. Raises `msgspec.MsgspecError`, also for a kind of a later release."""
    return _DECODER.decode(payload)
