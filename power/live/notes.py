"""Notes on a configuration (E24), at the lines that they are about."""

from __future__ import annotations

import re

from power.layout import Layout

_ABOUT = re.compile(r"(circuits|nodes)\.(.+?): ")


def notes_of(layout: Layout) -> dict[str, list[str]]:
    """Return the notes by line; one about a node stands at all of its feeds, one about a node on no
    circuit at none."""
    feeds: dict[str, set[str]] = {}
    for cord in layout.cords:
        feeds.setdefault(cord.machine, set()).add(cord.line)
    found: dict[str, list[str]] = {}
    for notice in layout.notices:
        about = _ABOUT.match(notice)
        if about is None:
            continue
        lines = {about[2]} if about[1] == "circuits" else feeds.get(about[2], set())
        for line in lines & layout.lines.keys():
            found.setdefault(line, []).append(notice)
    return found
