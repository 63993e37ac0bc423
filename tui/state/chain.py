"""The power chain as a tree: each piece below the one that feeds it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from api.chain import ChainKind, ChainPiece, ChainReply
from tui.state.dashboard_state import DashboardState
from tui.state.documents import CHAIN


@dataclass(frozen=True, slots=True)
class ChainRow:
    """A line of the tree."""

    lead: str
    """Signs of the tree before its name."""
    piece: ChainPiece


def chain_tree(pieces: Sequence[ChainPiece], without: Collection[ChainKind] = (ChainKind.GPU,)) -> list[ChainRow]:
    """Return the pieces but for those of some kinds, each below the one that feeds it now; a node below every circuit
    that feeds it."""
    wanted = [one for one in pieces if one.kind not in without]
    there = {one.id for one in wanted}
    below: dict[str, list[ChainPiece]] = {}
    for one in wanted:
        feeds = [each for each in one.parents if each in there]
        for each in (feeds if one.kind is ChainKind.NODE else feeds[:1]) or [""]:
            below.setdefault(each, []).append(one)
    found: list[ChainRow] = []

    def walk(parent: str, lead: str) -> None:
        its = below.get(parent, [])
        for place, one in enumerate(its):
            last = place == len(its) - 1
            found.append(ChainRow(f"{lead}{('└ ' if last else '├ ') if parent else ''}", one))
            walk(one.id, f"{lead}{('  ' if last else '│ ') if parent else ''}")

    walk("", "")
    return found


def chain_rows(state: DashboardState, room: int) -> list[ChainRow]:
    """Return the tree in at most `room` lines, without nodes and then without sources where these do not fit; nothing
    where it has not all circuits, or is not known: the list of the most urgent says more then."""
    reply = state.doc(CHAIN, ChainReply)
    if reply is None or reply.folded or state.circuits_unknown:
        return []
    drawn = {one.name for one in reply.pieces if one.kind not in _NO_CIRCUITS}
    if not drawn or {one.id for one in state.circuits} - drawn:
        return []
    for without in _WITHOUT[reply.left_out > 0 :]:
        found = chain_tree(reply.pieces, without)
        if len(found) <= room:
            return found
    return []


_NO_CIRCUITS = {ChainKind.SOURCE, ChainKind.NODE, ChainKind.GPU}
_WITHOUT = ({ChainKind.GPU}, {ChainKind.GPU, ChainKind.NODE}, _NO_CIRCUITS)
"""Kinds that are left out, one after the other; GPUs always: the map has them."""
