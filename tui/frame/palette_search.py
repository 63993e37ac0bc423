"""The search of the palette: views, nodes, GPUs, circuits, incidents, themes and keys. Pure."""

from __future__ import annotations

from collections.abc import Callable

from tui.keys import KEYS
from tui.kit.theme import THEMES
from tui.state.dashboard_state import DashboardState

MOST = 40
Found = tuple[str, str, str]
"""Kind, text, and name or key."""
_VIEWS = ("overview", "nodes", "gpus", "circuits", "alerts", "pools", "energy", "jobs", "fleet")
_DEEDS = {
    "time",
    "pause",
    "live",
    "export",
    "tray",
    "utc",
    "reconnect",
    "help",
    "quit",
    "faults",
    "metric",
    "zoom",
    "group",
}


def find(state: DashboardState, text: str) -> list[Found]:
    """Return everything whose name has all words of a text, best first, `MOST` at most: then what has
    their parts in order, as `dgx02` those of `dgx-h100-02`."""
    words = text.casefold().split()
    found: list[Found] = [("view", name, name) for name in _VIEWS]
    found += [("key", f"{key.word} ({key.shown})", key.action) for key in KEYS if key.action in _DEEDS]
    found += [("theme", name, name) for name in THEMES]
    hits: dict[tuple[str, str], Found] = {}
    for fits in (_fits, _fits_in_parts):
        near = [each for each in found if fits(f"{each[0]} {each[1]}", words)]
        if words and len(hits) < MOST:
            near += _things(state, words, fits)
        for each in near:
            hits.setdefault((each[0], each[2]), each)
    return list(hits.values())[:MOST]


def _things(state: DashboardState, words: list[str], fits: Callable[[str, list[str]], bool]) -> list[Found]:
    found: list[Found] = [("node", n.node, n.node) for n in state.nodes if fits(f"node {n.node}", words)]
    found += [("circuit", c.id, c.id) for c in state.circuits if fits(f"circuit {c.id}", words)]
    found += [("incident", i.title, i.key) for i in state.incidents if fits(f"alert {i.title}", words)]
    who = state.gpus.who
    exact = fits is _fits
    for row, uuid in enumerate(who.uuid):
        if len(found) >= 2 * MOST:
            break
        name = f"{who.node[row]}/gpu{who.gpu[row]}"
        if fits(f"gpu {name} {uuid}" if exact else f"gpu {name}", words):
            found.append(("gpu", f"{name}  {uuid}", uuid))
    # The whole name first, then what begins with the text.
    text = " ".join(words)
    return sorted(found, key=lambda f: (f[1].casefold() != text, not f[1].casefold().startswith(text)))


def _fits(text: str, words: list[str]) -> bool:
    folded = text.casefold()
    return all(word in folded for word in words)


def _fits_in_parts(text: str, words: list[str]) -> bool:
    folded = text.casefold()
    return all(_in_parts(folded, word) for word in words if word not in folded)


def _in_parts(text: str, word: str) -> bool:
    """Return whether a text has the signs of a word in their order, where each is next to the one before
    or begins a part of the text: a run of letters or of digits. Both are in lower case."""
    rest = iter(text)
    if not all(sign in rest for sign in word):
        return False
    ends = {-1}
    for first, sign in enumerate(word):
        ends = {
            place
            for place, other in enumerate(text)
            if other == sign and ((first and place - 1 in ends) or (_begins(text, place) and place > min(ends)))
        }
        if not ends:
            return False
    return True


def _begins(text: str, place: int) -> bool:
    if not place:
        return True
    before, here = text[place - 1], text[place]
    return not before.isalnum() or before.isdigit() != here.isdigit()
