"""Icons of states: each has a shape of its own, so that no state is told by its colour alone."""

from __future__ import annotations

from aggregator.web.markup import text

_SHAPES = {
    "page": '<path fill="currentColor" fill-rule="evenodd" d="M5 .8h6L15.2 5v6L11 15.2H5L.8 11V5zM7.1 3.6l.3 5.6h1.2l.3-5.6zM6.9 11.5a1.1 1.1 0 102.2 0 1.1 1.1 0 10-2.2 0z"/>',
    "ticket": '<path fill="currentColor" fill-rule="evenodd" d="M8 1.2L15.6 14.6H.4zM7.2 5.6l.25 4.4h1.1l.25-4.4zM7 12a1 1 0 102 0 1 1 0 10-2 0z"/>',
    "well": '<path fill="currentColor" fill-rule="evenodd" d="M8 .8a7.2 7.2 0 110 14.4A7.2 7.2 0 018 .8zM4 8.3l2.9 3 5.1-5.8-1-.9-4.1 4.7-1.9-2z"/>',
    "unknown": '<circle cx="8" cy="8" r="6.8" fill="none" stroke="currentColor" stroke-width="1.4" stroke-dasharray="2.4 1.9"/><path fill="none" stroke="currentColor" stroke-width="1.5" d="M6 6.3c.1-2.5 4.2-2.4 4.1 0 0 1.5-2.1 1.5-2.1 3.2"/><circle cx="8" cy="11.7" r=".95" fill="currentColor"/>',
}
HATCHES = (
    '<svg class="sprite" aria-hidden="true"><defs>'
    '<pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse"><path class="hatching" d="M-1 1L1-1M0 5L5 0M4 6L6 4"/></pattern>'
    '<pattern id="hatch-flow" width="5" height="5" patternUnits="userSpaceOnUse"><path class="hatching flow" d="M-1 1L1-1M0 5L5 0M4 6L6 4"/></pattern>'
    "</defs></svg>"
)
"""Patterns of what is not known and of what is assumed: of a page, once."""


def icon(state: str) -> str:
    """Return the icon of `page`, `ticket`, `well` or `unknown`; nothing for another state."""
    shape = _SHAPES.get(state, "")
    return f'<svg viewBox="0 0 16 16" aria-hidden="true">{shape}</svg>' if shape else ""


def badge(state: str, words: str) -> str:
    """Return a state as icon and word."""
    return f'<span class="badge {text(state)}">{icon(state)}{text(words)}</span>'
