"""The power chain from sources to GPUs: `/api/v1/power/chain`."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from api.power import TripSeconds


class ChainKind(StrEnum):
    """Kind of a piece of the power chain."""

    SOURCE = "source"
    TRANSFORMER = "transformer"
    PANEL = "panel"
    UPS = "ups"
    TRANSFER = "transfer"
    CIRCUIT = "circuit"
    NODE = "node"
    GPU = "gpu"


class ChainState(StrEnum):
    """State of a piece of the power chain: what flows through it."""

    FLOWS = "flows"
    OVER = "over"
    """Above the rating of its breaker."""
    ASSUMED = "assumed"
    """A part of its load is assumed: of silent nodes and unread GPUs."""
    IDLE = "idle"
    """No current."""
    OPEN = "open"
    """Its breaker has probably tripped."""
    LOST = "lost"
    """Nothing is read on it, and a breaker that feeds it is open; of a node or GPU, all that feed it are."""
    UNKNOWN = "unknown"


class ChainLoad(StrEnum):
    """How the load of a piece is known."""

    MEASURED = "measured"
    MODELLED = "modelled"
    """From the driver's watts and a model of the rest."""
    LAST_KNOWN = "last known"
    """A meter or node is silent: its last load."""
    ASSUMED = "assumed"
    """A part of it, or all, is the most that silent nodes and unread GPUs may draw."""
    PARTIAL = "partial"
    """The watts are those of a part: it draws at least that."""
    UNKNOWN = "unknown"


class ChainPiece(msgspec.Struct, frozen=True, kw_only=True):
    """A source, an element of the tree, a node or a GPU."""

    id: str
    """`kind/name`, of its own in the chain: a circuit and a node may have one name. All elements that have breakers are
    `circuit/NAME`."""
    kind: ChainKind
    name: str
    """As other operations have it: of a GPU its UUID."""
    label: str
    parents: list[str] = []
    """Pieces that can feed it, the one in use first, or all of them together; empty where the site does not name what
    feeds it."""
    state: ChainState
    load: ChainLoad
    watts: float | None = None
    """Of a circuit the mean of about the last ten seconds, of a node now and at the wall, of a GPU as its driver says.
    Null is not known, and of a source always."""
    assumed_watts: float | None = None
    """The part of `watts` that is assumed."""
    amps: float | None = None
    """Of the highest pole of a circuit, in the same ten seconds."""
    load_ratio: float | None = None
    """`amps` over `rated_amps`, 0 and more."""
    rated_amps: float | None = None
    continuous_amps: float | None = None
    """Current that it may carry for three hours and more."""
    limit_watts: float | None = None
    """Power limit of a GPU."""
    trip_known: bool = False
    """Whether the breaker's curve is known, so that null times to trip are never."""
    trip_seconds: TripSeconds = TripSeconds()
    group: str | None = None
    """The redundant group that a circuit belongs to."""
    severity: str = ""
    """The worst of what fires on it: `page`, `ticket`, or nothing."""


class ChainReply(msgspec.Struct, frozen=True, kw_only=True):
    """The power chain as the web pages draw it: all of a small site, else one branch."""

    cluster: str = ""
    at: int = 0
    """ns since 1970, of the tick that it is computed from; 0 before the first."""
    around: str = ""
    """The circuit whose branch was requested; nothing for the most urgent one's, or all."""
    pieces: list[ChainPiece] = []
    """Parents before children; the circuits with nodes, nodes and GPUs in the order in which they are drawn."""
    folded: int = 0
    """Circuits with nodes that are in no piece."""
    left_out: int = 0
    """Nodes of these circuits that are in no piece."""
