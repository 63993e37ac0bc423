"""The colours of the pages: words can be read on every surface of their theme, and marks be seen."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

import aggregator.web

TOKENS = Path(aggregator.web.__file__).with_name("static") / "tokens.css"
SURFACES = ("bg", "surface", "sunk")
WORDS = {
    "ink": (*SURFACES, "page-soft", "warn-soft", "ok-soft", "h0", "h1", "h2"), "ink-2": SURFACES, "accent": SURFACES,
    "page-ink": (*SURFACES, "page-soft"), "warn-ink": (*SURFACES, "warn-soft"), "ok-ink": (*SURFACES, "ok-soft"),
    "unk-ink": SURFACES, "on-page": ("page",), "on-mid": ("h3",), "on-high": ("h4", "h5"),
}  # fmt: skip
MARKS = {"page": ("surface",), "warn": ("surface",), "ok": ("surface",), "unk": ("surface",), "flow": ("surface", "sunk")}  # fmt: skip
STEPS = [f"h{step}" for step in range(6)]


def colours(theme: int) -> dict[str, str]:
    """Return the colours of the light (0) or the dark (1) theme by the names of their tokens."""
    found = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\);", TOKENS.read_text())
    return {name: pair[theme] for name, *pair in found}


def light(colour: str) -> float:
    """Return the relative luminance of a colour, by WCAG 2."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [each / 12.92 if each <= 0.03928 else ((each + 0.055) / 1.055) ** 2.4 for each in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, 1 to 21."""
    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(("least", "pairs"), [(4.5, WORDS), (3.0, MARKS)], ids=["words", "marks"])
def test_words_and_marks_stand_out(theme: int, least: float, pairs: dict[str, tuple[str, ...]]) -> None:
    its = colours(theme)
    faint = [
        f"{name} on {ground}: {contrast(its[name], its[ground]):.2f}"
        for name, grounds in pairs.items()
        for ground in grounds
        if contrast(its[name], its[ground]) < least
    ]
    assert faint == []


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_the_scale_of_the_map_is_told_apart_by_lightness(theme: int) -> None:
    """Each step goes on in the same direction, and by enough to be seen without colours."""
    its = [light(colours(theme)[step]) for step in STEPS]
    assert its in (sorted(its), sorted(its, reverse=True))
    steps = [contrast(colours(theme)[one], colours(theme)[other]) for one, other in pairwise(STEPS)]
    assert min(steps) > 1.15
