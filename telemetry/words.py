"""Counts as people read them. Pure."""

from __future__ import annotations


def counted(count: int, word: str) -> str:
    """Return how many of a thing there are: `1 page`, `1,250 pages`."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def all_firing(firing: int, total: int) -> str:
    """Return how many of an incident's alerts fire: `2 of 5 alerts fire`, `its alert fires`."""
    if total <= 1:
        return "its alert fires" if firing else "its alert is over"
    return f"{firing:,} of {total:,} alerts fire{'s' if firing == 1 else ''}"
