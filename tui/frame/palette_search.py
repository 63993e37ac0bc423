"""The search of the palette: views, nodes, GPUs, circuits, incidents, themes and keys. Pure."""

from __future__ import annotations

from tui.keys import KEYS
from tui.state.dashboard_state import DashboardState
from tui.theme import THEMES

MOST = 40
Found = tuple[str, str, str]
"""Kind, text, and name or key."""
_VIEWS = ("overview", "nodes", "gpus", "circuits", "alerts", "pools", "energy")
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
    """Return everything whose name has all words of a text, best first, `MOST` at most."""
    words = text.casefold().split()
    found: list[Found] = [("view", name, name) for name in _VIEWS]
    found += [
        ("key", f"{key.word} ({key.shown})", key.action) for key in KEYS if key.action in _DEEDS
    ]
    found += [("theme", name, name) for name in THEMES]
    hits = [each for each in found if _fits(f"{each[0]} {each[1]}", words)]
    if words:
        hits += _things(state, words)
    return hits[:MOST]


def _things(state: DashboardState, words: list[str]) -> list[Found]:
    found: list[Found] = [
        ("node", n.node, n.node) for n in state.nodes if _fits(f"node {n.node}", words)
    ]
    found += [("circuit", c.id, c.id) for c in state.circuits if _fits(f"circuit {c.id}", words)]
    found += [
        ("incident", i.title, i.key) for i in state.incidents if _fits(f"alert {i.title}", words)
    ]
    who = state.gpus.who
    for row, uuid in enumerate(who.uuid):
        if len(found) >= 2 * MOST:
            break
        name = f"{who.node[row]}/gpu{who.gpu[row]}"
        if _fits(f"gpu {name} {uuid}", words):
            found.append(("gpu", f"{name}  {uuid}", uuid))
    # The whole name first, then what begins with the text.
    text = " ".join(words)
    return sorted(
        found, key=lambda f: (f[1].casefold() != text, not f[1].casefold().startswith(text))
    )


def _fits(text: str, words: list[str]) -> bool:
    folded = text.casefold()
    return all(word in folded for word in words)
