"""The themes, computed: contrast of every tone, and the states as colour-blind people see them."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from rich.cells import cell_len
from rich.color import Color
from rich.style import Style

from tui.kit.text import clean, fit
from tui.kit.theme import CONTRAST, DARK, LIGHT, MONO, SIXTEEN, STATES, THEMES, Theme, Tones, luminance

COLOURED = [DARK, LIGHT, CONTRAST]
GRAPHIC = {"bar", "bar_warn", "bar_crit", "faint", "frame"}
"""Tones of bars and frames: no text, so 3:1 is enough; what is `faint` or a frame carries nothing."""
SIMULATIONS = {
    "normal": np.eye(3),
    "protan": np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]),
    "deutan": np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]),
    "tritan": np.array([[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]),
}  # fmt: skip
"""Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB."""


def contrast(one: str, other: str) -> float:
    """WCAG's contrast of two colours, 1 to 21."""
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def hexes(style: Style, background: str) -> tuple[str, str]:
    """Colour of the text and of what is behind it."""

    def of(colour: Color | None, otherwise: str) -> str:
        return otherwise if colour is None or colour.triplet is None else colour.triplet.hex

    return of(style.color, "#ffffff"), of(style.bgcolor, background)


def lab(colour: str, simulation: str) -> np.ndarray:
    """CIE L*a*b* of a colour under a simulated colour vision."""
    rgb = np.array([int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    linear = np.clip(SIMULATIONS[simulation] @ linear, 0, 1)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ linear
    f = xyz / np.array([0.95047, 1.0, 1.08883])
    f = np.where(f > 0.008856, np.cbrt(f), 7.787 * f + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def distance(one: str, other: str, simulation: str) -> float:
    """CIE76."""
    return float(np.linalg.norm(lab(one, simulation) - lab(other, simulation)))


@pytest.mark.parametrize("theme", COLOURED, ids=lambda theme: theme.name)
@pytest.mark.parametrize("behind", ["", "cursor", "panel"])
def test_every_text_has_enough_contrast_on_everything_it_stands_on(theme: Theme, behind: str) -> None:
    background = {"": theme.background, "cursor": theme.selection, "panel": theme.panel}[behind]
    tones = Tones(theme)
    found = {name: contrast(*hexes(tones[name], background)) for name in theme.tones if name not in GRAPHIC}
    assert not {name: round(ratio, 2) for name, ratio in found.items() if ratio < 4.5}


@pytest.mark.parametrize("theme", COLOURED, ids=lambda theme: theme.name)
def test_bars_can_be_told_from_their_ground(theme: Theme) -> None:
    tones = Tones(theme)
    for name in ("bar", "bar_warn", "bar_crit"):
        assert contrast(*hexes(tones[name], theme.background)) >= 3


@pytest.mark.parametrize("theme", COLOURED, ids=lambda theme: theme.name)
def test_digits_are_legible_on_every_shade(theme: Theme) -> None:
    tones = Tones(theme)
    for level in range(8):
        assert contrast(*hexes(tones[f"on_r{level}"], theme.background)) >= 4.5


@pytest.mark.parametrize("simulation", SIMULATIONS)
@pytest.mark.parametrize("theme", COLOURED, ids=lambda theme: theme.name)
def test_states_differ_for_everybody(theme: Theme, simulation: str) -> None:
    tones = Tones(theme)
    seen = {}
    for state in STATES:
        colour, behind = hexes(tones[state], theme.background)
        seen[state] = colour if behind == theme.background else behind
    close = {
        pair: round(distance(seen[pair[0]], seen[pair[1]], simulation), 1)
        for pair in combinations(STATES, 2)
        if distance(seen[pair[0]], seen[pair[1]], simulation) < 9
    }
    assert not close
    assert distance(seen["warn"], seen["crit"], simulation) >= 20


@pytest.mark.parametrize("simulation", SIMULATIONS)
@pytest.mark.parametrize("theme", COLOURED, ids=lambda theme: theme.name)
def test_every_step_of_the_ramp_is_seen_by_everybody(theme: Theme, simulation: str) -> None:
    assert len(theme.ramp) == 8
    assert all(distance(a, b, simulation) >= 8 for a, b in pairwise(theme.ramp))
    light = [lab(shade, simulation)[0] for shade in theme.ramp]
    assert light == sorted(light, reverse=not theme.dark)


def test_every_theme_has_every_tone() -> None:
    assert all(set(theme.tones) == set(DARK.tones) for theme in THEMES.values())


@pytest.mark.parametrize("tone", [*DARK.tones, "r0", "on_r7", "r1/r2", "none"])
def test_without_colour_no_tone_has_one(tone: str) -> None:
    style = Tones(MONO)[tone]
    assert style.color is None
    assert style.bgcolor is None


def test_sixteen_colours_are_named_ones() -> None:
    styles = [Tones(SIXTEEN)[tone] for tone in SIXTEEN.tones]
    named = [c for style in styles for c in (style.color, style.bgcolor) if c is not None]
    assert named
    assert all(colour.number is not None and colour.number < 16 for colour in named)


def test_a_terminal_without_unicode_gets_one_sign_for_each() -> None:
    text = "▲ CRIT \u00d7 ▒ ● — │┤╭─╮ █▌▁▂ ⠁⣿ ▀ ✓ ° …"
    line_text = Tones(DARK, ascii_only=True).as_text(text)
    assert len(line_text) == len(text)
    assert line_text.isascii()
    assert Tones(DARK).as_text(text) == text


def test_a_strip_has_the_given_width_whatever_its_text() -> None:
    tones = Tones(DARK)
    for line_text in ("", "short", "a" * 200, "名" * 30, clean("\x1b[2J" * 100)):
        assert tones.strip([(line_text, "")], 40).cell_length == 40
    assert cell_len(fit("名" * 30, 7)) == 7


def test_what_is_no_longer_true_is_faded() -> None:
    strip = Tones(DARK).strip([("412 W", "crit")], 10, faded=True)
    assert all(segment.style is not None and segment.style.dim for segment in strip)
