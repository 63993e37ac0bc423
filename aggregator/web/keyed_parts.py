"""The parts of a page that change by themselves: elements whose first attribute is `data-k`.

A key need be unique only within the part around it: in the page that is served it has the keys of all around it before
it, so that a script finds the element by its key alone. Pure.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_TAGS = re.compile(r'<(/?)(a|caption|div|figure|header|li|main|p|section|span|svg|tbody|tr|ul)\b(?: data-k="([^"]*)")?')
"""Begins and ends of the elements that may be parts."""


@dataclass(slots=True)
class PagePart:
    """An element of a page, apart from the parts in it."""

    key: str
    """As in HTML; "" is the page itself."""
    shell: list[str] = field(default_factory=list)
    """HTML before, between and behind its parts."""
    parts: dict[str, PagePart] = field(default_factory=dict)
    """By key, in the order of the page."""

    def whole(self) -> str:
        """Return the element with all that is in it."""
        return "".join(_pieces(self))


def _pieces(part: PagePart) -> Iterator[str]:
    inside = iter(part.parts.values())
    for number, shell in enumerate(part.shell):
        if number:
            yield from _pieces(next(inside))
        yield shell


def parts_of(page: str) -> PagePart:
    """Return a page as its parts. Of two with one key the second is none: it changes with the part that it is in."""
    around = [PagePart("")]
    opened: list[bool] = []
    begin, at = "", 0
    for tag in _TAGS.finditer(page):
        closing, name, key = tag.groups()
        if closing:
            if opened.pop():
                end = tag.end() + 1
                around.pop().shell.append(begin + page[at:end])
                begin, at = "", end
            continue
        inside = around[-1]
        found = f"{inside.key}/{key}".lstrip("/") if key else ""
        opened.append(bool(found) and found not in inside.parts)
        if opened[-1]:
            inside.shell.append(begin + page[at : tag.start()])
            begin, at = f'<{name} data-k="{found}"', tag.end()
            part = inside.parts[found] = PagePart(found)
            around.append(part)
    around[0].shell.append(begin + page[at:])
    return around[0]


def changes(now: PagePart, before: PagePart) -> dict[str, str]:
    """Return the parts that differ from those of another time, whole, by key: the smallest that have all of it."""
    if now.shell != before.shell or list(now.parts) != list(before.parts):
        return {html.unescape(now.key): now.whole()}
    found = {}
    for key, part in now.parts.items():
        found.update(changes(part, before.parts[key]))
    return found
