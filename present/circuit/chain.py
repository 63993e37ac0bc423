"""Words of the pieces of the power chain, for the diagram of the web pages and the tree of the terminal. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from api.chain import ChainLoad, ChainPiece, ChainState
from present.row import FactRow, Tone
from present.units import at_least, roughly, watts
from telemetry.text import ABSENT

NO_SHARE: Mapping[ChainState, str] = {
    ChainState.OPEN: "open",
    ChainState.LOST: "no power",
    ChainState.UNKNOWN: "load not known",
}
"""Words in place of a share of the rating."""
DARK = frozenset({ChainState.OPEN, ChainState.LOST})
"""States of what carries nothing because of a breaker."""
_FOLDED: Mapping[ChainState, str] = {
    ChainState.OVER: "over the rating",
    **NO_SHARE,
    ChainState.ASSUMED: "assumed in part",
}
"""Words of what is counted of circuits that are not drawn, the worst first."""


def folded_words(states: Iterable[ChainState]) -> str:
    """Return how many of some circuits are in which state that needs a look."""
    found = Counter(states)
    return (
        ", ".join(f"{found[state]:,} {words}" for state, words in _FOLDED.items() if found[state])
        or "none of them over the rating, open or not known"
    )


def node_row(piece: ChainPiece) -> FactRow:
    """Return the load of a node of the chain at the wall, with how it is known where it is not measured."""
    if piece.state in DARK:
        return FactRow(piece.label, NO_SHARE[piece.state], Tone.CRIT, short=ABSENT)
    if piece.watts is None or piece.load is ChainLoad.UNKNOWN:
        return FactRow(piece.label, NO_SHARE[ChainState.UNKNOWN], Tone.STALE, short=ABSENT)
    words = watts(piece.watts)
    match piece.load:
        case ChainLoad.MEASURED | ChainLoad.MODELLED:
            return FactRow(piece.label, words)
        case ChainLoad.PARTIAL:
            return FactRow(piece.label, at_least(words, partial=True), Tone.STALE)
        case ChainLoad.ASSUMED:
            return FactRow(piece.label, f"{roughly(words, partial=True)}, assumed", Tone.STALE)
        case ChainLoad.LAST_KNOWN:
            return FactRow(piece.label, f"{words}, last known", Tone.STALE)
